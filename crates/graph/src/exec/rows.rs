//! Row-wise instructions: embedding, norms, quantisation.

use super::Thread;
use super::access::{Source, Target};
use crate::op::{Added, Merging, Norm, Rope};
use crate::step::Recalled;
use crate::weight::{Clamp, MatrixId, VectorId};
use kernels::ActKind;
use std::ops::Range;

impl Thread<'_> {
    pub(super) fn rope_table(&self, rope: usize, mut out: Target<'_>) {
        let Rope { inv_freq, amplitude, axes, .. } = &self.step.graph.ropes[rope];
        let amplitude = f64::from(*amplitude);
        let tokens = &self.input.tokens;
        for t in self.shares[0].clone() {
            let row = out.row(t, inv_freq.len() * 2);
            let (cos, sin) = row.split_at_mut(inv_freq.len());
            for (i, ((freq, cos), sin)) in inv_freq.iter().zip(cos).zip(sin).enumerate() {
                let axis = axes.get(i).map_or(0, |&axis| usize::from(axis));
                // The angle is rounded to f32 as every reference does; its sine is then exact.
                let angle = f64::from(tokens[t].spot[axis] as f32 * freq);
                *cos = (angle.cos() * amplitude) as f32;
                *sin = (angle.sin() * amplitude) as f32;
            }
        }
    }

    pub(super) fn embed(
        &self,
        table: MatrixId,
        scale: f32,
        (added, insets): (Added, bool),
        mut out: Target<'_>,
    ) {
        let tokens = &self.input.tokens;
        let part = &self.step.graph.matrix(table).parts[0];
        let own = part.scale.map_or(1.0, |own| self.step.weights.vector(own, self.group)[0]);
        let vector = |of: VectorId| self.step.weights.vector(of, self.group);
        let (positions, types) = (added.positions.map(vector), added.types.map(vector));
        let cut = &part.cut;
        for t in self.shares[0].clone() {
            if let Some(row) = self.input.row(t).filter(|_| insets) {
                out.row(t, part.cols).copy_from_slice(&row[..part.cols]);
                continue;
            }
            let [id, ty, position] =
                [tokens[t].id, tokens[t].ty, tokens[t].position].map(|n| n as usize);
            let owner = cut.owner(id);
            let row = id - cut.range(owner).start;
            let packed = &self.step.weights.shard(table, owner, self.group).parts[0];
            let tile = packed.tile(row / kernels::TILE_ROWS);
            let to = out.row(t, packed.cols);
            let within = row % kernels::TILE_ROWS;
            self.step.kernels.unpack_row(packed.ty, tile, packed.cols, within, &mut *to);
            for factor in [own, scale].into_iter().filter(|&factor| factor != 1.0) {
                self.step.kernels.scale(to, factor);
            }
            for (all, at) in [(types, ty), (positions, position)] {
                if let Some(all) = all {
                    let row = &all[at * packed.cols..(at + 1) * packed.cols];
                    self.step.kernels.add_assign(to, row);
                }
            }
        }
    }

    /// Columns of the step's rows, plus `x`, or plus what is there.
    pub(super) fn insert_rows(
        &self,
        (x, stays): (Option<Source<'_>>, bool),
        columns: Range<usize>,
        mut out: Target<'_>,
        rows: Range<usize>,
    ) {
        for t in rows {
            let to = out.row(t, columns.len());
            let row = self.input.row(t).map(|row| &row[columns.clone()]);
            match (x, stays, row) {
                (Some(x), _, _) => to.copy_from_slice(x.row(t, columns.len())),
                (None, true, _) => {}
                (None, false, None) => to.fill(0.0),
                (None, false, Some(row)) => {
                    to.copy_from_slice(row);
                    continue;
                }
            }
            if let Some(row) = row {
                self.step.kernels.add_assign(to, row);
            }
        }
    }

    /// Rows of `count` tokens as one.
    pub(super) fn merge(
        &self,
        x: Source<'_>,
        (count, how, width): (usize, Merging, usize),
        mut out: Target<'_>,
        rows: Range<usize>,
    ) {
        let kernels = self.step.kernels;
        for row in rows {
            let first = self.input.outputs[row] as usize;
            let to = out.row(row, how.width(count, width));
            for i in 0..count {
                let from = x.row(first + i, width);
                match how {
                    Merging::Beside => to[i * width..(i + 1) * width].copy_from_slice(from),
                    Merging::InTurns => {
                        to.iter_mut().skip(i).step_by(count).zip(from).for_each(|(to, x)| *to = *x);
                    }
                    Merging::Mean | Merging::Standardised { .. } if i == 0 => {
                        to.copy_from_slice(from);
                    }
                    Merging::Mean | Merging::Standardised { .. } => kernels.add_assign(to, from),
                }
            }
            if let Merging::Mean | Merging::Standardised { .. } = how {
                kernels.scale(to, (count as f32).recip());
            }
            if let Merging::Standardised { less, times } = how {
                let [less, times] =
                    [less, times].map(|vector| self.step.weights.vector(vector, self.group));
                kernels.add_scaled(to, -1.0, less);
                kernels.scale_by(to, 1.0, times);
            }
        }
    }

    pub(super) fn norm(&self, x: Source<'_>, norm: &Norm, mut out: Target<'_>, rows: Range<usize>) {
        let width = self.step.weights.vector(norm.weight(), self.group).len();
        for row in rows {
            self.norm_of(norm, x.row(row, width), out.row(row, width));
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

    /// `(norm(x) + y) * scale * factor`, run by run.
    pub(super) fn blend(
        &self,
        (x, y): (Source<'_>, Source<'_>),
        (norm, scale, factor): (&Norm, f32, Option<VectorId>),
        width: usize,
        mut out: Target<'_>,
        rows: Range<usize>,
    ) {
        let vector = |id| self.step.weights.vector(id, self.group);
        let kernels = self.step.kernels;
        let run = vector(norm.weight()).len();
        let factor = scale * factor.map_or(1.0, |factor| vector(factor)[0]);
        for row in rows {
            let to = out.row(row, width);
            let runs = x.row(row, width).chunks_exact(run).zip(to.chunks_exact_mut(run));
            runs.for_each(|(x, to)| self.norm_of(norm, x, to));
            kernels.add_assign(to, y.row(row, width));
            kernels.scale(to, factor);
        }
    }

    /// Rows that earlier steps have remembered, or zeros.
    pub(super) fn recall(
        &self,
        [model, predicted]: [Source<'_>; 2],
        width: usize,
        mut out: Target<'_>,
        rows: Range<usize>,
    ) {
        for row in rows {
            let to = out.row(row, width);
            match self.input.recalled[row] {
                Recalled::Nothing => to.fill(0.0),
                Recalled::Step(at) => to.copy_from_slice(model.row(at as usize, width)),
                Recalled::Predicted(at) => to.copy_from_slice(predicted.row(at as usize, width)),
            }
        }
    }

    /// The node's columns of two rows beside each other, with norms.
    pub(super) fn concat(
        &self,
        from: [Source<'_>; 2],
        (norms, width, matrix): (&[Norm; 2], usize, MatrixId),
        mut out: Target<'_>,
        rows: Range<usize>,
        scratch: &mut [f32],
    ) {
        let own = self.step.graph.matrix(matrix).cols(0, self.node);
        let both = &mut scratch[..2 * width];
        for row in rows {
            for ((x, norm), to) in from.iter().zip(norms).zip(both.chunks_exact_mut(width)) {
                self.norm_of(norm, x.row(row, width), to);
            }
            out.row(row, own.len()).copy_from_slice(&both[own.clone()]);
        }
    }

    /// The numbers.
    pub(super) fn limits_of(&self, Clamp { least, most }: Clamp) -> (f32, f32) {
        let number = |of| self.step.weights.vector(of, self.group)[0];
        (number(least), number(most))
    }

    pub(super) fn quantize(
        &self,
        x: Source<'_>,
        (kind, matrix): (ActKind, MatrixId),
        mut out: Target<'_>,
        rows: Range<usize>,
        scratch: &mut [f32],
    ) {
        let kernels = self.step.kernels;
        let matrix = self.step.graph.matrix(matrix);
        let cols = matrix.input_width(self.node);
        let bytes = kernels.row_bytes(kind, cols);
        if let Some(clamp) = matrix.clamp {
            let limits = self.limits_of(clamp);
            let limited = &mut scratch[..cols];
            for row in rows {
                limited.copy_from_slice(x.row(row, cols));
                keep(limits, limited);
                match kind {
                    ActKind::Q8 => kernels.quantize_q8(limited, out.bytes(row, bytes)),
                    ActKind::Bf16 => kernels.round_bf16(limited, out.bytes(row, bytes)),
                    ActKind::F32 => out.row(row, cols).copy_from_slice(limited),
                }
            }
            return;
        }
        for row in rows.clone() {
            let from = x.row(row, cols);
            match kind {
                ActKind::Q8 if row + 1 < rows.end => {
                    let (to, place) = out.bytes_and_next(row, bytes);
                    let next = (x.row(row + 1, cols), place);
                    kernels.quantize_q8_before(from, to, Some(next));
                }
                ActKind::Q8 => kernels.quantize_q8(from, out.bytes(row, bytes)),
                ActKind::Bf16 => kernels.round_bf16(from, out.bytes(row, bytes)),
                ActKind::F32 => unreachable!("f32 is what there is"),
            }
        }
    }
}

/// Brings numbers beyond limits to them.
pub(super) fn keep((least, most): (f32, f32), row: &mut [f32]) {
    row.iter_mut().for_each(|x| *x = x.max(least).min(most));
}
