//! What goes in and what comes out: requests, and tickets for their answers.
//!
//! Tokens come through a channel without a bound of its own: an answer is at most as long as the
//! context, some bytes a token. A reader that is slow then keeps neither a replica nor KV pages
//! waiting.

use super::queue::Shared;
use crate::error::Error;
use crate::generate::{StopReason, Timings};
use crate::images::ImagePart;
use crate::sampler::{Logprobs, SamplerParams};
use async_channel::Receiver;
use graph::Adapted;
use models::Pooling;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use topology::NodeId;

/// Told each token of an answer, on the replica's thread between two steps; `true` ends the answer
/// after it. A panic takes the replica out of service.
pub type StopHook = Box<dyn FnMut(u32) -> bool + Send>;

/// What an answer may say, a grammar for one: asked before each of its tokens, on the replica's
/// thread between two steps. An error ends this answer, a panic takes the replica out of service.
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
    /// ([`Replicas::set_adapter_scales`](super::Replicas::set_adapter_scales)).
    pub adapters: Option<Vec<Adapted>>,
    /// Gives the prompt's hidden states as one vector, and no answer.
    pub pooling: Option<Pooling>,
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
    /// Why the answer ended; [`StopReason::Interrupted`] is the stop hook's.
    pub stopped: StopReason,
    /// By which replica.
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

pub(crate) enum Event {
    /// Pages are there; of the prompt's tokens so many are in them already.
    Begun {
        cached: usize,
    },
    /// Of the prompt's tokens but for the first.
    Prompt(Vec<Logprobs>),
    /// The prompt's hidden states as one vector.
    Pooled(Vec<f32>),
    Token(Token),
    Done(RequestSummary),
    Failed(Error),
}

/// A request on its way: an iterator over the tokens of the answer, which waits for each;
/// [`recv`](Ticket::recv) waits without a thread.
///
/// Dropping it cancels the request, before the next step if it runs already.
pub struct Ticket {
    id: u64,
    events: Receiver<Event>,
    cancelled: Arc<AtomicBool>,
    shared: Arc<Shared>,
    ended: bool,
    outcome: Option<RequestSummary>,
    cached: usize,
    prompt: Vec<Logprobs>,
    pooled: Vec<f32>,
}

impl Ticket {
    pub(crate) fn new(
        id: u64,
        events: Receiver<Event>,
        cancelled: Arc<AtomicBool>,
        shared: Arc<Shared>,
    ) -> Ticket {
        let (ended, outcome, cached, prompt, pooled) = (false, None, 0, Vec::new(), Vec::new());
        Ticket { id, events, cancelled, shared, ended, outcome, cached, prompt, pooled }
    }

    /// How the request was served; `None` until the last token was read, and after an error.
    pub fn outcome(&self) -> Option<&RequestSummary> {
        self.outcome.as_ref()
    }

    /// Tokens of the prompt that were not computed: another request had. Known with the first token,
    /// for callers that do not wait for the outcome.
    pub fn cached(&self) -> usize {
        self.cached
    }

    /// Of the prompt's tokens but for the first, if asked for; known with the first token.
    pub fn prompt_logprobs(&self) -> &[Logprobs] {
        &self.prompt
    }

    /// The prompt's hidden states as one vector, if asked for: `[hidden]`, not normalised. Known at the
    /// end.
    pub fn pooled(&self) -> &[f32] {
        &self.pooled
    }

    /// Waits for the whole answer.
    ///
    /// # Errors
    /// When the request fails or the model is unloaded.
    pub fn wait(mut self) -> Result<(Vec<u32>, RequestSummary), Error> {
        let tokens = self.by_ref().map(|t| t.map(|t| t.id)).collect::<Result<_, Error>>()?;
        let outcome = self.outcome.take().ok_or(Error::ReplicasClosed)?;
        Ok((tokens, outcome))
    }

    /// The next token of the answer; `None` at its end. May be dropped while it waits: nothing is
    /// lost.
    pub async fn recv(&mut self) -> Option<Result<Token, Error>> {
        while !self.ended {
            let event = self.events.recv().await.unwrap_or(Event::Failed(Error::ReplicasClosed));
            if let Some(token) = self.take(event) {
                return Some(token);
            }
        }
        None
    }

    fn take(&mut self, event: Event) -> Option<Result<Token, Error>> {
        self.ended = matches!(event, Event::Done(_) | Event::Failed(_));
        match event {
            Event::Token(token) => return Some(Ok(token)),
            Event::Failed(error) => return Some(Err(error)),
            Event::Begun { cached } => self.cached = cached,
            Event::Prompt(logprobs) => self.prompt = logprobs,
            Event::Pooled(vector) => self.pooled = vector,
            Event::Done(outcome) => self.outcome = Some(outcome),
        }
        None
    }
}

impl Iterator for Ticket {
    type Item = Result<Token, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let event = self.events.recv_blocking();
            let event = event.unwrap_or(Event::Failed(Error::ReplicasClosed));
            if let Some(token) = self.take(event) {
                return Some(token);
            }
        }
        None
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.ended {
            self.cancelled.store(true, Relaxed);
            self.shared.forget(self.id);
        }
    }
}
