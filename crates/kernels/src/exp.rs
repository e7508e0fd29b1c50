//! The exponential, and what is made of it: softmax, tanh, SiLU and GELU.
//!
//! `e^x = 2^n · e^r` with `n = round(x / ln 2)` and `|r| <= ln 2 / 2`. The subtraction `x - n ln 2`
//! is exact but for the last bits of ln 2, which come as a second constant; `e^r` is `1 + r + r²
//! q(r)` with `q` of degree 4, the minimax polynomial for the relative error (3.1e-9, Remez
//! exchange). `2^n` is applied in two factors, so that results overflow to infinity and underflow
//! through the subnormals as they should.

use crate::simd::{LANES, Simd};
use crate::views::{Rows, RowsMut};

/// 1.5 · 2^23: adding it rounds to an integer (ties to even), which then stands in the low bits.
pub(crate) const ROUND: f32 = 12_582_912.0;
/// Upper 16 bits of ln 2: `n * LN2_HIGH` is exact for every `n` that occurs.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;
const Q: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_745, 0.001_381_454];
/// Beyond these, `e^x` is 0 and infinity in `f32`; with them, both factors of 2^n stay normal.
const LIMITS: [f32; 2] = [-104.0, 89.0];

/// `e^x` in every lane; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // The operand order lets a NaN through.
    let x = s.min(s.splat(LIMITS[1]), s.max(s.splat(LIMITS[0]), x));
    let (rounded, q) = mantissa(s, x);
    let n = s.sub_i(s.as_bits(rounded), s.splat_i(ROUND.to_bits() as i32));
    let half = s.halve_i(n);
    let rest = s.sub_i(n, half);
    s.mul(s.mul(q, power(s, half)), power(s, rest))
}

/// `x = n ln 2 + r`: `n`, with [`ROUND`] added, and `r`.
#[inline(always)]
fn reduced<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let rounded = s.fma(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.sub(rounded, s.splat(ROUND));
    (rounded, s.fnma(n, s.splat(LN2_LOW), s.fnma(n, s.splat(LN2_HIGH), x)))
}

/// `e^x = 2^n q`: `n`, with [`ROUND`] added, and `q`.
#[inline(always)]
fn mantissa<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let (rounded, r) = reduced(s, x);
    let mut q = s.splat(Q[4]);
    for c in [Q[3], Q[2], Q[1], Q[0], 1.0, 1.0] {
        q = s.fma(q, r, s.splat(c));
    }
    (rounded, q)
}

/// `e^x` for `x <= 0`, within 1 ulp; below -86 it is e^-86, a normal number. NaN stays NaN.
#[inline(always)]
pub(crate) fn exp_negative<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.max(s.splat(-86.0), x);
    let (rounded, q) = mantissa(s, x);
    s.mul(q, power(s, s.sub_i(s.as_bits(rounded), s.splat_i(ROUND.to_bits() as i32))))
}

/// `tanh x = (e^2x - 1) / (2 + (e^2x - 1))`, where `e^y - 1 = 2^n (q - 1) + (2^n - 1)` and `q - 1` is
/// taken before its 1 is added, so that nothing is lost near 0. From 10 on it is 1. NaN stays NaN.
#[inline(always)]
fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let e = exp_minus_one(s, s.add(x, x));
    s.div(e, s.add(s.splat(2.0), e))
}

/// `e^y - 1` as [`tanh`] has it; `y` is held within -20 and 20.
#[inline(always)]
fn exp_minus_one<S: Simd>(s: S, y: S::F) -> S::F {
    let y = s.min(s.splat(20.0), s.max(s.splat(-20.0), y));
    let (rounded, r) = reduced(s, y);
    let mut q = s.splat(Q[4]);
    for c in [Q[3], Q[2], Q[1], Q[0], 1.0] {
        q = s.fma(q, r, s.splat(c));
    }
    let two_n = power(s, s.sub_i(s.as_bits(rounded), s.splat_i(ROUND.to_bits() as i32)));
    s.fma(s.mul(q, r), two_n, s.sub(two_n, s.splat(1.0)))
}

/// `2^n` for `-126 <= n <= 127`.
#[inline(always)]
fn power<S: Simd>(s: S, n: S::I) -> S::F {
    s.as_floats(s.to_exponent(s.add_i(n, s.splat_i(127))))
}

