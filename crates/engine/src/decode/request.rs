//! What is asked: a prompt and how to answer it; and how that went.

use crate::images::ImagePart;
use crate::sampler::{Logprobs, SamplerParams};
use graph::Adapted;
use models::Pooling;
use std::time::{Duration, Instant};
use topology::NodeId;

/// Told each token of an answer, on the thread that takes the steps between two of them; `true` ends the answer
/// after it. A panic takes a replica out of service.
pub type StopHook = Box<dyn FnMut(u32) -> bool + Send>;

/// What an answer may say, a grammar for one. It is called on a thread of its own, one call after the other, while steps
/// are computed; where a call takes longer than a step, its own answer waits and no other does. An error or a panic ends
/// this answer; one of [`accept`](Constraint::accept) after that token was sent.
pub trait Constraint: Send {
    /// Clears in `mask` the tokens that may not come next: token `t` is bit `t % 32` of word
    /// `t / 32`. Tokens that end the answer are tokens like others.
    ///
    /// # Errors
    /// When the constraint cannot be computed.
    fn allow(&mut self, mask: &mut [u32]) -> Result<(), String>;

    /// Takes the token that was sampled, unless it ends the answer.
    ///
    /// # Errors
    /// When it may not come here.
    fn accept(&mut self, token: u32) -> Result<(), String>;
}

/// What there is of every token.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// The last layer's hidden state, behind the final norm: `[tokens, hidden]`.
    Hidden,
    /// The logits of the token behind it: `[tokens, vocabulary]`.
    Logits,
}

/// A prompt and how to answer it.
pub struct Request {
    /// Tokens of the prompt, at least one.
    pub prompt: Vec<u32>,
    /// Its images, in the order of their positions, where it has ids of their outputs.
    pub images: Vec<ImagePart>,
    /// How tokens are chosen.
    pub sampler: SamplerParams,
    /// Most tokens of the answer. `None`: as many as the context holds.
    pub limit: Option<usize>,
    /// Tokens before which none of `end_tokens` is sampled.
    pub min_tokens: usize,
    /// End the answer when sampled; not part of it.
    pub end_tokens: Vec<u32>,
    /// Ends the answer for reasons of its own.
    pub stop: Option<StopHook>,
    /// What the answer may say.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Tells with each token its log-probability and those of so many of the likeliest.
    pub logprobs: Option<usize>,
    /// Tells the same of the prompt's tokens but for the first, which then are all computed.
    pub prompt_logprobs: Option<usize>,
    /// Its adapters. `None`: those that all requests have of which nothing is said
    /// ([`Replicas::set_adapter_scales`](crate::Replicas::set_adapter_scales)).
    pub adapters: Option<Vec<Adapted>>,
    /// Gives the prompt's hidden states as one vector, and no answer.
    pub pooling: Option<Pooling>,
    /// Gives something of every token of the prompt, and no answer.
    pub rows: Option<Rows>,
    /// Requests of the same key go to the same replica, unless it has much more to do than others.
    pub affinity: Option<u64>,
    /// The node on which the caller runs: of equally busy replicas one on this node is taken.
    pub near: Option<NodeId>,
    /// Requests of a higher one are begun first, and are the last to make room for others.
    pub priority: i8,
    /// Whose it is: requests of equal priority of different clients take turns, by their tokens.
    pub client: u64,
    /// When it ends, done or not.
    pub deadline: Option<Instant>,
}

impl Request {
    /// A request with the default sampler and nothing else.
    pub fn new(prompt: Vec<u32>) -> Request {
        Request {
            prompt,
            images: Vec::new(),
            sampler: SamplerParams::default(),
            limit: None,
            min_tokens: 0,
            end_tokens: Vec::new(),
            stop: None,
            constraint: None,
            logprobs: None,
            prompt_logprobs: None,
            adapters: None,
            pooling: None,
            rows: None,
            affinity: None,
            near: None,
            priority: 0,
            client: 0,
            deadline: None,
        }
    }
}

/// A token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Which.
    pub id: u32,
    /// How likely it was, if asked for.
    pub logprobs: Option<Logprobs>,
}

/// How a request was served.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSummary {
    /// Why the answer ended.
    pub stopped: StopReason,
    /// By which replica; 0 where there is one engine.
    pub replica: usize,
    /// Tokens of the answer.
    pub tokens: usize,
    /// Tokens of the prompt that were not computed: another request had.
    pub cached: usize,
    /// Time before the first step.
    pub queued: Duration,
    /// What was computed, and how long it took beside the other requests of the batch.
    pub timings: Timings,
}

/// Why an answer ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model produced one of the tokens that end an answer.
    EndToken(u32),
    /// As many tokens as were asked for.
    Limit,
    /// The context is full.
    Context,
    /// The caller's stop hook or interrupt said so.
    Interrupted,
    /// Its deadline has passed.
    Deadline,
}

/// What was computed and how long it took.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Timings {
    /// Tokens of the prompt that were computed.
    pub prompt_tokens: usize,
    /// Time for them.
    pub prompt: Duration,
    /// Tokens that were generated after the first, which comes with the prompt.
    pub tokens: usize,
    /// Time for them, sampling included.
    pub generation: Duration,
    /// Tokens that were guessed ahead.
    pub guessed: usize,
    /// Those of them that came true.
    pub right: usize,
}
