//! Shapes of products, and the parts that schedules cut them into.

use crate::placement::share;
use gguf::TensorType;
use kernels::TILE_ROWS;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

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
    pub(crate) fn cells(self) -> usize {
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
