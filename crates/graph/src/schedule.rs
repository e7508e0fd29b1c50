//! Schedules: how one matrix is multiplied for so many tokens.
//!
//! Sandwich (section 5) composes a product of small programs: a *micro-kernel* multiplies a few tiles by a
//! few tokens, a *slice* of several is what a thread walks at a time, and a *grid* says how threads share
//! the whole: by rows of the matrix, by tokens, and by columns. A [`Schedule`] is such a choice as data.
//! Which is best depends on the matrix, the machine and the number of tokens, so [`Schedules`] has a list
//! for each [`MatrixShape`]; where it has nothing, the plan's own rule stands.
//!
//! No schedule changes a bit: a product is summed in one order whatever its slice, and columns are cut
//! where the tree of sums has a node ([`crate::Sum`]).

use crate::error::{Error, ScheduleFault};
use crate::shape::{Grid, MatrixShape, Product, Slice, largest_slice};
use crate::weight::{Matrix, SplitBy};
use gguf::TensorType;
use kernels::{Foreign, How, Kernels, MatKernel};

/// How one matrix is multiplied.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Schedule {
    /// The micro-kernel, which must be one for all kinds of the matrix's parts, and how far ahead of it
    /// weights are asked for.
    pub how: How,
    /// What a thread walks at a time; `None`: as much as fits in
    /// [`Plan::weight_block_bytes`](crate::Plan::weight_block_bytes) and
    /// [`Plan::act_block_bytes`](crate::Plan::act_block_bytes).
    pub slice: Option<Slice>,
    /// How threads share the product.
    pub grid: Grid,
}

/// Schedules by shape and number of tokens. Shapes that a model does not have do no harm: a table may
/// have entries for teams of other sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedules {
    /// How matrices are multiplied for which there is no schedule: only [`How::ahead`] makes sense for all.
    pub usual: How,
    /// Kernels from elsewhere that multiply matrices of their types wherever no schedule names a kernel; of two
    /// for one type the first.
    pub preferred: Vec<&'static Foreign>,
    shapes: Vec<(MatrixShape, Vec<(usize, Schedule)>)>,
}

impl Schedules {
    /// Adds the schedules of a shape: each is for up to so many tokens, ascending, and from one more than
    /// the one before is for. Products of more tokens than the last are multiplied as without schedules.
    /// (For the matrix that makes logits, tokens are rows of logits.)
    pub fn add(&mut self, shape: MatrixShape, rows: Vec<(usize, Schedule)>) {
        self.shapes.push((shape, rows));
    }

    /// How parts of a type are multiplied: where `how` names no kernel, by the one that is preferred for the
    /// type, if there is one.
    #[must_use]
    pub fn resolve(&self, how: How, ty: TensorType) -> How {
        if how.kernel.is_some() {
            return how;
        }
        let preferred = self.preferred.iter().find(|kernel| kernel.multiplies(ty));
        How { kernel: preferred.map(|kernel| MatKernel::Foreign(kernel)), ..how }
    }

    /// All kernels from elsewhere that are preferred, or that a schedule names.
    pub fn foreign(&self) -> Vec<&'static Foreign> {
        let rows = self.shapes.iter().flat_map(|(_, rows)| rows);
        let named = rows.filter_map(|(_, schedule)| match schedule.how.kernel {
            Some(MatKernel::Foreign(kernel)) => Some(kernel),
            Some(MatKernel::Family(_)) | None => None,
        });
        let mut all: Vec<_> = self.preferred.iter().copied().chain(named).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The schedules of a shape.
    pub fn of(&self, shape: &MatrixShape) -> &[(usize, Schedule)] {
        self.iter().find(|(own, _)| *own == shape).map_or(&[], |(_, rows)| rows)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// All shapes and their schedules.
    pub fn iter(&self) -> impl Iterator<Item = (&MatrixShape, &[(usize, Schedule)])> {
        self.shapes.iter().map(|(shape, rows)| (shape, rows.as_slice()))
    }

    /// What is wrong with them whatever the model.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for (at, (shape, rows)) in self.shapes.iter().enumerate() {
            let bad =
                |tokens, fault| Err(Error::BadSchedule { shape: shape.clone(), tokens, fault });
            if self.shapes[..at].iter().any(|(other, _)| other == shape) {
                return bad(rows.first().map_or(0, |(tokens, _)| *tokens), ScheduleFault::Twice);
            }
            let mut before = 0;
            for &(tokens, schedule) in rows {
                if tokens <= before {
                    return bad(tokens, ScheduleFault::NotAscending { before });
                }
                before = tokens;
                schedule.check(shape).or_else(|fault| bad(tokens, fault))?;
            }
        }
        Ok(())
    }
}

impl Schedule {
    /// It for a product of `tokens` tokens: with a slice no larger than a part's even share, so that one
    /// schedule may do for many counts of tokens.
    pub fn at(self, shape: &MatrixShape, tokens: usize) -> Schedule {
        let share = shape.share(self.grid, tokens);
        let slice = self.slice.map(|slice| Slice {
            tiles: slice.tiles.min(share.tiles),
            tokens: slice.tokens.min(share.tokens),
        });
        Schedule { slice, ..self }
    }

    /// Whether a product of `tokens` tokens can be computed so, as it stands. If it can, it can with more
    /// tokens too, as far as the micro-kernel can.
    ///
    /// # Errors
    /// What is too large, or nothing at all.
    pub fn fits(&self, shape: &MatrixShape, tokens: usize) -> Result<(), ScheduleFault> {
        self.check_grid(shape)?;
        let (all, rows) = (shape.tiles(), self.grid.rows(shape.threads).min(shape.tiles()));
        let slice = self.slice.unwrap_or(Slice { tiles: 1, tokens: 1 });
        if !(1..=largest_slice(all, rows)).contains(&slice.tiles) {
            return Err(ScheduleFault::BadTiles { all, slice: slice.tiles, parts: rows });
        }
        let parts = self.grid.tokens;
        if !(1..=largest_slice(tokens, parts)).contains(&slice.tokens) {
            return Err(ScheduleFault::BadTokens { all: tokens, slice: slice.tokens, parts });
        }
        Ok(())
    }

