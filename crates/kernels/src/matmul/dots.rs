//! What types of quantised weights have in common: nibbles, the fold into sums.

use super::quants::Packed;
use crate::q8::{Q8Block, Q8Blocks};
use crate::simd::Dot;

/// Integer sums, each token's begun at `start` of its block.
#[inline(always)]
pub(super) fn start<D: Dot, const T: usize, const N: usize>(
    d: D,
    acts: Q8Blocks<'_, T>,
    start: impl Fn(&Q8Block) -> i32,
) -> [[D::I; N]; T] {
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        sums[t] = [d.splat_i(start(&acts[t])); N];
    }
    sums
}

/// Adds the products of two vectors of weights of at most 6 bits, of quads `quads`.
#[inline(always)]
pub(super) fn dot_pair<D: Dot, const T: usize, const N: usize>(
    d: D,
    w: &[[D::W; 2]; N],
    acts: Q8Blocks<'_, T>,
    quads: [usize; 2],
    sums: &mut [[D::I; N]; T],
) {
    for t in 0..T {
        let quads = [acts[t].quad(quads[0]), acts[t].quad(quads[1])];
        for n in 0..N {
            sums[t][n] = d.dot_two(sums[t][n], w[n], quads);
        }
    }
}

/// The integer sums of nibbles, each token's begun at `start` of its block. Byte `64j + 4r + i` holds
/// elements `4j + i` (low) and `16 + 4j + i` (high) of row `r`.
#[inline(always)]
pub(super) fn dot_nibbles<D: Dot, const T: usize, const N: usize>(
    packed: Packed<'_, D, N>,
    acts: Q8Blocks<'_, T>,
    start: impl Fn(&Q8Block) -> i32,
) -> [[D::I; N]; T] {
    let d = packed.head.d;
    let mask = d.splat_w(0x0f);
    let mut acc = [[d.start_nibbles(0); N]; T];
    for t in 0..T {
        acc[t] = [d.start_nibbles(start(&acts[t])); N];
    }
    for j in 0..4 {
        let (mut low, mut high) = ([mask; N], [mask; N]);
        for n in 0..N {
            let both = packed.vector(n, j);
            (low[n], high[n]) = (d.and(both, mask), d.and(d.shr4(both), mask));
        }
        for t in 0..T {
            for n in 0..N {
                acc[t][n] = d.dot_nibbles(acc[t][n], low[n], acts[t].quad(j));
            }
        }
        for t in 0..T {
            for n in 0..N {
                acc[t][n] = d.dot_nibbles(acc[t][n], high[n], acts[t].quad(4 + j));
            }
        }
    }
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        for n in 0..N {
            sums[t][n] = d.end_nibbles(acc[t][n], start(&acts[t]));
        }
    }
    sums
}

/// Adds the products of 16 columns of two bits, half block `side`: of byte `4r + i` of a vector, bits `2q..2q + 2` are
/// element `4q + i` of row `r`.
#[inline(always)]
pub(super) fn dot_two_bits<D: Dot, const T: usize, const N: usize>(
    packed: Packed<'_, D, N>,
    side: usize,
    acts: Q8Blocks<'_, T>,
    sums: &mut [[D::N; N]; T],
) {
    let d = packed.head.d;
    let two = d.splat_w(3);
    let mut pairs = [two; N];
    for n in 0..N {
        pairs[n] = packed.vector(n, side);
    }
    for q in 4 * side..4 * side + 4 {
        let mut w = pairs;
        for n in 0..N {
            w[n] = d.and(pairs[n], two);
            pairs[n] = d.shr2(pairs[n]);
        }
        for t in 0..T {
            for n in 0..N {
                sums[t][n] = d.dot_nibbles(sums[t][n], w[n], acts[t].quad(q));
            }
        }
    }
}

/// `acc[t][n] = fma(f32(sums[t][n]), scales[n] * d[t], acc[t][n])`.
#[inline(always)]
pub(super) fn accumulate<D: Dot, const T: usize, const N: usize>(
    d: D,
    sums: [[D::I; N]; T],
    scales: [D::F; N],
    acts: Q8Blocks<'_, T>,
    acc: &mut [[D::F; N]; T],
) {
    for t in 0..T {
        let act = d.splat(acts[t].d);
        for n in 0..N {
            acc[t][n] = d.fma(d.to_f(sums[t][n]), d.mul(scales[n], act), acc[t][n]);
        }
    }
}

/// `acc[t][n] = fma(mins[n], dsum[t], acc[t][n])`.
#[inline(always)]
pub(super) fn add_mins<D: Dot, const T: usize, const N: usize>(
    d: D,
    mins: [D::F; N],
    acts: Q8Blocks<'_, T>,
    acc: &mut [[D::F; N]; T],
) {
    for t in 0..T {
        let dsum = d.splat(acts[t].dsum);
        for n in 0..N {
            acc[t][n] = d.fma(mins[n], dsum, acc[t][n]);
        }
    }
}
