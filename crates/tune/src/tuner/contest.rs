//! The best plans, each with its matrices tuned, against each other.
//!
//! The search for cores multiplies matrices in the default's way. How fast they can be multiplied depends
//! on the threads that share them, so a plan that comes second may be first once both are tuned. Each plan
//! of [`Tuner::best`](super::Tuner::best) therefore has its matrices tuned, and then all of them take
//! every kind of step without and with what was found, in turns:
//!
//! - A plan keeps its schedules, but for those of the numbers of tokens around a kind of step that is surely
//!   slower for them ([`faster`]).
//! - The first plan stays unless the trace is surely faster on another, in the sum over all kinds of
//!   steps. Of several that are, that one is taken whose trace is the shortest.
//!
//! Plans that cut matrices alike differ in nothing that schedules depend on, so between them the finals have
//! decided: only the first of them is here. A contest of one plan is the test of its schedules.
//!
//! Source: Zhao, Li, Wu, *Sandwich* (2026), section 4: configurations are ranked with a default schedule,
//! and kernels are tuned for the best k of them.

use super::noise::{faster, median};
use super::session::{Session, Stop, totals, typical};
use super::{Level, Measure, Measured, Outcome, Scheme, StepKind, Table, TuneProgress};
use crate::model::gcd;
use crate::schedule::TunedSchedules;
use std::ops::ControlFlow;

/// Who can also tune a plan's matrices: an engine, or a model of one.
pub trait Matrices: Measure {
    /// Searches schedules for a plan, for so large a share of the time that is left for that; `known`
    /// are those of other plans, and what a plan has in common with them need not be searched again.
    /// `None` when the model cannot be loaded for it.
    fn tune(
        &mut self,
        plan: &Outcome,
        known: &[TunedSchedules],
        share: f64,
    ) -> Option<TunedSchedules>;
}

/// What decides between plans.
#[derive(Clone, Copy, Debug)]
pub struct Contest<'a> {
    /// What the trace comes down to, by ascending tokens.
    pub kinds: &'a [StepKind],
    /// Most tokens of a step that schedules are for; larger steps are not taken here.
    pub largest: usize,
    /// Repetitions of every step. Below 5 nothing is ever better than anything.
    pub repetitions: usize,
}

/// What a contest ends with.
#[derive(Clone, Debug, PartialEq)]
pub struct Won {
    /// The plan, with its schedules.
    pub outcome: Outcome,
    /// Where it stood among the plans before; 0: the first stays.
    pub was: usize,
    /// Plans whose matrices were tuned.
    pub tuned: usize,
    /// The kinds of steps for which its matrices stay as without tuning: with what was found they are surely
    /// slower.
    pub slower: Vec<StepKind>,
}

/// A plan, and what its steps take.
struct Contender {
    outcome: Outcome,
    was: usize,
    /// Of each kind of step, without its schedules and with them; the same thing if it has none.
    times: [Vec<Vec<f64>>; 2],
    /// Whether there are schedules.
    tuned: bool,
}

