//! What every thread did when: the operators and waits of recorded steps, with what each has read
//! and multiplied.
//!
//! [`Executor::begin_profile`](crate::Executor::begin_profile) makes the threads write down when each
//! instruction and each wait was over (`record`); what these were, and what they cost by the book, is
//! derived from the compiled programs once (`labels`). A thread's events follow each other without
//! gaps from a step's beginning to its end, so that all of its time is accounted for.
//!
//! Limits: bytes are those that must come from memory once: a thread's packed weights in full, and
//! the keys and values of each sequence dealt evenly over the team. Threads that multiply the same weights
//! with other tokens ([`Grid`](crate::Grid)) have them all in full. Activations are not counted, nor is
//! what a cache fails to keep.

mod class;
mod labels;
mod marks;
mod record;
mod watch;

pub use crate::book::Demand;
pub use class::Class;
pub(crate) use record::Recorder;
pub(crate) use watch::Watch;

use crate::book::RowsOf;
use crate::compile::Scope;
use crate::tensor::Domain;
use labels::{Label, Labels};
use marks::{BEGIN, MET, Mark, PartRecord};
use std::sync::Arc;
use std::time::{Duration, Instant};
use threads::Moment;

/// A recorded stretch of an executor's life.
#[derive(Clone)]
pub struct Profile {
    labels: Arc<Labels>,
    steps: Vec<Step>, // in ticks
    parts: Vec<PartRecord>,
    logs: Vec<Vec<Mark>>, // [thread]
    dropped: u64,
    since: Moment,
    until: Moment,
}

/// One step. Times are nanoseconds since [`Profile::since`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When the first thread called the others.
    pub start: u64,
    /// When all were through.
    pub end: u64,
    /// Tokens of all sequences.
    pub tokens: usize,
    /// Rows of logits.
    pub outputs: usize,
    /// Which threads took part ([`Plan::level`](crate::Plan::level)).
    pub level: usize,
}

/// What a thread did between two moments. Times are nanoseconds since [`Profile::since`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval<'a> {
    /// Index of the step.
    pub step: usize,
    /// Layer; `None` outside of all layers and for waits that belong to no operator.
    pub layer: Option<usize>,
    /// From.
    pub start: u64,
    /// To.
    pub end: u64,
    /// What.
    pub what: What<'a>,
}

/// Work or waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What<'a> {
    /// One instruction, by the name of its matrix or of its kind.
    Operator {
        /// `qkv`, `attend`, `rms_norm`.
        name: &'a str,
        /// The kind of work.
        class: Class,
        /// Rows of the step that it works on, over all threads.
        rows: usize,
        /// What it asks of this thread.
        demand: Demand,
    },
    /// A wait for other threads.
    Wait {
        /// The operator before it, that others were still at.
        after: Option<&'a str>,
        /// For whom.
        scope: Scope,
        /// The buffer that the next operator needs complete, or what else there is to wait for.
        because: &'a str,
    },
}

/// Waiting to be called to a step.
const STEP_BEGINS: &str = "the step to begin";
/// Waiting for the last thread of a step.
const STEP_ENDS: &str = "the step to end";
/// Waiting for all groups, at the beginning of a step or between the rounds of a pipeline.
const GROUPS_MEET: &str = "all groups to meet";

impl Profile {
    /// When recording began; all times count from here.
    pub fn since(&self) -> Instant {
        self.since.time
    }

    /// How long it was recorded.
    pub fn duration(&self) -> Duration {
        self.until.time - self.since.time
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.logs.len()
    }

