//! A smaller model that guesses what the large one will say.
//!
//! It has a sequence of its own for every text that it guesses for, with the same tokens in its
//! cache; what was guessed wrong is taken back. Before it can guess it must have computed the
//! text's prompt: it does so in steps as large as its engine takes, one before each step of the
//! large model, so that nobody waits for long.

use super::ahead::{Ahead, Text};
use crate::engine::{BatchEntry, Engine};
use crate::error::Error;
use crate::sampler::Sampler;
use crate::sequence::SeqId;
use graph::Outputs;

pub(crate) struct Draft {
    engine: Engine,
}

impl Draft {
    pub(crate) fn new(engine: Engine) -> Draft {
        Draft { engine }
    }

    /// Guesses as many tokens of each text as it wants, at most.
    pub(super) fn guess(&mut self, texts: &mut [Text<'_>]) -> Result<(), Error> {
        let wanting = texts.iter().filter(|text| text.ahead.wanted() > 0).count();
        let mut ready = Vec::with_capacity(wanting);
        let mut left = self.engine.limits().tokens.saturating_sub(wanting);
        for (at, text) in texts.iter_mut().enumerate() {
            if text.ahead.wanted() == 0 {
                continue;
            }
            let Some(sequence) = self.follow(text)? else { continue };
            let pending = text.tokens.len() - self.engine.len(sequence)?;
            let now = pending.min(left + 1);
            left -= now - 1;
            let whole = now == pending;
            ready.push(Guessing { at, sequence, now, whole, sampler: text.sampler.clone() });
        }
        // What each computes next: of its tokens first, then its own guesses.
        while !ready.is_empty() {
            let entry = |guessing: &Guessing| {
                let text = &texts[guessing.at];
                let tokens = match text.ahead.guess().last() {
                    Some(last) => std::slice::from_ref(last),
                    None => {
                        let from = self.engine.len(guessing.sequence)?;
                        &text.tokens[from..from + guessing.now]
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
                let row = rows.next().unwrap_or(0);
                texts[guessing.at].ahead.push(guessing.sampler.sample(logits.row(row)));
            }
            ready.retain(|g| {
                let ahead = &texts[g.at].ahead;
                g.whole && ahead.guess().len() < ahead.wanted()
            });
        }
        Ok(())
    }

    /// The sequence of a text, without what was guessed wrong; `None` if there is no room for it.
    fn follow(&mut self, text: &mut Text<'_>) -> Result<Option<SeqId>, Error> {
        let sequence = match text.ahead.draft {
            Some(sequence) => sequence,
            None => match self.engine.begin(text.tokens) {
                Ok((sequence, _)) => *text.ahead.draft.insert(sequence),
                Err(Error::TooManySequences { .. }) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let right = self.engine.len(sequence)?.min(text.computed);
        self.engine.truncate(sequence, right)?;
        Ok(Some(sequence))
    }

    pub(super) fn forget(&mut self, ahead: &mut Ahead) -> Result<(), Error> {
        ahead.draft.take().map_or(Ok(()), |sequence| self.engine.free(sequence))
    }
}

/// A text that is guessed for.
struct Guessing {
    at: usize,
    sequence: SeqId,
    /// Tokens that it computes in the first step.
    now: usize,
    /// Whether those are all that it has.
    whole: bool,
    sampler: Sampler,
}
