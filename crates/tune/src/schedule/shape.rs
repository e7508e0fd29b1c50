//! The values of the search: a matrix to be multiplied, and what may multiply it.
//!
//! Tiles are 16 rows of the matrix. A product of tiles × tokens is cut by a [`Grid`] into parts, one for each
//! thread; a part takes its tiles and tokens in slices that stay in the thread's caches, and a slice is
//! computed by a micro-kernel, a register tile at a time. No slice may be so large that a part gets none
//! ([`graph::largest_slice`]).

use graph::{Grid, MatrixShape, Plan, Schedule, Slice, usual_slice};
use kernels::{Kernels, MatKernel};

/// The weight matrices of one shape at one level of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is multiplied, and by how many threads.
    pub shape: MatrixShape,
    /// Into how many parts its columns may be split, always also 1.
    pub splits: Vec<usize>,
    /// How often a step multiplies it, at least 1: its weight among the problems.
    pub calls: usize,
}

/// A micro-kernel and its register tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Which; `None`: what the kernels take by themselves. Where two schedules take the same time the lesser
    /// one is taken.
    pub kernel: Option<MatKernel>,
    /// What it holds in registers.
    pub tile: Slice,
}

impl Problem {
    /// The micro-kernels of `kernels` that can multiply all its parts, as [`Bench::kernels`](super::Bench::kernels)
    /// gives them: the first leaves the choice to the kernels, the others are named.
    pub fn candidates(&self, kernels: &Kernels) -> Vec<Kernel> {
        let mut lists = self.shape.parts.iter().map(|part| kernels.mat_kernels(part.0));
        let mut common: Vec<MatKernel> = lists.next().unwrap_or_default();
        lists.for_each(|list| common.retain(|kernel| list.contains(kernel)));
        let tile = |kernel| {
            let (tiles, tokens) = kernels.kernel_size(kernel);
            Slice { tiles, tokens }
        };
        let usual = common.first().map(|&kernel| Kernel { kernel: None, tile: tile(kernel) });
        // Who gives kernels from elsewhere wants them timed, also where time is short.
        common.sort_by_key(|kernel| matches!(kernel, MatKernel::Family(_)));
        let named = common.iter().map(|&k| Kernel { kernel: Some(k), tile: tile(k) });
        usual.into_iter().chain(named).collect()
    }

    /// How `tokens` tokens are multiplied without a schedule, with the slice that they then have.
    pub fn default_schedule(&self, plan: &Plan, kernels: &Kernels, tokens: usize) -> Schedule {
        let slice = usual_slice(plan, kernels, &self.shape, tokens);
        let whole = Schedule { slice: Some(slice), ..Schedule::default() };
        whole.at(&self.shape, tokens)
    }
}

/// All grids that occupy as many threads as any grid of this product can: all of them where tiles, tokens and
/// splits allow it. By parts of the rows, then of the tokens, ascending.
pub fn grids(problem: &Problem, tokens: usize) -> Vec<Grid> {
    let tiles = problem.shape.tiles();
    let of = |threads: usize| -> Vec<Grid> {
        let mut grids = vec![];
        for &splits in problem.splits.iter().filter(|&&s| s > 0 && threads.is_multiple_of(s)) {
            let each = threads / splits;
            for parts in (1..=tokens.min(each)).filter(|&t| each.is_multiple_of(t)) {
                if each / parts <= tiles {
                    grids.push((each / parts, Grid { tokens: parts, splits }));
                }
            }
        }
        grids.sort_unstable();
        grids.dedup();
        grids.into_iter().map(|(_, grid)| grid).collect()
    };
    let threads = problem.shape.threads;
    (1..=threads).rev().map(of).find(|grids| !grids.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::Product;

    /// Rows, tokens and splits of all grids.
    fn found(tiles: usize, threads: usize, splits: &[usize], tokens: usize) -> Vec<[usize; 3]> {
        let parts = vec![(gguf::TensorType::Q4_0, 16 * tiles)];
        let shape = MatrixShape { parts, cols: 64, product: Product::Summed, threads };
        let grids = grids(&Problem { shape, splits: splits.to_vec(), calls: 1 }, tokens);
        let rows = |grid: Grid| grid.rows(threads).min(tiles);
        grids.into_iter().map(|g| [rows(g), g.tokens, g.splits]).collect()
    }

    #[test]
    fn all_threads_are_used_in_every_way() {
        assert_eq!(found(99, 4, &[1], 1), [[4, 1, 1]]);
        assert_eq!(found(99, 4, &[1, 2], 2), [[1, 2, 2], [2, 1, 2], [2, 2, 1], [4, 1, 1]]);
        // 3 does not divide 4, and twice the same is once.
        assert_eq!(found(99, 4, &[1, 3, 1], 1), [[4, 1, 1]]);
        // Too few tiles for four threads, but not for four with splits.
        assert_eq!(found(2, 4, &[1, 2], 1), [[2, 1, 2]]);
    }

    #[test]
    fn threads_are_left_out_only_where_no_grid_takes_all() {
        assert_eq!(found(5, 7, &[1], 1), [[5, 1, 1]]);
        // 6 of 7; what leaves out more is not looked at.
        assert_eq!(found(3, 7, &[1, 2], 1), [[3, 1, 2]]);
        assert_eq!(found(1, 64, &[1], 1), [[1, 1, 1]]);
    }
}
