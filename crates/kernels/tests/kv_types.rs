//! Keys of one type beside values of another: every pair, against softmax in f64 and between instruction sets.

mod cells;
mod common;

use arclight_kernels::{
    AttnTile, ByDistance, Isa, KV_PAGE, Kernels, attn_scratch_len, attn_state_len, q8_row_bytes,
};
use cells::{Bf16, Cell, F16, F32, Q4_0, Q8_0};
use common::{Aligned, Rng, same_bits};

const DIM: usize = 64;
const KEYS: usize = 150;

fn scalar() -> &'static Kernels {
    Kernels::for_isa(Isa::Scalar).expect("always there")
}

/// The rows of a head in pages.
fn pages<E: Cell>(
    rows: &[Vec<f32>],
    store: impl Fn(&[f32], &mut [E::Unit], usize),
) -> Vec<Vec<E::Unit>> {
    let cells = E::TYPE.page_bytes(DIM) / size_of::<E::Unit>();
    let mut pages = vec![vec![E::UNUSED; cells]; rows.len().div_ceil(KV_PAGE)];
    for (i, row) in rows.iter().enumerate() {
        store(row, &mut pages[i / KV_PAGE], i % KV_PAGE);
    }
    pages
}

/// States of rows that see keys of type `K` and values of type `V`.
fn attend<K: Cell, V: Cell>(
    kernels: &Kernels,
    q: &[f32],
    (keys, values): (&[Vec<f32>], &[Vec<f32>]),
    (starts, limits): (&[u32], &[u32]),
) -> Vec<f32> {
    let k = pages::<K>(keys, |x, page, slot| kernels.store_k(x, K::page(page), slot));
    let v = pages::<V>(values, |x, page, slot| kernels.store_v(x, V::page(page), slot));
    let k: Vec<&[K::Unit]> = k.iter().map(Vec::as_slice).collect();
    let v: Vec<&[V::Unit]> = v.iter().map(Vec::as_slice).collect();
    let mut quants = Aligned::new(q8_row_bytes(q.len()));
    kernels.quantize_q8(q, quants.bytes_mut());
    let rows = limits.len();
    let mut scratch = vec![f32::NAN; attn_scratch_len(rows)];
    let mut out = vec![f32::NAN; rows * attn_state_len(DIM)];
    let tile = AttnTile {
        rows,
        head_dim: DIM,
        starts,
        limits,
        soft_cap: f32::INFINITY,
        added: ByDistance::Nothing,
        queries: K::queries(q, quants.bytes()),
        keys: K::pages(&k),
        values: V::pages(&v),
        next: &[],
    };
    kernels.attend_chunk(&tile, &mut scratch, &mut out);
    out
}

/// Weights of 15 bits, relative to the greatest; sums of floats.
const OFF: f64 = 2e-4;

fn pair<K: Cell, V: Cell>() {
    let what = format!("keys in {}, values in {}", K::TYPE, V::TYPE);
    let mut rng = Rng(3);
    let keys: Vec<Vec<f32>> = (0..KEYS).map(|_| rng.vec(DIM)).collect();
    let values: Vec<Vec<f32>> = (0..KEYS).map(|_| rng.vec(DIM)).collect();
    let state = attn_state_len(DIM);
    for rows in [1, 2, 5, 8, 13] {
        let q: Vec<f32> = rng.vec(rows * DIM).iter().map(|q| q * 0.5).collect();
        let starts: Vec<u32> = (0..rows as u32).map(|r| r * 9 % 60).collect();
        let limits: Vec<u32> = (0..rows as u32).map(|r| KEYS as u32 - r * 5).collect();
        let seen = (&starts[..], &limits[..]);
        let got = attend::<K, V>(scalar(), &q, (&keys, &values), seen);
        for kernels in Kernels::available() {
            let other = attend::<K, V>(kernels, &q, (&keys, &values), seen);
            same_bits(&other, &got, format!("{what}: {rows} rows on {}", kernels.isa()));
        }
        // Maxima and sums are of the keys alone, whatever the values are.
        let same = attend::<K, K>(scalar(), &q, (&keys, &values), seen);
        for r in 0..rows {
            let (own, of_keys) = (&got[r * state..][..state], &same[r * state..][..state]);
            same_bits(&own[DIM..], &of_keys[DIM..], format!("{what}: row {r}"));
            let query = K::query(&q[r * DIM..][..DIM]);
            let score =
                |key: usize| query.iter().zip(K::stored(&keys[key])).map(|(q, k)| q * k).sum();
            let seen = starts[r] as usize..limits[r] as usize;
            let scores: Vec<f64> = seen.clone().map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let p: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let all: f64 = p.iter().sum();
            for d in 0..DIM {
                let of = |(key, p): (usize, &f64)| p * V::stored(&values[key])[d];
                let exact = seen.clone().zip(&p).map(of).sum::<f64>() / all;
                let off = (f64::from(own[d] / own[DIM + 1]) - exact).abs();
                assert!(off < OFF, "{what}: row {r} of {rows} is off by {off}");
            }
        }
        // Keys of zeros weigh the same in every type: then the values have the bits of their own type's kernel.
        let nothing = vec![vec![0.0; DIM]; KEYS];
        let got = attend::<K, V>(scalar(), &q, (&nothing, &values), seen);
        let same = attend::<V, V>(scalar(), &q, (&nothing, &values), seen);
        same_bits(&got, &same, format!("{what}: values of {rows} rows"));
    }
}

/// With every type of values.
fn pairs<K: Cell>() {
    pair::<K, F16>();
    pair::<K, Bf16>();
    pair::<K, F32>();
    pair::<K, Q8_0>();
    pair::<K, Q4_0>();
}

#[test]
fn keys_and_values_of_any_two_types() {
    pairs::<F16>();
    pairs::<Bf16>();
    pairs::<F32>();
    pairs::<Q8_0>();
    pairs::<Q4_0>();
}

#[test]
#[should_panic(expected = "keys are quants and queries are floats")]
fn queries_are_of_the_keys_kind() {
    let (keys, values) = (vec![vec![0.0; DIM]], vec![vec![0.0; DIM]]);
    let k = pages::<Q8_0>(&keys, |x, page, slot| scalar().store_k(x, Q8_0::page(page), slot));
    let v = pages::<F16>(&values, |x, page, slot| scalar().store_v(x, F16::page(page), slot));
    let (k, v) = ([&k[0][..]], [&v[0][..]]);
    let tile = AttnTile {
        rows: 1,
        head_dim: DIM,
        starts: &[0],
        limits: &[1],
        soft_cap: f32::INFINITY,
        added: ByDistance::Nothing,
        queries: F16::queries(&[0.0; DIM], &[]),
        keys: Q8_0::pages(&k),
        values: F16::pages(&v),
        next: &[],
    };
    let mut out = vec![0.0; attn_state_len(DIM)];
    scalar().attend_chunk(&tile, &mut vec![0.0; attn_scratch_len(1)], &mut out);
}
