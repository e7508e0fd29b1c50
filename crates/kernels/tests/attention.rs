//! Attention over chunks of paged keys and values, against softmax in f64 and between instruction
//! sets.

mod cells;
mod common;

use arclight_kernels::{
    AttnTile, Biases, ByDistance, Isa, KV_CHUNK, KV_PAGE, Kernels, KvPageMut, Rows, Slope,
    attn_scratch_len, attn_state_len, attn_turned_len, bias_table_len, q8_row_bytes,
};
use cells::{Bf16, Cell, F16, F32, Q4_0, Q8_0};
use common::{Aligned, Rng, same_bits};
use half::{bf16, f16};
use std::ops::Range;

/// Scores as they are.
const NO_CAP: f32 = f32::INFINITY;

/// Keys and values of one head in pages whose unused slots hold no numbers.
struct Cache<E: Cell> {
    head_dim: usize,
    k: Vec<Vec<E::Unit>>,
    v: Vec<Vec<E::Unit>>,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl<E: Cell> Cache<E> {
    fn new(kernels: &Kernels, keys: Vec<Vec<f32>>, values: Vec<Vec<f32>>) -> Self {
        Self::holding(kernels, keys, values, 0)
    }

    /// Without the keys before `first`.
    fn holding(
        kernels: &Kernels,
        keys: Vec<Vec<f32>>,
        values: Vec<Vec<f32>>,
        first: usize,
    ) -> Self {
        let head_dim = keys[0].len();
        let pages = keys.len().div_ceil(KV_PAGE);
        let cells = E::TYPE.page_bytes(head_dim) / size_of::<E::Unit>();
        let empty = vec![vec![E::UNUSED; cells]; pages];
        let (mut k, mut v) = (empty.clone(), empty);
        for (i, (key, value)) in keys.iter().zip(&values).enumerate().skip(first) {
            kernels.store_k(key, E::page(&mut k[i / KV_PAGE]), i % KV_PAGE);
            kernels.store_v(value, E::page(&mut v[i / KV_PAGE]), i % KV_PAGE);
        }
        Self { head_dim, k, v, keys, values }
    }

    /// The states of all rows over the pages `pages`; `starts` and `limits` count from the start of
    /// the first of them.
    fn tile(
        &self,
        kernels: &Kernels,
        q: &[f32],
        (starts, limits): (&[u32], &[u32]),
        pages: Range<usize>,
        (soft_cap, added): (f32, ByDistance<'_>),
    ) -> Vec<f32> {
        let k: Vec<&[E::Unit]> = self.k[pages.clone()].iter().map(Vec::as_slice).collect();
        let v: Vec<&[E::Unit]> = self.v[pages].iter().map(Vec::as_slice).collect();
        let rows = limits.len();
        let mut scratch = vec![f32::NAN; attn_scratch_len(rows)];
        let mut out = vec![f32::NAN; rows * attn_state_len(self.head_dim)];
        let head_dim = self.head_dim;
        let whole = q.len() / 32 * 32;
        let mut quants = Aligned::new(q8_row_bytes(whole));
        kernels.quantize_q8(&q[..whole], quants.bytes_mut());
        let tile = AttnTile {
            rows,
            head_dim,
            starts,
            limits,
            soft_cap,
            added,
            queries: E::queries(q, quants.bytes()),
            keys: E::pages(&k),
            values: E::pages(&v),
            next: &[],
        };
        kernels.attend_chunk(&tile, &mut scratch, &mut out);
        out
    }

    /// The states of all rows over the first chunk.
    fn chunk(&self, kernels: &Kernels, q: &[f32], starts: &[u32], limits: &[u32]) -> Vec<f32> {
        let pages = self.k.len().min(KV_CHUNK / KV_PAGE);
        self.tile(kernels, q, (starts, limits), 0..pages, (NO_CAP, ByDistance::Nothing))
    }

    /// The attention of one row over the keys `keys`: joined step by step, which must be the same as
    /// joining all states at once. Of a chunk only the pages are given in which the row sees a key;
    /// others must make no difference.
    fn attend(&self, kernels: &Kernels, q: &[f32], keys: Range<usize>, soft_cap: f32) -> Vec<f32> {
        let (mut state, mut states) = (Vec::new(), Vec::new());
        for c in keys.start / KV_CHUNK..keys.end.div_ceil(KV_CHUNK) {
            let (start, end) = (c * KV_CHUNK, (c + 1) * KV_CHUNK);
            let seen = keys.start.max(start)..keys.end.min(end);
            let over = |pages: Range<usize>| {
                let from = |key: usize| [(key - pages.start * KV_PAGE) as u32];
                let seen = (&from(seen.start)[..], &from(seen.end)[..]);
                self.tile(kernels, q, seen, pages.clone(), (soft_cap, ByDistance::Nothing))
            };
            let part = over(seen.start / KV_PAGE..seen.end.div_ceil(KV_PAGE));
            let all = over(start / KV_PAGE..self.k.len().min(end / KV_PAGE));
            same_bits(&part, &all, "the pages that are seen");
            states.extend_from_slice(&part);
            match state.is_empty() {
                true => state = part,
                false => kernels.attn_merge(&mut state, &part, self.head_dim),
            }
        }
        let mut out = vec![f32::NAN; self.head_dim];
        let mut folded = out.clone();
        let len = state.len();
        let states = Rows::new(&states, states.len() / len, len, len);
        // Sinks below the greatest score, at it, above it, and far from it.
        let (m, l) = (state[self.head_dim], state[self.head_dim + 1]);
        for sink in [m - 2.0, m, m + 3.0, m - 300.0, m + 300.0, f32::NEG_INFINITY] {
            kernels.attn_finish(&state, self.head_dim, sink, &mut out);
            kernels.attn_fold(states, self.head_dim, sink, &mut folded);
            same_bits(&folded, &out, "folded at once");
            let all = f64::from(l) + f64::from(sink - m).exp();
            for (o, out) in state.iter().zip(&out) {
                let exact = f64::from(*o) / all;
                // Two exponentials, a sum, a quotient, a product; what is below 2^-100 is as good as zero.
                let bound = exact.abs() * 6.0 * 2f64.powi(-23) + 2f64.powi(-100);
                let near =
                    (f64::from(*out) - exact).abs() <= bound || out.is_nan() && exact.is_nan();
                assert!(near, "{out}, not {exact}: sink {sink}");
            }
        }
        out
    }

    /// The same by the book, in f64 over what is stored.
    fn reference(&self, q: &[f32], keys: Range<usize>, soft_cap: f32) -> Vec<f64> {
        let cap = f64::from(soft_cap);
        let score = |key: &Vec<f32>| -> f64 {
            let s = E::query(q).iter().zip(E::stored(key)).map(|(q, k)| q * k).sum::<f64>();
            if cap == f64::INFINITY { s } else { cap * (s / cap).tanh() }
        };
        let scores: Vec<f64> = self.keys[keys.clone()].iter().map(score).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let p: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let l: f64 = p.iter().sum();
        let values: Vec<Vec<f64>> = self.values[keys].iter().map(|v| E::stored(v)).collect();
        let o = |d: usize| -> f64 { p.iter().zip(&values).map(|(p, v)| p * v[d]).sum::<f64>() / l };
        (0..self.head_dim).map(o).collect()
    }
}

fn random(rng: &mut Rng, n: usize, len: usize) -> Vec<Vec<f32>> {
    (0..n).map(|_| rng.vec(len)).collect()
}

fn scalar() -> &'static Kernels {
    Kernels::for_isa(Isa::Scalar).unwrap()
}

#[test]
fn many_chunks_match_the_whole_softmax() {
    chunks_match::<F16>(&[16, 48, 64, 80, 128]);
    chunks_match::<Bf16>(&[16, 80, 128]);
    chunks_match::<F32>(&[16, 48, 64, 80, 128]);
    chunks_match::<Q8_0>(&[32, 64, 96, 128, 256]);
    chunks_match::<Q4_0>(&[32, 64, 96, 128, 256]);
}

fn chunks_match<E: Cell>(head_dims: &[usize]) {
    let mut rng = Rng(1);
    for &head_dim in head_dims {
        let (keys, values) = (random(&mut rng, 700, head_dim), random(&mut rng, 700, head_dim));
        let q: Vec<f32> = rng.vec(head_dim).iter().map(|v| v * 2.0).collect();
        for n in [1, 15, 16, 17, 32, 33, 255, 256, 257, 512, 700] {
            let cache = Cache::<E>::new(scalar(), keys[..n].to_vec(), values[..n].to_vec());
            let expected = cache.attend(scalar(), &q, 0..n, NO_CAP);
            for (&y, exact) in expected.iter().zip(cache.reference(&q, 0..n, NO_CAP)) {
                let bound = bound::<E>(head_dim, n);
                assert!(
                    (f64::from(y) - exact).abs() <= bound,
                    "{head_dim}, {n} keys: {y} for {exact}"
                );
            }
            for kernels in Kernels::available() {
                let cache = Cache::<E>::new(kernels, keys[..n].to_vec(), values[..n].to_vec());
                let what = format!("{}, head_dim {head_dim}, {n} keys", kernels.isa());
                same_bits(&cache.attend(kernels, &q, 0..n, NO_CAP), &expected, what);
            }
        }
    }
}

/// How far a value of the attention of `n` keys may be off.
fn bound<E: Cell>(head_dim: usize, n: usize) -> f64 {
    // Scores below 100 with head_dim roundings of 2^-24 each move the weights by as much; values are
    // below 1, and their sum has n roundings, relative to it.
    let float = (head_dim as f64 * 40.0 + n as f64) * 2f64.powi(-24);
    // Rounded to 2^-16 of the greatest weight of its page times the greatest scale, a weight is off by
    // no more than 2^-16 of that maximum; so is the sum of a page's 32, relative to a sum that holds
    // the maximum: values are below 1.
    float + if E::TYPE.quantises_queries() { 32.0 * 2f64.powi(-16) } else { 0.0 }
}

#[test]
fn windows_and_caps_match_the_softmax_of_what_is_seen() {
    windows_match::<F16>(&[48, 128]);
    windows_match::<Bf16>(&[64]);
    windows_match::<F32>(&[64]);
    windows_match::<Q8_0>(&[96, 128]);
    windows_match::<Q4_0>(&[96, 128]);
}

fn windows_match<E: Cell>(head_dims: &[usize]) {
    let mut rng = Rng(3);
    for &head_dim in head_dims {
        let (keys, values) = (random(&mut rng, 700, head_dim), random(&mut rng, 700, head_dim));
        let q: Vec<f32> = rng.vec(head_dim).iter().map(|v| v * 2.0).collect();
        for window in [1, 15, 16, 24, 33, 100, 256, 300] {
            for end in [window, 257usize, 300, 511, 512, 545, 700] {
                let seen = end.saturating_sub(window)..end;
                // Nothing is there that is not seen.
                let cache = |kernels| {
                    let (keys, values) = (keys[..end].to_vec(), values[..end].to_vec());
                    Cache::<E>::holding(kernels, keys, values, seen.start)
                };
                for cap in [NO_CAP, 3.0] {
                    let expected = cache(scalar()).attend(scalar(), &q, seen.clone(), cap);
                    let exact = cache(scalar()).reference(&q, seen.clone(), cap);
                    for (&y, exact) in expected.iter().zip(exact) {
                        // A cap moves scores by 5 ulp of 3 at most.
                        let bound = bound::<E>(head_dim, window) + 15.0 * 2f64.powi(-24);
                        let off = (f64::from(y) - exact).abs();
                        assert!(off <= bound, "{head_dim}, {seen:?}, cap {cap}: {y} for {exact}");
                    }
                    for kernels in Kernels::available() {
                        let what = format!("{}, {head_dim}, {seen:?}, cap {cap}", kernels.isa());
                        let got = cache(kernels).attend(kernels, &q, seen.clone(), cap);
                        same_bits(&got, &expected, what);
                    }
                }
            }
        }
    }
}

/// What is added to the scores of a row, by the number of the key.
enum Added {
    Line(Slope),
    /// A table, for distances up to [`REACH`].
    Table(Vec<f32>, i64),
}

const REACH: i64 = 20;

impl Added {
    fn to(&self, key: usize) -> f64 {
        match self {
            Added::Line(line) => -f64::from(line.slope) * (key as f64 - f64::from(line.own)).abs(),
            Added::Table(table, own) => {
                let far = (key as i64 - own).clamp(-REACH, REACH);
                f64::from(table[(table.len() as i64 / 2 + far) as usize])
            }
        }
    }
}

#[test]
fn lines_are_added_to_scores() {
    let line = |r: usize, own: i64, _: &mut Rng| {
        Added::Line(Slope { slope: 2f32.powi(-(r as i32 % 5)), own: own as f32 })
    };
    added_match::<F16>(line);
    added_match::<Bf16>(line);
    added_match::<F32>(line);
    added_match::<Q8_0>(line);
    added_match::<Q4_0>(line);
}

#[test]
fn numbers_of_tables_are_added_to_scores() {
    let table = |r: usize, own: i64, rng: &mut Rng| {
        let len = bias_table_len(REACH as usize);
        let numbers: Vec<f32> = rng.vec(len).iter().map(|x| 4.0 * x).collect();
        let of = |at: usize| {
            let far = at as i64 - len as i64 / 2;
            numbers[(len as i64 / 2 + far.clamp(-REACH, REACH)) as usize]
        };
        // Rows may lie anywhere, also far before and behind what they see.
        let own = own + [0, -40, 70, -500, 900][r % 5];
        Added::Table((0..len).map(of).collect(), own)
    };
    added_match::<F16>(table);
    added_match::<F32>(table);
    added_match::<Q8_0>(table);
}

fn added_match<E: Cell>(added: impl Fn(usize, i64, &mut Rng) -> Added) {
    const DIM: usize = 64;
    let mut rng = Rng(12);
    let (keys, values) = (random(&mut rng, 200, DIM), random(&mut rng, 200, DIM));
    for rows in [1, 2, 3, 8, 13] {
        let q: Vec<f32> = rng.vec(rows * DIM).iter().map(|v| v * 2.0).collect();
        // Rows see keys from different ones on, and one of them keys of the middle only.
        let starts: Vec<u32> = (0..rows as u32).map(|r| 33 + r * 7 % 40).collect();
        let limits: Vec<u32> = (0..rows as u32).map(|r| 200 - r * 11).collect();
        let added: Vec<Added> =
            (0..rows).map(|r| added(r, i64::from(limits[r]) - 1, &mut rng)).collect();
        let run = |kernels: &Kernels, pages: Range<usize>| {
            let cache = Cache::<E>::new(kernels, keys.clone(), values.clone());
            // Without the first pages, all numbers are as many less.
            let less = (pages.start * KV_PAGE) as u32;
            let from = |of: &[u32]| of.iter().map(|key| key - less).collect::<Vec<_>>();
            let (mut lines, mut tables) = (Vec::new(), Vec::new());
            for of in &added {
                match of {
                    Added::Line(line) => lines.push(Slope { own: line.own - less as f32, ..*line }),
                    Added::Table(table, own) => {
                        tables.push(Biases { table, own: own - i64::from(less) });
                    }
                }
            }
            let of_rows = match lines.is_empty() {
                false => ByDistance::Lines(&lines),
                true => ByDistance::Tables(&tables),
            };
            cache.tile(kernels, &q, (&from(&starts), &from(&limits)), pages, (NO_CAP, of_rows))
        };
        let got = run(scalar(), 0..7);
        for kernels in Kernels::available() {
            same_bits(&run(kernels, 0..7), &got, format!("{rows} rows on {}", kernels.isa()));
        }
        same_bits(&run(scalar(), 1..7), &got, "pages behind the first");
        let state = attn_state_len(DIM);
        for r in 0..rows {
            let seen = starts[r] as usize..limits[r] as usize;
            let query = E::query(&q[r * DIM..][..DIM]);
            let score = |key: usize| {
                let s = query.iter().zip(E::stored(&keys[key])).map(|(q, k)| q * k).sum::<f64>();
                s + added[r].to(key)
            };
            let scores: Vec<f64> = seen.clone().map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let p: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let all: f64 = p.iter().sum();
            let sum = got[r * state + DIM + 1];
            for d in 0..DIM {
                let of = |(key, p): (usize, &f64)| p * E::stored(&values[key])[d];
                let exact = seen.clone().zip(&p).map(of).sum::<f64>() / all;
                let off = (f64::from(got[r * state + d] / sum) - exact).abs();
                assert!(off <= bound::<E>(DIM, 200), "row {r} of {rows}: off by {off}");
            }
        }
    }
}

/// What is lost by storing keys and values in few bits, against the attention of the numbers
/// themselves, also where one key has half of the weight and its value is nothing: what the others
/// give must not be lost beside it.
#[test]
fn few_bits_lose_little() {
    // A quant of 8 bits is off by 1/254 of its block's greatest magnitude at most, with a deviation of
    // 0.0023 of it. A score sums 128 products of such an error and a factor, whose deviation is 0.58 of
    // its greatest magnitude, for queries and for keys: 0.3 * 128^0.5 * 0.58 * 0.0023 * 2^0.5 = 0.0064,
    // a weight's relative error; a value's is 0.0023 / 0.58 = 0.004. Values have random signs, so the
    // result is a sum of random signs as its error is, and the ratio stays: 0.0075; beside a weight
    // 1300 times as large, the 15 bits of the 31 weights of its page add 0.0025. Measured: 0.0059 and
    // 0.0084. Allowed: half as much again.
    loses::<Q8_0>(0.012);
    // A quant of 4 bits has steps of 1/8, of which a deviation is 0.31: 12^-0.5, and what is nearer to
    // the end without a quant than half a step, 1/32 of all, is off by up to a whole one. So keys are
    // off by 0.039, weights by 0.3 * 128^0.5 * 0.58 * 0.039 = 0.077, values by 0.039 / 0.58 = 0.067: 0.10.
    // Measured: 0.076 and 0.100. Allowed: half as much again.
    loses::<Q4_0>(0.15);
}

fn loses<E: Cell>(allowed: f64) {
    let (head_dim, n) = (128, 700);
    let mut rng = Rng(5);
    for sink in [false, true] {
        let (mut keys, mut values) = (random(&mut rng, n, head_dim), random(&mut rng, n, head_dim));
        let q: Vec<f32> = rng.vec(head_dim).iter().map(|q| q * 0.3).collect();
        if sink {
            // Scores have a deviation of 0.3 * 128^0.5 / 3 = 1.1: the sum of 700 weights is about
            // e^(ln 700 + 1.1^2 / 2) = e^7.2.
            let norm: f32 = q.iter().map(|q| q * q).sum();
            keys[0] = q.iter().map(|q| q * 7.2 / norm).collect();
            values[0].fill(0.0);
        }
        let exact =
            Cache::<F32>::new(scalar(), keys.clone(), values.clone()).reference(&q, 0..n, NO_CAP);
        let got = Cache::<E>::new(scalar(), keys, values).attend(scalar(), &q, 0..n, NO_CAP);
        let size = exact.iter().map(|y| y * y).sum::<f64>();
        let off = got.iter().zip(&exact).map(|(&y, exact)| (f64::from(y) - exact).powi(2));
        let ratio = (off.sum::<f64>() / size).sqrt();
        eprintln!("{}, sink {sink}: {ratio}", E::TYPE);
        assert!(ratio < allowed, "{}, sink {sink}: {ratio}", E::TYPE);
    }
}

#[test]
fn rows_do_not_see_each_other() {
    rows_are_alone::<F16>(&[64, 80]);
    rows_are_alone::<Bf16>(&[80]);
    rows_are_alone::<Q8_0>(&[64, 96]);
    rows_are_alone::<Q4_0>(&[64, 96]);
}

fn rows_are_alone<E: Cell>(head_dims: &[usize]) {
    let mut rng = Rng(2);
    for &head_dim in head_dims {
        let (keys, mut values) = (random(&mut rng, 256, head_dim), random(&mut rng, 256, head_dim));
        // A value beyond half precision is infinite, as is one whose scale is, and so is this one in
        // bfloat16: rows that do not see it must not notice.
        values[100][0] = f32::MAX;
        for rows in 1..=21 {
            let q = rng.vec(rows * head_dim);
            // Causal rows, with a window or without; rows in no order, with windows that do not meet.
            for (causal, window) in [(true, 256), (true, 9), (false, 256), (false, 40)] {
                let limit = |r: usize, rng: &mut Rng| match causal {
                    true => 85 + r as u32,
                    false => 1 + (rng.next() % 256) as u32,
                };
                let limits: Vec<u32> = (0..rows).map(|r| limit(r, &mut rng)).collect();
                let starts: Vec<u32> = limits.iter().map(|l| l.saturating_sub(window)).collect();
                let most = *limits.iter().max().unwrap() as usize;
                for kernels in Kernels::available() {
                    let cache =
                        Cache::<E>::new(kernels, keys[..most].to_vec(), values[..most].to_vec());
                    let together = cache.chunk(kernels, &q, &starts, &limits);
                    for (r, state) in together.chunks(attn_state_len(head_dim)).enumerate() {
                        let q = &q[r * head_dim..][..head_dim];
                        let alone = cache.chunk(scalar(), q, &starts[r..r + 1], &limits[r..r + 1]);
                        // NaN has no bits to compare: where the infinite value is seen with weight
                        // 0.
                        let finite = |x: &[f32]| -> Vec<f32> {
                            x.iter().map(|&x| if x.is_nan() { -1.0 } else { x }).collect()
                        };
                        let what = format!("{} row {r} of {rows}", kernels.isa());
                        same_bits(&finite(state), &finite(&alone), what);
                        if !(starts[r]..limits[r]).contains(&100) {
                            assert!(state.iter().all(|x| x.is_finite()), "row {r}: {state:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn latents_are_keys_and_values() {
    latents_match::<F16>();
    latents_match::<Bf16>();
    latents_match::<F32>();
    latents_match::<Q8_0>();
    latents_match::<Q4_0>();
}

/// The bits of keys that are stored as values too. Room is full of no numbers, and so are slots that no key
/// was stored in.
fn latents_match<E: Cell>() {
    let mut rng = Rng(12);
    for (head_dim, n, rows) in
        [(32, 5, 1), (96, 70, 3), (192, 256, 8), (576, 256, 16), (576, 201, 19)]
    {
        let latents = random(&mut rng, n, head_dim);
        let q = rng.vec(rows * head_dim);
        let starts: Vec<u32> = (0..rows as u32).map(|r| r * 5 % n as u32).collect();
        let limits: Vec<u32> = (0..rows as u32).map(|r| (n as u32).saturating_sub(r * 3)).collect();
        let starts: Vec<u32> = starts.iter().zip(&limits).map(|(s, l)| (*s).min(l - 1)).collect();
        let want = Cache::<E>::new(scalar(), latents.clone(), latents.clone());
        let want = want.chunk(scalar(), &q, &starts, &limits);
        for kernels in Kernels::available() {
            let cache = Cache::<E>::new(kernels, latents.clone(), latents.clone());
            let k: Vec<&[E::Unit]> = cache.k.iter().map(Vec::as_slice).collect();
            let mut quants = Aligned::new(q8_row_bytes(q.len()));
            kernels.quantize_q8(&q, quants.bytes_mut());
            let (starts, limits, soft_cap) = (&starts[..], &limits[..], NO_CAP);
            let tile = AttnTile {
                rows,
                head_dim,
                starts,
                limits,
                soft_cap,
                added: ByDistance::Nothing,
                queries: E::queries(&q, quants.bytes()),
                keys: E::pages(&k),
                values: E::pages(&[]),
                next: &[],
            };
            let mut scratch = vec![f32::NAN; attn_scratch_len(rows)];
            let mut turned = vec![f32::NAN; attn_turned_len(head_dim)];
            let mut out = vec![f32::NAN; rows * attn_state_len(head_dim)];
            kernels.attend_latents(&tile, &mut turned, &mut scratch, &mut out);
            same_bits(&out, &want, format!("{} {} of {head_dim}", kernels.isa(), E::TYPE));
        }
    }
}

#[test]
fn stores_touch_one_slot_and_round_to_even() {
    // Halfway between two half floats, both ways; beyond the largest; below the least.
    let halves = [1.0 + 2f32.powi(-11), 1.0 + 3.0 * 2f32.powi(-11), 65520.0, 1e-8, -0.0];
    stores_touch_one_slot::<F16>(&halves, |x| f16::from_f32(x).to_bits());
    // The same for bfloat16, whose least ones are below 2^-56 for us.
    let brains = [1.0 + 2f32.powi(-8), 1.0 + 3.0 * 2f32.powi(-8), f32::MAX, 1e-17, 0.0];
    let bits = |x: f32| if x.abs() < 2f32.powi(-56) { 0 } else { bf16::from_f32(x).to_bits() };
    stores_touch_one_slot::<Bf16>(&brains, bits);
}

fn stores_touch_one_slot<E: Cell<Unit = u16>>(special: &[f32], bits: impl Fn(f32) -> u16) {
    let head_dim = 32;
    for kernels in Kernels::available() {
        for slot in 0..KV_PAGE {
            let mut k = vec![0xabcd; KV_PAGE * head_dim];
            let mut v = k.clone();
            let mut x = Rng(slot as u64).vec(head_dim);
            x[..special.len()].copy_from_slice(special);
            kernels.store_k(&x, E::page(&mut k), slot);
            kernels.store_v(&x, E::page(&mut v), slot);
            for s in 0..KV_PAGE {
                for d in 0..head_dim {
                    let expected = if s == slot { bits(x[d]) } else { 0xabcd };
                    assert_eq!(k[(s / 16 * head_dim + d) * 16 + s % 16], expected, "key {s}, {d}");
                    assert_eq!(v[s * head_dim + d], expected, "value {s}, {d}");
                }
            }
        }
    }
}

#[test]
fn slots_are_written_in_any_order_and_again() {
    any_order::<F16>();
    any_order::<Bf16>();
    any_order::<F32>();
    any_order::<Q8_0>();
    any_order::<Q4_0>();
}

fn any_order<E: Cell<Unit: PartialEq>>() {
    let head_dim = 96;
    let mut rng = Rng(8);
    let (first, last) = (random(&mut rng, KV_PAGE, head_dim), random(&mut rng, KV_PAGE, head_dim));
    let cells = E::TYPE.page_bytes(head_dim) / size_of::<E::Unit>();
    for kernels in Kernels::available() {
        let pages = |writes: &mut dyn Iterator<Item = (usize, &Vec<f32>)>| {
            let (mut k, mut v) = (vec![E::UNUSED; cells], vec![E::UNUSED; cells]);
            for (slot, x) in writes {
                kernels.store_k(x, E::page(&mut k), slot);
                kernels.store_v(x, E::page(&mut v), slot);
            }
            (k, v)
        };
        let want = pages(&mut last.iter().enumerate());
        // 13 steps round 32 slots reach them all.
        let again = (0..KV_PAGE).map(|i| i * 13 % KV_PAGE).map(|slot| (slot, &last[slot]));
        let got = pages(&mut first.iter().enumerate().rev().chain(again));
        assert!(got == want, "{} {}", kernels.isa(), E::TYPE);
    }
}

/// Of two elements of equal and greatest magnitude the first becomes -8; nothing becomes 8.
#[test]
fn four_bits_are_rounded_as_in_files() {
    let head_dim = 32;
    let mut blocks = random(&mut Rng(9), 4, head_dim);
    blocks[0][7..9].copy_from_slice(&[2.0, -2.0]);
    blocks[1][7..9].copy_from_slice(&[-2.0, 2.0]);
    blocks[2].fill(0.0);
    // The scale is nothing in half precision.
    blocks[3].fill(1e-8);
    for value in blocks {
        for kernels in Kernels::available() {
            let cache = Cache::<Q4_0>::new(kernels, vec![value.clone()], vec![value.clone()]);
            let out = cache.attend(kernels, &value, 0..1, NO_CAP);
            for (y, exact) in out.iter().zip(Q4_0::stored(&value)) {
                // A weight of 15 bits, of magnitudes of 2 at most.
                assert!((f64::from(*y) - exact).abs() <= 2f64.powi(-15), "{y} for {exact}");
            }
        }
    }
}

#[test]
fn quants_are_clamped_and_poisoned_blocks_stay_poisoned() {
    poison_stays::<Q8_0>();
    poison_stays::<Q4_0>();
}

fn poison_stays<E: Cell>() {
    let (head_dim, n) = (64, 40);
    for kernels in Kernels::available() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e9] {
            for in_key in [true, false] {
                let mut rng = Rng(6);
                let mut keys = random(&mut rng, n, head_dim);
                let mut values = random(&mut rng, n, head_dim);
                let q = rng.vec(head_dim);
                if in_key {
                    keys[35][3] = bad;
                } else {
                    values[35][40] = bad;
                }
                let cache = Cache::<E>::new(kernels, keys, values);
                let out = cache.attend(kernels, &q, 0..n, NO_CAP);
                let poisoned = if in_key { 0..head_dim } else { 32..head_dim };
                for (d, y) in out.iter().enumerate() {
                    assert_eq!(
                        !y.is_finite(),
                        poisoned.contains(&d),
                        "{} {bad}, {in_key}: {d} is {y}",
                        E::TYPE
                    );
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "head_dim 48 is not a multiple of 32")]
fn heads_that_are_no_whole_blocks_are_refused() {
    scalar().store_k(&[0.0; 48], KvPageMut::Q8_0(&mut [0; 51 * KV_PAGE]), 0);
}

#[test]
#[should_panic(expected = "head_dim 40 is not a multiple of 16")]
fn odd_heads_are_refused() {
    scalar().store_k(&[0.0; 40], KvPageMut::F16(&mut [0; 40 * KV_PAGE]), 0);
}

#[test]
#[should_panic(expected = "limit 0 outside 1..=256")]
fn a_row_without_keys_is_refused() {
    let cache = Cache::<F16>::new(scalar(), vec![vec![0.0; 16]], vec![vec![0.0; 16]]);
    cache.chunk(scalar(), &[0.0; 16], &[0], &[0]);
}

#[test]
#[should_panic(expected = "33 keys need 2 pages: 1 of keys, 1 of values given")]
fn missing_pages_are_refused() {
    let cache = Cache::<F16>::new(scalar(), vec![vec![0.0; 16]], vec![vec![0.0; 16]]);
    cache.chunk(scalar(), &[0.0; 16], &[0], &[33]);
}

#[test]
#[should_panic(expected = "1 keys need 1 pages: 1 of keys, 0 of values given")]
fn missing_values_are_refused() {
    let cache = Cache::<F16>::new(scalar(), vec![vec![0.0; 16]], vec![vec![0.0; 16]]);
    let (k, q) = ([&cache.k[0][..]], [0.0; 16]);
    let (starts, limits) = (&[0][..], &[1][..]);
    let tile = AttnTile {
        rows: 1,
        head_dim: 16,
        starts,
        limits,
        soft_cap: NO_CAP,
        added: ByDistance::Nothing,
        queries: F16::queries(&q, &[]),
        keys: F16::pages(&k),
        values: F16::pages(&[]),
        next: &[],
    };
    scalar().attend_chunk(&tile, &mut [0.0; KV_CHUNK], &mut [0.0; attn_state_len(16)]);
}

#[test]
#[should_panic(expected = "no key from 1 to 1")]
fn a_row_whose_window_is_empty_is_refused() {
    let cache = Cache::<F16>::new(scalar(), vec![vec![0.0; 16]], vec![vec![0.0; 16]]);
    cache.chunk(scalar(), &[0.0; 16], &[1], &[1]);
}
