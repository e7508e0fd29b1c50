//! Generation: one request, answered on the caller's thread.

use super::asked::{Event, Heard};
use super::batch::{Batch, Helpers};
use super::request::{Request, RequestSummary, StopReason, Timings, Token};
use crate::adapter::{check_set, normal};
use crate::engine::Engine;
use crate::error::Error;
use async_channel::Receiver;

/// An iterator over the tokens of an answer. The first call computes the prompt, each further one at most a step.
///
/// Dropping it ends the request. What was computed stays in the prefix cache until room is wanted.
pub struct Generation<'e> {
    engine: &'e mut Engine,
    helpers: Helpers<'e>,
    batch: Batch,
    events: Receiver<Event>,
    heard: Heard,
    interrupt: Option<&'e dyn Fn() -> bool>,
}

impl Engine {
    /// Answers a request, whose prompt takes whole steps; what the prefix cache has of it is not computed again. What
    /// requests say of clients, priorities and replicas does not matter here.
    ///
    /// # Errors
    /// When the prompt is empty, too long or has unknown tokens, a sampler parameter is out of range, or all sequences
    /// are in use. Nothing is computed before the first token is asked for.
    pub fn generate<'e>(
        &'e mut self,
        request: Request,
        helpers: Helpers<'e>,
    ) -> Result<Generation<'e>, Error> {
        let adapters = match &request.adapters {
            Some(set) => {
                check_set(set, self.adapters.len())?;
                normal(set)
            }
            None => self.usual.clone(),
        };
        let bounds = self.bounds(helpers.encoder.is_some());
        let (asked, events) = bounds.accept(request, adapters)?;
        let mut batch = Batch::new(None, true, bounds.ids.tokens);
        batch.add([(0, asked)]);
        // Already now: it is known then which images are to be encoded.
        batch.begin(self, 0, 0)?;
        let heard = Heard::default();
        Ok(Generation { engine: self, helpers, batch, events, heard, interrupt: None })
    }
}

impl<'e> Generation<'e> {
    /// Ends when `interrupt` says so; it is asked before every step.
    pub fn interrupt(&mut self, interrupt: &'e dyn Fn() -> bool) -> &mut Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// How the request was answered; `None` while it goes on, and after an error.
    pub fn outcome(&self) -> Option<&RequestSummary> {
        self.heard.outcome.as_ref()
    }

    /// What was computed so far.
    pub fn timings(&self) -> Timings {
        let ended = || self.outcome().map(|outcome| outcome.timings).unwrap_or_default();
        self.batch.running.first().map_or_else(ended, |request| request.timings())
    }

    /// The engine, for measurements between two tokens: after the first one, of the prompt.
    pub fn engine(&mut self) -> &mut Engine {
        self.engine
    }

    /// The whole answer.
    ///
    /// # Errors
    /// When a step fails.
    pub fn wait(mut self) -> Result<(Vec<u32>, RequestSummary), Error> {
        let tokens = self.by_ref().map(|t| t.map(|t| t.id)).collect::<Result<_, Error>>()?;
        let outcome = self.heard.outcome.take().ok_or(Error::ReplicasClosed)?;
        Ok((tokens, outcome))
    }

    /// Encodes an image, or takes a step.
    fn advance(&mut self) -> Result<(), Error> {
        let Generation { engine, helpers, batch, .. } = self;
        if self.interrupt.is_some_and(|asked| asked()) {
            batch.running.iter_mut().for_each(|request| request.end(StopReason::Interrupted));
        }
        batch.drop_cancelled(engine, helpers)?;
        // Nobody is there who would be served between two.
        if !batch.encode(helpers) {
            batch.step(engine, helpers)?;
        }
        let ended = batch.take_ended(engine, helpers)?;
        ended.into_iter().for_each(|request| request.finish(0));
        Ok(())
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Token, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.heard.ended {
            let told = match self.events.try_recv() {
                Ok(event) => self.heard.take(event),
                Err(_) => self.advance().err().map(|error| {
                    self.heard.ended = true;
                    Err(error)
                }),
            };
            if told.is_some() {
                return told;
            }
        }
        None
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        // Without pages or guesses there is nothing to free.
        let _ = self.batch.abandon(self.engine, &mut self.helpers);
    }
}
