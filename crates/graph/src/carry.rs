//! Schedules of one sharing of a model, for another that differs little.
//!
//! Schedules are found for shapes: so many rows and columns of a matrix on a node, and so many threads.
//! When a plan leaves a core to others, all of that changes a little, on every node, and no schedule would
//! be found. What is best hardly changes, so each node's share of a matrix is multiplied as its share was
//! for which the schedules were found:
//!
//! | of a schedule | is kept |
//! |---|---|
//! | micro-kernel, prefetch | always |
//! | grid | if its parts of tokens and columns divide the threads, and the node has as many segments of columns; otherwise rows are all that threads share |
//! | slice | where the grid is; one that was all that a thread has of the rows is so again |
//!
//! Limits: nothing is measured, so a schedule that was best may be no more than good. For a few threads out
//! of many, that is; who has half as many should search again.

use crate::graph::Graph;
use crate::load::paired;
use crate::schedule::{Schedule, Schedules};
use crate::shape::{Grid, MatrixShape};

/// A model as it is shared: its graph, and the threads of each place's team, for each of some levels.
#[derive(Copy, Clone)]
pub struct Sharing<'a> {
    /// For as many nodes as there are places, or for one.
    pub graph: &'a Graph,
    /// Threads by level and place.
    pub teams: &'a [Vec<usize>],
}

impl Sharing<'_> {
    /// What a place multiplies of a matrix at a level, and the segments that its columns have there.
    fn shape(
        &self,
        matrix: usize,
        paired: bool,
        level: usize,
        place: usize,
    ) -> Option<(MatrixShape, usize)> {
        let node = if self.graph.nodes() == 1 { 0 } else { place };
        let threads = *self.teams.get(level)?.get(place)?;
        let matrix = self.graph.tables.matrices.get(matrix)?;
        let shape = MatrixShape::of(matrix, node, paired, threads)?;
        Some((shape, matrix.segments(0, node).len()))
    }
}

impl Schedules {
    /// These schedules, and for the shapes of `now` that they say nothing of, those of the same matrices in
    /// `before`. Both are sharings of one model, level by level and place by place.
    pub fn carried(&self, before: Sharing<'_>, now: Sharing<'_>) -> Schedules {
        let mut carried = self.clone();
        let paired = paired(now.graph);
        for (level, places) in now.teams.iter().enumerate() {
            for place in 0..places.len() {
                for (matrix, &paired) in paired.iter().enumerate() {
                    let was = before.shape(matrix, paired, level, place);
                    let is = now.shape(matrix, paired, level, place);
                    let (Some((was, _)), Some((is, segments))) = (was, is) else { continue };
                    let rows = self.of(&was);
                    if rows.is_empty() || !carried.of(&is).is_empty() {
                        continue;
                    }
                    let rows =
                        rows.iter().map(|(tokens, s)| (*tokens, s.carried(&was, &is, segments)));
                    carried.add(is.clone(), rows.collect());
                }
            }
        }
        carried
    }
}

impl Schedule {
    /// It, for a shape that is nearly that which it was found for.
    fn carried(&self, was: &MatrixShape, is: &MatrixShape, segments: usize) -> Schedule {
        let Schedule { how, slice, grid } = *self;
        let Grid { tokens, splits } = grid;
        let divides = is.threads.is_multiple_of(tokens.saturating_mul(splits));
        if grid != Grid::default() && !(divides && splits <= segments) {
            return Schedule { how, ..Schedule::default() };
        }
        let share = |shape: &MatrixShape| shape.tiles().div_ceil(grid.rows(shape.threads).max(1));
        let slice = slice.map(|mut slice| {
            if slice.tiles >= share(was) {
                slice.tiles = slice.tiles.max(share(is));
            }
            slice
        });
        Schedule { how, slice, grid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Product, Slice};
    use gguf::TensorType;
    use kernels::How;

    /// 12 tiles for 4 threads, and 10 for 3.
    fn shapes() -> (MatrixShape, MatrixShape) {
        let shape = |rows, threads| MatrixShape {
            parts: vec![(TensorType::Q4_0, rows)],
            cols: 64,
            product: Product::Summed,
            threads,
        };
        (shape(192, 4), shape(160, 3))
    }

    fn schedule(tiles: usize, tokens: usize, splits: usize) -> Schedule {
        let how = How { ahead: 1024, ..How::default() };
        Schedule { how, slice: Some(Slice { tiles, tokens: 8 }), grid: Grid { tokens, splits } }
    }

    #[test]
    fn what_does_not_fit_is_left_to_the_rule() {
        let (four, three) = shapes();
        let how = schedule(1, 1, 1).how;
        let plain = Schedule { how, ..Schedule::default() };
        // Rows alone: any number of threads shares them.
        assert_eq!(schedule(2, 1, 1).carried(&four, &three, 1), schedule(2, 1, 1));
        // Two parts of tokens or of columns: one of three threads would be left over.
        assert_eq!(schedule(2, 2, 1).carried(&four, &three, 9), plain);
        assert_eq!(schedule(2, 1, 2).carried(&four, &three, 9), plain);
        assert_eq!(schedule(2, 1, 2).carried(&three, &four, 9), schedule(2, 1, 2));
        // Three parts of columns that have three segments, or two.
        assert_eq!(schedule(2, 1, 3).carried(&four, &three, 3), schedule(2, 1, 3));
        assert_eq!(schedule(2, 1, 3).carried(&four, &three, 2), plain);
    }

    #[test]
    fn a_slice_that_was_all_of_a_share_is_so_again() {
        let (four, three) = shapes();
        let tiles = |schedule: Schedule| schedule.slice.unwrap().tiles;
        assert_eq!(tiles(schedule(3, 1, 1).carried(&four, &three, 1)), 4);
        assert_eq!(tiles(schedule(2, 1, 1).carried(&four, &three, 1)), 2);
        // What is more than a share says no more than that.
        assert_eq!(tiles(schedule(9, 1, 1).carried(&four, &three, 1)), 9);
        assert_eq!(tiles(schedule(4, 1, 1).carried(&three, &four, 1)), 4);
        // The tiles of a pair are those of one.
        let pair = |rows, threads| MatrixShape {
            parts: vec![(TensorType::Q4_0, rows); 2],
            product: Product::Paired,
            ..MatrixShape { threads, ..four.clone() }
        };
        assert_eq!(tiles(schedule(3, 1, 1).carried(&pair(192, 4), &pair(160, 3), 1)), 4);
    }
}
