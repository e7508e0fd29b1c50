//! Row-wise instructions: embedding, norms, quantisation.

use super::Thread;
use crate::buffer::BufId;
use crate::op::{Norm, Rope};
use crate::placement::share;
use crate::weight::MatrixId;
use kernels::ActKind;
use std::ops::Range;

impl Thread<'_> {
    pub(super) fn rope_table(&self, rope: usize, out: BufId) {
        let Rope { inv_freq, amplitude, .. } = &self.step.graph.ropes[rope];
        let amplitude = f64::from(*amplitude);
        let tokens = &self.input.tokens;
        for t in share(tokens.len(), self.size, self.rank) {
            let row = self.row_mut(out, t, inv_freq.len() * 2);
            let (cos, sin) = row.split_at_mut(inv_freq.len());
            for ((freq, cos), sin) in inv_freq.iter().zip(cos).zip(sin) {
                // The angle is rounded to f32 as every reference does; its sine is then exact.
                let angle = f64::from(tokens[t].position as f32 * freq);
                *cos = (angle.cos() * amplitude) as f32;
                *sin = (angle.sin() * amplitude) as f32;
            }
        }
    }

    pub(super) fn embed(&self, table: MatrixId, scale: f32, out: BufId) {
        let tokens = &self.input.tokens;
        let cut = &self.step.graph.matrix(table).parts[0].cut;
        for t in share(tokens.len(), self.size, self.rank) {
            let id = tokens[t].id as usize;
            let owner = cut.owner(id);
            let row = id - cut.range(owner).start;
            let packed = &self.step.weights.shard(table, owner, self.group).parts[0];
            let tile = packed.tile(row / kernels::TILE_ROWS);
            let to = self.row_mut(out, t, packed.cols);
            let within = row % kernels::TILE_ROWS;
            self.step.kernels.unpack_row(packed.ty, tile, packed.cols, within, &mut *to);
            if scale != 1.0 {
                self.step.kernels.scale(to, scale);
            }
        }
    }

    pub(super) fn norm(&self, x: BufId, norm: &Norm, out: BufId, rows: Range<usize>) {
        let (Norm::Rms { weight, .. } | Norm::Layer { weight, .. }) = *norm;
        let width = self.step.weights.vector(weight, self.group).len();
        for row in rows {
            self.norm_of(norm, self.row(x, row, width), self.row_mut(out, row, width));
        }
    }

    /// The norm of one row.
    pub(super) fn norm_of(&self, norm: &Norm, x: &[f32], out: &mut [f32]) {
        let vector = |id| self.step.weights.vector(id, self.group);
        let kernels = self.step.kernels;
        match *norm {
            Norm::Rms { weight, eps } => kernels.rms_norm(x, vector(weight), eps, out),
            Norm::Layer { weight, bias, eps } => {
                kernels.layer_norm(x, vector(weight), vector(bias), eps, out);
            }
        }
    }

    pub(super) fn quantize(
        &self,
        x: BufId,
        kind: ActKind,
        cols: usize,
        out: BufId,
        rows: Range<usize>,
    ) {
        let kernels = self.step.kernels;
        let bytes = kernels.row_bytes(kind, cols);
        for row in rows.clone() {
            let (from, to) = (self.row(x, row, cols), self.bytes_mut(out, row, bytes));
            match kind {
                ActKind::Q8 => {
                    let next = (row + 1 < rows.end).then_some(row + 1);
                    let next = next
                        .map(|next| (self.row(x, next, cols), &*self.bytes_mut(out, next, bytes)));
                    kernels.quantize_q8_before(from, to, next);
                }
                ActKind::Bf16 => kernels.round_bf16(from, to),
                ActKind::F32 => unreachable!("f32 is what there is"),
            }
        }
    }
}
