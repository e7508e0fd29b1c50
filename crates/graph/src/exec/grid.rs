//! A thread's part of a product: where it sits in the grid of its schedule.

use super::Thread;
use crate::deal::{Dealt, Shard};
use crate::schedule::{Schedule, Seat};
use kernels::Block;
use std::ops::Range;

/// What a thread multiplies of a matrix.
pub(super) struct Own<'a> {
    pub schedule: Schedule,
    /// What goes together.
    pub block: Block,
    shard: &'a Shard,
    bounds: &'a [usize],
    seat: Seat,
    rows: Range<usize>,
}

impl Thread<'_> {
    /// This thread's part of the product of a matrix with `rows` rows of activations; `None` if it has
    /// none, because the others are as many as the grid has parts.
    pub(super) fn own<'s>(&'s self, shard: &'s Shard, rows: usize) -> Option<Own<'s>> {
        let planned = || shard.dealt(self.step.level, rows);
        let dealt = self.step.trial.unwrap_or_else(planned);
        let seat = dealt.schedule.grid.seat(self.size, self.rank)?;
        let Dealt { schedule, bounds } = dealt;
        let with = (&self.step.plan.schedules, self.step.kernels);
        let block = shard.block(schedule.how, with, rows);
        let rows = schedule.grid.token_part(rows, seat.token, block.register);
        Some(Own { schedule, block, shard, bounds, seat, rows })
    }
}

impl Own<'_> {
    /// Its tiles of part `part`.
    pub(super) fn tiles(&self, part: usize) -> Range<usize> {
        self.shard.tiles(self.bounds, self.seat.row, part)
    }

    /// Its rows of activations.
    pub(super) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Whether a root with the columns `cols` of the node's `width` is its to sum.
    pub(super) fn has(&self, cols: &Range<usize>, width: usize) -> bool {
        self.schedule.grid.split_of(cols, width) == self.seat.split
    }
}
