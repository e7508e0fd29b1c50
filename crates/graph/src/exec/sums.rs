//! Sums over nodes: the summands of all nodes and the residual stream become the new stream.
//!
//! A summand's row has a slot for each root of the summation tree (see [`crate::sum`]). Three ways
//! to bring them together give the same bits; they differ in who reads and writes across nodes. A sum
//! may get a bias, a norm and a factor before it is added to the stream.

use super::Thread;
use super::tree::{LEVELS, Tree};
use crate::buffer::BufId;
use crate::instr::Finish;
use crate::placement::share;
use crate::sum::Sum;
use kernels::TILE_ROWS;
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
    /// What their sum goes through.
    pub finish: &'a Finish,
}

/// f32 of scratch for the residual sum `sum` of rows of `width`.
pub(super) fn scratch_len(sum: &Sum, width: usize, finish: &Finish) -> usize {
    let whole = if finish.norm.is_some() { 2 * width } else { 0 };
    (LEVELS * width).max((sum.roots() + LEVELS) * PIECE + whole)
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

    /// What the columns `cols` of a sum add to the stream. With a norm, they are all columns.
    fn finish<'s>(
        &self,
        finish: &Finish,
        cols: Range<usize>,
        sum: &'s mut [f32],
        spare: &'s mut [f32],
    ) -> &'s mut [f32] {
        let kernels = self.step.kernels;
        if let Some(bias) = finish.bias {
            kernels.add_assign(sum, &self.step.weights.vector(bias, self.group)[cols]);
        }
        let done = match &finish.norm {
            None => sum,
            Some(norm) => {
                self.norm_of(norm, sum, spare);
                spare
            }
        };
        if finish.scale != 1.0 {
            kernels.scale(done, finish.scale);
        }
        done
    }

    /// `out = x + finish(Σ partials)` for this thread's rows, each node for itself.
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
            let (sum, spare) = sums.take();
            let done = self.finish(parts.finish, 0..width, sum, spare);
            kernels.add_assign(self.row_mut(out, row, width), done);
        }
    }

    /// The same for this thread's share of the elements of all rows, for all nodes: reduce-scatter
    /// and all-gather. Both begin at the thread's own node and go round. A norm needs whole rows, so
    /// then shares are rows.
    pub(super) fn scatter(
        &self,
        x: BufId,
        parts: Partials<'_>,
        out: BufId,
        width: usize,
        rows: usize,
    ) {
        let kernels = self.step.kernels;
        let (fetched, rest) = self.scratch().split_at_mut(parts.sum.roots() * PIECE);
        let (stack, whole) = rest.split_at_mut(LEVELS * PIECE);
        // Shares are whole cache lines, so that no two threads write into one.
        let lines = width.div_ceil(TILE_ROWS);
        let (id, threads) = self.step.among;
        let mine = match parts.finish.norm {
            None => share(rows * lines, threads, id),
            Some(_) => {
                let rows = share(rows, threads, id);
                rows.start * lines..rows.end * lines
            }
        };
        let mut at = mine.start;
        while at < mine.end {
            let (row, line) = (at / lines, at % lines);
            let count = (mine.end - at).min(lines - line).min(PIECE / TILE_ROWS);
            let cols = line * TILE_ROWS..((line + count) * TILE_ROWS).min(width);
            at += count;
            for root in self.round().flat_map(|n| parts.sum.slots[n].clone()) {
                let part = self.summand(parts, root, row, width, cols.clone());
                fetched[root * PIECE..][..cols.len()].copy_from_slice(part);
            }
            let mut sums = Tree::new(stack, cols.len());
            for (part, &folds) in fetched.chunks_exact(PIECE).zip(&parts.sum.folds) {
                sums.push(kernels, folds, |to| to.copy_from_slice(&part[..cols.len()]));
            }
            let (sum, spare) = sums.take();
            if parts.finish.norm.is_none() {
                let done = self.finish(parts.finish, cols.clone(), sum, spare);
                self.tell(x, out, row, width, cols, done);
                continue;
            }
            let (all, spare) = whole[..2 * width].split_at_mut(width);
            all[cols.clone()].copy_from_slice(sum);
            if cols.end == width {
                let done = self.finish(parts.finish, 0..width, all, spare);
                self.tell(x, out, row, width, 0..width, done);
            }
        }
    }

    /// The nodes, from this thread's own on.
    fn round(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, nodes) = (self.node, self.step.graph.nodes());
        (0..nodes).map(move |i| (first + i) % nodes)
    }

    /// `out = x + done` for columns of a row, on every node.
    fn tell(
        &self,
        x: BufId,
        out: BufId,
        row: usize,
        width: usize,
        cols: Range<usize>,
        done: &mut [f32],
    ) {
        self.step.kernels.add_assign(done, &self.row(x, row, width)[cols.clone()]);
        for node in self.round() {
            let mut to = self.columns_on(node, out, row..row + 1, cols.clone());
            to.row_mut(0).copy_from_slice(done);
        }
    }
}
