//! A machine whose products take what a formula says, and one whose times make no sense.
#![allow(dead_code)] // Each test binary uses some of it.

#[path = "../random/mod.rs"]
mod random;

use arclight_tune as tune;
use graph::{Grid, MatrixShape, Product, Schedule, Slice};
use kernels::{How, MatKernel};
use random::normal;
use std::hash::{DefaultHasher, Hash, Hasher};
use tune::schedule::{Bench, Kernel, Problem, ScheduleProgress};

/// Bytes of 16 rows of 2048 columns in 4.5 bits, and of a token's activations in 8 and some.
const TILE_BYTES: usize = 18 * 1024;
const ACT_BYTES: usize = 2304;

pub(crate) type Cost<'a> = dyn Fn(&Problem, usize, &Schedule) -> f64 + 'a;

/// A micro-kernel of a name.
pub(crate) fn named(name: &str) -> Option<MatKernel> {
    Some(name.parse().unwrap())
}

pub(crate) fn kernel(name: &str, tiles: usize, tokens: usize) -> Kernel {
    Kernel { kernel: named(name), tile: Slice { tiles, tokens } }
}

/// A matrix of so many tiles. What else it is like makes no difference; columns tell problems apart.
pub(crate) fn problem(cols: usize, tiles: usize, threads: usize, splits: &[usize]) -> Problem {
    let parts = vec![(gguf::TensorType::Q4_0, 16 * tiles)];
    let shape = MatrixShape { parts, cols, product: Product::Summed, threads };
    Problem { shape, splits: splits.to_vec(), calls: 1 }
}

/// Parts of the rows that get some.
pub(crate) fn rows(problem: &Problem, grid: Grid) -> usize {
    grid.rows(problem.shape.threads).min(problem.shape.tiles())
}

/// Times products with a formula.
pub(crate) struct Planted<'a> {
    pub(crate) cost: Box<Cost<'a>>,
    /// The first is the default's.
    pub(crate) kernels: Vec<Kernel>,
    /// Standard deviation of the times, as a share.
    pub(crate) noise: f64,
    pub(crate) random: u64,
    /// All that was timed: columns of the problem, tokens, schedule.
    pub(crate) log: Vec<(usize, usize, Schedule)>,
    /// Seconds spent.
    pub(crate) spent: f64,
    /// After so many products the bench fails.
    pub(crate) fails_after: usize,
    /// Whether it has failed.
    pub(crate) failed: bool,
}

impl<'a> Planted<'a> {
    pub(crate) fn new(
        kernels: &[Kernel],
        cost: impl Fn(&Problem, usize, &Schedule) -> f64 + 'a,
    ) -> Planted<'a> {
        Planted {
            cost: Box::new(cost),
            kernels: kernels.to_vec(),
            noise: 0.0,
            random: 1,
            log: vec![],
            spent: 0.0,
            fails_after: usize::MAX,
            failed: false,
        }
    }

    /// A number of mean 0 and deviation 1.
    fn normal(&mut self) -> f64 {
        normal(&mut self.random)
    }

    /// Seconds without noise, of what a table says.
    pub(crate) fn exact(
        &self,
        problem: &Problem,
        tokens: usize,
        schedule: Option<&Schedule>,
    ) -> f64 {
        let default = self.default(problem, tokens);
        (self.cost)(problem, tokens, schedule.unwrap_or(&default))
    }
}

/// The largest slices that leave no part empty.
pub(crate) fn largest(problem: &Problem, grid: Grid, tokens: usize) -> Slice {
    let tiles = graph::largest_slice(problem.shape.tiles(), rows(problem, grid));
    Slice { tiles, tokens: graph::largest_slice(tokens, grid.tokens) }
}

/// What a plain program does: rows over the threads as far as they go, a register tile at a time.
pub(crate) fn plain(kernel: &Kernel, problem: &Problem, tokens: usize) -> Schedule {
    let grid = Grid::default();
    let most = largest(problem, grid, tokens);
    let how = How { kernel: kernel.kernel, ahead: 0 };
    Schedule { how, slice: Some(kernel.tile.within(most)), grid }
}

impl Bench for Planted<'_> {
    type Error = String;

    fn kernels(&self, _: &Problem, _: usize) -> Vec<Kernel> {
        self.kernels.clone()
    }

    fn default(&self, problem: &Problem, tokens: usize) -> Schedule {
        plain(&self.kernels[0], problem, tokens)
    }

    fn time(
        &mut self,
        problem: &Problem,
        tokens: usize,
        schedule: &Schedule,
    ) -> Result<f64, String> {
        if self.log.len() == self.fails_after {
            self.failed = true;
            return Err("the machine is gone".into());
        }
        self.log.push((problem.shape.cols, tokens, *schedule));
        let exact = (self.cost)(problem, tokens, schedule);
        let seconds = exact * (1.0 + self.noise * self.normal()).max(0.1);
        self.spent += seconds;
        Ok(seconds)
    }
}

