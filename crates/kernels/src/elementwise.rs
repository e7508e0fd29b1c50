//! Sums, products, norms, RoPE and argmax of one vector.

use crate::simd::{Dot, LANES, Simd};
use crate::views::{Rows, RowsMut};

/// Which two elements of a head RoPE rotates together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Elements `2i` and `2i + 1`.
    Normal,
    /// Elements `i` and `i + rot / 2`.
    Neox,
}

/// `out = a + b`.
#[inline(always)]
pub(crate) fn add<S: Simd>(s: S, a: &[f32], b: &[f32], out: &mut [f32]) {
    let (a_blocks, a_tail) = a.as_chunks::<LANES>();
    let (b_blocks, b_tail) = b.as_chunks::<LANES>();
    let (out_blocks, out_tail) = out.as_chunks_mut::<LANES>();
    for ((a, b), out) in a_blocks.iter().zip(b_blocks).zip(out_blocks) {
        s.store(s.add(s.load(a), s.load(b)), out);
    }
    s.store_part(s.add(s.load_part(a_tail, 0.0), s.load_part(b_tail, 0.0)), out_tail);
}

/// `a += b`.
#[inline(always)]
pub(crate) fn add_assign<S: Simd>(s: S, a: &mut [f32], b: &[f32]) {
    let (a_blocks, a_tail) = a.as_chunks_mut::<LANES>();
    let (b_blocks, b_tail) = b.as_chunks::<LANES>();
    for (a, b) in a_blocks.iter_mut().zip(b_blocks) {
        s.store(s.add(s.load(a), s.load(b)), a);
    }
    s.store_part(s.add(s.load_part(a_tail, 0.0), s.load_part(b_tail, 0.0)), a_tail);
}

/// `a += factor * b`, rounded once.
#[inline(always)]
pub(crate) fn add_scaled<S: Simd>(s: S, a: &mut [f32], factor: f32, b: &[f32]) {
    let factor = s.splat(factor);
    let (a_blocks, a_tail) = a.as_chunks_mut::<LANES>();
    let (b_blocks, b_tail) = b.as_chunks::<LANES>();
    for (a, b) in a_blocks.iter_mut().zip(b_blocks) {
        s.store(s.fma(factor, s.load(b), s.load(a)), a);
    }
    let sum = s.fma(factor, s.load_part(b_tail, 0.0), s.load_part(a_tail, 0.0));
    s.store_part(sum, a_tail);
}

/// `x := max(x - least, 0)`.
#[inline(always)]
pub(crate) fn above<S: Simd>(s: S, x: &mut [f32], least: f32) {
    let (least, zero) = (s.splat(least), s.splat(0.0));
    let (blocks, tail) = x.as_chunks_mut::<LANES>();
    for block in blocks {
        s.store(s.max(s.sub(s.load(block), least), zero), block);
    }
    s.store_part(s.max(s.sub(s.load_part(tail, 0.0), least), zero), tail);
}

/// Asks for the cache lines of some rows, in the second cache.
#[inline(always)]
pub(crate) fn prefetch<S: Simd>(s: S, rows: Rows<'_, f32>) {
    for r in 0..rows.rows() {
        for line in rows.row(r).chunks(LANES) {
            s.dot().prefetch_second(line.as_ptr().cast());
        }
    }
}

/// Asks for the cache lines of some rows in order to write to them.
#[inline(always)]
pub(crate) fn prefetch_write<S: Simd>(s: S, mut rows: RowsMut<'_, f32>) {
    for r in 0..rows.rows() {
        for line in rows.row_mut(r).chunks(LANES) {
            s.dot().prefetch_write(line.as_ptr().cast());
        }
    }
}

/// `x *= factor`.
#[inline(always)]
pub(crate) fn scale<S: Simd>(s: S, x: &mut [f32], factor: f32) {
    let factor = s.splat(factor);
    let (blocks, tail) = x.as_chunks_mut::<LANES>();
    for block in blocks {
        s.store(s.mul(s.load(block), factor), block);
    }
    s.store_part(s.mul(s.load_part(tail, 0.0), factor), tail);
}

