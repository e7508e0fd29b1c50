//! Products of a loaded model's matrices, timed for the search of schedules.

use super::lab::{Run, ask};
use crate::error::Error;
use graph::{MatrixShape, Plan, Product, Schedule, usual_slice};
use kernels::{How, Kernels, MatKernel, TILE_ROWS};
use std::time::Duration;
use tune::schedule::{self, Bench, Grid, Kernel, Problem};

/// The micro-kernel of who has no schedule: what the kernels take by themselves.
const USUAL: &str = "usual";
/// Runs of products follow each other for so long, and the fastest counts.
const RUNS: Duration = Duration::from_millis(8);
/// Parts that columns are split into at most.
const SPLITS: usize = 4;

/// The matrices of a model at one level of its threads.
pub(super) struct Products<'a> {
    run: Run<'a>,
    kernels: &'static Kernels,
    shapes: Vec<MatrixShape>,
    plan: Plan,
    pub(super) problems: Vec<Problem>,
    /// Whether the user has had enough.
    interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Products<'a> {
    pub(super) fn of(
        mut run: Run<'a>,
        interrupted: &'a dyn Fn() -> bool,
    ) -> Result<Products<'a>, Error> {
        let kernels = Kernels::detect().map_err(arclight_engine::Error::from)?;
        let (uses, plan) = ask(&mut run, |engine, level| {
            let executor = engine.executor();
            (executor.matrix_shapes().swap_remove(level), executor.plan().clone())
        })?;
        let problem = |(id, used): (usize, &graph::ShapeUse)| {
            let MatrixShape { parts, product, threads, .. } = &used.shape;
            let tiles = |&(_, rows): &(_, usize)| rows.div_ceil(TILE_ROWS);
            let tiles = match product {
                Product::Paired => tiles(&parts[0]),
                Product::Plain | Product::Summed => parts.iter().map(tiles).sum(),
            };
            let most = if *product == Product::Summed { SPLITS.min(*threads) } else { 1 };
            Problem {
                id,
                name: used.shape.to_string(),
                tiles,
                splits: (1..=most).collect(),
                threads: *threads,
                calls: used.matrices,
            }
        };
        let problems = uses.iter().enumerate().map(problem).collect();
        let shapes: Vec<MatrixShape> = uses.into_iter().map(|used| used.shape).collect();
        Ok(Products { run, kernels, shapes, plan, problems, interrupted })
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
        let shape = self.shapes[problem.id].clone();
        let timed = ask(&mut self.run, move |engine, level| {
            engine.executor().time_matrices(&shape, level, tokens, &schedule, most)
        })?;
        Ok(timed.unwrap_or(f64::INFINITY))
    }
}

impl Bench for Products<'_> {
    type Error = Error;

    fn kernels(&self, problem: &Problem, _tokens: usize) -> Vec<Kernel> {
        let of = |part: &(gguf::TensorType, usize)| self.kernels.mat_kernels(part.0);
        let mut lists = self.shapes[problem.id].parts.iter().map(of);
        let mut common: Vec<MatKernel> = lists.next().unwrap_or_default();
        lists.for_each(|list| common.retain(|kernel| list.contains(kernel)));
        let named = |id: String, kernel: MatKernel| {
            let (tiles, tokens) = self.kernels.mat_kernel_size(kernel);
            Kernel { id, tiles, tokens }
        };
        let usual = common.first().map(|&kernel| named(USUAL.to_owned(), kernel));
        usual.into_iter().chain(common.iter().map(|&k| named(k.to_string(), k))).collect()
    }

    fn default(&self, problem: &Problem, tokens: usize) -> schedule::Schedule {
        let slice = usual_slice(&self.plan, self.kernels, &self.shapes[problem.id], tokens);
        let grid = Grid { rows: problem.threads.min(problem.tiles), tokens: 1, splits: 1 };
        schedule::Schedule {
            kernel: USUAL.to_owned(),
            slice: slice.within(grid.largest(problem.tiles, tokens)),
            grid,
            ahead: How::default().ahead as u32,
        }
    }

    fn time(
        &mut self,
        problem: &Problem,
        tokens: usize,
        schedule: &schedule::Schedule,
    ) -> Result<f64, Error> {
        if (self.interrupted)() {
            return Err(Error::Interrupted);
        }
        let shape = &self.shapes[problem.id];
        let wanted = match *schedule == self.default(problem, tokens) {
            true => Schedule::default(),
            false => match executed(self.kernels, shape, schedule) {
                Ok(wanted) => wanted,
                Err(_) => return Ok(f64::INFINITY),
            },
        };
        // What cannot be run is no candidate: columns may have fewer segments than parts.
        self.timed(problem, tokens, wanted, RUNS)
    }
}

/// A schedule as the executor takes it.
///
/// # Errors
/// The name of the micro-kernel, if the shape's matrices have none of this name here.
pub(super) fn executed(
    kernels: &Kernels,
    shape: &MatrixShape,
    schedule: &schedule::Schedule,
) -> Result<Schedule, String> {
    let schedule::Schedule { kernel, slice, grid, ahead } = schedule;
    let kernel = match kernel.as_str() {
        USUAL => None,
        name => {
            let found = kernels.mat_kernel(shape.parts[0].0, name);
            Some(found.ok_or_else(|| name.to_owned())?)
        }
    };
    Ok(Schedule {
        how: How { kernel, ahead: *ahead as usize },
        slice: Some(*slice),
        grid: graph::Grid { tokens: grid.tokens, splits: grid.splits },
    })
}

/// All schedules of a profile, as the executor takes them, and what cannot be used of them.
pub(super) fn all(found: &schedule::Schedules) -> (graph::Schedules, Vec<String>) {
    let (mut schedules, mut faults) = (graph::Schedules::default(), Vec::new());
    let Ok(kernels) = Kernels::detect() else { return (schedules, faults) };
    for matrix in &found.matrices {
        let Ok(shape) = matrix.name().parse::<MatrixShape>() else {
            faults.push(format!("{} is no shape of a matrix", matrix.name()));
            continue;
        };
        let row = |row: &schedule::Row| {
            let schedule = match &row.schedule {
                Some(schedule) => executed(kernels, &shape, schedule)?,
                None => Schedule::default(),
            };
            Ok((row.up_to, schedule))
        };
        match matrix.rows().iter().map(row).collect::<Result<Vec<_>, String>>() {
            // A matrix without any schedule needs no table.
            Ok(rows) if rows.iter().all(|(_, s)| *s == Schedule::default()) => {}
            Ok(rows) => schedules.add(shape, rows),
            Err(name) => faults.push(format!("{shape}: there is no micro-kernel {name:?} here")),
        }
    }
    (schedules, faults)
}
