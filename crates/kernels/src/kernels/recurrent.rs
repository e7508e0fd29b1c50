//! Convolutions along a sequence, and linear recurrences.

use super::Kernels;
use crate::recurrent::{Conv, Scan};
use crate::views::RowsMut;

impl Kernels {
    /// A causal convolution of some channels: results of all tokens. `state` are the inputs before the first
    /// token, and becomes those before the next. `state`: `[taps - 1, channels]`, `out`: `[tokens, channels]`.
    ///
    /// # Panics
    ///
    /// If shapes differ.
    pub fn conv(&self, conv: &Conv<'_>, state: &mut [f32], out: RowsMut<'_, f32>) {
        conv.check(state, &out);
        call!(self.conv(conv, state, out));
    }

    /// A linear recurrence of one head, or of some of its values: results of all tokens, and the state behind
    /// the last. `state`: `[values / 16, keys, 16]`, zeros before the first token of a sequence; `out`: `[tokens,
    /// values]`.
    ///
    /// # Panics
    ///
    /// If shapes differ.
    pub fn scan(&self, scan: &Scan<'_>, state: &mut [f32], out: RowsMut<'_, f32>) {
        scan.check(state, &out);
        call!(self.scan(scan, state, out));
    }
}
