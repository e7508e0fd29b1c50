//! Products of low rank beside those of matrices.

use super::Lowering;
use crate::buffer::{BufId, Home};
use crate::instr::{InstrKind, Work};
use crate::tensor::Bundle;
use crate::weight::MatrixId;
use kernels::TILE_ROWS;

impl Lowering<'_> {
    /// What A of the adapters beside `matrix` gives of `x`, if it has any in this form.
    pub(super) fn lora_a(
        &mut self,
        x: Bundle,
        matrix: MatrixId,
        layer: Option<usize>,
    ) -> Option<BufId> {
        let lows = self.graph.lows(matrix).filter(|_| self.variant.adapts)?;
        let domain = self.graph.bundle(x).domain;
        let role = format!("{}.low.{}", self.graph.matrix(matrix).name, layer.map_or(0, |l| l % 2));
        let widths = vec![lows.width * size_of::<f32>(); self.graph.nodes];
        let (rows, told) = (self.rows(domain, Work::Rows), lows.told);
        let out = self.buffers.declare(&role, Home::Node, rows, &widths);
        let x = self.value(x);
        self.emit(layer, domain, InstrKind::LoraA { x, matrix, out, told });
        Some(out)
    }

    /// What B of the adapters beside the matrix that gave the summands `partial` adds to their sum.
    pub(super) fn lora_b(
        &mut self,
        partial: Bundle,
        layer: Option<usize>,
    ) -> Option<(BufId, MatrixId)> {
        let &(low, matrix) = self.lows.get(&partial)?;
        let info = self.graph.bundle(partial);
        let (domain, bytes) =
            (info.domain, info.width.next_multiple_of(TILE_ROWS) * size_of::<f32>());
        let role =
            format!("{}.delta.{}", self.graph.matrix(matrix).name, layer.map_or(0, |l| l % 2));
        let (rows, widths) = (self.rows(domain, Work::Rows), vec![bytes; self.graph.nodes]);
        let out = self.buffers.declare(&role, Home::Node, rows, &widths);
        self.emit(layer, domain, InstrKind::LoraB { low, matrix, out });
        Some((out, matrix))
    }
}
