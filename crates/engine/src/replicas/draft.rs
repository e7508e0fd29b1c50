//! A smaller model that guesses what the large one will say.
//!
//! It has a sequence of its own for every request that it guesses for, with the same tokens in its
//! cache; what was guessed wrong is taken back. Before it can guess it must have computed the
//! request's prompt: it does so in steps as large as its engine takes, one before each step of the
//! large model, so that nobody waits for long.

use super::running::Running;
use crate::engine::{BatchEntry, Engine};
use crate::error::Error;
use crate::kv::SeqId;
use crate::sampler::Sampler;
use graph::Outputs;

pub(crate) struct Draft {
    engine: Engine,
}

impl Draft {
    pub(crate) fn new(engine: Engine) -> Draft {
        Draft { engine }
    }

    /// Guesses for the requests in `wanted` so many tokens each, at most.
    pub(crate) fn guess(
        &mut self,
        running: &mut [Running],
        wanted: &[(usize, usize)],
    ) -> Result<(), Error> {
        let mut ready = Vec::with_capacity(wanted.len());
        let mut left = self.engine.limits().tokens.saturating_sub(wanted.len());
        for &(at, length) in wanted {
            let Some(sequence) = self.follow(&mut running[at])? else { continue };
            let pending = running[at].tokens().len() - self.engine.len(sequence)?;
            let now = pending.min(left + 1);
            left -= now - 1;
            ready.push(Guessing {
                at,
                sequence,
                length,
                now,
                whole: now == pending,
                sampler: None,
            });
        }
        // What each computes next: of its tokens first, then its own guesses.
        while !ready.is_empty() {
            let entry = |guessing: &Guessing| {
                let request = &running[guessing.at];
                let tokens = match request.guess().last() {
                    Some(last) => std::slice::from_ref(last),
                    None => {
                        let from = self.engine.len(guessing.sequence)?;
                        &request.tokens()[from..from + guessing.now]
                    }
                };
                let outputs = if guessing.whole { Outputs::Last } else { Outputs::None };
                Ok(BatchEntry { sequence: guessing.sequence, tokens, outputs })
            };
            let batch = ready.iter().map(entry).collect::<Result<Vec<_>, Error>>()?;
            let logits = match self.engine.step(&batch) {
                Ok(logits) => logits,
                // Another time, when there is more room.
                Err(Error::NoPages { .. } | Error::ContextFull { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut rows = 0..;
            for guessing in ready.iter_mut().filter(|g| g.whole) {
                let (request, row) = (&mut running[guessing.at], rows.next().unwrap_or(0));
                let own = || request.answers[0].sampler.ahead();
                let sampler = guessing.sampler.get_or_insert_with(own);
                request.push_guess(sampler.sample(logits.row(row)));
            }
            ready.retain(|g| g.whole && running[g.at].guess().len() < g.length);
        }
        Ok(())
    }

    /// The sequence of a request, without what was guessed wrong; `None` if there is no room for it.
    fn follow(&mut self, request: &mut Running) -> Result<Option<SeqId>, Error> {
        let sequence = match request.draft {
            Some(sequence) => sequence,
            None => match self.engine.begin(request.tokens()) {
                Ok((sequence, _)) => *request.draft.insert(sequence),
                Err(Error::TooManySequences { .. }) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let right = self.engine.len(sequence)?.min(request.len());
        self.engine.truncate(sequence, right)?;
        Ok(Some(sequence))
    }

    pub(crate) fn forget(&mut self, request: &mut Running) -> Result<(), Error> {
        request.draft.take().map_or(Ok(()), |sequence| self.engine.free(sequence))
    }
}

/// A request that is guessed for.
struct Guessing {
    at: usize,
    sequence: SeqId,
    length: usize,
    /// Tokens that it computes in the first step.
    now: usize,
    /// Whether those are all that it has.
    whole: bool,
    sampler: Option<Sampler>,
}
