//! Chat templates, the model file's own or that of `--chat-template`, and the prompts that they make.

use crate::error::Error;
use crate::load::Loaded;
use arclight_engine::ModelFile;
use arclight_server::ChatStyle;
use chat::{named_template, named_templates};
use clap::{Args, ValueHint};
use serde_json::Value as Json;
use std::str::FromStr;
use tokenizer::{ChatTemplate, Escaper, Message, RenderOptions, Rendered};

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

/// What goes into a chat template besides the conversation.
#[derive(Args, Clone, Debug)]
pub(crate) struct TemplateArgs {
    /// System message: what the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Ask the model not to think before it answers (enable_thinking=false to the template)
    #[arg(long)]
    pub(crate) no_think: bool,
    /// Template of conversations in the place of the model file's own: a file in Jinja, or one of chatml, gemma,
    /// llama3, mistral, plain
    #[arg(long, value_name = "FILE|NAME", value_hint = ValueHint::FilePath)]
    pub(crate) chat_template: Option<GivenTemplate>,
    /// Read names of control tokens in messages, tools and results as these tokens
    #[arg(long)]
    pub(crate) parse_special: bool,
}

/// Settings of a prompt besides the conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rendering {
    /// Ask the model not to think.
    pub(crate) no_think: bool,
    /// The escape character of the messages.
    pub(crate) escape: Option<char>,
}

impl Rendering {
    /// The same for a template.
    pub(crate) fn options(self) -> RenderOptions {
        let Rendering { no_think, escape } = self;
        let mut options =
            RenderOptions { add_generation_prompt: true, escape, ..RenderOptions::default() };
        if no_think {
            options.extra.insert("enable_thinking".to_owned(), false.into());
        }
        options
    }
}

/// The prompt that a conversation makes, up to where the model answers.
///
/// # Errors
/// When there is no template, or it refuses the conversation.
pub(crate) fn render(
    template: Option<&ChatTemplate>,
    messages: &[Message],
    rendering: Rendering,
) -> Result<Rendered, Error> {
    let template = template.ok_or_else(no_template)?;
    let text = template.render(messages, &rendering.options())?;
    Ok(Rendered { text, escape: rendering.escape })
}

/// Escapes messages before they are rendered; the escape character, if there was anything to escape.
///
/// # Errors
/// When the messages use all characters for that.
pub(crate) fn escape(
    escaper: Option<&Escaper>,
    messages: &mut [Message],
    tools: &mut [Json],
) -> Result<Option<char>, Error> {
    let Some(escaper) = escaper else { return Ok(None) };
    Ok(escaper.escape(messages, tools, &mut serde_json::Map::new())?)
}

/// Finds out that there is no template before a model is loaded for nothing.
pub(crate) fn require_template(file: &ModelFile) -> Result<(), Error> {
    match file.gguf()?.metadata().get("tokenizer.chat_template") {
        Some(_) => Ok(()),
        None => Err(no_template()),
    }
}

pub(crate) fn no_template() -> Error {
    Error::Refused(
        "the model has no chat template: use --chat-template, or `arclight run` without --chat"
            .to_owned(),
    )
}
