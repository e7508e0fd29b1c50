//! The quick search: the most important questions within a time limit.

use super::lab::Lab;
use super::requests::ends;
use super::schedules::{self, Limits, Sizes};
use std::time::Duration;
use tune::tuner::{Choice, Outcome, Quick, Start, StepKind, TuneProgress};

/// Most time of a quick search.
pub(super) const QUICK: Duration = Duration::from_secs(20);
/// The share of it that is for matrices, and that of the whole to take steps with and without what was found.
const MATRICES: f64 = 0.35;
const COMPARING: f64 = 0.1;

/// What a quick search is about.
pub(super) struct Questions {
    pub(super) default: Start,
    pub(super) others: Vec<Start>,
    pub(super) choices: Vec<Choice>,
    /// By ascending tokens, two at least.
    pub(super) kinds: Vec<StepKind>,
}

impl Questions {
    /// Asks them, within the time that the limits give: first for cores, and `then` what is left is for the one
    /// product that every answer waits for, that with a single token. Also what is to be told.
    pub(super) fn ask(
        &self,
        lab: &mut dyn Lab,
        limits: &Limits<'_>,
        told: &mut dyn FnMut(&TuneProgress),
        then: &dyn Fn(),
    ) -> Result<(Outcome, Option<String>), tune::Error> {
        let Questions { default, others, choices, kinds } = self;
        let (decode, prompt) = ends(kinds);
        let (clock, interrupted) = (limits.clock, limits.interrupted);
        let left = |kept| limits.time.saturating_sub(clock() + limits.time.mul_f64(kept));
        let quick = Quick { default, others, decode, prompt, choices };
        let found = quick.run(lab, &mut |progress| {
            told(progress);
            if interrupted() { 0.0 } else { left(MATRICES).as_secs_f64() }
        })?;
        then();
        let time = left(COMPARING);
        if time.is_zero() || interrupted() {
            return Ok((found, None));
        }
        let one = Sizes { largest: 1, together: 1 };
        Ok(schedules::find(lab, vec![found], kinds, one, &Limits { time, ..*limits }))
    }
}
