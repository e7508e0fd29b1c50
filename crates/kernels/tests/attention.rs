//! Attention over chunks of paged keys and values, against softmax in f64 and between instruction
//! sets.

mod common;

use arclight_kernels::{
    AttnTile, Isa, KV_CHUNK, KV_PAGE, Kernels, KvPageMut, KvPages, attn_scratch_len, attn_state_len,
};
use common::{Rng, same_bits};
use half::f16;

/// What pages hold.
trait Cell: Copy {
    const NAN: Self;
    /// `x` as it is stored.
    fn stored(x: f32) -> f64;
    fn page(page: &mut [Self]) -> KvPageMut<'_>;
    fn pages<'a>(k: &'a [&'a [Self]], v: &'a [&'a [Self]]) -> KvPages<'a>;
}

impl Cell for u16 {
    const NAN: u16 = f16::NAN.to_bits();

    fn stored(x: f32) -> f64 {
        f64::from(f16::from_f32(x).to_f32())
    }

    fn page(page: &mut [u16]) -> KvPageMut<'_> {
        KvPageMut::F16(page)
    }

    fn pages<'a>(k: &'a [&'a [u16]], v: &'a [&'a [u16]]) -> KvPages<'a> {
        KvPages::F16 { k, v }
    }
}

impl Cell for f32 {
    const NAN: f32 = f32::NAN;

    fn stored(x: f32) -> f64 {
        f64::from(x)
    }

    fn page(page: &mut [f32]) -> KvPageMut<'_> {
        KvPageMut::F32(page)
    }

    fn pages<'a>(k: &'a [&'a [f32]], v: &'a [&'a [f32]]) -> KvPages<'a> {
        KvPages::F32 { k, v }
    }
}

/// Keys and values of one head in pages whose unused slots hold NaN.
struct Cache<E> {
    head_dim: usize,
    k: Vec<Vec<E>>,
    v: Vec<Vec<E>>,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl<E: Cell> Cache<E> {
    fn new(kernels: &Kernels, keys: Vec<Vec<f32>>, values: Vec<Vec<f32>>) -> Self {
        let head_dim = keys[0].len();
        let pages = keys.len().div_ceil(KV_PAGE);
        let empty = vec![vec![E::NAN; KV_PAGE * head_dim]; pages];
        let (mut k, mut v) = (empty.clone(), empty);
        for (i, (key, value)) in keys.iter().zip(&values).enumerate() {
            kernels.store_k(key, E::page(&mut k[i / KV_PAGE]), i % KV_PAGE);
            kernels.store_v(value, E::page(&mut v[i / KV_PAGE]), i % KV_PAGE);
        }
        Self { head_dim, k, v, keys, values }
    }

    /// The states of all rows over chunk `c`; `limits` counts from the start of the chunk.
    fn chunk(&self, kernels: &Kernels, q: &[f32], limits: &[u32], c: usize) -> Vec<f32> {
        let per_chunk = KV_CHUNK / KV_PAGE;
        let end = self.k.len().min((c + 1) * per_chunk);
        let k: Vec<&[E]> = self.k[c * per_chunk..end].iter().map(Vec::as_slice).collect();
        let v: Vec<&[E]> = self.v[c * per_chunk..end].iter().map(Vec::as_slice).collect();
        let rows = limits.len();
        let mut scratch = vec![f32::NAN; attn_scratch_len(rows)];
        let mut out = vec![f32::NAN; rows * attn_state_len(self.head_dim)];
        let head_dim = self.head_dim;
        let tile = AttnTile { q, rows, head_dim, limits, pages: E::pages(&k, &v) };
        kernels.attend_chunk(&tile, &mut scratch, &mut out);
        out
    }

    /// The attention of one row over the first `keys` keys.
    fn attend(&self, kernels: &Kernels, q: &[f32], keys: usize) -> Vec<f32> {
        let mut state = Vec::new();
        for c in 0..keys.div_ceil(KV_CHUNK) {
            let part = self.chunk(kernels, q, &[(keys - c * KV_CHUNK).min(KV_CHUNK) as u32], c);
            match c {
                0 => state = part,
                _ => kernels.attn_merge(&mut state, &part, self.head_dim),
            }
        }
        let mut out = vec![f32::NAN; self.head_dim];
        kernels.attn_finish(&state, self.head_dim, &mut out);
        out
    }

    /// The same by the book, in f64 over what is stored.
    fn reference(&self, q: &[f32], keys: usize) -> Vec<f64> {
        let score = |key: &Vec<f32>| -> f64 {
            q.iter().zip(key).map(|(&q, &k)| f64::from(q) * E::stored(k)).sum()
        };
        let scores: Vec<f64> = self.keys[..keys].iter().map(score).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let p: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let l: f64 = p.iter().sum();
        let o = |d: usize| -> f64 {
            p.iter().zip(&self.values).map(|(p, v)| p * E::stored(v[d])).sum::<f64>() / l
        };
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
    chunks_match::<u16>();
    chunks_match::<f32>();
}

fn chunks_match<E: Cell>() {
    let mut rng = Rng(1);
    for head_dim in [16, 48, 64, 80, 128] {
        let (keys, values) = (random(&mut rng, 700, head_dim), random(&mut rng, 700, head_dim));
        let q: Vec<f32> = rng.vec(head_dim).iter().map(|v| v * 2.0).collect();
        for n in [1, 15, 16, 17, 32, 33, 255, 256, 257, 512, 700] {
            let cache = Cache::<E>::new(scalar(), keys[..n].to_vec(), values[..n].to_vec());
            let expected = cache.attend(scalar(), &q, n);
            for (&y, exact) in expected.iter().zip(cache.reference(&q, n)) {
                // Scores below 100 with head_dim roundings of 2^-24 each move the weights by as
                // much; values are below 1, and their sum has n roundings, relative to it.
                let bound = (head_dim as f64 * 40.0 + n as f64) * 2f64.powi(-24);
                assert!(
                    (f64::from(y) - exact).abs() <= bound,
                    "{head_dim}, {n} keys: {y} for {exact}"
                );
            }
            for kernels in Kernels::available() {
                let cache = Cache::<E>::new(kernels, keys[..n].to_vec(), values[..n].to_vec());
                let what = format!("{}, head_dim {head_dim}, {n} keys", kernels.isa());
                same_bits(&cache.attend(kernels, &q, n), &expected, what);
            }
        }
    }
}

#[test]
fn rows_do_not_see_each_other() {
    let mut rng = Rng(2);
    for head_dim in [64, 80] {
        let (keys, mut values) = (random(&mut rng, 256, head_dim), random(&mut rng, 256, head_dim));
        // A value beyond half precision is infinite: rows that do not see it must not notice.
        values[100][0] = 1e6;
        for rows in 1..=21 {
            let q = rng.vec(rows * head_dim);
            // Causal rows, and rows in no order.
            for causal in [true, false] {
                let limit = |r: usize, rng: &mut Rng| match causal {
                    true => 85 + r as u32,
                    false => 1 + (rng.next() % 256) as u32,
                };
                let limits: Vec<u32> = (0..rows).map(|r| limit(r, &mut rng)).collect();
                let most = *limits.iter().max().unwrap() as usize;
                for kernels in Kernels::available() {
                    let cache =
                        Cache::<u16>::new(kernels, keys[..most].to_vec(), values[..most].to_vec());
                    let together = cache.chunk(kernels, &q, &limits, 0);
                    for (r, state) in together.chunks(attn_state_len(head_dim)).enumerate() {
                        let q = &q[r * head_dim..][..head_dim];
                        let alone = cache.chunk(scalar(), q, &limits[r..r + 1], 0);
                        // NaN has no bits to compare: where the infinite value is seen with weight
                        // 0.
                        let finite = |x: &[f32]| -> Vec<f32> {
                            x.iter().map(|&x| if x.is_nan() { -1.0 } else { x }).collect()
                        };
                        let what = format!("{} row {r} of {rows}", kernels.isa());
                        same_bits(&finite(state), &finite(&alone), what);
                        if limits[r] <= 100 {
                            assert!(state.iter().all(|x| x.is_finite()), "row {r}: {state:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn stores_touch_one_slot_and_round_to_even() {
    let head_dim = 32;
    for kernels in Kernels::available() {
        for slot in 0..KV_PAGE {
            let mut k = vec![0xabcd; KV_PAGE * head_dim];
            let mut v = k.clone();
            // Halfway between two half floats, both ways; beyond the largest; below the least.
            let mut x = Rng(slot as u64).vec(head_dim);
            x[..5].copy_from_slice(&[
                1.0 + 2f32.powi(-11),
                1.0 + 3.0 * 2f32.powi(-11),
                65520.0,
                1e-8,
                -0.0,
            ]);
            kernels.store_k(&x, KvPageMut::F16(&mut k), slot);
            kernels.store_v(&x, KvPageMut::F16(&mut v), slot);
            for s in 0..KV_PAGE {
                for d in 0..head_dim {
                    let expected = if s == slot { f16::from_f32(x[d]).to_bits() } else { 0xabcd };
                    assert_eq!(k[(s / 16 * head_dim + d) * 16 + s % 16], expected, "key {s}, {d}");
                    assert_eq!(v[s * head_dim + d], expected, "value {s}, {d}");
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "head_dim 40 is not a multiple of 16")]
fn odd_heads_are_refused() {
    scalar().store_k(&[0.0; 40], KvPageMut::F16(&mut [0; 40 * KV_PAGE]), 0);
}

#[test]
#[should_panic(expected = "limit 0 outside 1..=256")]
fn a_row_without_keys_is_refused() {
    let cache = Cache::<u16>::new(scalar(), vec![vec![0.0; 16]], vec![vec![0.0; 16]]);
    cache.chunk(scalar(), &[0.0; 16], &[0], 0);
}

#[test]
#[should_panic(expected = "33 keys need 2 pages: 1 of keys, 1 of values given")]
fn missing_pages_are_refused() {
    let cache = Cache::<u16>::new(scalar(), vec![vec![0.0; 16]], vec![vec![0.0; 16]]);
    cache.chunk(scalar(), &[0.0; 16], &[33], 0);
}
