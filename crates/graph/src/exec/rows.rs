//! What several row-wise instructions have in common.

use super::Thread;
use crate::op::Norm;
use crate::weight::Clamp;

impl Thread<'_> {
    /// The norm of one row.
    pub(crate) fn norm_of(&self, norm: &Norm, x: &[f32], out: &mut [f32]) {
        let vector = |id| self.step.weights.vector(id, self.group);
        let kernels = self.step.kernels;
        match *norm {
            Norm::Rms { weight, eps } => kernels.rms_norm(x, vector(weight), eps, out),
            Norm::Layer { weight, bias, eps } => {
                kernels.layer_norm(x, vector(weight), vector(bias), eps, out);
            }
        }
    }

    /// The numbers.
    pub(crate) fn limits_of(&self, Clamp { least, most }: Clamp) -> (f32, f32) {
        let number = |of| self.step.weights.vector(of, self.group)[0];
        (number(least), number(most))
    }
}

/// Brings numbers beyond limits to them.
pub(crate) fn keep((least, most): (f32, f32), row: &mut [f32]) {
    row.iter_mut().for_each(|x| *x = x.max(least).min(most));
}
