//! Several residual streams side by side: row-wise instructions.

use super::Thread;
use super::access::{Source, Target};
use crate::streams::Streams;
use kernels::Kernels;
use std::ops::Range;

/// Floats of scratch for `count` streams of `width`.
pub(super) fn scratch_len(count: usize, width: usize) -> usize {
    count + count * count + width
}

/// The factor that brings `y` to the length of `like`; mean squares of `y` below `least` count as this.
fn to_length(kernels: &Kernels, like: &[f32], y: &[f32], least: f32) -> f32 {
    let mean = |x: &[f32]| kernels.square_sum(x) / x.len() as f32;
    mean(like).sqrt() / mean(y).max(least).sqrt()
}

impl Thread<'_> {
    /// `count` streams of `width`.
    pub(super) fn streams(
        &self,
        (x, y, z): (Source<'_>, Option<Source<'_>>, Option<Source<'_>>),
        (what, count, width): (&Streams, usize, usize),
        mut out: Target<'_>,
        rows: Range<usize>,
        scratch: &mut [f32],
    ) {
        let kernels = self.step.kernels;
        let vector = |id| self.step.weights.vector(id, self.group);
        let second = |row, width| y.expect("an operand of this step").row(row, width);
        let third = |row, width| z.expect("an operand of this step").row(row, width);
        let (scores, scratch) = scratch.split_at_mut(count);
        let (factors, spare) = scratch.split_at_mut(count * count);
        let spare = &mut spare[..width];
        // Factors by the table and what the router said of the token.
        let mut by_scores = |row: usize, table: &[f32], factors: &mut [f32]| {
            scores.copy_from_slice(third(row, count));
            kernels.soft_cap(scores, 1.0); // tanh
            for (factor, weights) in factors.iter_mut().zip(table.chunks_exact(count)) {
                *factor = weights.iter().zip(&*scores).map(|(w, s)| w * s).sum();
            }
        };
        let (all, one) = (count * width, |i: usize| i * width..(i + 1) * width);
        for row in rows {
            match *what {
                Streams::Begin { least } => {
                    let (x, y) = (x.row(row, width), second(row, all - width));
                    let (first, others) = out.row(row, all).split_at_mut(width);
                    first.copy_from_slice(x);
                    for (to, y) in others.chunks_exact_mut(width).zip(y.chunks_exact(width)) {
                        to.copy_from_slice(y);
                        kernels.scale(to, to_length(kernels, x, y, least));
                    }
                }
                Streams::Predict { table } => {
                    by_scores(row, vector(table), factors);
                    let (x, to) = (x.row(row, all), out.row(row, all));
                    to.copy_from_slice(x);
                    for (to, factors) in to.chunks_exact_mut(width).zip(factors.chunks(count)) {
                        for (x, &factor) in x.chunks_exact(width).zip(factors) {
                            kernels.add_scaled(to, factor, x);
                        }
                    }
                }
                Streams::Take { at, factor } => {
                    let to = out.row(row, width);
                    to.copy_from_slice(&x.row(row, all)[one(at)]);
                    if let Some(factor) = factor {
                        kernels.scale_by(to, 1.0, vector(factor));
                    }
                }
                Streams::TakeTwice { at, norm, scale } => {
                    let (x, to) = (&x.row(row, all)[one(at)], out.row(row, width));
                    self.norm_of(&norm, x, to);
                    kernels.add_assign(to, x);
                    kernels.scale(to, scale);
                }
                Streams::Correct { active, table } => {
                    by_scores(row, vector(table), &mut factors[..count]);
                    let (x, to) = (x.row(row, all), out.row(row, all));
                    spare.copy_from_slice(second(row, width));
                    kernels.add_scaled(spare, -1.0, &x[one(active)]);
                    to.copy_from_slice(x);
                    for (to, factor) in to.chunks_exact_mut(width).zip(&*factors) {
                        kernels.add_scaled(to, 1.0 + factor, spare);
                    }
                }
                Streams::Spread => {
                    let to = out.row(row, all);
                    to.copy_from_slice(x.row(row, all));
                    for to in to.chunks_exact_mut(width).skip(1) {
                        kernels.add_assign(to, second(row, width));
                    }
                }
                Streams::Merge { least, scale } => {
                    let (y, like) = (second(row, width), third(row, width));
                    let to = out.row(row, width);
                    to.copy_from_slice(x.row(row, width));
                    kernels.add_scaled(to, to_length(kernels, like, y, least), y);
                    kernels.scale(to, scale);
                }
            }
        }
    }
}
