//! Tickets for the answers to requests.
//!
//! Tokens come through a channel without a bound of its own: an answer is at most as long as the
//! context, some bytes a token. A reader that is slow then keeps neither a replica nor KV pages
//! waiting.

use super::queue::Shared;
use crate::decode::{Event, Heard, RequestSummary, Token};
use crate::error::Error;
use crate::sampler::Logprobs;
use async_channel::Receiver;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A request on its way: an iterator over the tokens of the answer, which waits for each;
/// [`recv`](Ticket::recv) waits without a thread.
///
/// Dropping it cancels the request, before the next step if it runs already.
pub struct Ticket {
    id: u64,
    events: Receiver<Event>,
    cancelled: Arc<AtomicBool>,
    shared: Arc<Shared>,
    heard: Heard,
}

impl Ticket {
    pub(crate) fn new(
        id: u64,
        events: Receiver<Event>,
        cancelled: Arc<AtomicBool>,
        shared: Arc<Shared>,
    ) -> Ticket {
        Ticket { id, events, cancelled, shared, heard: Heard::default() }
    }

    /// How the request was served; `None` until the last token was read, and after an error.
    pub fn outcome(&self) -> Option<&RequestSummary> {
        self.heard.outcome.as_ref()
    }

    /// Tokens of the prompt that were not computed: another request had. Known with the first token,
    /// for callers that do not wait for the outcome.
    pub fn cached(&self) -> usize {
        self.heard.cached
    }

    /// Of the prompt's tokens but for the first, if asked for; known with the first token.
    pub fn prompt_logprobs(&self) -> &[Logprobs] {
        &self.heard.prompt
    }

    /// The prompt's hidden states as one vector, if asked for: `[hidden]`, not normalised. Known at the
    /// end.
    pub fn pooled(&self) -> &[f32] {
        &self.heard.pooled
    }

    /// The same, or a row for each of the prompt's tokens, one after the other, if that was asked for
    /// ([`Request::rows`](crate::Request::rows)). They are gone from the ticket then.
    pub fn take_rows(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.heard.pooled)
    }

    /// Waits for the whole answer.
    ///
    /// # Errors
    /// When the request fails or the model is unloaded.
    pub fn wait(mut self) -> Result<(Vec<u32>, RequestSummary), Error> {
        let tokens = self.by_ref().map(|t| t.map(|t| t.id)).collect::<Result<_, Error>>()?;
        let outcome = self.heard.outcome.take().ok_or(Error::ReplicasClosed)?;
        Ok((tokens, outcome))
    }

    /// The next token of the answer; `None` at its end. May be dropped while it waits: nothing is
    /// lost.
    pub async fn recv(&mut self) -> Option<Result<Token, Error>> {
        while !self.heard.ended {
            let event = self.events.recv().await.unwrap_or(Event::Failed(Error::ReplicasClosed));
            if let Some(token) = self.heard.take(event) {
                return Some(token);
            }
        }
        None
    }
}

impl Iterator for Ticket {
    type Item = Result<Token, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.heard.ended {
            let event = self.events.recv_blocking();
            let event = event.unwrap_or(Event::Failed(Error::ReplicasClosed));
            if let Some(token) = self.heard.take(event) {
                return Some(token);
            }
        }
        None
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.heard.ended {
            self.cancelled.store(true, Relaxed);
            self.shared.forget(self.id);
        }
    }
}