/// `x := cap * tanh(x * (1 / cap))`.
#[inline(always)]
pub(crate) fn soft_cap<S: Simd>(s: S, x: &mut [f32], cap: f32) {
    let (c, inverse) = (s.splat(cap), s.splat(1.0 / cap));
    let capped = |x| s.mul(c, tanh(s, s.mul(x, inverse)));
    let (blocks, tail) = x.as_chunks_mut::<LANES>();
    for block in blocks {
        s.store(capped(s.load(block)), block);
    }
    s.store_part(capped(s.load_part(tail, 0.0)), tail);
}

/// `x := e^x`.
#[inline(always)]
pub(crate) fn exp_all<S: Simd>(s: S, x: &mut [f32]) {
    let (blocks, tail) = x.as_chunks_mut::<LANES>();
    for block in blocks {
        s.store(exp(s, s.load(block)), block);
    }
    s.store_part(exp(s, s.load_part(tail, 0.0)), tail);
}

/// `weights = e^x` of `x = (logits - max) * scale`, 0 for a NaN, and, if there is room for them, the `steps` down from
/// 0: `floor(-32 x)`, at most [`Curve::LAST_STEP`].
#[inline(always)]
pub(crate) fn weigh<S: Simd>(
    s: S,
    curve: Curve,
    logits: &[f32],
    weights: &mut [f32],
    steps: &mut [i16],
) {
    let (max, scale) = (s.splat(curve.max), s.splat(curve.scale));
    let (low, per_one) = (s.splat(f32::NEG_INFINITY), s.splat(-f32::from(Curve::STEPS)));
    let last = s.splat(f32::from(Curve::LAST_STEP));
    // The operand order makes a NaN the least of all.
    let exponent = |logit| s.max(s.mul(s.sub(logit, max), scale), low);
    let step = |x| s.truncate(s.min(s.mul(x, per_one), last));
    let (blocks, tail) = logits.as_chunks::<LANES>();
    let (weight_blocks, weight_tail) = weights.as_chunks_mut::<LANES>();
    let (step_blocks, step_tail) = steps.as_chunks_mut::<LANES>();
    let mut step_blocks = step_blocks.iter_mut();
    for (logits, weights) in blocks.iter().zip(weight_blocks) {
        let x = exponent(s.load(logits));
        s.store(exp(s, x), weights);
        if let Some(steps) = step_blocks.next() {
            s.store_i16(step(x), steps);
        }
    }
    let x = exponent(s.load_part(tail, f32::NEG_INFINITY));
    s.store_part(exp(s, x), weight_tail);
    let mut steps = [0; LANES];
    s.store_i16(step(x), &mut steps);
    step_tail.copy_from_slice(&steps[..step_tail.len()]);
}

/// How a logit is weighed: `e^((logit - max) * scale)`.
#[derive(Clone, Copy, Debug)]
pub struct Curve {
    /// The greatest logit.
    pub max: f32,
    /// The reciprocal of the temperature.
    pub scale: f32,
}

impl Curve {
    /// Steps of weights for each one in the exponent.
    pub const STEPS: i16 = 32;
    /// The last step: e^-31.97 of the greatest weight, and all below.
    pub const LAST_STEP: i16 = 1023;
}

/// `x := e^(x - max) / Σ e^(x - max)`.
#[inline(always)]
pub(crate) fn softmax<S: Simd>(s: S, x: &mut [f32]) {
    let (blocks, tail) = x.as_chunks_mut::<LANES>();
    let mut max = s.load_part(tail, f32::NEG_INFINITY);
    for block in blocks.iter() {
        max = s.max(s.load(block), max);
    }
    let max = s.splat(s.reduce_max(max));

    let mut sum = s.splat(0.0);
    for block in blocks.iter_mut() {
        let p = exp(s, s.sub(s.load(block), max));
        s.store(p, block);
        sum = s.add(sum, p);
    }
    let p = exp(s, s.sub(s.load_part(tail, f32::NEG_INFINITY), max));
    s.store_part(p, tail);
    let sum = s.splat(s.reduce_add(s.add(sum, p)));

    for block in blocks {
        s.store(s.div(s.load(block), sum), block);
    }
    s.store_part(s.div(s.load_part(tail, 0.0), sum), tail);
}

