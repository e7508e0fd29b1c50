//! A thread's part of a product: where it sits in the grid of its schedule.
//!
//! When others are at work on the cores, parts are cut in pieces, and who is through with its own takes over those that
//! a late thread of its group has not begun. Bits are the same: a tile is summed alike whoever does it.

use super::{Step, Thread};
use crate::deal::{Dealt, Shard};
use crate::load::Packed;
use crate::placement::share;
use crate::schedule::Schedule;
use crate::shape::Seat;
use crate::weight::MatrixId;
use kernels::{Block, TILE_ROWS};
use std::ops::Range;
use threads::{Homes, Policy, Worker};

/// Bytes of weights that a piece has at least, or as many products as take about as long: 10 to 20
/// microseconds. To take one costs a hundredth of that, and the system takes a core away for milliseconds.
const PIECE: usize = 256 << 10;
/// Products that a core makes while it reads a byte.
const PRODUCTS_PER_BYTE: usize = 16;
/// The most pieces of a part.
const MOST_PIECES: usize = 16;

/// What a thread multiplies of a matrix.
pub(crate) struct Own<'a> {
    pub schedule: Schedule,
    /// What goes together.
    pub block: Block,
    shard: &'a Shard,
    bounds: &'a [usize],
    seat: Seat,
    rows: Range<usize>,
    /// Which of how many pieces of the tiles.
    piece: (usize, usize),
}

impl Thread<'_> {
    /// Does what this thread is to do of the product of a matrix with `rows` rows of activations: its part, or with
    /// `worker` pieces, until those of all threads of the group are taken.
    pub(crate) fn product_of<'s>(
        &'s self,
        matrix: MatrixId,
        rows: usize,
        worker: Option<&mut Worker>,
        mut multiply: impl FnMut(&Own<'s>),
    ) {
        let shard = self.step.weights.shard(matrix, self.node, self.group);
        let Some(worker) = worker else {
            if let Some(own) = self.part_of(shard, rows, self.rank) {
                multiply(&own);
            }
            return;
        };
        let Dealt { schedule, bounds } = self.dealt(shard, rows);
        let parts = schedule.grid.parts(self.size);
        let tiles = bounds.last().copied().unwrap_or(0);
        let pieces = pieces(shard, schedule.grid.tokens.max(1), rows) / (bounds.len() - 1).max(1);
        let pieces = pieces.clamp(1, MOST_PIECES).min(tiles.max(1));
        // In a place of several groups, too: what lies near a group is its own.
        worker.tasks(Policy::Local, Homes::None(parts * pieces), |task| {
            let own = self.part_of(shard, rows, task / pieces).expect("a part of the grid");
            multiply(&Own { piece: (task % pieces, pieces), ..own });
        });
    }

    fn dealt<'s>(&'s self, shard: &'s Shard, rows: usize) -> Dealt<'s> {
        self.step.trial.unwrap_or_else(|| shard.dealt(self.step.level, rows))
    }

    /// The part of the thread `rank`; `None` if it has none, because the others are as many as the grid has parts.
    fn part_of<'s>(&'s self, shard: &'s Shard, rows: usize, rank: usize) -> Option<Own<'s>> {
        let Dealt { schedule, bounds } = self.dealt(shard, rows);
        let seat = schedule.grid.seat(self.size, rank)?;
        let Step { plan, kernels, .. } = self.step;
        let block = shard.block(schedule.how, &plan.schedules, kernels, rows);
        let rows = schedule.grid.token_part(rows, seat.token, block.register);
        Some(Own { schedule, block, shard, bounds, seat, rows, piece: (0, 1) })
    }
}

/// How many pieces a matrix would be, multiplied by `rows` rows that go to `tokens` parts.
fn pieces(shard: &Shard, tokens: usize, rows: usize) -> usize {
    let rows = rows.div_ceil(tokens);
    let cost = |part: &Packed| {
        let products = part.tiles * TILE_ROWS * part.cols * rows;
        (part.tiles * part.tile_bytes()).max(products / PRODUCTS_PER_BYTE)
    };
    shard.parts.iter().map(cost).sum::<usize>() / PIECE
}

impl<'a> Own<'a> {
    /// The matrix.
    pub(crate) fn shard(&self) -> &'a Shard {
        self.shard
    }

    /// Its tiles of part `part`.
    pub(crate) fn tiles(&self, part: usize) -> Range<usize> {
        let all = self.bounds[self.seat.row]..self.bounds[self.seat.row + 1];
        let (piece, pieces) = self.piece;
        if pieces == 1 {
            return self.shard.tiles_of(all, part);
        }
        // Whole blocks, as kernels take them.
        let unit = 2usize.next_multiple_of(self.block.tiles);
        let units = share(all.len().div_ceil(unit), pieces, piece);
        let [start, end] = [units.start, units.end].map(|at| (all.start + at * unit).min(all.end));
        self.shard.tiles_of(start..end, part)
    }

    /// Its rows of activations.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Whether a root with the columns `cols` of the node's `width` is its to sum.
    pub(crate) fn has(&self, cols: &Range<usize>, width: usize) -> bool {
        self.schedule.grid.split_of(cols, width) == self.seat.split
    }
}
