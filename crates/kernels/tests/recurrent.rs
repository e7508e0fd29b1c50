//! Convolutions and recurrences: against f64, bit for bit between instruction sets, and however a prompt is
//! cut.

mod common;

use arclight_kernels::{Conv, Isa, Kernels, Rows, RowsMut, SLICE, Scan, scan_state_len};
use common::{Rng, same_bits};

fn scalar() -> &'static Kernels {
    Kernels::for_isa(Isa::Scalar).unwrap()
}

/// Ways to cut 40 tokens.
const CUTS: [&[usize]; 4] = [&[40], &[1; 40], &[13, 13, 13, 1], &[2, 1, 37]];
const TOKENS: usize = 40;

fn view(x: &[f32], width: usize) -> Rows<'_, f32> {
    Rows::new(x, x.len() / width, width, width)
}

struct Channels {
    count: usize,
    taps: Vec<f32>,
    bias: Option<Vec<f32>>,
    x: Vec<f32>,
    before: Option<Vec<f32>>,
    after: Option<Vec<f32>>,
    silu: bool,
    /// What comes before the first token.
    start: Vec<f32>,
}

impl Channels {
    fn new(count: usize, taps: usize, rng: &mut Rng, form: usize) -> Channels {
        let mut some = |which: usize, len: usize| (form & which > 0).then(|| rng.vec(len));
        let (bias, before) = (some(1, count), some(2, TOKENS * count));
        let (after, silu) = (some(4, TOKENS * count), form & 8 > 0);
        let (taps, start) = (rng.vec(taps * count), rng.vec((taps - 1) * count));
        Channels { count, taps, bias, x: rng.vec(TOKENS * count), before, after, silu, start }
    }

    /// Results of all tokens, and the state behind them.
    fn run(&self, kernels: &Kernels, cuts: &[usize]) -> Vec<f32> {
        let (mut state, mut out) = (self.start.clone(), vec![f32::NAN; self.x.len()]);
        let mut first = 0;
        for tokens in cuts {
            let own = first * self.count..(first + tokens) * self.count;
            let part = |x: &Option<Vec<f32>>| x.as_ref().map(|x| x[own.clone()].to_vec());
            let (before, after) = (part(&self.before), part(&self.after));
            let conv = Conv {
                x: view(&self.x[own.clone()], self.count),
                before: before.as_ref().map(|x| view(x, self.count)),
                after: after.as_ref().map(|x| view(x, self.count)),
                taps: view(&self.taps, self.count),
                bias: self.bias.as_deref(),
                silu: self.silu,
            };
            let out = RowsMut::new(&mut out[own], *tokens, self.count, self.count);
            kernels.conv(&conv, &mut state, out);
            first += tokens;
        }
        [out, state].concat()
    }

    /// Result `at`, and the sum of what it is the sum of.
    fn exact(&self, at: usize) -> (f64, f64) {
        let (t, c, kept) = (at / self.count, at % self.count, self.taps.len() / self.count - 1);
        let of = |x: &Option<Vec<f32>>, at: usize| x.as_ref().map_or(1.0, |x| f64::from(x[at]));
        let (mut sum, mut size) = (0.0, 0.0);
        for j in 0..=kept {
            let u = match (t + j).checked_sub(kept) {
                Some(t) => {
                    let at = t * self.count + c;
                    of(&self.before, at) * f64::from(self.x[at])
                }
                None => f64::from(self.start[(t + j) * self.count + c]),
            };
            let term = u * f64::from(self.taps[j * self.count + c]);
            (sum, size) = (sum + term, size + term.abs());
        }
        let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[c]));
        (sum, size) = (sum + bias, size + bias.abs());
        let y = if self.silu { sum / (1.0 + (-sum).exp()) } else { sum };
        (y * of(&self.after, at), size * of(&self.after, at).abs())
    }
}

#[test]
fn a_convolution_is_what_f64_says_and_no_cut_shows() {
    let mut rng = Rng(31);
    for (count, taps) in [(1, 1), (5, 2), (16, 3), (40, 4), (128, 4), (33, 8)] {
        for form in 0..16 {
            let of = Channels::new(count, taps, &mut rng, form);
            let expected = of.run(scalar(), CUTS[0]);
            for (at, &y) in expected[..of.x.len()].iter().enumerate() {
                let (exact, size) = of.exact(at);
                // A rounding for each tap, for both products, and some 4 in SiLU.
                let bound = (taps + 6) as f64 * size * 2f64.powi(-23) + 1e-30;
                assert!((f64::from(y) - exact).abs() <= bound, "{y} for {exact}, form {form}");
            }
            for kernels in Kernels::available() {
                for cuts in CUTS {
                    let what = format_args!("{} in {cuts:?}", kernels.isa());
                    same_bits(&of.run(kernels, cuts), &expected, what);
                }
            }
        }
    }
}

struct Head {
    keys: usize,
    values: usize,
    k: Vec<f32>,
    q: Vec<f32>,
    v: Vec<f32>,
    decay: Vec<f32>,
    gain: Vec<f32>,
    delta: bool,
    skip: f32,
}

impl Head {
    fn new(keys: usize, values: usize, delta: bool, rng: &mut Rng) -> Head {
        let unit = |rng: &mut Rng| {
            // Of length 1, as the delta rule wants them: it would not be stable otherwise.
            let mut rows = rng.vec(TOKENS * keys);
            for row in rows.chunks_exact_mut(keys) {
                let len = row.iter().map(|x| x * x).sum::<f32>().sqrt();
                row.iter_mut().for_each(|x| *x /= len);
            }
            rows
        };
        let (k, q) = (unit(rng), unit(rng));
        let v = rng.vec(TOKENS * values);
        let decay = (0..TOKENS).map(|_| rng.unit().abs()).collect();
        let gain = (0..TOKENS).map(|_| rng.unit().abs()).collect();
        Head { keys, values, k, q, v, decay, gain, delta, skip: 0.5 }
    }

