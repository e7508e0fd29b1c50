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
use crate::placement::share;
use crate::weight::{Matrix, SplitBy};
use gguf::TensorType;
use kernels::{Foreign, How, Kernels, MatKernel, TILE_ROWS};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

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

/// A part of a product that is finished before the next begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    /// Tiles of [`kernels::TILE_ROWS`] rows (of the pair, for gate and up).
    pub tiles: usize,
    /// Tokens.
    pub tokens: usize,
}

impl Slice {
    /// It, or as much of it as another has along each dimension; at least 1.
    pub fn within(self, most: Slice) -> Slice {
        Slice {
            tiles: self.tiles.min(most.tiles).max(1),
            tokens: self.tokens.min(most.tokens).max(1),
        }
    }
}

/// How the threads of a team share a product: a part of it for every combination of a part of the rows, a
/// part of the tokens, and a part of the columns. As many parts of the rows are made as there are threads
/// for; threads that are left over idle.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grid {
    /// Parts of the tokens.
    pub tokens: usize,
    /// Parts of the columns, which are summed apart (split-K); above 1 only for matrices whose columns the
    /// nodes share.
    pub splits: usize,
}

impl Default for Grid {
    fn default() -> Grid {
        Grid { tokens: 1, splits: 1 }
    }
}

/// A thread's place in a grid.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Part of the rows.
    pub row: usize,
    /// Part of the tokens.
    pub token: usize,
    /// Part of the columns.
    pub split: usize,
}

impl Grid {
    /// Parts of the rows when `threads` share a product.
    pub fn rows(self, threads: usize) -> usize {
        threads / self.cells().max(1)
    }

    /// Threads for each part of the rows.
    fn cells(self) -> usize {
        self.tokens.saturating_mul(self.splits)
    }

    /// How many of `threads` threads have a part.
    pub(crate) fn parts(self, threads: usize) -> usize {
        self.rows(threads) * self.cells()
    }

    /// Where thread `rank` of `threads` sits; `None` for one that is left over. Neighbours multiply the
    /// same rows, so that those who share a cache read them once.
    pub(crate) fn seat(self, threads: usize, rank: usize) -> Option<Seat> {
        let (row, cell) = (rank / self.cells(), rank % self.cells());
        let seat = Seat { row, token: cell / self.splits, split: cell % self.splits };
        (row < self.rows(threads)).then_some(seat)
    }

    /// The tokens of part `part` of `count`: whole register tiles of `tile` tokens, if every part gets one.
    pub(crate) fn token_part(self, count: usize, part: usize, tile: usize) -> Range<usize> {
        if count < self.tokens * tile {
            return share(count, self.tokens, part);
        }
        let tiles = share(count.div_ceil(tile), self.tokens, part);
        (tiles.start * tile).min(count)..(tiles.end * tile).min(count)
    }

    /// The part of the columns, of which there are `width`, to which a root with the columns `cols`
    /// belongs: that in which its middle lies.
    pub(crate) fn split_of(self, cols: &Range<usize>, width: usize) -> usize {
        (cols.start + cols.end) * self.splits / (2 * width)
    }
}

/// What becomes of a matrix's product.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Product {
    /// It is whole.
    Plain,
    /// Two products make one, element by element (gate and up).
    Paired,
    /// It is a summand: nodes share the columns.
    Summed,
}

/// What a team of threads multiplies in one go: matrices of one shape are multiplied alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MatrixShape {
    /// Kind and rows of each part that lies on the node.
    pub parts: Vec<(TensorType, usize)>,
    /// Columns that lie on the node.
    pub cols: usize,
    /// What becomes of the product.
    pub product: Product,
    /// Threads of the team.
    pub threads: usize,
}

impl MatrixShape {
    /// Tiles that the threads share, those of the pair for gate and up.
    pub fn tiles(&self) -> usize {
        let tiles = |&(_, rows): &(_, usize)| rows.div_ceil(TILE_ROWS);
        match self.product {
            Product::Paired => self.parts.first().map_or(0, tiles),
            Product::Plain | Product::Summed => self.parts.iter().map(tiles).sum(),
        }
    }