pub(crate) fn no_limit(_: &ScheduleProgress<'_>) -> f64 {
    f64::INFINITY
}

/// Kernels of the planted machine, by what their registers hold.
pub(crate) fn family() -> Vec<Kernel> {
    vec![kernel("2x4", 2, 4), kernel("1x1", 1, 1), kernel("4x2", 4, 2), kernel("1x8", 1, 8)]
}

/// The planted machine: a core reads 8 GB/s of weights, all of them 80 GB/s, if the prefetch distance is
/// right; it multiplies 100 G a second as far as the register tile feeds it; it has 1 MiB of cache.
pub(crate) fn machine(problem: &Problem, tokens: usize, schedule: &Schedule) -> f64 {
    let Schedule { how: How { kernel, ahead }, slice, grid } = *schedule;
    let slice = slice.unwrap();
    let (all, rows) = (problem.shape.tiles(), rows(problem, grid));
    let parts = rows * grid.tokens * grid.splits;
    let family = family();
    // Others have the registers of 2x4.
    let tile = family.iter().find(|k| k.kernel == kernel).unwrap_or(&family[0]).tile;
    let quality = match kernel {
        _ if kernel == named("2x4u2") => 1.6,
        _ if kernel == named("2x4u3") => 0.7,
        _ => 1.0,
    };
    let busiest = |all: usize, slice: usize, parts: usize| {
        let slices = all.div_ceil(slice).div_ceil(parts);
        (slices, (slices * slice).min(all))
    };
    let (row_slices, tiles) = busiest(all, slice.tiles, rows);
    let (token_slices, tokens) = busiest(tokens, slice.tokens, grid.tokens);
    let splits = grid.splits as f64;
    let (tile_bytes, act) = (TILE_BYTES as f64 / splits, ACT_BYTES as f64 / splits);

    let held = slice.tiles as f64 * tile_bytes + slice.tokens as f64 * act <= 1e6;
    let reads = tiles as f64 * tile_bytes * if held { 1.0 } else { token_slices as f64 };
    let again = tokens as f64 * act * row_slices as f64 / 4.0;
    let distance = ((ahead as f64 + 512.0) / 4608.0).log2().abs();
    let rate = 8e9f64.min(80e9 / parts as f64) * (1.0 - 0.05 * distance);
    let read = (reads + again) / rate;

    let padded = |all: usize, slice: usize, tile: usize| {
        let whole = all / slice * slice.div_ceil(tile) * tile;
        (whole + (all % slice).div_ceil(tile) * tile) as f64
    };
    let registers = (tile.tiles * tile.tokens) as f64;
    let feeding = registers / (registers + 0.5 * tile.tiles as f64 + tile.tokens as f64);
    let products = padded(tiles, slice.tiles, tile.tiles)
        * padded(tokens, slice.tokens, tile.tokens)
        * 16.0
        * act;
    // Weights are unpacked for each slice of tokens.
    let unpacking = (tiles * token_slices) as f64 * tile_bytes / 40e9;
    let multiply = products / (100e9 * feeding * quality) + unpacking;

    let sums = (tiles * tokens * 64) as f64 * (splits - 1.0) / 20e9;
    let waits = 1e-6 * parts as f64 / 16.0 + if splits > 1.0 { 1.5e-6 } else { 0.0 };
    let calls = (row_slices * token_slices) as f64 * 50e-9;
    read.max(multiply) + 0.2 * read.min(multiply) + sums + waits + calls
}

/// Times without any sense between 1 and 2, but always the same for the same product; of a hundred so
/// many cannot be run, the default always can.
pub(crate) fn mad(
    seed: u64,
    impossible: u64,
    problem: &Problem,
    tokens: usize,
    schedule: &Schedule,
) -> f64 {
    let mut hasher = DefaultHasher::new();
    (seed, problem.shape.cols, tokens, schedule).hash(&mut hasher);
    let random = hasher.finish();
    let default = *schedule == plain(&family()[0], problem, tokens);
    if !default && random % 100 < impossible {
        return f64::INFINITY;
    }
    1.0 + (random >> 32) as f64 / f64::from(u32::MAX)
}