impl Contest<'_> {
    /// Tunes the matrices of the plans, which stand best first, and says which it is to be. `watch` is asked
    /// after each step and each plan, and may stop it: then that is decided which can be with the steps that
    /// were taken, and the outcome is not complete.
    ///
    /// # Panics
    /// Without any plan.
    pub fn run<M: Matrices>(
        &self,
        measure: &mut M,
        plans: Vec<Outcome>,
        watch: &mut dyn FnMut(&TuneProgress) -> ControlFlow<()>,
    ) -> Won {
        let kinds: Vec<StepKind> =
            self.kinds.iter().filter(|k| k.tokens as usize <= self.largest).copied().collect();
        let plans = self.apart(plans);
        assert!(!plans.is_empty(), "a search has an outcome");
        let mut contenders = vec![];
        let mut stopped = false;
        let mut known: Vec<TunedSchedules> = vec![];
        for (at, (was, plan)) in plans.iter().enumerate() {
            let share = self.share(&plans, at);
            let found = measure.tune(plan, &known, share);
            let (doing, evaluations, remaining) = ("matrices", 0, 0);
            let progress = TuneProgress { doing, evaluations, remaining, loads: 0, gain: 1.0 };
            stopped = watch(&progress).is_break();
            // Of a plan whose search was stopped not all is known that speaks for it.
            if at == 0 || (found.is_some() && !stopped) {
                let found = found.unwrap_or_default();
                known.push(found.clone());
                contenders.push(Contender::new(*was, plan.clone(), found, kinds.len()));
            }
            if stopped {
                break;
            }
        }
        // Nothing was found for any: the finals of the search for cores stand.
        let nothing = contenders.iter().all(|c| !c.tuned);
        let evaluations: usize = known.iter().map(|found| found.evaluations).sum();
        let tuned = contenders.len();
        // The first plan is loaded at the beginning, or nearly so: the finals have ended.
        let other = |pair: &&[Contender]| pair[0].outcome.scheme != pair[1].outcome.scheme;
        let loads = contenders.windows(2).filter(other).count();
        let mut session = Session::new(measure, watch, &kinds);
        session.loaded = contenders.last().map(|c| c.outcome.scheme.clone());
        if !stopped && !nothing {
            stopped = self.take(&mut session, &mut contenders).is_err();
        }
        let progress = session.progress;
        let mut slower: Vec<_> = contenders.iter_mut().map(|c| c.test(&kinds)).collect();
        let winner = if nothing { 0 } else { winner(&kinds, &contenders) };
        let (first, plain) = (&contenders[0].outcome.measured, &contenders[0].times[0]);
        let measured = contenders[winner].brings(&kinds, first, plain);
        let Contender { mut outcome, was, .. } = contenders.swap_remove(winner);
        outcome.measured = measured;
        if !outcome.schedules.matrices.is_empty() {
            outcome.schedules.evaluations = evaluations;
        }
        outcome.evaluations += progress.evaluations;
        outcome.loads += progress.loads + loads;
        outcome.complete &= !stopped;
        Won { outcome, was, tuned, slower: slower.swap_remove(winner) }
    }

    /// The plans and their places, without those that cut matrices as one before them does.
    fn apart(&self, plans: Vec<Outcome>) -> Vec<(usize, Outcome)> {
        let mut apart: Vec<(usize, Outcome)> = vec![];
        for (was, plan) in plans.into_iter().enumerate() {
            if !apart.iter().any(|(_, other)| self.cuts(other) == self.cuts(&plan)) {
                apart.push((was, plan));
            }
        }
        apart
    }

    fn cuts(&self, plan: &Outcome) -> Vec<Cut> {
        cuts(&plan.scheme, &plan.table, self.largest)
    }

    /// The share of the time left that is a plan's: by the cuts that no plan before it has, of it and of
    /// all behind it.
    fn share(&self, plans: &[(usize, Outcome)], at: usize) -> f64 {
        let new = |at: usize| {
            let before: Vec<_> = plans[..at].iter().flat_map(|(_, p)| self.cuts(p)).collect();
            let had = |cut: &Cut| {
                let alike = |b: &&Cut| (&b.shares, &b.threads) == (&cut.shares, &cut.threads);
                before.iter().filter(alike).any(|b| b.up_to >= cut.up_to)
            };
            self.cuts(&plans[at].1).iter().filter(|cut| !had(cut)).count() as f64
        };
        let all: f64 = (at..plans.len()).map(new).sum();
        if all > 0.0 { new(at) / all } else { 1.0 }
    }

    /// Takes every kind of step on every plan, without and with its schedules.
    fn take(&self, session: &mut Session<'_>, contenders: &mut [Contender]) -> Result<(), Stop> {
        let ways: usize = contenders.iter().map(|c| 1 + usize::from(c.tuned)).sum();
        let once = ways * session.kinds.len();
        session.begin("plans as tuned", once * self.repetitions, 0);
        let step = |m: &Measured| f64::from(m.tokens) / m.after;
        let steps: f64 = contenders[0].outcome.measured.iter().map(step).sum();
        let measuring = steps * (ways * self.repetitions) as f64;
        for repetitions in session.visits(contenders.len(), measuring, self.repetitions) {
            for contender in &mut *contenders {
                contender.visit(session, repetitions)?;
            }
        }
        Ok(())
    }
}

/// What products of steps of up to so many tokens are cut by.
#[derive(Debug, PartialEq)]
pub(super) struct Cut {
    /// The CPUs that each group has, in proportion: weights are shared by them.
    shares: Vec<usize>,
    /// Each group's threads in these steps.
    threads: Vec<usize>,
    up_to: usize,
}

