//! Products of a loaded model's matrices, timed for the search of schedules.

use super::lab::{Run, ask};
use crate::error::Error;
use crate::term;
use graph::{Plan, Product, Schedule, ScheduleFault, Schedules, ShapeUse};
use kernels::Kernels;
use std::collections::BTreeMap;
use std::time::Duration;
use tune::schedule::{Bench, Kernel, Problem, TunedRow, TunedSchedules};

/// Runs of products follow each other for so long, and the fastest counts.
const RUNS: Duration = Duration::from_millis(8);

/// The matrices of a model at one level of its threads.
pub(super) struct Products<'a> {
    run: Run<'a>,
    kernels: &'static Kernels,
    plan: Plan,
    pub(super) problems: Vec<Problem>,
    /// Whether the user has had enough.
    interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Products<'a> {
    pub(super) fn of(
        mut run: Run<'a>,
        interrupted: &'a dyn Fn() -> bool,
        splits: usize,
    ) -> Result<Products<'a>, Error> {
        let kernels = Kernels::detect().map_err(arclight_engine::Error::from)?;
        let (uses, plan) = ask(&mut run, |engine, level| {
            (engine.matrix_shapes().swap_remove(level), engine.plan().clone())
        })?;
        let problem = |ShapeUse { shape, matrices, .. }: ShapeUse| {
            let summed = shape.product == Product::Summed;
            let most = if summed { splits.min(shape.threads) } else { 1 };
            Problem { shape, splits: (1..=most).collect(), calls: matrices }
        };
        let problems = uses.into_iter().map(problem).collect();
        Ok(Products { run, kernels, plan, problems, interrupted })
    }

    /// Whether a product of so many tokens is one that steps have: of the matrix that makes logits they have
    /// fewer.
    pub(super) fn has(&mut self, problem: &Problem, tokens: usize) -> bool {
        let timed = self.timed(problem, tokens, Schedule::default(), Duration::ZERO);
        timed.is_ok_and(f64::is_finite)
    }

    /// Seconds of a product; infinite if it cannot be run so.
    fn timed(
        &mut self,
        problem: &Problem,
        tokens: usize,
        schedule: Schedule,
        most: Duration,
    ) -> Result<f64, Error> {
        let shape = problem.shape.clone();
        let timed = ask(&mut self.run, move |engine, level| {
            engine.time_matrices(&shape, level, tokens, &schedule, most)
        })?;
        Ok(timed.unwrap_or(f64::INFINITY))
    }
}

impl Bench for Products<'_> {
    type Error = Error;

    fn kernels(&self, problem: &Problem, _tokens: usize) -> Vec<Kernel> {
        problem.candidates(self.kernels)
    }

    fn default(&self, problem: &Problem, tokens: usize) -> Schedule {
        problem.default_schedule(&self.plan, self.kernels, tokens)
    }

    fn time(
        &mut self,
        problem: &Problem,
        tokens: usize,
        schedule: &Schedule,
    ) -> Result<f64, Error> {
        if (self.interrupted)() {
            return Err(Error::Interrupted);
        }
        let default = *schedule == self.default(problem, tokens);
        let wanted = if default { Schedule::default() } else { *schedule };
        // What cannot be run is no candidate: columns may have fewer segments than parts.
        self.timed(problem, tokens, wanted, RUNS)
    }
}

/// All schedules of a profile, and what cannot be used of them here.
pub(super) fn all(found: &TunedSchedules) -> (Schedules, Vec<String>) {
    let (mut schedules, mut faults) = (Schedules::default(), Vec::new());
    let Ok(kernels) = Kernels::detect() else { return (schedules, faults) };
    let mut missing: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for matrix in &found.matrices {
        let shape = matrix.shape();
        let mut scheduled = matrix.rows().iter().filter_map(|row| row.schedule).peekable();
        // A matrix without any schedule needs no table.
        if scheduled.peek().is_none() {
            continue;
        }
        match scheduled.try_for_each(|schedule| schedule.check_kernel(shape, kernels)) {
            Ok(()) => {
                let row = |row: &TunedRow| (row.up_to, row.schedule.unwrap_or_default());
                schedules.add(shape.clone(), matrix.rows().iter().map(row).collect());
            }
            Err(ScheduleFault::NotLoaded { kernel }) => {
                *missing.entry((kernel.name(), kernel.digest())).or_default() += 1;
            }
            Err(fault) => faults.push(format!("the schedules of {shape}: one {fault}")),
        }
    }
    faults.extend(missing.into_iter().map(|((name, digest), matrices)| {
        format!(
            "the schedules of {} that name kernel {name} of a file with the digest {digest}, which is not loaded (--kernel): \
             the program's own multiply these",
            term::plural(matrices, "shape")
        )
    }));
    (schedules, faults)
}
