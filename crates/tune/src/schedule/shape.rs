//! The values of the search: a matrix to be multiplied, and a way to do it.
//!
//! Tiles are 16 rows of the matrix. A product of `tiles` × `tokens` is cut by a [`Grid`] into parts, one
//! for each thread; a part takes its tiles and tokens in [`Slice`]s that stay in the thread's caches,
//! and a slice is computed by a micro-kernel, a register tile at a time. Slices are dealt to the parts,
//! so no slice may be so large that a part gets none ([`largest_slice`]).

use graph::Slice;

/// A weight matrix of the model at one level of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The caller's number for it; the search does not read it.
    pub id: usize,
    /// What people call it. With the threads it tells one problem from another.
    pub name: String,
    /// Tiles of 16 rows that the threads share.
    pub tiles: usize,
    /// Into how many parts its columns may be split, always also 1.
    pub splits: Vec<usize>,
    /// Threads that multiply it together.
    pub threads: usize,
    /// How often a step multiplies it, at least 1: its weight among the problems.
    pub calls: usize,
}

/// A micro-kernel: its name and its register tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name: one of the program's own family, or an imported one. Where two schedules take the same
    /// time the lesser one is taken.
    pub id: String,
    /// Tiles of 16 rows in registers.
    pub tiles: usize,
    /// Tokens in registers.
    pub tokens: usize,
}

/// How one matrix is multiplied with so many tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Schedule {
    /// The micro-kernel.
    pub kernel: String,
    /// What one thread keeps in its caches: at most so much. A thread whose part is smaller takes it as a
    /// whole ([`Schedule::at`]).
    pub slice: Slice,
    /// Who computes what.
    pub grid: Grid,
    /// How far ahead weights are prefetched, bytes; 0: not at all.
    pub ahead: u32,
}

/// How threads share a product: so many parts along each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grid {
    /// Parts of the tiles.
    pub rows: usize,
    /// Parts of the tokens.
    pub tokens: usize,
    /// Parts of the columns, whose sums are added in the end.
    pub splits: usize,
}

impl Grid {
    /// Threads that it occupies; as many as there can be where that is more.
    pub fn parts(&self) -> usize {
        self.rows.saturating_mul(self.tokens).saturating_mul(self.splits)
    }

    /// The largest slice of so many tiles and tokens that leaves no part empty; 0 where there are fewer
    /// things than parts.
    pub fn largest(&self, tiles: usize, tokens: usize) -> Slice {
        Slice { tiles: largest_slice(tiles, self.rows), tokens: largest_slice(tokens, self.tokens) }
    }

    /// The largest slice worth taking: a part's even share. It leaves no part empty.
    pub(super) fn share(&self, tiles: usize, tokens: usize) -> Slice {
        let most = self.largest(tiles, tokens);
        Slice {
            tiles: most.tiles.min(tiles.div_ceil(self.rows.max(1))),
            tokens: most.tokens.min(tokens.div_ceil(self.tokens.max(1))),
        }
    }
}

/// The most of `all` things in a slice with which each of so many parts gets a slice, the last of them
/// perhaps a smaller one: ⌈all / slice⌉ ≥ parts. 0 when there are fewer things than parts.
///
/// It does not fall when `all` grows: a slice that is good for some tokens is so for more.
pub fn largest_slice(all: usize, parts: usize) -> usize {
    if parts <= 1 { all } else { all.saturating_sub(1) / (parts - 1) }
}

impl Schedule {
    /// It for a product of so many tiles and tokens: with slices no larger than a part's even share, so
    /// that one schedule may do for many counts of tokens.
    pub fn at(&self, tiles: usize, tokens: usize) -> Schedule {
        let share = self.grid.share(tiles, tokens);
        let slice = Slice {
            tiles: self.slice.tiles.min(share.tiles),
            tokens: self.slice.tokens.min(share.tokens),
        };
        Schedule { slice, ..self.clone() }
    }

    /// Whether a product of so many tiles and tokens can be computed so by so many threads, as it stands.
    /// If it can, it can with more tokens too, as far as the micro-kernel can.
    ///
    /// # Errors
    /// Says what is too large or nothing at all.
    pub fn fits(&self, tiles: usize, tokens: usize, threads: usize) -> Result<(), String> {
        let Schedule { slice, grid, .. } = self;
        if grid.parts() == 0 || grid.parts() > threads {
            return Err(format!(
                "a grid of {} x {} x {} parts for {threads} threads",
                grid.rows, grid.tokens, grid.splits
            ));
        }
        let most = grid.largest(tiles, tokens);
        for (what, of, slice, most, parts) in [
            ("tiles", tiles, slice.tiles, most.tiles, grid.rows),
            ("tokens", tokens, slice.tokens, most.tokens, grid.tokens),
        ] {
            if slice == 0 || slice > most {
                return Err(format!("slices of {slice} of the {of} {what} for {parts} parts"));
            }
        }
        Ok(())
    }
}