/// The cuts of a plan, for steps of `largest` tokens at most.
pub(super) fn cuts(scheme: &Scheme, table: &Table, largest: usize) -> Vec<Cut> {
    let cpus: Vec<usize> = scheme.groups().iter().map(|g| g.cpus.len()).collect();
    let unit = cpus.iter().copied().fold(0, gcd).max(1);
    let mut cuts: Vec<Cut> = vec![];
    for row in table.rows() {
        let up_to = (row.up_to as usize).min(largest);
        if cuts.last().is_none_or(|before| before.up_to < up_to) {
            let shares = cpus.iter().map(|n| n / unit).collect();
            cuts.push(Cut { shares, threads: row.level.cpus().to_vec(), up_to });
        }
    }
    cuts
}

impl Contender {
    fn new(was: usize, mut outcome: Outcome, found: TunedSchedules, kinds: usize) -> Contender {
        let rows = || found.matrices.iter().flat_map(|matrix| matrix.rows());
        let tuned = rows().any(|row| row.schedule.is_some());
        outcome.schedules = found;
        Contender { outcome, was, times: [vec![vec![]; kinds], vec![vec![]; kinds]], tuned }
    }

    fn visit(&mut self, session: &mut Session<'_>, repetitions: usize) -> Result<(), Stop> {
        let Outcome { scheme, table, choices, schedules, .. } = &self.outcome;
        session.choices.clone_from(choices);
        let turns = if self.tuned { 2 * repetitions } else { repetitions };
        for turn in 0..turns {
            // A B B A, so that what drifts is the same to both.
            let with = if self.tuned { turn.div_ceil(2) % 2 } else { 0 };
            session.schedules = (with == 1).then(|| schedules.clone());
            for kind in 0..session.kinds.len() {
                let level: &Level = table.level(session.kinds[kind].tokens);
                self.times[with][kind].push(session.time(scheme, level, kind)?);
            }
        }
        Ok(())
    }

    /// Gives up the schedules of the numbers of tokens between the neighbours of each kind of step that is surely
    /// slower for them, and says which kinds.
    fn test(&mut self, kinds: &[StepKind]) -> Vec<StepKind> {
        let [plain, tuned] = &mut self.times;
        let surely = |&at: &usize| faster(&plain[at], &tuned[at]);
        let slower: Vec<usize> = (0..kinds.len()).filter(surely).collect();
        let tokens = |at: usize| kinds.get(at).map(|kind| kind.tokens as usize);
        for &at in &slower {
            let first = at.checked_sub(1).and_then(tokens).map_or(1, |before| before + 1);
            let last = tokens(at + 1).map_or(usize::MAX, |after| after - 1);
            for matrix in &mut self.outcome.schedules.matrices {
                matrix.clear(first..=last);
            }
            tuned[at].clone_from(&plain[at]);
        }
        slower.into_iter().map(|at| kinds[at]).collect()
    }

    /// What its steps bring: as many times what the first plan brought as they are faster here than that
    /// plan's without schedules.
    fn brings(&self, kinds: &[StepKind], first: &[Measured], plain: &[Vec<f64>]) -> Vec<Measured> {
        let times = self.times();
        let of = |measured: &Measured| {
            let kind = kinds.iter().position(|kind| kind.tokens == measured.tokens);
            let gain = kind.map_or(1.0, |kind| median(&plain[kind]) / median(times[kind]));
            // It is none where there was no time for a step.
            let gain = if gain.is_finite() && gain > 0.0 { gain } else { 1.0 };
            Measured { after: measured.after * gain, ..*measured }
        };
        first.iter().map(of).collect()
    }

    /// What its steps take as it is now.
    fn times(&self) -> Vec<&[f64]> {
        self.times[usize::from(self.tuned)].iter().map(Vec::as_slice).collect()
    }
}

/// The first, or of those that are surely faster the fastest.
fn winner(kinds: &[StepKind], contenders: &[Contender]) -> usize {
    let first = totals(kinds, &contenders[0].times());
    let ahead =
        (1..contenders.len()).filter(|&at| faster(&totals(kinds, &contenders[at].times()), &first));
    let worth = |at: usize| typical(kinds, &contenders[at].times());
    ahead.min_by(|&a, &b| worth(a).total_cmp(&worth(b))).unwrap_or(0)
}
