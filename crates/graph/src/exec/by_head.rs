//! Products by head: each head's block of a matrix with the head's own part of the input.

use super::Thread;
use super::access::{Source, Target};
use super::areas::columns;
use super::grid::Own;
use crate::claims::Operand;
use crate::weight::ByHead;
use kernels::TILE_ROWS;

impl Thread<'_> {
    /// The product of each head's part of the rows with its block, behind what is `carried` over from there.
    pub(crate) fn matmul_by_head(
        &self,
        own: &Own<'_>,
        acts: Operand<Source<'_>>,
        carried: Option<Source<'_>>,
        of: &ByHead,
        out: &mut Target<'_>,
    ) {
        let [part] = own.shard().parts.as_slice() else { unreachable!("one matrix") };
        let (how, root, per_head) = (self.how(own, part), part.whole(), of.rows / TILE_ROWS);
        let (stride, taken) = &of.input;
        let before = of.output - of.rows;
        let mut tiles = own.tiles(0);
        while !tiles.is_empty() {
            let (head, first) = (tiles.start / per_head, tiles.start % per_head);
            let count = (per_head - first).min(tiles.len());
            let cols = head * stride + taken.start..head * stride + taken.end;
            let to_cols = columns(head * of.output + before, &(first..first + count));
            // A head's first tile goes with what is carried over.
            let from = if first == 0 { head * of.output } else { to_cols.start };
            out.claim(own.rows(), from..to_cols.end);
            for rows in self.row_blocks(own, part) {
                let input = self.acts(acts, part, rows.clone(), cols.clone());
                let weights = part.tiles(tiles.start..tiles.start + count, root);
                let to = out.columns(rows, to_cols.clone());
                self.step.kernels.matmul_by(how, part.ty, weights, &root.pieces, input, to);
            }
            // Who has a head's first tile copies.
            if let Some(from) = carried.filter(|_| first == 0) {
                let from_cols = head * stride + of.carried.start..head * stride + of.carried.end;
                let from = from.columns(own.rows(), from_cols);
                let to_cols = head * of.output..head * of.output + before;
                let mut to = out.columns(own.rows(), to_cols);
                for row in 0..from.rows() {
                    to.row_mut(row).copy_from_slice(from.row(row));
                }
            }
            tiles.start += count;
        }
    }
}
