//! Measuring on behalf of a search: asks the caller, counts, remembers, and lets the user stop it.

use super::noise::median;
use super::scheme::{Candidate, Level, Scheme, Teams};
use super::trace::StepKind;
use super::trail::Branch;
use crate::schedule::TunedSchedules;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Who can time a step: an engine, or a model of one.
pub trait Measure {
    /// Seconds of one step of this kind; `None` when it cannot be run so. Every call is a new
    /// repetition. Candidates of one scheme come in a row: when the scheme is another than that of
    /// the call before, the model has to be loaded for it.
    fn seconds(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Option<f64>;

    /// About how many seconds it takes to load the model for another scheme.
    fn load_seconds(&self) -> f64;
}

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TuneProgress {
    /// What it is doing.
    pub doing: &'static str,
    /// Steps timed.
    pub evaluations: usize,
    /// About how many are still to be timed. It may grow: what is tried next depends on results.
    pub remaining: usize,
    /// Times the model was loaded.
    pub loads: usize,
    /// How many times faster than the default the trace seems to go with the best found so far; 1
    /// while nothing better is known.
    pub gain: f64,
}

/// The user, or the clock, stopped the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop;

/// Asked after every evaluation.
pub(super) type Watch<'a> = dyn FnMut(&TuneProgress) -> ControlFlow<()> + 'a;

pub(super) struct Session<'a> {
    measure: &'a mut dyn Measure,
    watch: &'a mut Watch<'a>,
    pub(super) kinds: &'a [StepKind],
    pub(super) choices: Vec<(String, String)>,
    /// How matrices are multiplied; `None`: as without tuning.
    pub(super) schedules: Option<TunedSchedules>,
    /// What the model is loaded for.
    pub(super) loaded: Option<Scheme>,
    /// The first time of each kind of step with each teams; infinite where it cannot be run.
    first: BTreeMap<(Teams, usize), f64>,
    pub(super) progress: TuneProgress,
    /// Of what remains, that which is not part of the stage at hand.
    later: usize,
    /// What was looked at.
    pub(super) branches: Vec<Branch>,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        measure: &'a mut dyn Measure,
        watch: &'a mut Watch<'a>,
        kinds: &'a [StepKind],
    ) -> Session<'a> {
        let progress =
            TuneProgress { doing: "default", evaluations: 0, remaining: 0, loads: 0, gain: 1.0 };
        let (loaded, first, choices, schedules) = (None, BTreeMap::new(), vec![], None);
        let (later, branches) = (0, vec![]);
        Session {
            measure,
            watch,
            kinds,
            choices,
            schedules,
            loaded,
            first,
            progress,
            later,
            branches,
        }
    }

    /// Begins a stage of about `now` evaluations, after which come about `later`.
    pub(super) fn begin(&mut self, doing: &'static str, now: usize, later: usize) {
        self.progress.doing = doing;
        self.progress.remaining = now + later;
        self.later = later;
    }

    /// Keeps in mind what was looked at, and gives its place.
    pub(super) fn grow(&mut self, branch: Branch) -> usize {
        self.branches.push(branch);
        self.branches.len() - 1
    }

    pub(super) fn load_seconds(&self) -> f64 {
        self.measure.load_seconds()
    }

    /// The repetitions of each visit to some schemes, which come in turns, A B A B, where loading them does
    /// not take longer than so many seconds of measuring.
    pub(super) fn visits(&self, schemes: usize, measuring: f64, repetitions: usize) -> Vec<usize> {
        if schemes > 1 && self.load_seconds() * schemes as f64 <= measuring {
            vec![repetitions.div_ceil(2), repetitions / 2]
        } else {
            vec![repetitions]
        }
    }

    /// Times a step; infinite when it cannot be run so.
    pub(super) fn time(
        &mut self,
        scheme: &Scheme,
        level: &Level,
        kind: usize,
    ) -> Result<f64, Stop> {
        if self.loaded.as_ref() != Some(scheme) {
            self.loaded = Some(scheme.clone());
            self.progress.loads += 1;
        }
        let (choices, schedules) = (&self.choices, self.schedules.as_ref());
        let candidate = Candidate { scheme, level, choices, schedules };
        let seconds = self.measure.seconds(&candidate, &self.kinds[kind]);
        let seconds = seconds.filter(|s| s.is_finite() && *s > 0.0).unwrap_or(f64::INFINITY);
        self.first.entry((scheme.teams(level), kind)).or_insert(seconds);
        self.progress.evaluations += 1;
        self.progress.remaining = self.progress.remaining.saturating_sub(1).max(self.later);
        match (self.watch)(&self.progress) {
            ControlFlow::Continue(()) => Ok(seconds),
            ControlFlow::Break(()) => Err(Stop),
        }
    }

    /// The first time of a step, which is taken now unless it was.
    pub(super) fn once(
        &mut self,
        scheme: &Scheme,
        level: &Level,
        kind: usize,
    ) -> Result<f64, Stop> {
        match self.known(&scheme.teams(level), kind) {
            Some(seconds) => Ok(seconds),
            None => self.time(scheme, level, kind),
        }
    }

    pub(super) fn known(&self, teams: &Teams, kind: usize) -> Option<f64> {
        self.first.get(&(teams.clone(), kind)).copied()
    }

    /// All teams of which a kind of step has been timed.
    pub(super) fn all_known(&self, kind: usize) -> impl Iterator<Item = (&Teams, f64)> {
        let of_kind = self.first.iter().filter(move |((_, k), _)| *k == kind);
        of_kind.map(|((teams, _), &seconds)| (teams, seconds))
    }

    /// Times steps in turns, each so many times more: a series for each.
    pub(super) fn series<const N: usize>(
        &mut self,
        scheme: &Scheme,
        steps: [(&Level, usize); N],
        repetitions: usize,
    ) -> Result<[Vec<f64>; N], Stop> {
        let mut all = [const { vec![] }; N];
        for _ in 0..repetitions {
            for (series, (level, kind)) in all.iter_mut().zip(steps) {
                series.push(self.time(scheme, level, kind)?);
            }
        }
        Ok(all)
    }

    /// Tells that the trace seems to take `best` where the default takes `default`.
    pub(super) fn found(&mut self, default: f64, best: f64) {
        if best > 0.0 && default / best > self.progress.gain {
            self.progress.gain = default / best;
        }
    }
}

/// Seconds of a trace by repetition, of one series per kind.
pub(super) fn totals(kinds: &[StepKind], series: &[&[f64]]) -> Vec<f64> {
    let repetitions = series.iter().map(|s| s.len()).min().unwrap_or(0);
    let total = |at: usize| kinds.iter().zip(series).map(|(kind, s)| kind.weight * s[at]).sum();
    (0..repetitions).map(total).collect()
}

/// Seconds of a trace by the medians of a series per kind.
pub(super) fn typical(kinds: &[StepKind], series: &[&[f64]]) -> f64 {
    kinds.iter().zip(series).map(|(kind, s)| kind.weight * median(s)).sum()
}
