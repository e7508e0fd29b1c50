//! Rows of floats: norms, sums, activations, RoPE, softmax.

use super::{Kernels, same_len};
use crate::elementwise::RopeStyle;
use crate::exp::{Activation, Curve};
use crate::simd::LANES;
use crate::views::{Rows, RowsMut};

impl Kernels {
    /// `out = x * (1 / sqrt(mean(x²) + eps)) * weight`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        same_len(&[x.len(), weight.len(), out.len()]);
        call!(self.rms_norm(x, weight, eps, out));
    }

    /// [`Kernels::rms_norm`] of each head onto itself, all with the same weights. `heads`: `[heads,
    /// dim]`, `weight`: `[dim]`.
    ///
    /// # Panics
    ///
    /// If `heads` is not a whole number of heads.
    pub fn rms_norm_heads(&self, heads: &mut [f32], weight: &[f32], eps: f32) {
        let (len, dim) = (heads.len(), weight.len());
        assert!(dim > 0 && len.is_multiple_of(dim), "{len} elements are not heads of {dim}");
        call!(self.rms_norm_heads(heads, weight, eps));
    }

    /// `out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn layer_norm(&self, x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]) {
        same_len(&[x.len(), weight.len(), bias.len(), out.len()]);
        call!(self.layer_norm(x, weight, bias, eps, out));
    }

    /// [`Kernels::layer_norm`] of each head onto itself, without a bias. `heads`: `[heads, dim]`, `weight`: `[dim]`,
    /// or `[heads, dim]` where each head has its own.
    ///
    /// # Panics
    ///
    /// If `heads` is not a whole number of heads, or `weight` is for another number.
    pub fn layer_norm_heads(&self, heads: &mut [f32], dim: usize, weight: &[f32], eps: f32) {
        let (len, weights) = (heads.len(), weight.len());
        assert!(dim > 0 && len.is_multiple_of(dim), "{len} elements are not heads of {dim}");
        assert!(weights == dim || weights == len, "{weights} weights for {len} elements");
        call!(self.layer_norm_heads(heads, dim, weight, eps));
    }

    /// `Σ x²`, summed as in [`Kernels::rms_norm`].
    pub fn square_sum(&self, x: &[f32]) -> f32 {
        call!(self.square_sum(x))
    }

    /// `Σ x`, in the order of [`Kernels::square_sum`].
    pub fn sum(&self, x: &[f32]) -> f32 {
        call!(self.sum(x))
    }

    /// `x := x * factor * weight`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn scale_by(&self, x: &mut [f32], factor: f32, weight: &[f32]) {
        same_len(&[x.len(), weight.len()]);
        call!(self.scale_by(x, factor, weight));
    }

    /// `out = a + b`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn add(&self, a: &[f32], b: &[f32], out: &mut [f32]) {
        same_len(&[a.len(), b.len(), out.len()]);
        call!(self.add(a, b, out));
    }

    /// `a += b`.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn add_assign(&self, a: &mut [f32], b: &[f32]) {
        same_len(&[a.len(), b.len()]);
        call!(self.add_assign(a, b));
    }

    /// `a += factor * b`, rounded once.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn add_scaled(&self, a: &mut [f32], factor: f32, b: &[f32]) {
        same_len(&[a.len(), b.len()]);
        call!(self.add_scaled(a, factor, b));
    }

    /// `x := max(x - least, 0)`.
    pub fn above(&self, x: &mut [f32], least: f32) {
        call!(self.above(x, least));
    }

    /// `x *= factor`.
    pub fn scale(&self, x: &mut [f32], factor: f32) {
        call!(self.scale(x, factor));
    }

    /// Asks for the cache lines of rows that will be read before long: they come into the second cache.
    pub fn prefetch(&self, rows: Rows<'_, f32>) {
        call!(self.prefetch(rows));
    }

    /// Asks for the cache lines of rows that will be written soon, so that they are near by then. Nothing is
    /// written.
    pub fn prefetch_write(&self, rows: RowsMut<'_, f32>) {
        call!(self.prefetch_write(rows));
    }

    /// `out = f(gate) * up`, or what the function lets through. All: `[rows, width]`.
    ///
    /// # Panics
    ///
    /// If the shapes differ.
    pub fn gated(
        &self,
        f: Activation,
        gate: Rows<'_, f32>,
        up: Rows<'_, f32>,
        out: RowsMut<'_, f32>,
    ) {
        same_len(&[gate.rows(), up.rows(), out.rows()]);
        same_len(&[gate.width(), up.width(), out.width()]);
        call!(self.gated(f, gate, up, out));
    }

    /// `x := f(x)`.
    pub fn activate(&self, f: Activation, x: &mut [f32]) {
        call!(self.activate(f, x));
    }

    /// `x := e^x`, within 1 ulp; overflow gives infinity, underflow goes through the subnormals to
    /// 0.
    pub fn exp(&self, x: &mut [f32]) {
        call!(self.exp(x));
    }

    /// `weights = e^x` of `x = (logits - max) * scale`, as [`Kernels::exp`] has it, and in `steps` how many
    /// 32nds `x` is below 0, rounded down, at most [`Curve::LAST_STEP`]: a rough order of the weights, the greatest first. A
    /// NaN counts as minus infinity. `steps` may be empty.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    pub fn weigh(&self, curve: Curve, logits: &[f32], weights: &mut [f32], steps: &mut [i16]) {
        let wanted = if steps.is_empty() { logits.len() } else { steps.len() };
        same_len(&[logits.len(), weights.len(), wanted]);
        call!(self.weigh(curve, logits, weights, steps));
    }

    /// `x := cap * tanh(x / cap)`: what is small stays, nothing grows beyond `cap`.
    ///
    /// # Panics
    ///
    /// If `cap` is not greater than 0.
    pub fn soft_cap(&self, x: &mut [f32], cap: f32) {
        assert!(cap > 0.0, "a soft cap of {cap}");
        call!(self.soft_cap(x, cap));
    }

    /// `x := softmax(x)`.
    pub fn softmax(&self, x: &mut [f32]) {
        call!(self.softmax(x));
    }

    /// Rotates pairs of the first `cos_sin.len()` elements of `head`, the others stay. `cos_sin` is
    /// the cosines of all pairs, then their sines.
    ///
    /// # Panics
    ///
    /// If `cos_sin` is longer than `head` or of odd length.
    pub fn rope(&self, head: &mut [f32], cos_sin: &[f32], style: RopeStyle) {
        let rot = cos_sin.len();
        assert!(
            rot.is_multiple_of(2) && rot <= head.len(),
            "{rot} angles for a head of {}",
            head.len()
        );
        call!(self.rope(head, cos_sin, style));
    }

    /// `x := H x / sqrt(n)` in blocks of `n`, the largest power of two that divides the length, `H` being a
    /// Hadamard matrix. Twice is nothing.
    ///
    /// # Panics
    ///
    /// If the length is no multiple of 16.
    pub fn rotate(&self, x: &mut [f32]) {
        assert!(x.len().is_multiple_of(LANES), "{} elements are no whole vectors", x.len());
        if !x.is_empty() {
            call!(self.rotate(x));
        }
    }

    /// Index of the greatest element, the lowest of equals; NaN never wins; 0 if there is nothing
    /// to choose from.
    pub fn argmax(&self, x: &[f32]) -> usize {
        call!(self.argmax(x))
    }
}
