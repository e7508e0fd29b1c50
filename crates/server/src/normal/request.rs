//! What is asked for, whatever the protocol.

use super::images::Image;
use crate::http::{Client, Room};
use crate::state::App;
use arclight_engine::{Adapted, SamplerParams};
use grammar::Spec;
use serde_json::{Map, Value as Json};
use std::time::Instant;
use tokenizer::Message;

/// A conversation to be continued.
#[derive(Clone, Debug)]
pub(crate) struct ChatRequest {
    /// Content with images is a list of parts, `{"type": "image"}` among them.
    pub(crate) messages: Vec<Message>,
    /// The images, in the order of these parts.
    pub(crate) images: Vec<Image>,
    /// In OpenAI's form, `{"type": "function", "function": {…}}`.
    pub(crate) tools: Vec<Json>,
    pub(crate) tool_choice: ToolChoice,
    /// Whether an answer may call several tools.
    pub(crate) parallel_tools: bool,
    /// Further variables for the chat template.
    pub(crate) variables: Map<String, Json>,
    /// End the prompt with the opening of the assistant's turn.
    pub(crate) open_turn: bool,
    /// The last message is the assistant's, and the answer goes on with it.
    pub(crate) continue_last: bool,
    /// Tokens of an earlier exchange that stand before the prompt.
    pub(crate) before: Vec<u32>,
    /// Leave out the oldest messages of a conversation that is too long for the context.
    pub(crate) shorten: bool,
    pub(crate) generation: Generation,
}

/// Texts to be continued.
#[derive(Clone, Debug)]
pub(crate) struct TextRequest {
    pub(crate) prompts: Vec<TextPrompt>,
    /// What stands after the gap that the answer fills.
    pub(crate) suffix: Option<String>,
    /// The prompt's log-probabilities are wanted too.
    pub(crate) echo: bool,
    pub(crate) generation: Generation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextPrompt {
    Text(String),
    Tokens(Vec<u32>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    #[default]
    Auto,
    None,
    Required,
    Named(String),
}

/// What an answer must look like.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constraint {
    /// The field of the request that says so.
    pub(crate) field: String,
    pub(crate) spec: Spec,
}

/// How answers are made.
#[derive(Clone, Debug)]
pub(crate) struct Generation {
    /// Choices for each prompt.
    pub(crate) n: usize,
    /// The seed is the first choice's; each further one's is one more.
    pub(crate) sampler: SamplerParams,
    /// Most tokens of an answer. `None`: as many as the context holds.
    pub(crate) limit: Option<usize>,
    /// The prompt's last tokens that are read; `None`: all.
    pub(crate) keep_last: Option<usize>,
    /// Tokens before which an answer does not end.
    pub(crate) min_tokens: usize,
    /// Go on after tokens that end an answer.
    pub(crate) ignore_eos: bool,
    /// The answer ends before any of these.
    pub(crate) stop: Vec<String>,
    /// The answer ends at any of these tokens.
    pub(crate) stop_tokens: Vec<u32>,
    /// Log-probabilities of the chosen tokens and of this many likeliest ones.
    pub(crate) logprobs: Option<usize>,
    /// What the answer must look like.
    pub(crate) constraint: Option<Constraint>,
    /// Its adapters; `None`: those of all requests.
    pub(crate) adapters: Option<Vec<Adapted>>,
    /// Higher ones are served first.
    pub(crate) priority: i8,
    /// Requests of the same conversation.
    pub(crate) affinity: Option<u64>,
    /// Requests of different clients take turns.
    pub(crate) client: u64,
    /// When the answer is of no use any more.
    pub(crate) deadline: Option<Instant>,
    /// The claim on memory of the values of the request, until the answer has been submitted.
    pub(crate) room: Room,
}

impl Generation {
    /// One answer, chosen as the server's options say, with a seed of its own, up to the end of the
    /// context.
    pub(crate) fn new(app: &App, client: Client) -> Generation {
        let options = app.now();
        let sampler = &options.sampler;
        Generation {
            n: 1,
            sampler: SamplerParams { seed: fastrand::u64(..), ..sampler.clone() },
            limit: None,
            keep_last: None,
            min_tokens: 0,
            ignore_eos: false,
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            logprobs: None,
            constraint: None,
            adapters: None,
            priority: client.priority(0),
            affinity: None,
            client: client.0,
            deadline: client.deadline(app.now().request_timeout),
            room: Room::default(),
        }
    }
}
