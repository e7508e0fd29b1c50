//! `--chat-template`: a template in the place of the model file's own.

use crate::error::Error;
use crate::load::Loaded;
use arclight_server::ChatStyle;
use chat::{named_template, named_templates};
use std::str::FromStr;
use tokenizer::ChatTemplate;

/// A template that was named, or read from a file.
#[derive(Clone, Debug)]
pub(crate) struct GivenTemplate {
    source: String,
    /// The text behind which an answer is over.
    end: Option<&'static str>,
}

impl FromStr for GivenTemplate {
    type Err = String;

    fn from_str(text: &str) -> Result<GivenTemplate, String> {
        if let Some(named) = named_template(text) {
            return Ok(GivenTemplate { source: named.source.to_owned(), end: Some(named.end) });
        }
        let names: Vec<&str> = named_templates().map(|template| template.name).collect();
        let source = std::fs::read_to_string(text).map_err(|e| {
            format!("it is neither a file that can be read ({e}) nor one of {}", names.join(", "))
        })?;
        // Its syntax is told before a model is loaded.
        ChatTemplate::new(&source, None, None).map_err(|e| e.to_string())?;
        Ok(GivenTemplate { source, end: None })
    }
}

impl GivenTemplate {
    /// Its text.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// A model talks by it from now on.
    pub(crate) fn replace(&self, loaded: &mut Loaded) -> Result<(), Error> {
        let tokenizer = &loaded.tokenizer;
        let text = |id: Option<u32>| {
            id.and_then(|id| tokenizer.token_bytes(id))
                .map(|b| String::from_utf8_lossy(b).into_owned())
        };
        let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
        let template = ChatTemplate::new(&self.source, bos.as_deref(), eos.as_deref())?;
        loaded.template = Some(template);
        Ok(())
    }

    /// The texts that end an answer: those of the command, and the template's own.
    pub(crate) fn stops(given: Option<&GivenTemplate>, stop: &[String]) -> Vec<String> {
        let end = given.and_then(|given| given.end).map(str::to_owned);
        stop.iter().cloned().chain(end).collect()
    }

    /// The same for a server.
    pub(crate) fn style(given: Option<GivenTemplate>) -> ChatStyle {
        match given {
            Some(GivenTemplate { source, end }) => {
                ChatStyle { template: Some(source), end, ..ChatStyle::default() }
            }
            None => ChatStyle::default(),
        }
    }
}