    /// Whether there is a kernel for all parts of a shape that multiplies so.
    ///
    /// # Errors
    /// [`ScheduleFault::NoKernel`], [`ScheduleFault::NotLoaded`].
    pub fn check_kernel(
        &self,
        shape: &MatrixShape,
        kernels: &Kernels,
    ) -> Result<(), ScheduleFault> {
        let Some(kernel) = self.how.kernel else { return Ok(()) };
        if let MatKernel::Foreign(kernel) = kernel
            && kernel.product().is_none()
        {
            return Err(ScheduleFault::NotLoaded { kernel });
        }
        let lacks = |ty: &TensorType| !kernels.has_kernel(*ty, kernel);
        let missing = shape.parts.iter().map(|(ty, _)| *ty).find(lacks);
        missing.map_or(Ok(()), |ty| Err(ScheduleFault::NoKernel { kernel, ty }))
    }

    /// Whether a shape can be multiplied so, but for the kernel and the number of segments that its columns
    /// have.
    pub(crate) fn check(&self, shape: &MatrixShape) -> Result<(), ScheduleFault> {
        if self.slice.is_some_and(|slice| slice.tiles == 0 || slice.tokens == 0) {
            return Err(ScheduleFault::EmptySlice);
        }
        self.check_grid(shape)
    }

    fn check_grid(&self, shape: &MatrixShape) -> Result<(), ScheduleFault> {
        let Grid { tokens, splits } = self.grid;
        if tokens == 0 || splits == 0 {
            return Err(ScheduleFault::EmptyGrid);
        }
        if splits > 1 && shape.product != Product::Summed {
            return Err(ScheduleFault::NotSummed { splits });
        }
        if self.grid.cells() > shape.threads {
            return Err(ScheduleFault::TooFewThreads { tokens, splits, threads: shape.threads });
        }
        Ok(())
    }
}

impl MatrixShape {
    /// What `threads` of the graph's node `node` multiply; `None` if nothing of the matrix lies there, or it
    /// is a bank, of which tokens choose, or a matrix of heads.
    pub(crate) fn of(
        matrix: &Matrix,
        node: usize,
        paired: bool,
        threads: usize,
    ) -> Option<MatrixShape> {
        let part = |p: usize| (matrix.parts[p].ty, matrix.rows(p, node).len());
        let parts: Vec<_> = (0..matrix.parts.len()).map(part).collect();
        let product = match (matrix.split, paired) {
            (SplitBy::Cols, _) => Product::Summed,
            (SplitBy::Rows, true) => Product::Paired,
            (SplitBy::Rows, false) => Product::Plain,
        };
        let cols = matrix.input_width(node);
        let plain = matrix.bank.is_none() && matrix.by_head.is_none();
        let some = plain && cols > 0 && parts.iter().any(|&(_, rows)| rows > 0);
        some.then_some(MatrixShape { parts, cols, product, threads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::TILE_ROWS;

    /// A matrix of so many tiles, whose columns may be cut.
    fn summed(tiles: usize, threads: usize) -> MatrixShape {
        let parts = vec![(TensorType::Q4_0, tiles * TILE_ROWS)];
        MatrixShape { parts, cols: 64, product: Product::Summed, threads }
    }

    fn schedule(slice: [usize; 2], grid: [usize; 2]) -> Schedule {
        let slice = Some(Slice { tiles: slice[0], tokens: slice[1] });
        let grid = Grid { tokens: grid[0], splits: grid[1] };
        Schedule { how: How::default(), slice, grid }
    }

    #[test]
    fn a_schedule_takes_no_more_than_a_part_has() {
        let of = |tiles, tokens| schedule([tiles, tokens], [2, 1]);
        assert_eq!(of(9, 512).at(&summed(30, 6), 13), of(9, 7));
        assert_eq!(of(11, 6).at(&summed(30, 6), 13), of(10, 6));
        // Even shares of 2 would leave the third part of 4 tiles empty.
        assert_eq!(of(2, 1).at(&summed(4, 6), 2), of(1, 1));
        assert!(of(1, 512).at(&summed(3, 6), 1).fits(&summed(3, 6), 1).is_err(), "one token");
        assert!(of(1, 0).at(&summed(3, 6), 2).fits(&summed(3, 6), 2).is_err(), "no slice");
        // Of 2 tiles there are no more parts than that.
        assert_eq!(of(9, 9).at(&summed(2, 8), 4), of(1, 2));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let fits = |slice, grid| schedule(slice, grid).fits(&summed(8, 8), 3);
        assert_eq!(fits([2, 3], [1, 2]), Ok(()));
        for (slice, grid, words) in [
            ([1, 1], [3, 3], "3 parts of the tokens by 3 of the columns for 8 threads"),
            ([2, 3], [0, 2], "empty grid"),
            ([2, 3], [2, usize::MAX], "for 8 threads"),
            ([3, 3], [1, 2], "slices of 3 of the 8 tiles for 4 parts"),
            ([0, 3], [1, 2], "slices of 0 of the 8 tiles"),
            ([2, 4], [1, 2], "slices of 4 of the 3 tokens for 1 parts"),
            ([2, 1], [4, 1], "slices of 1 of the 3 tokens for 4 parts"),
        ] {
            let fault = fits(slice, grid).unwrap_err().to_string();
            assert!(fault.contains(words), "{fault}");
        }
    }
}
