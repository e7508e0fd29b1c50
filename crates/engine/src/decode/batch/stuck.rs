//! Steps that have nothing to compute, although requests wait.
//!
//! With nothing under way, no image to encode and no mask to wait for, that is a fault of [`deal`](super::deal): its
//! rules hold everything back, and waiting would not change that. The fault is counted and logged, and the
//! smallest piece that a step can take is computed, regardless of ranks, pace and pages. Every such step computes a
//! piece or refuses a request, so every request ends.

use super::{Batch, Helpers, Share};
use crate::engine::Engine;
use crate::error::Error;
use graph::Limits;
use std::time::{Duration, Instant};

/// Longest wait for a mask before new requests are looked for.
const SLICE: Duration = Duration::from_millis(5);

/// Number of such waits in a row, while other requests wait for the pages of an answer whose mask is missing.
const PATIENCE: u32 = 20;

/// Shortest time between two logged faults.
const TOLD: Duration = Duration::from_secs(10);

/// Tokens of a prompt that can be cut which are computed after a fault.
const SOME: usize = 32;

impl Batch {
    /// The shares of a step for which [`deal`](Batch::deal) found none. Waits for a mask if only masks are missing;
    /// `rings`: rings of the bell before that.
    pub(super) fn idle(
        &mut self,
        engine: &mut Engine,
        helpers: &Helpers<'_>,
        rings: u64,
    ) -> Result<Vec<Share>, Error> {
        if helpers.encoder.is_some() && self.running.iter().any(|r| r.waits_for_image().is_some()) {
            return Ok(Vec::new());
        }
        let waiting = |at: &usize| self.running[*at].pending() > 0;
        let waiting: Vec<usize> = (0..self.running.len()).filter(waiting).collect();
        if self.running.iter().any(|r| r.is_held() && !r.is_ended()) {
            self.bell.wait(rings, SLICE);
            let rung = self.bell.rings() != rings;
            self.stuck.waits = if rung || waiting.is_empty() { 0 } else { self.stuck.waits + 1 };
            if self.stuck.waits < PATIENCE {
                return Ok(Vec::new());
            }
        } else if let Some(&first) = waiting.first() {
            self.done.empty_steps += 1;
            self.tell_fault(engine, waiting.len(), first);
        }
        self.stuck.waits = 0;
        self.smallest(engine, waiting, helpers.encoder.is_some())
    }

    fn tell_fault(&mut self, engine: &Engine, waiting: usize, first: usize) {
        if self.stuck.told.is_some_and(|told| told.elapsed() < TOLD) {
            return;
        }
        self.stuck.told = Some(Instant::now());
        let request = &self.running[first];
        let (pages, limits) = (engine.pages(), engine.limits());
        tracing::error!(
            request = request.id(),
            waiting,
            pending = request.pending(),
            piece = request.piece(engine.reads_texts()),
            begun = request.sequence.is_some(),
            free_pages = pages.free + pages.cached,
            step_tokens = limits.tokens,
            step_outputs = limits.outputs,
            "a step had nothing to compute although requests wait; please report this. The smallest piece is computed \
             now"
        );
    }

    /// The smallest piece that a step can take of one of these requests. Those that no step can take are refused.
    fn smallest(
        &mut self,
        engine: &mut Engine,
        mut of: Vec<usize>,
        encodes: bool,
    ) -> Result<Vec<Share>, Error> {
        let whole = engine.reads_texts();
        of.sort_by_key(|&at| (self.running[at].piece(whole), at));
        for at in of {
            if let Some(share) = self.piece_of(engine, at, encodes)? {
                // It may have taken the pages of others.
                return Ok(vec![share]);
            }
            if !self.running[at].is_ended() && self.running[at].sequence.is_some() {
                // Its image is encoded next.
                break;
            }
        }
        Ok(Vec::new())
    }

    /// A piece of a request, for which all others give up their pages if need be. `None` if it is refused, or begun and
    /// waits for an image.
    fn piece_of(
        &mut self,
        engine: &mut Engine,
        at: usize,
        encodes: bool,
    ) -> Result<Option<Share>, Error> {
        while self.running[at].sequence.is_none() && !self.begin(engine, at, 0)? {
            if !self.take_pages(engine, at)? {
                return Ok(self.refuse(at, "there are no pages for it".to_owned()));
            }
        }
        self.running[at].take_guess(0);
        let (limits, whole) = (engine.limits(), engine.reads_texts());
        let (piece, request) = (self.running[at].piece(whole), &self.running[at]);
        let most = limits.tokens.min(SOME.max(piece));
        let tokens = request.share(most, limits.outputs, whole);
        if tokens == 0 {
            return Ok(match piece {
                0 if encodes => None,
                0 => self.refuse(at, "there is no encoder for its image".to_owned()),
                _ => self.refuse(at, past_limits(piece, &limits)),
            });
        }
        loop {
            let Some(sequence) = self.running[at].sequence else { return Ok(None) };
            match engine.reserve(sequence, tokens) {
                Ok(()) => {
                    let request = &self.running[at];
                    let (answered, hidden) = (request.has_answer(), request.wants_hidden());
                    return Ok(Some(Share { request: at, sequence, tokens, answered, hidden }));
                }
                Err(Error::NoPages { pages }) => {
                    if !self.take_pages(engine, at)? {
                        return Ok(self.refuse(at, past_pages(tokens, pages)));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Has the request that ranks lowest of all others give up its pages; false if none has any.
    fn take_pages(&mut self, engine: &mut Engine, at: usize) -> Result<bool, Error> {
        let holds = |other: &usize| *other != at && self.running[*other].sequence.is_some();
        let Some(last) = (0..self.running.len()).rev().find(holds) else { return Ok(false) };
        self.give_up(engine, last)?;
        Ok(true)
    }

    /// Ends a request with the limit that it exceeds.
    pub(super) fn refuse(&mut self, at: usize, why: String) -> Option<Share> {
        let request = &mut self.running[at];
        let id = request.id();
        tracing::error!(request = id, "a request can never run: {why}");
        request.fail_with(move || Error::NeverRuns { request: id, why: why.clone() });
        None
    }
}

/// The limit that a piece of `piece` tokens exceeds in every step.
pub(super) fn past_limits(piece: usize, limits: &Limits) -> String {
    let Limits { tokens, outputs, .. } = limits;
    format!(
        "{piece} of its tokens must be one step, and a step has {tokens} tokens and {outputs} rows of outputs at most"
    )
}

/// The limit that `tokens` tokens exceed if no other request has pages.
pub(super) fn past_pages(tokens: usize, pages: usize) -> String {
    format!(
        "{tokens} of its tokens find no room in the KV cache of {pages} pages, of which no other request has any"
    )
}
