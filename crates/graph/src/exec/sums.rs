//! Sums over nodes: the summands of all nodes and the residual stream become the new stream.
//!
//! A summand's row has a slot for each root of the summation tree (see [`crate::sum`]). Three ways
//! to bring them together give the same bits; they differ in who reads and writes across nodes. A sum
//! may get a factor, a bias, a norm and another factor before it is added to the stream.

use super::Thread;
use super::access::{Source, Target};
use super::low::Sums;
use super::rows::keep;
use super::tree::{LEVELS, Tree};
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
pub(super) struct Summands<'a> {
    pub of: Source<'a>,
    /// Whether every node has those of all nodes.
    pub pushed: bool,
    /// Their number, place and order.
    pub sum: &'a Sum,
}

/// What is added to the residual stream.
#[derive(Copy, Clone)]
pub(super) struct Partials<'a> {
    pub summands: Summands<'a>,
    /// What their sum goes through.
    pub finish: &'a Finish,
    /// What adapters add to it.
    pub delta: Option<Sums<'a>>,
    /// Elements of a row.
    pub width: usize,
}

/// f32 of scratch for the residual sum `sum` of rows of `width`, and for another.
pub(super) fn scratch_len(
    (sum, also): (&Sum, Option<&Sum>),
    width: usize,
    finish: &Finish,
) -> usize {
    let whole = if finish.norm.is_some() { 2 * width } else { 0 };
    let roots = also.map_or(0, Sum::roots).max(sum.roots());
    (LEVELS * width).max((roots + 1 + LEVELS) * PIECE + whole)
}