/// `1 / sqrt(mean(x²) + eps)`.
#[inline(always)]
fn inverse_rms<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    1.0 / (square_sum(s, x) / x.len() as f32 + eps).sqrt()
}

/// `Σ x²`: lane `i` sums the squares of elements `16j + i`, then the lanes fold.
#[inline(always)]
pub(crate) fn square_sum<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (blocks, tail) = x.as_chunks::<LANES>();
    let mut sum = s.splat(0.0);
    for block in blocks {
        let x = s.load(block);
        sum = s.fma(x, x, sum);
    }
    let x_tail = s.load_part(tail, 0.0);
    s.reduce_add(s.fma(x_tail, x_tail, sum))
}

/// `Σ x`, in the order of [`square_sum`].
#[inline(always)]
pub(crate) fn sum<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (blocks, tail) = x.as_chunks::<LANES>();
    let mut sum = s.splat(0.0);
    for block in blocks {
        sum = s.add(sum, s.load(block));
    }
    s.reduce_add(s.add(sum, s.load_part(tail, 0.0)))
}

/// `out = x / sqrt(mean(x²) + eps) * weight`.
#[inline(always)]
pub(crate) fn rms_norm<S: Simd>(s: S, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let r = s.splat(inverse_rms(s, x, eps));
    let (x_blocks, x_tail) = x.as_chunks::<LANES>();
    let (w_blocks, w_tail) = weight.as_chunks::<LANES>();
    let (out_blocks, out_tail) = out.as_chunks_mut::<LANES>();
    for ((x, w), out) in x_blocks.iter().zip(w_blocks).zip(out_blocks) {
        s.store(s.mul(s.mul(s.load(x), r), s.load(w)), out);
    }
    let y = s.mul(s.mul(s.load_part(x_tail, 0.0), r), s.load_part(w_tail, 0.0));
    s.store_part(y, out_tail);
}

/// `out = (x - mean) / sqrt(variance + eps) * weight + bias`, the variance being the mean of the
/// squared differences, summed as in [`square_sum`]; product and sum are rounded once.
#[inline(always)]
pub(crate) fn layer_norm<S: Simd>(
    s: S,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
    out: &mut [f32],
) {
    let len = x.len() as f32;
    let mean = s.splat(sum(s, x) / len);
    let (x_blocks, x_tail) = x.as_chunks::<LANES>();
    let (out_blocks, out_tail) = out.as_chunks_mut::<LANES>();
    for (x, out) in x_blocks.iter().zip(out_blocks) {
        s.store(s.sub(s.load(x), mean), out);
    }
    s.store_part(s.sub(s.load_part(x_tail, 0.0), mean), out_tail);

    let r = s.splat(inverse_rms(s, out, eps));
    let (w_blocks, w_tail) = weight.as_chunks::<LANES>();
    let (b_blocks, b_tail) = bias.as_chunks::<LANES>();
    let (out_blocks, out_tail) = out.as_chunks_mut::<LANES>();
    for ((out, w), b) in out_blocks.iter_mut().zip(w_blocks).zip(b_blocks) {
        s.store(s.fma(s.mul(s.load(out), r), s.load(w), s.load(b)), out);
    }
    let y = s.mul(s.load_part(out_tail, 0.0), r);
    let y = s.fma(y, s.load_part(w_tail, 0.0), s.load_part(b_tail, 0.0));
    s.store_part(y, out_tail);
}

/// [`rms_norm`] of each head onto itself, the same weights for all.
///
/// A head's sum, root and quotient are one chain: four heads at a time keep the units busy (a model
/// with norms of queries and keys spent 2 % of its prefill here, head by head).
#[inline(always)]
pub(crate) fn rms_norm_heads<S: Simd>(s: S, heads: &mut [f32], weight: &[f32], eps: f32) {
    let dim = weight.len();
    let mut fours = heads.chunks_exact_mut(4 * dim);
    for four in &mut fours {
        let mut r = [0.0; 4];
        for n in 0..4 {
            r[n] = inverse_rms(s, &four[n * dim..][..dim], eps);
        }
        for n in 0..4 {
            scale_by(s, &mut four[n * dim..][..dim], r[n], weight);
        }
    }
    for head in fours.into_remainder().chunks_exact_mut(dim) {
        scale_by(s, head, inverse_rms(s, head, eps), weight);
    }
}

