//! A model that serves, timed in moments when it has nothing to do.
//!
//! What is tried is what changes on a loaded model: numbers of CPUs within its groups, and how matrices are
//! multiplied. The engine belongs to who serves with it. It is sent tasks, a timing each, and does them when it has
//! nothing else to do. Every task leaves the engine as it serves: by the same threads and schedules, sequences and pages
//! as they were. So whatever comes between two of them finds nothing changed, and waits for one timing at most.
//!
//! Limits: steps are timed at the beginning of a sequence. Tokens before them would have to be computed every time,
//! and the weights are what a step reads most of.

use super::lab::{self, Lab, Task};
use super::matrices;
use super::requests::kinds;
use super::stored::{self, DISTANCES, PREFETCH};
use crate::error::Error;
use arclight_engine::{Engine, Group, Schedules};
use graph::Phase;
use loadgen::Rng;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use topology::Machine;
use tune::tuner::{Candidate, Choice, Level, Measure, Outcome, Scheme, StepKind, Trace};

/// Something that is done with an engine.
pub(crate) type EngineTask = Box<dyn FnOnce(&mut Engine) + Send>;

/// Has an engine do something when it has nothing else to do; an error when it never will.
pub(crate) type WhenIdle = Box<dyn Fn(EngineTask) -> Result<(), Error> + Send>;

/// Short steps are repeated until they have taken this long together.
const LEAST: Duration = Duration::from_millis(10);

/// What has become of the engine's idle time.
#[derive(Debug, Default)]
pub(super) struct Spent {
    time: Cell<Duration>,
    over: Cell<bool>,
}

impl Spent {
    /// Time that tasks have taken.
    pub(super) fn time(&self) -> Duration {
        self.time.get()
    }

    /// Whether there will be no more: the engine is gone, or has no pages to spare.
    pub(super) fn is_over(&self) -> bool {
        self.over.get()
    }
}

/// A model that serves.
pub(super) struct Hot<'a> {
    when_idle: &'a WhenIdle,
    spent: &'a Spent,
    machine: Machine,
    /// What the model is loaded for.
    scheme: Scheme,
    /// Those that the engine knows by now; all CPUs are the last.
    levels: Vec<Level>,
    context: usize,
    tokens: Arc<[u32]>,
    /// Which threads took which steps before.
    before: Vec<Phase>,
    /// What went wrong when a step was taken; the search goes on without that.
    faults: Vec<String>,
}

