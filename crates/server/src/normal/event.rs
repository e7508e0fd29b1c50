//! What an answer consists of, whatever the protocol.

use crate::fault::Fault;
use chat::Segment;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// A piece of one choice's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Delta {
    /// What it is.
    pub event: Event,
    /// The tokens that were read since the delta before: those of the event's text, and of text that is held back or
    /// was taken out. The one that ends an answer is none of them.
    pub ids: Vec<u32>,
    /// Of the same tokens. Empty unless asked for.
    pub logprobs: Vec<TokenLogprob>,
}

/// What a piece of an answer is.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// More of the answer. A text is empty only beside log-probabilities.
    Segment(Segment),
    /// The last event of a choice.
    Finished(Finish),
    /// The last event of the whole answer.
    Failed(Fault),
}

/// Why and with what a choice ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finish {
    /// Why.
    pub reason: Reason,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// The token that ended it.
    pub end_token: Option<u32>,
    /// Time before its first step; known of those that did not end at a stop string.
    pub queued: Duration,
    /// Of this choice's prompt.
    pub prompt_tokens: usize,
    /// Those of them that were in the prefix cache.
    pub cached_tokens: usize,
    /// Tokens sampled, without the one that ended the answer.
    pub tokens: usize,
    /// Those of them that were reasoning.
    pub reasoning_tokens: usize,
    /// From the submission to the first token.
    pub first: Duration,
    /// From the first token to the last.
    pub rest: Duration,
}

/// Why an answer ended; written as OpenAI's `finish_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Reason {
    /// The model ended its answer, or a stop string did.
    Stop,
    /// The limit on tokens or the end of the context.
    Length,
    /// The model ended its answer after calling tools.
    ToolCalls,
}

impl Reason {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Stop => "stop",
            Reason::Length => "length",
            Reason::ToolCalls => "tool_calls",
        }
    }
}

/// A token and what the model thought of it: natural logs of the probabilities of its own softmax.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Which.
    pub token: TokenText,
    /// `None` for a prompt's first token, before which there is nothing to predict it from.
    pub logprob: Option<f32>,
    /// The likeliest ones, likeliest first.
    pub top: Vec<(TokenText, f32)>,
}

/// A token as bytes, which may be a part of a character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenText {
    /// Its number.
    pub id: u32,
    /// What it stands for.
    pub bytes: Vec<u8>,
}