    /// Events that did not fit into the threads' logs. They are missing from the end, whole steps of
    /// a thread at a time.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// All steps in order.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = Step> {
        self.steps.iter().map(|step| Step {
            start: self.nanos(step.start),
            end: self.nanos(step.end),
            ..*step
        })
    }

    /// How many steps, from the first on, all threads have recorded: all unless events were dropped.
    pub fn complete(&self) -> usize {
        let end = |(thread, log): (usize, &Vec<Mark>)| {
            let after = log.last().map_or(0, |mark| self.step_of(mark) + 1);
            let rest = self.steps[after..].iter();
            let sat_out = rest.take_while(|step| !self.takes_part(thread, step));
            after + sat_out.count()
        };
        self.logs.iter().enumerate().map(end).min().unwrap_or(0)
    }

    /// Whether a thread is one of those that a step was executed by; of the others there are no events.
    pub fn takes_part(&self, thread: usize, step: &Step) -> bool {
        self.labels.first_level(thread) <= step.level
    }

    fn step_of(&self, mark: &Mark) -> usize {
        self.parts[mark.part as usize].step as usize
    }

    /// What a thread did, in order. Within a step each event begins where the one before has ended.
    pub fn events(&self, thread: usize) -> impl Iterator<Item = Interval<'_>> {
        let log = &self.logs[thread];
        log.iter().enumerate().flat_map(move |(at, mark)| {
            let before = at.checked_sub(1).map(|before| log[before]);
            let last = log.get(at + 1).is_none_or(|next| next.event == BEGIN);
            let event = self.event(thread, *mark, before);
            let end = last.then(|| self.end(thread, *mark));
            std::iter::once(event).chain(end)
        })
    }

    /// What a mark ends.
    fn event(&self, thread: usize, mark: Mark, before: Option<Mark>) -> Interval<'_> {
        let part = &self.parts[mark.part as usize];
        let step = self.step_of(&mark);
        let meeting = |because| What::Wait { after: None, scope: Scope::Global, because };
        let (layer, what) = match mark.event {
            BEGIN => (None, meeting(STEP_BEGINS)),
            MET => (None, meeting(GROUPS_MEET)),
            event => match &self.labels.program_of(thread, part.variant)[event as usize] {
                Label::Operator { name, class, layer, domain, cost } => {
                    let rows = part.extent.rows(match domain {
                        Domain::Tokens | Domain::Slots(_) => RowsOf::Tokens,
                        Domain::Outputs => RowsOf::Outputs,
                    });
                    let demand = self.labels.demand(thread, cost, rows, part);
                    let name = self.labels.text(*name);
                    let (class, rows) = (*class, rows as usize);
                    (*layer, What::Operator { name, class, rows, demand })
                }
                Label::Wait { after, layer, scope, because } => {
                    let (after, because) = (self.labels.text(*after), self.labels.text(*because));
                    (*layer, What::Wait { after: Some(after), scope: *scope, because })
                }
            },
        };
        let start = match before {
            Some(before) if mark.event != BEGIN => before.at,
            _ => self.steps[step].start,
        };
        let (start, end) = (self.nanos(start), self.nanos(mark.at));
        // Another CPU's counter may be some ticks behind.
        Interval { step, layer, start: start.min(end), end, what }
    }

    /// From a thread's last mark in a step to the end of the step.
    fn end(&self, thread: usize, mark: Mark) -> Interval<'_> {
        let part = &self.parts[mark.part as usize];
        let program = self.labels.program_of(thread, part.variant);
        let last = program.get(mark.event as usize);
        let after = last.map(|last| match last {
            Label::Operator { name, .. } => self.labels.text(*name),
            Label::Wait { after, .. } => self.labels.text(*after),
        });
        let (step, start) = (self.step_of(&mark), self.nanos(mark.at));
        let end = self.nanos(self.steps[step].end).max(start);
        let what = What::Wait { after, scope: Scope::Global, because: STEP_ENDS };
        Interval { step, layer: None, start, end, what }
    }

    /// Nanoseconds from the beginning to a moment in ticks.
    fn nanos(&self, ticks: u64) -> u64 {
        let whole = (self.until.ticks - self.since.ticks).max(1) as f64;
        let rate = self.duration().as_nanos() as f64 / whole;
        (ticks.saturating_sub(self.since.ticks) as f64 * rate).round() as u64
    }
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("duration", &self.duration())
            .field("threads", &self.threads())
            .field("steps", &self.steps.len())
            .field("marks", &self.logs.iter().map(Vec::len).sum::<usize>())
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}
