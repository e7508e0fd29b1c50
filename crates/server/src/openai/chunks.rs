//! What OpenAI's streams have in common: chunks, the usage in them, and how they end.
//!
//! With `include_usage` every chunk has `usage: null`, until a last one without choices has it. The
//! end is `[DONE]`, also behind an error.

use super::wire::{Head, Usage};
use crate::fault::Fault;
use crate::http::Frame;
use crate::normal::{Answer, Finish};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

/// How an answer is streamed.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct StreamOptions {
    /// Give the number of tokens at the end.
    include_usage: Option<bool>,
}

impl StreamOptions {
    /// Whether the usage is wanted.
    ///
    /// # Errors
    /// When there are options and no stream.
    pub(super) fn include_usage(options: Option<Self>, stream: bool) -> Result<bool, Fault> {
        match options {
            Some(_) if !stream => {
                Err(Fault::field("stream_options", "stream_options goes with stream: true"))
            }
            options => Ok(options.and_then(|o| o.include_usage).unwrap_or(false)),
        }
    }
}

/// The chunks of one stream.
pub(super) struct Chunks {
    head: Head,
    /// Of the objects: `chat.completion.chunk`.
    kind: &'static str,
    include_usage: bool,
    usage: Usage,
}

impl Chunks {
    pub(super) fn new(head: Head, kind: &'static str, include_usage: bool) -> Chunks {
        Chunks { head, kind, include_usage, usage: Usage::default() }
    }

    /// A chunk of one choice.
    pub(super) fn choice(&self, choice: Json) -> Frame {
        self.chunk(vec![choice], Json::Null)
    }

    /// Counts a choice that has ended.
    pub(super) fn count(&mut self, choice: usize, finish: &Finish, answer: &Answer) {
        self.usage.add(answer.prompt_of(choice), finish);
    }

    /// After the last choice.
    pub(super) fn end(&self, out: &mut Vec<Frame>) {
        if self.include_usage {
            out.push(self.chunk(Vec::new(), self.usage.json()));
        }
        out.push(done());
    }

    /// Instead of the rest.
    pub(super) fn fault(&self, fault: &Fault, out: &mut Vec<Frame>) {
        out.extend([Frame::json(&fault.json()), done()]);
    }

    fn chunk(&self, choices: Vec<Json>, usage: Json) -> Frame {
        let mut chunk = self.head.object(self.kind, choices);
        if self.include_usage {
            chunk.insert("usage".into(), usage);
        }
        Frame::json(&Json::Object(chunk))
    }
}

fn done() -> Frame {
    Frame { event: None, data: "[DONE]".to_owned() }
}
