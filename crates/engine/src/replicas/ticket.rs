//! What goes in and what comes out: requests, and tickets for their answers.
//!
//! Tokens come through a channel without a bound of its own: an answer is at most as long as the
//! context, four bytes a token. A reader that is slow then keeps neither a replica nor KV pages
//! waiting.

use super::queue::Shared;
use crate::error::Error;
use crate::generate::{StopReason, Timings};
use crate::sampler::SamplerParams;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::time::Duration;
use topology::NodeId;

/// Told each token of an answer, on the replica's thread between two steps; `true` ends the answer
/// after it. A panic takes the replica out of service.
pub type StopHook = Box<dyn FnMut(u32) -> bool + Send>;

/// A prompt and how to answer it.
pub struct Request {
    /// Tokens of the prompt, at least one.
    pub prompt: Vec<u32>,
    /// How tokens are chosen.
    pub sampler: SamplerParams,
    /// Most tokens of the answer. `None`: as many as the context holds.
    pub limit: Option<usize>,
    /// End the answer when sampled; not part of it.
    pub end_tokens: Vec<u32>,
    /// Ends the answer for reasons of its own.
    pub stop: Option<StopHook>,
    /// Requests of the same key go to the same replica, unless it has much more to do than others.
    pub affinity: Option<u64>,
    /// The node on which the caller runs: of equally busy replicas one on this node is taken.
    pub near: Option<NodeId>,
}

impl Request {
    /// A request with the default sampler and nothing else.
    pub fn new(prompt: Vec<u32>) -> Request {
        Request {
            prompt,
            sampler: SamplerParams::default(),
            limit: None,
            end_tokens: Vec::new(),
            stop: None,
            affinity: None,
            near: None,
        }
    }
}

/// How a request was served.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why the answer ended; [`StopReason::Interrupted`] is the stop hook's.
    pub stopped: StopReason,
    /// By which replica.
    pub replica: usize,
    /// Tokens of the answer.
    pub tokens: usize,
    /// Time before the first step.
    pub queued: Duration,
    /// What was computed, and how long it took beside the other requests of the batch.
    pub timings: Timings,
}

pub(crate) enum Event {
    Token(u32),
    Done(Outcome),
    Failed(Error),
}

/// A request on its way: an iterator over the tokens of the answer, which waits for each.
///
/// Dropping it cancels the request, before the next step if it runs already.
pub struct Ticket {
    id: u64,
    events: Receiver<Event>,
    cancelled: Arc<AtomicBool>,
    shared: Arc<Shared>,
    ended: bool,
    outcome: Option<Outcome>,
}

impl Ticket {
    pub(crate) fn new(
        id: u64,
        events: Receiver<Event>,
        cancelled: Arc<AtomicBool>,
        shared: Arc<Shared>,
    ) -> Ticket {
        Ticket { id, events, cancelled, shared, ended: false, outcome: None }
    }

    /// How the request was served; `None` until the last token was read, and after an error.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Waits for the whole answer.
    ///
    /// # Errors
    /// When the replica fails or the model is unloaded.
    pub fn wait(mut self) -> Result<(Vec<u32>, Outcome), Error> {
        let tokens = self.by_ref().collect::<Result<Vec<u32>, Error>>()?;
        let outcome = self.outcome.take().ok_or(Error::ReplicasClosed)?;
        Ok((tokens, outcome))
    }

    fn take(&mut self, event: Event) -> Option<Result<u32, Error>> {
        self.ended = !matches!(event, Event::Token(_));
        match event {
            Event::Token(token) => Some(Ok(token)),
            Event::Failed(error) => Some(Err(error)),
            Event::Done(outcome) => {
                self.outcome = Some(outcome);
                None
            }
        }
    }
}

impl Iterator for Ticket {
    type Item = Result<u32, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let event = self.events.recv().unwrap_or(Event::Failed(Error::ReplicasClosed));
        self.take(event)
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
