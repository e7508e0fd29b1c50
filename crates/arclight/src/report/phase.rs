//! A phase of work: the prompt, or the answer.

use super::counters::Counted;
use arclight_engine::Activity;
use std::time::Duration;

/// What the threads did for a prompt or for an answer, and how long that took.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    /// Decoding token by token, not taking a prompt.
    pub(crate) decoding: bool,
    pub(crate) time: Duration,
    pub(crate) activity: Activity,
    pub(crate) counted: Counted,
}

impl Phase {
    /// Adds another stretch of the same work.
    pub(crate) fn add(&mut self, other: Phase) {
        let Phase { time, activity, counted, .. } = other;
        self.time += time;
        self.counted.add(&counted);
        let (to, from) = (&mut self.activity.counts, activity.counts);
        to.steps += from.steps;
        to.tokens += from.tokens;
        for (to, from) in to.places.iter_mut().zip(from.places) {
            to.weights += from.weights;
            to.kv += from.kv;
            to.exchanged += from.exchanged;
        }
        for (to, from) in self.activity.waits.iter_mut().zip(activity.waits) {
            *to += from;
        }
        let experts = self.activity.experts.iter_mut().flatten();
        experts.zip(activity.experts.into_iter().flatten()).for_each(|(to, from)| *to += from);
        for (to, from) in self.activity.threads.iter_mut().zip(activity.threads) {
            to.jobs.count += from.jobs.count;
            to.jobs.nanos += from.jobs.nanos;
            to.local.count += from.local.count;
            to.local.nanos += from.local.nanos;
            to.global.count += from.global.count;
            to.global.nanos += from.global.nanos;
            to.crossings += from.crossings;
            to.last.count += from.last.count;
            to.last.nanos += from.last.nanos;
            to.tasks += from.tasks;
        }
    }
}