    /// Results of all tokens, and the state behind them.
    fn run(&self, kernels: &Kernels, cuts: &[usize]) -> Vec<f32> {
        let mut state = vec![0.0; scan_state_len(self.keys, self.values)];
        let mut out = vec![f32::NAN; self.v.len()];
        let mut first = 0;
        for tokens in cuts {
            let own = |width: usize| first * width..(first + tokens) * width;
            let scan = Scan {
                k: view(&self.k[own(self.keys)], self.keys),
                q: view(&self.q[own(self.keys)], self.keys),
                v: view(&self.v[own(self.values)], self.values),
                decay: &self.decay[own(1)],
                gain: &self.gain[own(1)],
                delta: self.delta,
                skip: self.skip,
            };
            let out = RowsMut::new(&mut out[own(self.values)], *tokens, self.values, self.values);
            kernels.scan(&scan, &mut state, out);
            first += tokens;
        }
        [out, state].concat()
    }

    /// Results in f64, by the definition: the whole state decays, then something is added to it.
    fn exact(&self) -> Vec<f64> {
        let mut state = vec![0.0; self.keys * self.values];
        let mut out = Vec::new();
        for t in 0..TOKENS {
            let row = |x: &[f32], width: usize| -> Vec<f64> {
                x[t * width..][..width].iter().map(|&x| f64::from(x)).collect()
            };
            let (k, q) = (row(&self.k, self.keys), row(&self.q, self.keys));
            let v = row(&self.v, self.values);
            state.iter_mut().for_each(|x| *x *= f64::from(self.decay[t]));
            for (j, v) in v.iter().enumerate() {
                let column = |i: usize| i * self.values + j;
                let known: f64 = (0..self.keys).map(|i| state[column(i)] * k[i]).sum();
                let d = f64::from(self.gain[t]) * if self.delta { v - known } else { *v };
                (0..self.keys).for_each(|i| state[column(i)] += k[i] * d);
                let y: f64 = (0..self.keys).map(|i| state[column(i)] * q[i]).sum();
                out.push(y + f64::from(self.skip) * v);
            }
        }
        out
    }
}

#[test]
fn a_recurrence_is_what_f64_says_and_no_cut_shows() {
    let mut rng = Rng(32);
    for (keys, values) in [(1, 1), (3, 5), (16, 16), (64, 40), (128, 128), (130, 48)] {
        for delta in [false, true] {
            let of = Head::new(keys, values, delta, &mut rng);
            let expected = of.run(scalar(), CUTS[0]);
            // Values are at most 1, keys and queries of length 1, and decay is below 1: every token adds at
            // most some 2 to a column's length, so what 40 tokens round stays below this.
            let bound = 1e-4 * if delta { 1.0 } else { 4.0 };
            for (at, (&y, exact)) in expected.iter().zip(of.exact()).enumerate() {
                let off = (f64::from(y) - exact).abs();
                assert!(off <= bound, "{y} for {exact} at {at}: {keys} by {values}, {delta}");
            }
            for kernels in Kernels::available() {
                for cuts in CUTS {
                    let what = format_args!("{} in {cuts:?}", kernels.isa());
                    same_bits(&of.run(kernels, cuts), &expected, what);
                }
            }
        }
    }
}

#[test]
fn values_of_a_head_may_be_shared() {
    let mut rng = Rng(33);
    let of = Head::new(128, 64, true, &mut rng);
    for kernels in Kernels::available() {
        let all = of.run(kernels, CUTS[0]);
        for first in (0..of.values).step_by(SLICE) {
            let v: Vec<f32> =
                of.v.chunks_exact(of.values).flat_map(|v| v[first..][..SLICE].to_vec()).collect();
            let own = Head {
                values: SLICE,
                v,
                k: of.k.clone(),
                q: of.q.clone(),
                ..Head::new(1, 1, true, &mut rng)
            };
            let own = Head { keys: 128, decay: of.decay.clone(), gain: of.gain.clone(), ..own };
            let out = own.run(kernels, CUTS[2]);
            for (t, row) in out[..TOKENS * SLICE].chunks_exact(SLICE).enumerate() {
                same_bits(row, &all[t * of.values + first..][..SLICE], format_args!("token {t}"));
            }
        }
    }
}

#[test]
#[should_panic(expected = "a state of 255 for 256")]
fn a_state_of_another_size_is_refused() {
    let (k, v, one) = (vec![0.0; 16], vec![0.0; 16], vec![0.0; 1]);
    let rows = view(&k, 16);
    let scan = Scan { k: rows, q: rows, v: rows, decay: &one, gain: &one, delta: true, skip: 0.0 };
    let mut out = v;
    scalar().scan(&scan, &mut [0.0; 255], RowsMut::new(&mut out, 1, 16, 16));
}

#[test]
#[should_panic(expected = "taps of other channels")]
fn taps_of_other_channels_are_refused() {
    let (x, taps) = (vec![0.0; 16], vec![0.0; 60]);
    let conv = Conv {
        x: view(&x, 16),
        before: None,
        after: None,
        taps: view(&taps, 15),
        bias: None,
        silu: false,
    };
    let mut out = vec![0.0; 16];
    scalar().conv(&conv, &mut [0.0; 48], RowsMut::new(&mut out, 1, 16, 16));
}