impl<'a> Hot<'a> {
    pub(super) fn new(
        when_idle: &'a WhenIdle,
        spent: &'a Spent,
        machine: Machine,
    ) -> Result<Hot<'a>, Error> {
        let (groups, before, context, tokens) = idle(when_idle, spent, |engine| {
            let mut rng = Rng::new(1, "tune");
            let (vocab, most) = (engine.hparams().vocab, engine.limits().tokens);
            let tokens: Vec<u32> = (0..most).map(|_| rng.below(vocab) as u32).collect();
            let plan = engine.plan();
            let (groups, before) = (plan.groups.clone(), plan.phases.clone());
            Ok((groups, before, engine.context(), tokens))
        })?;
        let scheme = Scheme::new(groups).map_err(Error::refused)?;
        let (levels, tokens) = (vec![scheme.all()], tokens.into());
        let faults = Vec::new();
        Ok(Hot { when_idle, spent, machine, scheme, levels, context, tokens, before, faults })
    }

    /// What the model is loaded for.
    pub(super) fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Steps of a trace that there is room for, each at the beginning of a sequence.
    pub(super) fn kinds(&self, trace: &Trace) -> Vec<StepKind> {
        let kinds = kinds(trace, 1, self.context).into_iter();
        let fits = |kind: &StepKind| kind.tokens as usize <= self.tokens.len();
        kinds.filter(fits).map(|kind| StepKind { depth: 0, ..kind }).collect()
    }

    /// Settings that the search may choose.
    pub(super) fn choices(&self) -> Vec<Choice> {
        let options = DISTANCES.map(str::to_owned).to_vec();
        vec![Choice { name: PREFETCH.to_owned(), options }]
    }

    /// What went wrong.
    pub(super) fn fault(&self) -> Option<&str> {
        self.faults.first().map(String::as_str)
    }

    /// Has the model serve from now on as an outcome says, or as it did before.
    pub(super) fn settle(&self, outcome: Option<&Outcome>) -> Result<(), Error> {
        let phases = outcome.map(|o| stored::phases(&o.table, &self.scheme.all()));
        let (phases, groups) = (phases.unwrap_or_else(|| self.before.clone()), self.groups());
        // What of them is not known here was told when they were found.
        let schedules = outcome.map(|outcome| stored::schedules(outcome).0).unwrap_or_default();
        let (machine, found) = (self.machine.clone(), outcome.is_some());
        idle(self.when_idle, self.spent, move |engine| {
            if found {
                engine.end_trials();
            }
            engine.rearrange(groups, phases, &machine)?;
            set_schedules(engine, &schedules)
        })
    }

    fn groups(&self) -> Vec<Group> {
        self.scheme.groups().to_vec()
    }

    /// The engine's number of a level.
    fn level(&mut self, level: &Level) -> Result<usize, Error> {
        if let Some(at) = self.levels.iter().position(|known| known == level) {
            return Ok(at);
        }
        let mut levels = self.levels.clone();
        levels.push(level.clone());
        levels.sort_by_key(Level::threads);
        let phase =
            |(level, tokens): (&Level, usize)| Phase { tokens, threads: level.cpus().to_vec() };
        let (phases, groups) = (levels.iter().zip(1..).map(phase).collect(), self.groups());
        let (machine, all) = (self.machine.clone(), levels.len() - 1);
        idle(self.when_idle, self.spent, move |engine| {
            engine.rearrange(groups, phases, &machine)?;
            // The phases are there to name levels.
            engine.force_level(Some(all));
            Ok(())
        })?;
        self.levels = levels;
        self.level(level)
    }

    /// Does something at a candidate's level, and leaves the engine as it serves.
    fn at<T: Send + 'static>(
        &mut self,
        candidate: &Candidate<'_>,
        what: impl FnOnce(&mut Engine, usize) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let Candidate { level, choices, schedules, .. } = *candidate;
        let (level, all) = (self.level(level)?, self.levels.len() - 1);
        let mut wanted = schedules.map_or_else(Schedules::default, |found| matrices::all(found).0);
        wanted.usual.ahead = stored::ahead(choices).unwrap_or(wanted.usual.ahead);
        idle(self.when_idle, self.spent, move |engine| {
            let own = engine.plan().schedules.clone();
            set_schedules(engine, &wanted)?;
            engine.force_level(Some(level));
            let done = what(engine, level);
            engine.force_level(Some(all));
            set_schedules(engine, &own)?;
            done
        })
    }
}

/// Has an engine do something in idle time, and waits for it.
fn idle<T: Send + 'static>(
    when_idle: &WhenIdle,
    spent: &Spent,
    what: impl FnOnce(&mut Engine) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (told, heard) = channel();
    let task = move |engine: &mut Engine| {
        let start = Instant::now();
        let done = what(engine);
        // Who has asked waits for this.
        let _ = told.send((done, start.elapsed()));
    };
    let gone = |_| arclight_engine::Error::ReplicasClosed.into();
    let done = when_idle(Box::new(task)).and_then(|()| heard.recv().map_err(gone));
    let (done, took) = done.inspect_err(|_| spent.over.set(true))?;
    tracing::trace!(?took, "idle time was used");
    spent.time.update(|time| time + took);
    done
}

fn set_schedules(engine: &mut Engine, schedules: &Schedules) -> Result<(), Error> {
    if engine.plan().schedules == *schedules {
        return Ok(());
    }
    Ok(engine.set_schedules(schedules.clone())?)
}

impl Lab for Hot<'_> {
    fn time(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Result<f64, Error> {
        let (tokens, count) = (self.tokens.clone(), kind.tokens as usize);
        let timed =
            self.at(candidate, move |engine, _| Ok(engine.time_step(&tokens[..count], LEAST)?))?;
        timed.ok_or_else(|| {
            self.spent.over.set(true);
            Error::Refused("there are no free pages to time steps with".to_owned())
        })
    }

    fn run(&mut self, candidate: &Candidate<'_>, task: Task) -> Result<(), Error> {
        self.at(candidate, move |engine, level| {
            task(engine, level);
            Ok(())
        })
    }

    fn fault(&mut self, fault: String) {
        self.faults.push(fault);
    }
}

impl Measure for Hot<'_> {
    fn seconds(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Option<f64> {
        let timed = self.time(candidate, kind);
        lab::told(self, timed)
    }

    fn load_seconds(&self) -> f64 {
        0.0
    }
}
