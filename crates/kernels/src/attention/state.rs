//! States of query rows: joined chunk by chunk, and turned into the attention.
//!
//! `acc ⊕ part`, with `m` the greater of both maxima, `a = e^(acc.m - m)` and `b = e^(part.m - m)`:
//! `l = part.l * b + acc.l * a`, `o = part.o * b + acc.o * a`, each rounded as one multiplication
//! and one multiply-add. [`merge`] does one step for many rows, [`fold`] all steps for one row: the
//! same operations on the same numbers.

use super::attn_state_len;
use crate::exp::exp_negative;
use crate::simd::{LANES, Simd};
use crate::views::Rows;

/// Joins the states of the keys to the right, `part`, to those of the keys to the left, `acc`: as
/// many rows as there are.
#[inline(always)]
pub(crate) fn merge<S: Simd>(s: S, acc: &mut [f32], part: &[f32], head_dim: usize) {
    let state = attn_state_len(head_dim);
    for (acc, part) in acc.chunks_mut(LANES * state).zip(part.chunks(LANES * state)) {
        let (mut a, mut b) = ([0.0; LANES], [0.0; LANES]);
        let rows = || acc.chunks_exact(state).zip(part.chunks_exact(state));
        for (i, (acc, part)) in rows().enumerate() {
            (a[i], b[i]) = apart(acc[head_dim], part[head_dim]);
        }
        let (a, b) = (factors(s, &a), factors(s, &b));
        let rows = acc.chunks_exact_mut(state).zip(part.chunks_exact(state));
        for (((acc, part), a), b) in rows.zip(a).zip(b) {
            let (o, acc) = acc.split_at_mut(head_dim);
            let (part_o, part) = part.split_at(head_dim);
            acc[0] = greater(acc[0], part[0]);
            acc[1] = part[1].mul_add(b, acc[1] * a);
            let (a, b) = (s.splat(a), s.splat(b));
            let o = o.as_chunks_mut::<LANES>().0;
            for (o, part_o) in o.iter_mut().zip(part_o.as_chunks::<LANES>().0) {
                s.store(s.fma(s.load(part_o), b, s.mul(s.load(o), a)), o);
            }
        }
    }
}

/// Joins the states of one row, `parts`, from the first to the last, and finishes it.
#[inline(always)]
pub(crate) fn fold<S: Simd>(
    s: S,
    parts: Rows<'_, f32>,
    head_dim: usize,
    sink: f32,
    out: &mut [f32],
) {
    let first = parts.row(0);
    let (mut m, mut l) = (first[head_dim], first[head_dim + 1]);
    out.copy_from_slice(&first[..head_dim]);
    let mut at = 1;
    while at < parts.rows() {
        let batch = parts.sub(at..parts.rows().min(at + LANES));
        let (mut a, mut b) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..batch.rows() {
            let part = batch.row(i)[head_dim];
            (a[i], b[i]) = apart(m, part);
            m = greater(m, part);
        }
        let (a, b) = (factors(s, &a), factors(s, &b));
        for i in 0..batch.rows() {
            l = batch.row(i)[head_dim + 1].mul_add(b[i], l * a[i]);
        }
        let (wide, tail) = out.as_chunks_mut::<{ 8 * LANES }>();
        for (d, o) in wide.iter_mut().enumerate() {
            add::<S, 8>(s, batch, d * 8 * LANES, &a, &b, o);
        }
        for (d, o) in tail.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            add::<S, 1>(s, batch, head_dim / (8 * LANES) * 8 * LANES + d * LANES, &a, &b, o);
        }
        at += batch.rows();
    }
    let inverse = s.splat(inverse(s, m, l, sink));
    for out in out.as_chunks_mut::<LANES>().0 {
        s.store(s.mul(s.load(out), inverse), out);
    }
}

/// `o = part.o[d..] * b + o * a` for each part in turn, `DIMS` blocks of 16 dimensions.
#[inline(always)]
fn add<S: Simd, const DIMS: usize>(
    s: S,
    parts: Rows<'_, f32>,
    d: usize,
    a: &[f32; LANES],
    b: &[f32; LANES],
    o: &mut [f32],
) {
    let o = o.as_chunks_mut::<LANES>().0.first_chunk_mut::<DIMS>().expect("that many blocks");
    let mut sums = [s.splat(0.0); DIMS];
    for (sum, o) in sums.iter_mut().zip(o.iter()) {
        *sum = s.load(o);
    }
    for i in 0..parts.rows() {
        let (a, b) = (s.splat(a[i]), s.splat(b[i]));
        let part = parts.row(i)[d..].as_chunks::<LANES>().0;
        for (sum, part) in sums.iter_mut().zip(part) {
            *sum = s.fma(s.load(part), b, s.mul(*sum, a));
        }
    }
    for (sum, o) in sums.iter().zip(o) {
        s.store(*sum, o);
    }
}

/// `out = o * (1 / l)`: the attention of a row whose chunks have all been joined, with a sink.
#[inline(always)]
pub(crate) fn finish<S: Simd>(s: S, state: &[f32], head_dim: usize, sink: f32, out: &mut [f32]) {
    let inverse = s.splat(inverse(s, state[head_dim], state[head_dim + 1], sink));
    let o = state[..head_dim].as_chunks::<LANES>().0;
    for (o, out) in o.iter().zip(out.as_chunks_mut::<LANES>().0) {
        s.store(s.mul(s.load(o), inverse), out);
    }
}

/// `1 / (l + e^(sink - m))`, as one more score that has no value would have it.
#[inline(always)]
fn inverse<S: Simd>(s: S, m: f32, l: f32, sink: f32) -> f32 {
    if sink == f32::NEG_INFINITY {
        return 1.0 / l;
    }
    let mut below = [0.0; LANES];
    (below[0], below[1]) = apart(m, sink);
    let [a, b] = *factors(s, &below).first_chunk().expect("16 of them");
    a / l.mul_add(a, b)
}

#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// How far two maxima lie below the greater one.
#[inline(always)]
fn apart(a: f32, b: f32) -> (f32, f32) {
    let m = greater(a, b);
    (a - m, b - m)
}

#[inline(always)]
fn factors<S: Simd>(s: S, x: &[f32; LANES]) -> [f32; LANES] {
    let mut e = [0.0; LANES];
    s.store(exp_negative(s, s.load(x)), &mut e);
    e
}
