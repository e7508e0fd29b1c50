//! Causal convolutions along a sequence, each channel by itself.

use crate::exp::{Function, Silu};
use crate::simd::{LANES, Simd};
use crate::views::{Rows, RowsMut};
use std::ops::Range;

/// `y[t] = f(bias + Σ taps[j] * u[t + j - last])`, `last` being the number of the last tap and `u` the
/// inputs, those of tokens before included.
#[derive(Copy, Clone, Debug)]
pub struct Conv<'a> {
    /// Inputs of some tokens of a sequence, which follow each other. `[tokens, channels]`
    pub x: Rows<'a, f32>,
    /// Factors on them: `u = before * x`. `[tokens, channels]`
    pub before: Option<Rows<'a, f32>>,
    /// Factors on results. `[tokens, channels]`
    pub after: Option<Rows<'a, f32>>,
    /// The oldest input's factors come first. `[taps, channels]`
    pub taps: Rows<'a, f32>,
    /// Added to the sum. `[channels]`
    pub bias: Option<&'a [f32]>,
    /// Whether `f` is SiLU, or else nothing.
    pub silu: bool,
}

impl Conv<'_> {
    /// Panics unless all shapes agree.
    pub(crate) fn check(&self, state: &[f32], out: &RowsMut<'_, f32>) {
        let (tokens, channels) = (self.x.rows(), self.x.width());
        let shape = |what: &str, rows: usize, width: usize| {
            assert!((rows, width) == (tokens, channels), "{what} of {rows} by {width}");
        };
        shape("results", out.rows(), out.width());
        for factors in [self.before, self.after].into_iter().flatten() {
            shape("factors", factors.rows(), factors.width());
        }
        assert!(self.taps.rows() > 0 && self.taps.width() == channels, "taps of other channels");
        assert!(self.bias.is_none_or(|bias| bias.len() == channels), "a bias of other channels");
        let len = (self.taps.rows() - 1) * channels;
        assert!(state.len() == len, "a state of {} for {len}", state.len());
    }

    /// The input of token `t`, in some channels.
    #[inline(always)]
    fn input<S: Simd>(&self, s: S, t: usize, cols: Range<usize>) -> S::F {
        let x = load(s, &self.x.row(t)[cols.clone()]);
        match &self.before {
            Some(before) => s.mul(load(s, &before.row(t)[cols]), x),
            None => x,
        }
    }
}

/// Sixteen channels, or what is left.
#[inline(always)]
fn load<S: Simd>(s: S, x: &[f32]) -> S::F {
    match x.as_array() {
        Some(x) => s.load(x),
        None => s.load_part(x, 0.0),
    }
}

#[inline(always)]
fn store<S: Simd>(s: S, x: S::F, to: &mut [f32]) {
    match to.as_mut_array() {
        Some(to) => s.store(x, to),
        None => s.store_part(x, to),
    }
}

/// Results of all tokens; `state` are the inputs before the first, which become those before the next token.
/// `[taps - 1, channels]`
///
/// Products are added to the bias from the oldest input to the newest, each rounded once.
#[inline(always)]
pub(crate) fn conv<S: Simd>(s: S, c: &Conv<'_>, state: &mut [f32], mut out: RowsMut<'_, f32>) {
    let (tokens, channels) = (c.x.rows(), c.x.width());
    let kept = c.taps.rows() - 1;
    let blocks = |at: usize| at..(at + LANES).min(channels);
    for t in 0..tokens {
        let to = out.row_mut(t);
        for cols in (0..channels).step_by(LANES).map(blocks) {
            let mut sum = match c.bias {
                Some(bias) => load(s, &bias[cols.clone()]),
                None => s.splat(0.0),
            };
            for j in 0..=kept {
                let u = match (t + j).checked_sub(kept) {
                    Some(t) => c.input(s, t, cols.clone()),
                    None => load(s, &state[(t + j) * channels..][cols.clone()]),
                };
                sum = s.fma(u, load(s, &c.taps.row(j)[cols.clone()]), sum);
            }
            if c.silu {
                sum = Silu.of(s, sum);
            }
            if let Some(after) = &c.after {
                sum = s.mul(load(s, &after.row(t)[cols.clone()]), sum);
            }
            store(s, sum, &mut to[cols]);
        }
    }
    for r in 0..kept {
        match (tokens + r).checked_sub(kept) {
            Some(t) => {
                for cols in (0..channels).step_by(LANES).map(blocks) {
                    let u = c.input(s, t, cols.clone());
                    store(s, u, &mut state[r * channels..][cols]);
                }
            }
            // Older inputs move on: what is read lies behind what is written.
            None => {
                let from = (tokens + r) * channels;
                state.copy_within(from..from + channels, r * channels);
            }
        }
    }
}
