//! What OpenAI's streams have in common: chunks, the usage in them, and how they end.
//!
//! With `include_usage` every chunk has `usage: null`, until a last one without choices has it. The
//! end is `[DONE]`, also behind an error.

use super::wire::{Choice, Counts, Head, Usage};
use crate::fault::Fault;
use crate::http::Frame;
use crate::normal::{Answer, Finish};
use schemars::JsonSchema;
use serde::Deserialize;

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
    include_usage: bool,
    usage: Usage,
}

impl Chunks {
    pub(super) fn new(head: Head, include_usage: bool) -> Chunks {
        Chunks { head, include_usage, usage: Usage::default() }
    }

    /// A chunk of one choice.
    pub(super) fn choice<C: Choice>(&self, choice: C) -> Frame {
        self.chunk(vec![choice], None)
    }

    /// Counts a choice that has ended.
    pub(super) fn count(&mut self, choice: usize, finish: &Finish, answer: &Answer) {
        self.usage.add(answer.prompt_of(choice), finish);
    }

    /// After the last choice.
    pub(super) fn end<C: Choice>(&self, out: &mut Vec<Frame>) {
        if self.include_usage {
            out.push(self.chunk::<C>(Vec::new(), Some(self.usage.counts())));
        }
        out.push(done());
    }

    /// Instead of the rest.
    pub(super) fn fault(&self, fault: &Fault, out: &mut Vec<Frame>) {
        out.extend([Frame::json(&fault.json()), done()]);
    }

    fn chunk<C: Choice>(&self, choices: Vec<C>, usage: Option<Counts>) -> Frame {
        Frame::json(&self.head.object(choices, self.include_usage.then_some(usage)))
    }
}

fn done() -> Frame {
    Frame { event: None, data: "[DONE]".to_owned() }
}
