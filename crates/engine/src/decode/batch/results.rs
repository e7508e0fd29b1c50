//! The results of a step: tokens, vectors, copies of sequences.

use super::{Batch, Helpers, Share};
use crate::decode::running::{Running, Sampled};
use crate::engine::Engine;
use crate::error::Error;
use crate::kv::SeqId;
use crate::speculate::Taken;
use graph::Logits;
use models::Projection;
use std::iter::once;
use std::time::Instant;

/// What is to be done when a step's results are taken.
#[derive(Default)]
pub(super) struct Results {
    /// Whose guess was wrong.
    wrong: Vec<Share>,
    /// Answers that go on from copies of sequences.
    copies: Vec<(Running, SeqId)>,
    /// Tokens that were guessed, and those that there are more.
    guesses: usize,
    generated: usize,
}

impl Batch {
    /// Gives requests what a step has computed for them: `rows` of logits or hidden states of each share. Waits for
    /// masks until then; a request without its mask is [held](Running::is_held), and no other waits for it.
    pub(super) fn sample(
        &mut self,
        (shares, rows): (&[Share], &[usize]),
        logits: Logits<'_>,
        projection: Option<&Projection>,
        until: Instant,
    ) -> Results {
        let mut results = Results::default();
        let (mut first, generated) = (0, self.done.generated_tokens);
        let (mut row, mut hidden) = (0, 0);
        for (share, &rows) in shares.iter().zip(rows) {
            let (at_row, at_hidden) = (row, hidden);
            *(if share.hidden { &mut hidden } else { &mut row }) += rows;
            let taken_row = first;
            first += share.tokens;
            let Some(at) = self.find(share) else { continue };
            let request = &mut self.running[at];
            let taken = Taken { row: taken_row, position: request.len(), count: share.tokens };
            request.ahead.took(taken);
            if request.wants_hidden() {
                let states = (at_hidden..hidden).map(|row| logits.hidden(row));
                request.pool(share.tokens, states, projection);
                continue;
            }
            if request.wants_no_answer() {
                let all = (at_row..row).map(|row| logits.row(row));
                request.pool(share.tokens, all, None);
                continue;
            }
            if request.wants_whole_prompt() {
                let (before, begin) = (request.len(), Instant::now());
                (0..rows).for_each(|i| request.note_prompt(before + i, logits.row(at_row + i)));
                if let Some(pace) = &mut self.pace {
                    pace.charge(begin.elapsed().as_secs_f64());
                }
            }
            let guessed = request.ahead.guess().len();
            if !request.computed(share.tokens - guessed) {
                continue;
            }
            let others = request.split_off();
            let rows = (row - 1 - guessed..row).map(|row| logits.row(row));
            let sampled = request.sample(rows, Some(until), &mut self.mask);
            results.guesses += guessed;
            results.wrong.extend(sampled.is_wrong().then_some(*share));
            self.count(sampled);
            for mut other in others {
                let row = once(logits.row(row - 1));
                let sampled = other.sample(row, Some(until), &mut self.mask);
                self.count(sampled);
                results.copies.push((other, share.sequence));
            }
        }
        results.generated = (self.done.generated_tokens - generated) as usize;
        results
    }

    fn count(&mut self, sampled: Sampled) {
        self.done.generated_tokens += sampled.tokens as u64;
        self.done.drafted_tokens += sampled.guessed as u64;
        self.done.accepted_tokens += sampled.right as u64;
    }

    /// Samples held rows whose masks are there now.
    pub(super) fn resume(&mut self, engine: &mut Engine) -> Result<(), Error> {
        for at in 0..self.running.len() {
            let Some(sampled) = self.running[at].resume(&mut self.mask) else { continue };
            self.count(sampled);
            if sampled.is_wrong() {
                take_back(engine, &mut self.running[at])?;
            }
        }
        Ok(())
    }

    /// Does what is to be done behind a step's results, which began to be computed at `start`.
    pub(super) fn settle(
        &mut self,
        engine: &mut Engine,
        helpers: &mut Helpers<'_>,
        (shares, answering, begin): (&[Share], usize, Instant),
        (Results { wrong, copies, guesses, generated }, start): (Results, Instant),
    ) -> Result<(), Error> {
        let tokens: usize = shares.iter().map(|share| share.tokens).sum();
        if let Some(speculator) = helpers.speculator.as_mut().filter(|_| answering == tokens) {
            speculator.observe(shares.len(), guesses, generated, start.elapsed());
        }
        let all = begin.elapsed();
        for share in shares {
            if let Some(at) = self.find(share) {
                self.running[at].took(share.answered, all);
            }
        }
        for share in wrong {
            let Some(at) = self.find(&share) else { continue };
            take_back(engine, &mut self.running[at])?;
        }
        let copied = !copies.is_empty();
        for (mut copy, of) in copies {
            copy.sequence = Some(engine.fork(of)?);
            copy.took(false, all);
            self.running.push(copy);
        }
        if copied {
            self.running.sort_by_key(Running::rank);
        }
        Ok(())
    }
}

/// Takes back what was guessed wrong.
fn take_back(engine: &mut Engine, request: &mut Running) -> Result<(), Error> {
    let Some(sequence) = request.sequence else { return Ok(()) };
    // A state may have to go back further than the guess: what was right is computed again.
    let kept = engine.truncate(sequence, request.len())?;
    request.keep(kept);
    Ok(())
}
