//! Matrix products: each thread multiplies its tiles with all rows of activations.
//!
//! Blocking: a block of tiles that fits half of the L2 cache is walked once per block of rows that
//! fits half of the L1 cache, so that both operands are read from memory about once. The order of
//! summation is the kernel's and does not depend on the blocking.

use super::Thread;
use crate::buffer::BufId;
use crate::instr::Operand;
use crate::load::{Packed, Root};
use crate::weight::MatrixId;
use kernels::{ActKind, Acts, Rows, RowsMut, TILE_ROWS, q8_row_bytes};
use std::ops::Range;

/// The most rows of a block: what the scratch is sized for.
const BLOCK_ROWS: usize = 64;
const PAIR: usize = BLOCK_ROWS * TILE_ROWS;
/// f32 of scratch: gate, up and their product, or a product that goes to several nodes.
pub(super) const SCRATCH: usize = 3 * PAIR;

impl Thread<'_> {
    pub(super) fn matmul(&self, acts: Operand, matrix: MatrixId, out: BufId, rows: usize) {
        let shard = self.step.weights.shard(matrix, self.node, self.group);
        // The logits of all nodes lie in one row: this node's begin at its first vocabulary row.
        let base = self.host_column(matrix, out);
        let below = if self.step.storage.is_host(out) { self.outputs_before } else { 0 };
        for (p, part) in shard.parts.iter().enumerate() {
            let tiles = shard.share(self.rank, p, false);
            for tiles in blocks(tiles, self.step.plan.weight_block_bytes / part.tile_bytes()) {
                for rows in self.row_blocks(acts, part, rows) {
                    for t in tiles.clone() {
                        let col = base + part.out + t * TILE_ROWS;
                        let to_rows = rows.start + below..rows.end + below;
                        let to = self.columns(out, to_rows, col..col + TILE_ROWS);
                        self.multiply(part, t, acts, rows.clone(), to);
                    }
                }
            }
        }
    }

    pub(super) fn gated(&self, acts: Operand, matrix: MatrixId, out: BufId, rows: usize) {
        let shard = self.step.weights.shard(matrix, self.node, self.group);
        let [gate, up] = shard.parts.as_slice() else { unreachable!("a pair of matrices") };
        let tiles = shard.share(self.rank, 0, true);
        let (to_gate, rest) = self.scratch().split_at_mut(PAIR);
        let (to_up, to_both) = rest.split_at_mut(PAIR);
        let bytes = gate.tile_bytes() + up.tile_bytes();
        for tiles in blocks(tiles, self.step.plan.weight_block_bytes / bytes) {
            for rows in self.row_blocks(acts, gate, rows) {
                let len = rows.len() * TILE_ROWS;
                let (g, u, both) = (&mut to_gate[..len], &mut to_up[..len], &mut to_both[..len]);
                for t in tiles.clone() {
                    let view = |s| RowsMut::new(s, rows.len(), TILE_ROWS, TILE_ROWS);
                    self.multiply(gate, t, acts, rows.clone(), view(&mut *g));
                    self.multiply(up, t, acts, rows.clone(), view(&mut *u));
                    self.step.kernels.swiglu(g, u, both);
                    let col = t * TILE_ROWS;
                    copy(both, self.columns(out, rows.clone(), col..col + TILE_ROWS));
                }
            }
        }
    }

    /// Product with a matrix whose columns the nodes share: every root of the summation tree goes to
    /// its slot of this node's copy or of every node's.
    pub(super) fn matmul_partial(
        &self,
        acts: Operand,
        matrix: MatrixId,
        out: BufId,
        push: bool,
        rows: usize,
    ) {
        let shard = self.step.weights.shard(matrix, self.node, self.group);
        let [part] = shard.parts.as_slice() else { unreachable!("one matrix") };
        if part.cols == 0 {
            return; // a node without any columns
        }
        let (nodes, here) = (self.step.graph.nodes(), self.node);
        let slot = self.step.graph.matrix(matrix).parts[0].rows.next_multiple_of(TILE_ROWS);
        let tiles = shard.share(self.rank, 0, false);
        for tiles in blocks(tiles, self.step.plan.weight_block_bytes / part.tile_bytes()) {
            for rows in self.row_blocks(acts, part, rows) {
                for t in tiles.clone() {
                    for (i, root) in part.roots.iter().enumerate() {
                        let place = if push { part.roots_before + i } else { i };
                        let col = place * slot + t * TILE_ROWS;
                        let to =
                            |node| self.columns_on(node, out, rows.clone(), col..col + TILE_ROWS);
                        if !push || nodes == 1 {
                            self.product(part, t, root, acts, rows.clone(), to(here));
                            continue;
                        }
                        let sum = &mut self.scratch()[..rows.len() * TILE_ROWS];
                        let view = RowsMut::new(sum, rows.len(), TILE_ROWS, TILE_ROWS);
                        self.product(part, t, root, acts, rows.clone(), view);
                        for i in 0..nodes {
                            copy(sum, to((here + i) % nodes));
                        }
                    }
                }
            }
        }
    }

    /// Tile `tile` of a part that is summed in one piece, times the rows `rows` of activations.
    fn multiply(
        &self,
        part: &Packed,
        tile: usize,
        acts: Operand,
        rows: Range<usize>,
        to: RowsMut<'_, f32>,
    ) {
        let [all] = part.roots.as_slice() else { unreachable!("rows are whole") };
        self.product(part, tile, all, acts, rows, to);
    }

    /// What a tile holds of a root times the rows `rows` of activations.
    fn product(
        &self,
        part: &Packed,
        tile: usize,
        root: &Root,
        acts: Operand,
        rows: Range<usize>,
        to: RowsMut<'_, f32>,
    ) {
        let input = self.acts(acts, part, rows, root.cols.clone());
        let weights = part.tile(tile, root);
        self.step.kernels.matmul_tile(part.ty, weights, &root.pieces, input, to);
    }

    /// The activations that `part` multiplies: rows `rows`, columns `cols`.
    fn acts(
        &self,
        acts: Operand,
        part: &Packed,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Acts<'_> {
        let (buf, _) = self.act_row(acts, part);
        let stride = self.stride(buf, self.place);
        let block = self.block(buf).sub(rows.start * stride, rows.len() * stride);
        match kernels::act_kind(part.ty) {
            ActKind::F32 => {
                // SAFETY: the buffer is among this instruction's reads; see the module `exec`.
                let all = unsafe { block.as_slice::<f32>() };
                let stride = stride / size_of::<f32>();
                Acts::F32(Rows::new(&all[cols.start..], rows.len(), cols.len(), stride))
            }
            ActKind::Q8 => {
                // SAFETY: as above.
                let all = unsafe { block.as_slice::<u8>() };
                let (begin, width) = (q8_row_bytes(cols.start), q8_row_bytes(cols.len()));
                Acts::Q8(Rows::new(&all[begin..], rows.len(), width, stride))
            }
        }
    }

    /// The buffer that `part` multiplies and the bytes of one of its rows.
    fn act_row(&self, acts: Operand, part: &Packed) -> (BufId, usize) {
        match kernels::act_kind(part.ty) {
            ActKind::F32 => (acts.f32.expect("declared"), part.cols * size_of::<f32>()),
            ActKind::Q8 => (acts.q8.expect("declared"), q8_row_bytes(part.cols)),
        }
    }

    fn row_blocks(
        &self,
        acts: Operand,
        part: &Packed,
        rows: usize,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let (_, bytes) = self.act_row(acts, part);
        // Whole register tiles of rows, so that only the last block has a remainder.
        let fit = (self.step.plan.act_block_bytes / bytes).next_multiple_of(8).clamp(8, BLOCK_ROWS);
        blocks(0..rows, fit)
    }

    fn host_column(&self, matrix: MatrixId, out: BufId) -> usize {
        if self.step.storage.is_host(out) {
            self.step.graph.matrix(matrix).rows(0, self.node).start
        } else {
            0
        }
    }
}

/// Rows of a tile, one after the other, to their places.
fn copy(from: &[f32], mut to: RowsMut<'_, f32>) {
    for (row, from) in from.chunks_exact(TILE_ROWS).enumerate() {
        to.row_mut(row).copy_from_slice(from);
    }
}

/// `range` in pieces of `size`, at least one element each.
fn blocks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    let size = size.max(1);
    range.step_by(size).map(move |start| start..(start + size).min(end))
}