    /// The largest slice worth taking of a product of `tokens` tokens: a part's even share, or less if that
    /// would leave the last part empty. 0 tokens where there are fewer of them than parts.
    pub fn share(&self, grid: Grid, tokens: usize) -> Slice {
        let rows = grid.rows(self.threads).min(self.tiles());
        let share =
            |all: usize, parts: usize| largest_slice(all, parts).min(all.div_ceil(parts.max(1)));
        Slice { tiles: share(self.tiles(), rows), tokens: share(tokens, grid.tokens) }
    }

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

/// The most of `all` things in a slice with which each of `parts` parts gets a slice, the last of them
/// perhaps a smaller one: ⌈all / slice⌉ ≥ parts. 0 when there are fewer things than parts.
///
/// It does not fall when `all` grows: a slice that is good for some tokens is so for more.
pub fn largest_slice(all: usize, parts: usize) -> usize {
    if parts <= 1 { all } else { all.saturating_sub(1) / (parts - 1) }
}

impl fmt::Display for MatrixShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (ty, rows)) in self.parts.iter().enumerate() {
            write!(f, "{}{ty} {rows}", if at > 0 { " + " } else { "" })?;
        }
        let product = match self.product {
            Product::Plain => "",
            Product::Paired => " paired",
            Product::Summed => " summed",
        };
        write!(f, " x {}{product}, {} threads", self.cols, self.threads)
    }
}

/// A text that is no shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the shape of a matrix, such as \"Q4_0 9728 + Q4_0 9728 x 2560 paired, 2 threads\""
)]
pub struct ShapeError(String);

impl FromStr for MatrixShape {
    type Err = ShapeError;

    /// Reads what [`MatrixShape`] displays.
    fn from_str(text: &str) -> Result<MatrixShape, ShapeError> {
        let read = || -> Option<MatrixShape> {
            let (matrix, threads) = text.strip_suffix(" threads")?.rsplit_once(", ")?;
            let (parts, cols) = matrix.rsplit_once(" x ")?;
            let (cols, product) = match cols.split_once(' ') {
                None => (cols, Product::Plain),
                Some((cols, "paired")) => (cols, Product::Paired),
                Some((cols, "summed")) => (cols, Product::Summed),
                Some(_) => return None,
            };
            let part = |text: &str| {
                let (ty, rows) = text.split_once(' ')?;
                Some((TensorType::from_name(ty)?, rows.parse().ok()?))
            };
            Some(MatrixShape {
                parts: parts.split(" + ").map(part).collect::<Option<_>>()?,
                cols: cols.parse().ok()?,
                product,
                threads: threads.parse().ok()?,
            })
        };
        read().ok_or_else(|| ShapeError(text.to_owned()))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_reads_as_it_is_written() {
        let parts = [(TensorType::Q4_0, 96), (TensorType::Q6_K, 33)];
        for product in [Product::Plain, Product::Paired, Product::Summed] {
            for parts in [&parts[..1], &parts] {
                let shape = MatrixShape { parts: parts.to_vec(), cols: 64, product, threads: 3 };
                assert_eq!(shape.to_string().parse(), Ok(shape));
            }
        }
        for text in ["", "Q4_0 9 x 8", "Q4_9 9 x 8, 1 threads", "Q4_0 9 x 8 torn, 1 threads"] {
            let error = text.parse::<MatrixShape>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not the shape")), "{error}");
        }
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

    #[test]
    fn a_grid_seats_every_part_once() {
        for threads in 1..8 {
            for tokens in 1..=threads {
                for splits in 1..=threads / tokens {
                    let grid = Grid { tokens, splits };
                    let mut seats: Vec<_> =
                        (0..threads).filter_map(|r| grid.seat(threads, r)).collect();
                    let parts = grid.rows(threads) * tokens * splits;
                    assert!(parts <= threads && parts + tokens * splits > threads);
                    seats.dedup();
                    assert_eq!(seats.len(), parts, "{grid:?} of {threads}");
                    let inside = |s: &Seat| {
                        s.row < grid.rows(threads) && s.token < tokens && s.split < splits
                    };
                    assert!(seats.iter().all(inside));
                }
            }
        }
    }

    #[test]
    fn parts_of_tokens_are_whole_register_tiles() {
        for parts in 1..6 {
            let grid = Grid { tokens: parts, splits: 1 };
            for count in 0..70 {
                let mut next = 0;
                for part in 0..parts {
                    let own = grid.token_part(count, part, 8);
                    assert_eq!(own.start, next);
                    next = own.end;
                    let whole = own.start.is_multiple_of(8) || count < parts * 8;
                    assert!(whole, "{count} tokens in {parts}");
                    assert!(!own.is_empty() || count < parts);
                }
                assert_eq!(next, count);
            }
        }
    }

    #[test]
    fn roots_go_to_the_part_of_the_columns_that_their_middle_lies_in() {
        let grid = Grid { tokens: 1, splits: 3 };
        let parts = [0..10, 10..30, 30..70, 70..90, 90..100].map(|cols| grid.split_of(&cols, 100));
        assert_eq!(parts, [0, 0, 1, 2, 2]);
    }
}
