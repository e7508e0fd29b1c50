//! The recording side: what threads write down while they work.
//!
//! A thread that walks a compiled program has only to note when each of its events was over: what the
//! event was is in the program. So the hot path is one reading of the clock and 16 bytes into the
//! thread's own log, per instruction and per wait; the log is allocated by the thread itself, and its
//! lock, which nobody else takes meanwhile, is taken once a step. Nothing is allocated in a step.
//!
//! Limits: a log has room for so many marks. A step whose marks do not fit is not recorded by that
//! thread; it counts them.

use super::labels::Labels;
use super::marks::{BEGIN, MET, Mark, PartRecord};
use super::{Profile, Step, Watch};
use crate::book::Extent;
use crate::buffer::Buffers;
use crate::error::Error;
use crate::exec::{Replica, StepPart};
use kernels::{Kernels, KvTypes};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use threads::{Clock, Moment, Pool};

/// What one thread writes down.
pub(crate) struct Log {
    clock: Clock,
    marks: Vec<Mark>,
    /// Whether this step is recorded.
    on: bool,
    /// Index of the step's first part.
    first: u32,
    /// The part that is under way, and its next event.
    part: u32,
    event: u32,
    dropped: u64,
}

impl Log {
    fn new(clock: Clock, room: usize) -> Log {
        let marks = Vec::with_capacity(room);
        Log { clock, marks, on: false, first: 0, part: 0, event: 0, dropped: 0 }
    }

    fn begin(&mut self, step: &StepPlan) {
        // What is missing is missing from the end.
        let room = self.marks.capacity() - self.marks.len();
        self.on = step.recorded && self.dropped == 0 && room >= step.marks;
        (self.first, self.part) = (step.first, step.first);
        self.push(BEGIN);
    }

    #[inline]
    fn push(&mut self, event: u32) {
        if self.on {
            self.marks.push(Mark { at: self.clock.ticks(), part: self.part, event });
        } else {
            self.dropped += 1;
        }
    }
}

impl Watch for Log {
    #[inline]
    fn part(&mut self, at: usize) {
        (self.part, self.event) = (self.first + at as u32, 0);
    }

    #[inline]
    fn done(&mut self) {
        self.push(self.event);
        self.event += 1;
    }

    #[inline]
    fn met(&mut self) {
        self.push(MET);
    }
}

/// A log on cache lines of its own (two: CPUs fetch them in pairs).
#[repr(align(128))]
struct Slot(Mutex<Log>);

/// What the logs are told of the step that begins.
#[derive(Clone, Copy)]
struct StepPlan {
    first: u32,
    /// At most so many of each thread.
    marks: usize,
    recorded: bool,
}

/// All threads' logs, and what the steps were that they tell of.
pub(crate) struct Recorder {
    labels: Arc<Labels>,
    clock: Clock,
    #[expect(clippy::vec_box, reason = "each lies in its own thread's memory")]
    slots: Vec<Box<Slot>>, // [thread]
    steps: Vec<Step>,
    parts: Vec<PartRecord>,
    now: StepPlan,
    since: Moment,
}

impl Recorder {
    /// Allocates logs of `room` marks, each on its thread.
    pub(crate) fn new(
        room: usize,
        replica: &Replica,
        kernels: &Kernels,
        buffers: &Buffers,
        kv: KvTypes,
        pool: &mut Pool,
    ) -> Result<Recorder, Error> {
        let clock = Clock::new();
        let slots: Vec<OnceLock<Box<Slot>>> =
            (0..pool.threads()).map(|_| OnceLock::new()).collect();
        pool.run(&|worker| {
            let new = || Box::new(Slot(Mutex::new(Log::new(clock, room))));
            slots[worker.thread()].get_or_init(new);
        })?;
        // Every step has several marks.
        let (steps, parts) = (Vec::with_capacity(room / 4), Vec::with_capacity(room / 4));
        Ok(Recorder {
            labels: Arc::new(Labels::new(replica, kernels, buffers, kv)),
            clock,
            slots: slots.into_iter().filter_map(OnceLock::into_inner).collect(),
            steps,
            parts,
            now: StepPlan { first: 0, marks: 0, recorded: false },
            since: clock.now(),
        })
    }

    /// A step begins.
    pub(crate) fn begin_step(&mut self, parts: &[StepPart<'_>], level: usize, rounds: usize) {
        let first = self.parts.len();
        let recorded = self.parts.capacity() - first >= parts.len();
        // The beginning, the switch to groups, the meetings between rounds.
        let marks = 2 + rounds + parts.iter().map(|p| self.labels.events(p.variant)).sum::<usize>();
        self.now = StepPlan { first: first as u32, marks, recorded };
        if recorded {
            let step = self.steps.len() as u32;
            self.parts.extend(parts.iter().map(|part| record(step, level, part)));
            let outputs = parts.iter().map(|p| p.input.outputs.len()).sum();
            let tokens = parts.iter().map(|p| p.input.tokens.len()).sum();
            let start = self.clock.ticks();
            self.steps.push(Step { start, end: start, tokens, outputs, level });
        }
    }

    /// A thread's log, for the step that has begun.
    pub(crate) fn watch(&self, thread: usize) -> MutexGuard<'_, Log> {
        let mut log = lock(&self.slots[thread]);
        log.begin(&self.now);
        log
    }

    /// All threads are through with the step.
    pub(crate) fn end_step(&mut self) {
        let end = self.clock.ticks();
        if let Some(step) = self.steps.last_mut().filter(|_| self.now.recorded) {
            step.end = end;
        }
    }

    /// What was recorded since the beginning or the last time; the logs are empty then.
    pub(crate) fn take(&mut self) -> Profile {
        let (since, until) = (self.since, self.clock.now());
        self.since = until;
        let logs = self.slots.iter().map(|slot| lock(slot).marks.clone()).collect();
        let mut dropped = 0;
        for mut log in self.slots.iter().map(|slot| lock(slot)) {
            log.marks.clear();
            dropped += std::mem::take(&mut log.dropped);
        }
        let profile = Profile {
            labels: self.labels.clone(),
            steps: self.steps.clone(),
            parts: self.parts.clone(),
            logs,
            dropped,
            since,
            until,
        };
        self.steps.clear();
        self.parts.clear();
        profile
    }
}

fn record(step: u32, level: usize, part: &StepPart<'_>) -> PartRecord {
    let extent = Extent::of(part.input);
    PartRecord { step, level: level as u32, variant: part.variant, extent }
}

/// A thread that panicked in a step has left its log as good as it was.
fn lock(slot: &Slot) -> MutexGuard<'_, Log> {
    slot.0.lock().unwrap_or_else(PoisonError::into_inner)
}