/// [`layer_norm`] of each head onto itself, without a bias; weights are the same for all heads, or each head's own.
#[inline(always)]
pub(crate) fn layer_norm_heads<S: Simd>(
    s: S,
    heads: &mut [f32],
    dim: usize,
    weight: &[f32],
    eps: f32,
) {
    for (head, weight) in heads.chunks_exact_mut(dim).zip(weight.chunks_exact(dim).cycle()) {
        let mean = s.splat(sum(s, head) / dim as f32);
        let (blocks, tail) = head.as_chunks_mut::<LANES>();
        for block in blocks {
            s.store(s.sub(s.load(block), mean), block);
        }
        s.store_part(s.sub(s.load_part(tail, 0.0), mean), tail);
        scale_by(s, head, inverse_rms(s, head, eps), weight);
    }
}

/// `x *= r`, `x *= weight`.
#[inline(always)]
pub(crate) fn scale_by<S: Simd>(s: S, x: &mut [f32], r: f32, weight: &[f32]) {
    let r = s.splat(r);
    let (x_blocks, x_tail) = x.as_chunks_mut::<LANES>();
    let (w_blocks, w_tail) = weight.as_chunks::<LANES>();
    for (x, w) in x_blocks.iter_mut().zip(w_blocks) {
        s.store(s.mul(s.mul(s.load(x), r), s.load(w)), x);
    }
    let y = s.mul(s.mul(s.load_part(x_tail, 0.0), r), s.load_part(w_tail, 0.0));
    s.store_part(y, x_tail);
}

/// Rotates the first `cos_sin.len()` elements of `head`; `cos_sin` is `[cos; rot / 2] ++ [sin; rot
/// / 2]`.
///
/// Lanes never meet here, so this is plain Rust: the entry point's instruction set vectorises it.
#[inline(always)]
pub(crate) fn rope<S: Simd>(_: S, head: &mut [f32], cos_sin: &[f32], style: RopeStyle) {
    let half = cos_sin.len() / 2;
    let (cos, sin) = cos_sin.split_at(half);
    let turned =
        |x0: f32, x1: f32, c: f32, s: f32| (x0.mul_add(c, -(x1 * s)), x0.mul_add(s, x1 * c));
    match style {
        RopeStyle::Normal => {
            let (pairs, _) = head[..2 * half].as_chunks_mut::<2>();
            for ((pair, &c), &s) in pairs.iter_mut().zip(cos).zip(sin) {
                (pair[0], pair[1]) = turned(pair[0], pair[1], c, s);
            }
        }
        RopeStyle::Neox => {
            let (low, high) = head[..2 * half].split_at_mut(half);
            for (((x0, x1), &c), &s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                (*x0, *x1) = turned(*x0, *x1, c, s);
            }
        }
    }
}

/// Index of the greatest element, the lowest of equals; NaN never wins; 0 if there is nothing to
/// choose.
#[inline(always)]
pub(crate) fn argmax<S: Simd>(s: S, x: &[f32]) -> usize {
    // The winner's block is found with vectors, its place in the block without.
    const BLOCK: usize = 1024;
    let (mut best, mut start) = (f32::NEG_INFINITY, 0);
    for (b, block) in x.chunks(BLOCK).enumerate() {
        let (lanes, tail) = block.as_chunks::<LANES>();
        let low = s.splat(f32::NEG_INFINITY);
        let mut max = s.max(s.load_part(tail, f32::NEG_INFINITY), low);
        for x in lanes {
            max = s.max(s.load(x), max);
        }
        let max = s.reduce_max(max);
        if max > best {
            (best, start) = (max, b * BLOCK);
        }
    }
    x[start..].iter().position(|&v| v == best).map_or(0, |i| start + i)
}