impl Thread<'_> {
    /// One root's columns of a row.
    fn summand<'s>(
        &self,
        parts: Partials<'s>,
        root: usize,
        row: usize,
        cols: Range<usize>,
    ) -> &'s [f32] {
        let Summands { of, pushed, sum } = parts.summands;
        let (node, slot) = if pushed {
            (self.node, root)
        } else {
            let node = sum.slots.iter().position(|s| s.contains(&root)).expect("a root");
            (node, root - sum.slots[node].start)
        };
        let first = slot * parts.width.next_multiple_of(TILE_ROWS);
        of.on(self.place_of(node)).columns(row, first + cols.start..first + cols.end)
    }

    /// What the columns `cols` of a row's sum add to the stream. With a norm, they are all columns.
    fn finish<'s>(
        &self,
        parts: Partials<'_>,
        (row, cols): (usize, Range<usize>),
        sum: &'s mut [f32],
        spare: &'s mut [f32],
    ) -> &'s mut [f32] {
        let (kernels, finish) = (self.step.kernels, parts.finish);
        if let Some(product) = finish.product {
            kernels.scale(sum, self.step.weights.vector(product, self.group)[0]);
        }
        if let Some(delta) = parts.delta.filter(|d| self.is_adapted(d.matrix, d.domain, row)) {
            kernels.add_assign(sum, delta.of.columns(row..row + 1, cols.clone()).row(0));
        }
        if let Some(bias) = finish.bias {
            kernels.add_assign(sum, &self.step.weights.vector(bias, self.group)[cols]);
        }
        if let Some(clamp) = finish.clamp {
            keep(self.limits_of(clamp), sum);
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

    /// The factor on the new stream.
    fn scale_stream(&self, finish: &Finish, stream: &mut [f32]) {
        if let Some(factor) = finish.factor {
            self.step.kernels.scale(stream, self.step.weights.vector(factor, self.group)[0]);
        }
    }

    /// `out = x + finish(Σ partials)`, and perhaps another such sum, for this thread's rows, each node for itself; without
    /// `x`, the stream is `out` already.
    pub(super) fn residual(
        &self,
        x: Option<Source<'_>>,
        (first, second): (Partials<'_>, Option<Partials<'_>>),
        mut out: Target<'_>,
        rows: Range<usize>,
        scratch: &mut [f32],
    ) {
        let (kernels, width) = (self.step.kernels, first.width);
        let mut sums = Tree::new(scratch, width);
        for row in rows {
            let to = out.row(row, width);
            if let Some(x) = x {
                to.copy_from_slice(x.row(row, width));
            }
            for parts in [Some(first), second].into_iter().flatten() {
                for (root, &folds) in parts.summands.sum.folds.iter().enumerate() {
                    let part = self.summand(parts, root, row, 0..width);
                    sums.push(kernels, folds, |to| to.copy_from_slice(part));
                }
                let (sum, spare) = sums.take();
                let done = self.finish(parts, (row, 0..width), sum, spare);
                match parts.finish.alone {
                    true => to.copy_from_slice(done),
                    false => kernels.add_assign(to, done),
                }
                self.scale_stream(parts.finish, to);
            }
        }
    }

    /// The same for this thread's share of the elements of all rows, for all nodes: reduce-scatter
    /// and all-gather. Both begin at the thread's own node and go round. A norm needs whole rows, so
    /// then shares are rows.
    pub(super) fn scatter(
        &self,
        x: Option<Source<'_>>,
        (first, second): (Partials<'_>, Option<Partials<'_>>),
        mut out: Target<'_>,
        rows: usize,
        scratch: &mut [f32],
    ) {
        let Partials { summands: Summands { sum: order, .. }, finish, width, .. } = first;
        let roots = second.map_or(0, |second| second.summands.sum.roots()).max(order.roots());
        let (held, rest) = scratch.split_at_mut(PIECE);
        let (fetched, rest) = rest.split_at_mut(roots * PIECE);
        let (stack, whole) = rest.split_at_mut(LEVELS * PIECE);
        // Shares are whole cache lines, so that no two threads write into one.
        let lines = width.div_ceil(TILE_ROWS);
        let (id, threads) = self.step.among;
        let mine = match finish.norm {
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
            let mut sums = Tree::new(stack, cols.len());
            self.fold(first, (row, &cols), fetched, &mut sums);
            let (sum, spare) = sums.take();
            if finish.norm.is_none() {
                let done = self.finish(first, (row, cols.clone()), sum, spare);
                self.add_stream((x, finish), &mut out, row, &cols, done);
                let Some(second) = second else {
                    self.tell(&mut out, row, &cols, done);
                    continue;
                };
                let held = &mut held[..cols.len()];
                held.copy_from_slice(done);
                self.fold(second, (row, &cols), fetched, &mut sums);
                let (sum, spare) = sums.take();
                let done = self.finish(second, (row, cols.clone()), sum, spare);
                self.step.kernels.add_assign(held, done);
                self.tell(&mut out, row, &cols, held);
                continue;
            }
            let (all, spare) = whole[..2 * width].split_at_mut(width);
            all[cols.clone()].copy_from_slice(sum);
            if cols.end == width {
                let done = self.finish(first, (row, 0..width), all, spare);
                self.add_stream((x, finish), &mut out, row, &(0..width), done);
                self.tell(&mut out, row, &(0..width), done);
            }
        }
    }

    /// The summands of columns of a row, from all nodes, as one sum.
    fn fold(
        &self,
        parts: Partials<'_>,
        (row, cols): (usize, &Range<usize>),
        fetched: &mut [f32],
        sums: &mut Tree<'_>,
    ) {
        let order = parts.summands.sum;
        for root in self.round().flat_map(|n| order.slots[n].clone()) {
            let part = self.summand(parts, root, row, cols.clone());
            fetched[root * PIECE..][..cols.len()].copy_from_slice(part);
        }
        for (part, &folds) in fetched.chunks_exact(PIECE).zip(&order.folds) {
            let part = &part[..cols.len()];
            sums.push(self.step.kernels, folds, |to| to.copy_from_slice(part));
        }
    }

    /// The nodes, from this thread's own on.
    fn round(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, nodes) = (self.node, self.step.graph.nodes());
        (0..nodes).map(move |i| (first + i) % nodes)
    }

    /// Adds columns of a row of the stream to a sum.
    fn add_stream(
        &self,
        (x, finish): (Option<Source<'_>>, &Finish),
        out: &mut Target<'_>,
        row: usize,
        cols: &Range<usize>,
        done: &mut [f32],
    ) {
        let kernels = self.step.kernels;
        match x {
            _ if finish.alone => {}
            Some(x) => kernels.add_assign(done, x.columns(row..row + 1, cols.clone()).row(0)),
            None => kernels.add_assign(done, out.columns(row..row + 1, cols.clone()).row_mut(0)),
        }
        self.scale_stream(finish, done);
    }

    /// Columns of a row of the new stream, to every node.
    fn tell(&self, out: &mut Target<'_>, row: usize, cols: &Range<usize>, done: &[f32]) {
        for node in self.round() {
            let mut to = out.columns_on(self.place_of(node), row..row + 1, cols.clone());
            to.row_mut(0).copy_from_slice(done);
        }
    }
}
