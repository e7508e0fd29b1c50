//! What the model of time expects of decoding here, beside what a search has measured.
//!
//! `plan` tells how many threads decoding wants by the bandwidth, the multipliers and the waits that it measures in a
//! second; a search measures steps. Where they differ, the reason is something that the model does not know, and the
//! search is right.

use super::requests::ends;
use crate::error::Error;
use crate::plan::at_hand;
use crate::plan::machine::Target;
use crate::term;
use arclight_engine::{KvTypes, ModelFile};
use serde::Serialize;
use tune::tuner::{Outcome, StepKind};
use tune::{Engine, Job, ModelGraphs};

/// A machine as `plan` measures it. To be measured before a model is loaded: afterwards threads are pinned.
pub(super) struct Expectation(Target);

/// Threads for decoding.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Threads {
    /// Without a profile.
    pub(super) default: usize,
    /// As was measured to be fastest.
    pub(super) tuned: usize,
    /// As the model of time has it.
    pub(super) expected: usize,
    /// What limits decoding by the model of time.
    pub(super) limit: String,
}

impl Expectation {
    /// Measures the machine.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub(super) fn measure() -> Result<Expectation, Error> {
        at_hand::measure().map(|(target, _)| Expectation(target))
    }

    /// What it expects of a model, and what was found.
    ///
    /// # Errors
    /// When nothing can be predicted for the model.
    pub(super) fn threads(
        &self,
        file: &ModelFile,
        kv: KvTypes,
        outcome: &Outcome,
        kinds: &[StepKind],
        together: usize,
        default: usize,
    ) -> Result<Threads, Error> {
        let Expectation(target) = self;
        let gguf = file.gguf()?;
        let fault = |source| Error::Model { path: file.path().to_owned(), source };
        models::build(&gguf, 1).map_err(fault)?;
        let build = |shares| {
            models::build(&gguf, shares).expect("what builds for one node builds for all").graph
        };
        let model = ModelGraphs::new(kv, build);
        let (decode, _) = ends(kinds);
        let sequences = (decode.tokens as usize).min(together.max(1));
        let tokens = decode.tokens as usize / sequences;
        let job = Job { tokens, context: decode.depth as usize, chunk: tokens, sequences };
        let best = tune::best(&target.model, &Engine::tensor_parallel(), &model, job);
        let best = best.map_err(Error::refused)?;
        Ok(Threads {
            default,
            tuned: outcome.table.level(decode.tokens).threads(),
            expected: best.threads.iter().sum(),
            limit: target.name_of(best.prediction.bottleneck),
        })
    }
}

impl Threads {
    /// Whether tuning, `plan` and the default agree, and why they may not.
    pub(super) fn words(&self) -> String {
        let Threads { default, tuned, expected, limit } = self;
        let plan = format!("`plan` expects {expected}, limited by {limit}");
        let threads = term::plural(*tuned, "thread");
        match (tuned == default, tuned == expected) {
            (true, true) => format!("decoding: {threads}, as by default and by `plan`"),
            (true, false) => format!(
                "decoding: {threads}, as by default; {plan}: it knows no caches, and not what other programs take"
            ),
            (false, true) => {
                format!(
                    "decoding: {threads}, as by `plan`; the default is {default} until decoding has tried fewer"
                )
            }
            (false, false) => format!(
                "decoding: {threads}; the default is {default} until decoding has tried fewer; {plan}: it knows no \
                 caches, and not what other programs take"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_differs_is_told_with_the_reason() {
        let words = |default, tuned, expected| {
            let limit = "memory of node 0".to_owned();
            Threads { default, tuned, expected, limit }.words()
        };
        assert_eq!(words(8, 8, 8), "decoding: 8 threads, as by default and by `plan`");
        assert!(words(8, 6, 6).contains("as by `plan`; the default is 8"));
        assert!(
            words(8, 8, 6).contains("expects 6, limited by memory of node 0: it knows no caches")
        );
        let all = words(8, 4, 6);
        assert!(all.contains("the default is 8") && all.contains("expects 6"), "{all}");
    }
}