/// All grids that occupy as many threads as any grid of this product can: all of them where tiles,
/// tokens and splits allow it.
pub(super) fn grids(problem: &Problem, tokens: usize) -> Vec<Grid> {
    let of = |threads: usize| -> Vec<Grid> {
        let mut grids = vec![];
        for &splits in problem.splits.iter().filter(|&&s| s > 0 && threads.is_multiple_of(s)) {
            let each = threads / splits;
            for parts in (1..=tokens.min(each)).filter(|&t| each.is_multiple_of(t)) {
                if each / parts <= problem.tiles {
                    grids.push(Grid { rows: each / parts, tokens: parts, splits });
                }
            }
        }
        grids.sort();
        grids.dedup();
        grids
    };
    (1..=problem.threads).rev().map(of).find(|grids| !grids.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(tiles: usize, threads: usize, splits: &[usize]) -> Problem {
        Problem { id: 0, name: "w".into(), tiles, splits: splits.to_vec(), threads, calls: 1 }
    }

    fn found(tiles: usize, threads: usize, splits: &[usize], tokens: usize) -> Vec<[usize; 3]> {
        let grids = grids(&problem(tiles, threads, splits), tokens);
        grids.into_iter().map(|g| [g.rows, g.tokens, g.splits]).collect()
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

    #[test]
    fn the_largest_slice_leaves_no_part_empty_and_a_larger_one_would() {
        for all in 1..40usize {
            for parts in 1..=all {
                let most = largest_slice(all, parts);
                assert!(most >= 1 && all.div_ceil(most) >= parts, "{all} {parts}: {most}");
                let more = all.div_ceil(most + 1) < parts;
                assert!(more || most == all, "{all} {parts}: {most}");
                assert!(largest_slice(all + 1, parts) >= most);
            }
            assert_eq!(largest_slice(all, all + 1), 0);
        }
    }

    #[test]
    fn a_schedule_takes_no_more_than_a_part_has() {
        let of = |tiles, tokens| Schedule {
            kernel: "k".into(),
            slice: Slice { tiles, tokens },
            grid: Grid { rows: 3, tokens: 2, splits: 1 },
            ahead: 7,
        };
        assert_eq!(of(9, 512).at(30, 13), of(9, 7));
        assert_eq!(of(11, 6).at(30, 13), of(10, 6));
        // Even shares of 2 would leave the third part of 4 tiles empty.
        assert_eq!(of(2, 1).at(4, 2), of(1, 1));
        assert!(of(1, 512).at(3, 1).fits(3, 1, 6).is_err(), "two parts of one token");
        assert!(of(1, 0).at(3, 2).fits(3, 2, 6).is_err(), "no slice");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let of = |slice: [usize; 2], grid: [usize; 3]| Schedule {
            kernel: "k".into(),
            slice: Slice { tiles: slice[0], tokens: slice[1] },
            grid: Grid { rows: grid[0], tokens: grid[1], splits: grid[2] },
            ahead: 0,
        };
        assert_eq!(of([2, 3], [4, 1, 2]).fits(8, 3, 8), Ok(()));
        for (schedule, words) in [
            (of([2, 3], [4, 1, 3]), "4 x 1 x 3 parts for 8 threads"),
            (of([2, 3], [4, 0, 2]), "4 x 0 x 2 parts"),
            (of([2, 3], [usize::MAX, 2, 2]), "parts for 8 threads"),
            (of([3, 3], [4, 1, 2]), "slices of 3 of the 8 tiles for 4 parts"),
            (of([0, 3], [4, 1, 2]), "slices of 0 of the 8 tiles"),
            (of([2, 4], [4, 1, 2]), "slices of 4 of the 3 tokens for 1 parts"),
            (of([2, 1], [1, 4, 1]), "slices of 1 of the 3 tokens for 4 parts"),
        ] {
            let fault = schedule.fits(8, 3, 8).unwrap_err();
            assert!(fault.contains(words), "{fault}");
        }
    }
}