/// The non-linear function of a feed-forward layer.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Activation {
    /// `x / (1 + e^-x)`.
    Silu,
    /// GELU in its approximation by tanh: `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x³)))`.
    Gelu,
    /// GELU itself: `x / 2 * (1 + erf(x / sqrt(2)))`.
    GeluErf,
    /// GELU in its approximation by a sigmoid: `x / (1 + e^-1.702x)` (CLIP).
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²` (So et al., 2021).
    SquaredRelu,
    /// `x / (1 + e^-1.702x)` of `min(x, 7)`. As a gate it lets through `min(max(up, -7), 7) + 1` (gpt-oss).
    ClampedSilu,
    /// `1 / (1 + e^-x)`: a gate.
    Sigmoid,
    /// `x`, held between minus a limit and the limit.
    Clamp(f32),
    /// See there.
    Xielu(Xielu),
}

/// xIELU (arXiv:2411.13010): `alpha_p x² + beta x` above 0, `alpha_n (e^min(x, eps) - 1 - x) + beta x` below.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Xielu {
    /// Curvature above 0.
    pub alpha_p: f32,
    /// Factor below 0.
    pub alpha_n: f32,
    /// Slope at 0.
    pub beta: f32,
    /// The least argument whose power of e is not taken, below 0.
    pub eps: f32,
}

/// A function of every element. (A closure might not be inlined, and would lack the entry point's
/// instructions then.)
pub(crate) trait Function: Copy {
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F;

    /// The function of a gate, and what it lets through.
    #[inline(always)]
    fn gated<S: Simd>(self, s: S, gate: S::F, up: S::F) -> S::F {
        s.mul(self.of(s, gate), up)
    }
}

/// `x / (1 + e^-x)`.
#[derive(Clone, Copy)]
pub(crate) struct Silu;

/// `x / 2 * (1 + tanh u)` with `u = sqrt(2 / pi) * (x + 0.044715 x³)`, the usual approximation of
/// GELU (Hendrycks and Gimpel, 2016). It is `x / (1 + e^-2u)`.
#[derive(Clone, Copy)]
struct Gelu;

/// `x / 2 * (1 + erf(x / sqrt(2)))`.
#[derive(Clone, Copy)]
struct GeluErf;

/// `x / (1 + e^-1.702x)` (Hendrycks and Gimpel, 2016, section 2).
#[derive(Clone, Copy)]
struct QuickGelu;

/// `max(x, 0)`.
#[derive(Clone, Copy)]
struct Relu;

/// `max(x, 0)²`.
#[derive(Clone, Copy)]
struct SquaredRelu;

/// `x / (1 + e^-1.702x)` of `min(x, 7)`; as a gate it lets through one more than what comes, which is held
/// between -7 and 7 (gpt-oss).
#[derive(Clone, Copy)]
struct ClampedSilu;

/// `1 / (1 + e^-x)`.
#[derive(Clone, Copy)]
struct Sigmoid;

impl Function for Sigmoid {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
        logistic(s, s.splat(1.0), x)
    }
}

impl Function for Relu {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
        s.max(s.splat(0.0), x)
    }
}

impl Function for SquaredRelu {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
        let x = s.max(s.splat(0.0), x);
        s.mul(x, x)
    }
}

impl Function for QuickGelu {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
        logistic(s, x, s.mul(x, s.splat(ClampedSilu::STEEPNESS)))
    }
}

impl ClampedSilu {
    const LIMIT: f32 = 7.0;
    const STEEPNESS: f32 = 1.702;
}

impl Function for ClampedSilu {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
        let x = s.min(s.splat(Self::LIMIT), x);
        logistic(s, x, s.mul(x, s.splat(Self::STEEPNESS)))
    }

    #[inline(always)]
    fn gated<S: Simd>(self, s: S, gate: S::F, up: S::F) -> S::F {
        let up = s.min(s.splat(Self::LIMIT), s.max(s.splat(-Self::LIMIT), up));
        s.mul(self.of(s, gate), s.add(up, s.splat(1.0)))
    }
}

impl Function for Silu {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
        logistic(s, x, x)
    }
}

impl Function for Gelu {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
        const TWICE: f32 = 1.595_769_2; // 2 sqrt(2 / pi)
        let cubic = s.fma(s.mul(x, x), s.splat(TWICE * 0.044_715), s.splat(TWICE));
        logistic(s, x, s.mul(cubic, x))
    }
}

impl Function for GeluErf {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
        let half = s.mul(x, s.splat(0.5));
        s.fma(half, erf(s, s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2))), half)
    }
}

/// The error function, within 8 units of 2^-24: an odd polynomial over an even one, as in Eigen and XLA. Beyond -4
/// and 4 it is as there.
#[inline(always)]
fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    const ODD: [f32; 7] = [
        -2.726_142_4e-10,
        2.770_681_5e-8,
        -2.101_024e-6,
        -5.692_506_2e-5,
        -7.349_906_4e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ];
    const EVEN: [f32; 5] =
        [-1.456_607_15e-5, -2.133_740_5e-4, -1.682_827e-3, -7.373_329_3e-3, -1.426_473_9e-2];
    let x = s.min(s.splat(4.0), s.max(s.splat(-4.0), x));
    let square = s.mul(x, x);
    let (mut odd, mut even) = (s.splat(ODD[0]), s.splat(EVEN[0]));
    for c in &ODD[1..] {
        odd = s.fma(odd, square, s.splat(*c));
    }
    for c in &EVEN[1..] {
        even = s.fma(even, square, s.splat(*c));
    }
    s.div(s.mul(x, odd), even)
}

/// `min(max(x, -limit), limit)`.
#[derive(Clone, Copy)]
struct Clamp(f32);

impl Function for Clamp {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
        s.min(s.splat(self.0), s.max(s.splat(-self.0), x))
    }
}

/// Both sides, each where the other's argument is 0.
impl Function for Xielu {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F) -> S::F {
        let (above, below) = (s.max(x, s.splat(0.0)), s.min(x, s.splat(0.0)));
        let power = exp_minus_one(s, s.min(below, s.splat(self.eps)));
        let curved = s.mul(s.sub(power, below), s.splat(self.alpha_n));
        // 0 where x is above 0, 1 elsewhere.
        let counts = s.sub(s.splat(1.0), s.min(s.mul(above, s.splat(f32::MAX)), s.splat(1.0)));
        let slope = s.fma(x, s.splat(self.beta), s.mul(curved, counts));
        s.fma(s.mul(above, s.splat(self.alpha_p)), above, slope)
    }
}

/// `x / (1 + e^-y)`.
#[inline(always)]
fn logistic<S: Simd>(s: S, x: S::F, y: S::F) -> S::F {
    let e = exp(s, s.sub(s.splat(0.0), y));
    s.div(x, s.add(s.splat(1.0), e))
}

/// Calls what is compiled for the function that an activation stands for.
macro_rules! by_function {
    ($of:ident => $call:ident($s:ident, $($arg:ident),*)) => {
        match $of {
            Activation::Silu => $call($s, Silu, $($arg),*),
            Activation::Gelu => $call($s, Gelu, $($arg),*),
            Activation::GeluErf => $call($s, GeluErf, $($arg),*),
            Activation::QuickGelu => $call($s, QuickGelu, $($arg),*),
            Activation::Relu => $call($s, Relu, $($arg),*),
            Activation::SquaredRelu => $call($s, SquaredRelu, $($arg),*),
            Activation::ClampedSilu => $call($s, ClampedSilu, $($arg),*),
            Activation::Sigmoid => $call($s, Sigmoid, $($arg),*),
            Activation::Clamp(limit) => $call($s, Clamp(limit), $($arg),*),
            Activation::Xielu(f) => $call($s, f, $($arg),*),
        }
    };
}

/// `x := f(x)`.
#[inline(always)]
pub(crate) fn activate<S: Simd>(s: S, f: Activation, x: &mut [f32]) {
    by_function!(f => map(s, x));
}

/// `out = f(gate) * up`, or what the function makes of both, row by row.
#[inline(always)]
pub(crate) fn gated<S: Simd>(
    s: S,
    f: Activation,
    gate: Rows<'_, f32>,
    up: Rows<'_, f32>,
    out: RowsMut<'_, f32>,
) {
    by_function!(f => gate_rows(s, gate, up, out));
}

/// `x := f(x)`.
#[inline(always)]
fn map<S: Simd, F: Function>(s: S, f: F, x: &mut [f32]) {
    let (blocks, tail) = x.as_chunks_mut::<LANES>();
    for block in blocks {
        s.store(f.of(s, s.load(block)), block);
    }
    s.store_part(f.of(s, s.load_part(tail, 0.0)), tail);
}

/// [`gated`] of one function.
#[inline(always)]
fn gate_rows<S: Simd, F: Function>(
    s: S,
    f: F,
    gate: Rows<'_, f32>,
    up: Rows<'_, f32>,
    mut out: RowsMut<'_, f32>,
) {
    for r in 0..gate.rows() {
        let (gates, gate_tail) = gate.row(r).as_chunks::<LANES>();
        let (ups, up_tail) = up.row(r).as_chunks::<LANES>();
        let (outs, out_tail) = out.row_mut(r).as_chunks_mut::<LANES>();
        for ((gate, up), out) in gates.iter().zip(ups).zip(outs) {
            s.store(f.gated(s, s.load(gate), s.load(up)), out);
        }
        let last = f.gated(s, s.load_part(gate_tail, 0.0), s.load_part(up_tail, 0.0));
        s.store_part(last, out_tail);
    }
}
