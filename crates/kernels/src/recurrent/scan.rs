//! Linear recurrences over a matrix of keys by values: the gated delta rule (Yang et al., 2024), and the
//! state-space scan of Mamba-2 (Dao and Gu, 2024).

use crate::simd::{LANES, Simd};
use crate::views::{Rows, RowsMut};

/// Columns of a state that lie together.
pub const SLICE: usize = LANES;

/// Floats that hold a head's state of `keys` by `values` elements.
pub const fn scan_state_len(keys: usize, values: usize) -> usize {
    values.div_ceil(SLICE) * SLICE * keys
}

/// Some tokens of a sequence, which follow each other, and what they change of one head's state `S`.
///
/// With `delta`, `d = gain * (v - decay * (Sᵀ k))`, without, `d = gain * v`; then `S := decay * S + k dᵀ` and
/// `y = Sᵀ q + skip * v`.
#[derive(Copy, Clone, Debug)]
pub struct Scan<'a> {
    /// `[tokens, keys]`
    pub k: Rows<'a, f32>,
    /// `[tokens, keys]`
    pub q: Rows<'a, f32>,
    /// Some values of the head. `[tokens, values]`
    pub v: Rows<'a, f32>,
    /// What is left of the state. `[tokens]`
    pub decay: &'a [f32],
    /// How much comes in. `[tokens]`
    pub gain: &'a [f32],
    /// Whether what the state has for a key already is taken off its value (the delta rule).
    pub delta: bool,
    /// Factor on values that go past the state.
    pub skip: f32,
}

impl Scan<'_> {
    /// Panics unless all shapes agree.
    pub(crate) fn check(&self, state: &[f32], out: &RowsMut<'_, f32>) {
        let (tokens, keys, values) = (self.v.rows(), self.k.width(), self.v.width());
        let shape = |what: &str, got: (usize, usize), want: (usize, usize)| {
            assert!(got == want, "{what} of {got:?} for {want:?}");
        };
        shape("keys", (self.k.rows(), keys), (tokens, keys));
        shape("queries", (self.q.rows(), self.q.width()), (tokens, keys));
        shape("results", (out.rows(), out.width()), (tokens, values));
        shape("factors", (self.decay.len(), self.gain.len()), (tokens, tokens));
        let len = scan_state_len(keys, values);
        assert!(state.len() == len, "a state of {} for {len}", state.len());
    }
}

/// Accumulators of a sum over keys: key `i` goes to accumulator `i % 4`, and these are added as
/// `(0 + 1) + (2 + 3)`.
const SUMS: usize = 4;

/// Results of all tokens; `state` is that of the values' columns, before and after.
/// `[values / 16, keys, 16]`
#[inline(always)]
pub(crate) fn scan<S: Simd>(s: S, of: &Scan<'_>, state: &mut [f32], mut out: RowsMut<'_, f32>) {
    let (lanes, _) = state.as_chunks_mut::<SLICE>();
    let keys = of.k.width();
    let mut first = 0;
    // Two slices at a time fill what one leaves idle, if there are registers for them.
    if S::WIDE {
        let mut pairs = lanes.chunks_exact_mut(2 * keys);
        for pair in &mut pairs {
            let (a, b) = pair.split_at_mut(keys);
            slices(s, of, [a, b], first, &mut out);
            first += 2 * SLICE;
        }
        for one in pairs.into_remainder().chunks_exact_mut(keys) {
            slices(s, of, [one], first, &mut out);
        }
    } else {
        for one in lanes.chunks_exact_mut(keys) {
            slices(s, of, [one], first, &mut out);
            first += SLICE;
        }
    }
}

/// All tokens over `N` slices of the state, the first of which is of the value `first`.
#[inline(always)]
fn slices<S: Simd, const N: usize>(
    s: S,
    of: &Scan<'_>,
    state: [&mut [[f32; SLICE]]; N],
    first: usize,
    out: &mut RowsMut<'_, f32>,
) {
    let keys = of.k.width();
    let state = state.map(|slice| &mut slice[..keys]);
    for t in 0..of.v.rows() {
        let (k, q, v) = (&of.k.row(t)[..keys], &of.q.row(t)[..keys], of.v.row(t));
        let (decay, gain) = (s.splat(of.decay[t]), s.splat(of.gain[t]));
        let mut values = [s.splat(0.0); N];
        for (n, value) in values.iter_mut().enumerate() {
            let at = first + n * SLICE;
            *value = match v[at..].first_chunk() {
                Some(v) => s.load(v),
                None => s.load_part(&v[at..], 0.0),
            };
        }
        let mut d = values;
        if of.delta {
            let mut sums = [[s.splat(0.0); SUMS]; N];
            let mut i = 0;
            while i + SUMS <= keys {
                for j in 0..SUMS {
                    let k = s.splat(k[i + j]);
                    for n in 0..N {
                        sums[n][j] = s.fma(s.load(&state[n][i + j]), k, sums[n][j]);
                    }
                }
                i += SUMS;
            }
            for i in i..keys {
                let k = s.splat(k[i]);
                for n in 0..N {
                    sums[n][i % SUMS] = s.fma(s.load(&state[n][i]), k, sums[n][i % SUMS]);
                }
            }
            for n in 0..N {
                d[n] = s.fnma(decay, total(s, sums[n]), d[n]);
            }
        }
        for d in &mut d {
            *d = s.mul(gain, *d);
        }
        let mut sums = [[s.splat(0.0); SUMS]; N];
        let mut i = 0;
        while i + SUMS <= keys {
            for j in 0..SUMS {
                let (k, q) = (s.splat(k[i + j]), s.splat(q[i + j]));
                for n in 0..N {
                    let x = s.fma(decay, s.load(&state[n][i + j]), s.mul(k, d[n]));
                    s.store(x, &mut state[n][i + j]);
                    sums[n][j] = s.fma(x, q, sums[n][j]);
                }
            }
            i += SUMS;
        }
        for i in i..keys {
            let (k, q) = (s.splat(k[i]), s.splat(q[i]));
            for n in 0..N {
                let x = s.fma(decay, s.load(&state[n][i]), s.mul(k, d[n]));
                s.store(x, &mut state[n][i]);
                sums[n][i % SUMS] = s.fma(x, q, sums[n][i % SUMS]);
            }
        }
        let to = out.row_mut(t);
        for n in 0..N {
            let y = s.fma(s.splat(of.skip), values[n], total(s, sums[n]));
            let to = &mut to[first + n * SLICE..];
            match to.first_chunk_mut() {
                Some(to) => s.store(y, to),
                None => s.store_part(y, to),
            }
        }
    }
}

#[inline(always)]
fn total<S: Simd>(s: S, sums: [S::F; SUMS]) -> S::F {
    s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))
}
