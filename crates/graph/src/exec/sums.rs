//! Sums over nodes: the summands of all nodes and the residual stream become the new stream.
//!
//! A summand's row has a slot for each root of the summation tree (see [`crate::sum`]). Three ways
//! to bring them together give the same bits; they differ in who reads and writes across nodes.

use super::Thread;
use super::tree::{LEVELS, Tree};
use crate::buffer::BufId;
use crate::placement::share;
use crate::sum::Sum;
use kernels::{Kernels, TILE_ROWS};
use std::ops::Range;

/// f32 that are fetched from a node before the next is visited: 1 KiB, a handful of cache lines
/// that the prefetchers can follow.
const PIECE: usize = 256;

/// The summands of a residual sum.
#[derive(Copy, Clone)]
pub(super) struct Partials<'a> {
    /// Their buffer.
    pub buf: BufId,
    /// Whether every node has those of all nodes.
    pub pushed: bool,
    /// Their number, place and order.
    pub sum: &'a Sum,
    /// Factor on their sum.
    pub scale: f32,
}

impl Partials<'_> {
    /// Their sum, scaled.
    fn scale(&self, kernels: &Kernels, sum: &mut [f32]) {
        if self.scale != 1.0 {
            kernels.scale(sum, self.scale);
        }
    }
}

/// f32 of scratch for the residual sum `sum` of rows of `width`.
pub(super) fn scratch_len(sum: &Sum, width: usize) -> usize {
    (LEVELS * width).max((sum.roots() + LEVELS) * PIECE)
}

impl<'a> Thread<'a> {
    /// One root's columns of a row.
    fn summand(
        &self,
        parts: Partials<'_>,
        root: usize,
        row: usize,
        width: usize,
        cols: Range<usize>,
    ) -> &'a [f32] {
        let (node, slot) = if parts.pushed {
            (self.node, root)
        } else {
            let node = parts.sum.slots.iter().position(|s| s.contains(&root)).expect("a root");
            (node, root - parts.sum.slots[node].start)
        };
        let place = self.place_of(node);
        let stride = self.stride(parts.buf, place);
        let block = self.step.storage.on(parts.buf, place).sub(row * stride, stride);
        // SAFETY: a read of summands that all nodes wrote before the last global wait.
        let row = unsafe { block.as_slice::<f32>() };
        &row[slot * width.next_multiple_of(TILE_ROWS)..][cols]
    }

    /// `out = x + scale * Σ partials` for this thread's rows, each node for itself.
    pub(super) fn residual(
        &self,
        x: BufId,
        parts: Partials<'_>,
        out: BufId,
        width: usize,
        rows: Range<usize>,
    ) {
        let kernels = self.step.kernels;
        let mut sums = Tree::new(self.scratch(), width);
        for row in rows {
            for (root, &folds) in parts.sum.folds.iter().enumerate() {
                let part = self.summand(parts, root, row, width, 0..width);
                sums.push(kernels, folds, |to| to.copy_from_slice(part));
            }
            if out != x {
                self.row_mut(out, row, width).copy_from_slice(self.row(x, row, width));
            }
            let sum = sums.take();
            parts.scale(kernels, sum);
            kernels.add_assign(self.row_mut(out, row, width), sum);
        }
    }

    /// The same for this thread's share of the elements of all rows, for all nodes: reduce-scatter
    /// and all-gather. Both begin at the thread's own node and go round.
    pub(super) fn scatter(
        &self,
        x: BufId,
        parts: Partials<'_>,
        out: BufId,
        width: usize,
        rows: usize,
    ) {
        let (nodes, kernels) = (self.step.graph.nodes(), self.step.kernels);
        let round = || (0..nodes).map(|i| (self.node + i) % nodes);
        let (fetched, stack) = self.scratch().split_at_mut(parts.sum.roots() * PIECE);
        // Shares are whole cache lines, so that no two threads write into one.
        let lines = width.div_ceil(TILE_ROWS);
        let mine = share(rows * lines, self.step.plan.threads(), self.id);
        let mut at = mine.start;
        while at < mine.end {
            let (row, line) = (at / lines, at % lines);
            let count = (mine.end - at).min(lines - line).min(PIECE / TILE_ROWS);
            let cols = line * TILE_ROWS..((line + count) * TILE_ROWS).min(width);
            at += count;
            for root in round().flat_map(|n| parts.sum.slots[n].clone()) {
                let part = self.summand(parts, root, row, width, cols.clone());
                fetched[root * PIECE..][..cols.len()].copy_from_slice(part);
            }
            let mut sums = Tree::new(stack, cols.len());
            for (part, &folds) in fetched.chunks_exact(PIECE).zip(&parts.sum.folds) {
                sums.push(kernels, folds, |to| to.copy_from_slice(&part[..cols.len()]));
            }
            let sum = sums.take();
            parts.scale(kernels, sum);
            kernels.add_assign(sum, &self.row(x, row, width)[cols.clone()]);
            for node in round() {
                let mut to = self.columns_on(node, out, row..row + 1, cols.clone());
                to.row_mut(0).copy_from_slice(sum);
            }
        }
    }
}
