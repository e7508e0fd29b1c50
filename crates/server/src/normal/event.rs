//! What an answer consists of, whatever the protocol.

use crate::fault::Fault;
use chat::Segment;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// A piece of one choice's answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delta {
    pub(crate) event: Event,
    /// Of the tokens that were read since the delta before: those of the event's text, and of text
    /// that is held back or was taken out. Empty unless asked for.
    pub(crate) logprobs: Vec<TokenLogprob>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// More of the answer. A text is empty only beside log-probabilities.
    Segment(Segment),
    /// The last event of a choice.
    Finished(Finish),
    /// The last event of the whole answer.
    Failed(Fault),
}

/// Why and with what a choice ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finish {
    pub(crate) reason: Reason,
    /// The stop string that ended it.
    pub(crate) stop: Option<String>,
    /// Of this choice's prompt.
    pub(crate) prompt_tokens: usize,
    /// Those of them that were in the prefix cache.
    pub(crate) cached_tokens: usize,
    /// Tokens sampled, without the one that ended the answer.
    pub(crate) tokens: usize,
    /// Those of them that were reasoning.
    pub(crate) reasoning_tokens: usize,
    /// From the submission to the first token.
    pub(crate) first: Duration,
    /// From the first token to the last.
    pub(crate) rest: Duration,
}

/// Why an answer ended; written as OpenAI's `finish_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Reason {
    /// The model ended its answer, or a stop string did.
    Stop,
    /// The limit on tokens or the end of the context.
    Length,
    /// The model ended its answer after calling tools.
    ToolCalls,
}

impl Reason {
    /// As it is written.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Reason::Stop => "stop",
            Reason::Length => "length",
            Reason::ToolCalls => "tool_calls",
        }
    }
}

/// A token and what the model thought of it: natural logs of the probabilities of its own softmax.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenLogprob {
    pub(crate) token: TokenText,
    /// `None` for a prompt's first token, before which there is nothing to predict it from.
    pub(crate) logprob: Option<f32>,
    /// The likeliest ones, likeliest first.
    pub(crate) top: Vec<(TokenText, f32)>,
}

/// A token as bytes, which may be a part of a character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenText {
    pub(crate) id: u32,
    pub(crate) bytes: Vec<u8>,
}
