//! Two other ways to schedule a product, with the same micro-kernels: one as Roller has it (Zhu et al., OSDI 2022),
//! one by a model alone, as DietCode and MikPoly have it (Zheng et al., MLSys 2022; Yu et al., ASPLOS 2024). Both were
//! made for other machines; as in the Sandwich paper (section 7.1) their policies are translated.
//!
//! *Candidates*: register tiles of each micro-kernel, scaled up by whole register tiles along the dimension that saves
//! more traffic, until the slice fills a level of the caches: the slice at each level is one. Every grid is tried.
//! *Model*: a thread computes at the rate of its micro-kernel, padding included, reads weights from memory once for
//! each slice of tokens, and activations from the second cache once for each slice of tiles; what takes longest counts.
//! Micro-kernels and the memory are timed once for each matrix ([`Rates::measure`]).

use arclight_tune::schedule::{Bench, Grid, Kernel, Problem, Schedule, Slice, grids};
use kernels::How;

/// Rows of a tile.
const ROWS: f64 = 16.0;
/// So many of the best by the model are timed by the rival that times: ten, as in Roller.
pub(super) const TIMED: usize = 10;
/// Bytes that a slice may fill: most of the first and of the second cache of a core, as servers have them now (32 KiB
/// and 1 MiB or more).
const LEVELS: [usize; 2] = [24 << 10, 768 << 10];
/// Tokens with which a micro-kernel is timed: enough that weights are no matter.
const MANY: usize = 64;

/// What the model of time knows of the machine.
pub(super) struct Rates {
    /// Multiply-accumulates of a thread a second, by micro-kernel.
    kernels: Vec<(Kernel, f64)>,
    /// Bytes that a thread reads a second from memory, and from its caches.
    memory: f64,
    cache: f64,
    threads: usize,
    /// Bytes of a weight.
    weight: f64,
}

impl Rates {
    pub(super) fn measure<B: Bench>(bench: &mut B, problem: &Problem, threads: usize) -> Rates {
        let weight = bytes_of_weight(problem);
        let whole = ROWS * (problem.shape.tiles() * problem.shape.cols) as f64;
        let mut time = |tokens, schedule: &Schedule| {
            bench.time(problem, tokens, schedule).unwrap_or(f64::INFINITY)
        };
        let one = Schedule::default();
        let memory = whole * weight / threads as f64 / time(1, &one);
        let mut rates = Vec::new();
        for kernel in bench.kernels(problem, MANY) {
            let how = How { kernel: kernel.kernel, ahead: How::default().ahead };
            let slice = usual(problem, kernel, MANY);
            let schedule =
                Schedule { how, slice: Some(slice), grid: Grid { tokens: 1, splits: 1 } };
            let seconds = bench.time(problem, MANY, &schedule).unwrap_or(f64::INFINITY);
            rates.push((kernel, whole * MANY as f64 / threads as f64 / seconds));
        }
        // A guess: what it decides is timed by one rival, and the other has no better.
        let cache = 4.0 * memory;
        Rates { kernels: rates, memory, cache, threads, weight }
    }

    /// Seconds that a schedule takes by the model.
    fn seconds(
        &self,
        problem: &Problem,
        tokens: usize,
        schedule: &Schedule,
        rate: f64,
        tile: Slice,
    ) -> f64 {
        let (grid, slice) = (schedule.grid, schedule.slice.unwrap_or(tile));
        let tiles = problem.shape.tiles().div_ceil(grid.rows(self.threads).max(1));
        let tokens = tokens.div_ceil(grid.tokens);
        let cols = problem.shape.cols as f64 / grid.splits as f64;
        let padded = tiles.next_multiple_of(tile.tiles) * tokens.next_multiple_of(tile.tokens);
        let compute = ROWS * padded as f64 * cols / rate;
        let weights =
            ROWS * tiles as f64 * cols * self.weight * tokens.div_ceil(slice.tokens) as f64;
        let acts = tokens as f64 * cols * tiles.div_ceil(slice.tiles) as f64;
        compute.max(weights / self.memory).max(acts / self.cache)
    }
}

/// Bytes of a weight of the first part.
fn bytes_of_weight(problem: &Problem) -> f64 {
    let ty = problem.shape.parts[0].0;
    kernels::tile_bytes(ty, problem.shape.cols) as f64 / (ROWS * problem.shape.cols as f64)
}

/// A slice that fills the second cache with weights.
fn usual(problem: &Problem, kernel: Kernel, tokens: usize) -> Slice {
    let most = problem.shape.share(Grid { tokens: 1, splits: 1 }, tokens);
    let scaled = *scaled(problem, kernel.tile).last().expect("the register tile");
    scaled.within(most)
}

/// Slices of whole register tiles, the largest at each level of the caches.
fn scaled(problem: &Problem, tile: Slice) -> Vec<Slice> {
    let cols = problem.shape.cols as f64;
    let weight = bytes_of_weight(problem);
    let bytes = |s: Slice| ROWS * s.tiles as f64 * cols * weight + s.tokens as f64 * cols;
    // Multiply-accumulates for each byte.
    let reuse = |s: Slice| ROWS * (s.tiles * s.tokens) as f64 * cols / bytes(s);
    let (mut all, mut slice) = (vec![tile], tile);
    for level in LEVELS {
        loop {
            let more = [
                Slice { tiles: slice.tiles + tile.tiles, ..slice },
                Slice { tokens: slice.tokens + tile.tokens, ..slice },
            ];
            let fit = more.into_iter().filter(|&s| bytes(s) <= level as f64);
            match fit.max_by(|&a, &b| reuse(a).total_cmp(&reuse(b))) {
                Some(larger) => slice = larger,
                None => break,
            }
        }
        all.push(slice);
    }
    all.dedup();
    all
}

/// The schedule that is chosen for a count of tokens: of the `timed` best by the model the fastest; without timing,
/// the best by the model.
pub(super) fn choose<B: Bench>(
    bench: &mut B,
    problem: &Problem,
    rates: &Rates,
    tokens: usize,
    timed: usize,
) -> Schedule {
    let mut ranked = Vec::new();
    for &(kernel, rate) in &rates.kernels {
        for grid in grids(problem, tokens) {
            let most = problem.shape.share(grid, tokens);
            for slice in scaled(problem, kernel.tile) {
                let how = How { kernel: kernel.kernel, ahead: How::default().ahead };
                let schedule = Schedule { how, slice: Some(slice.within(most)), grid };
                let fits = schedule.fits(&problem.shape, tokens).is_ok();
                if fits && !ranked.iter().any(|(_, other)| *other == schedule) {
                    let seconds = rates.seconds(problem, tokens, &schedule, rate, kernel.tile);
                    ranked.push((seconds, schedule));
                }
            }
        }
    }
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(&(_, first)) = ranked.first() else { return bench.default(problem, tokens) };
    let mut time =
        |schedule: &Schedule| bench.time(problem, tokens, schedule).unwrap_or(f64::INFINITY);
    let best = ranked.iter().take(timed).map(|(_, schedule)| (time(schedule), *schedule));
    best.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(first, |(_, schedule)| schedule)
}
