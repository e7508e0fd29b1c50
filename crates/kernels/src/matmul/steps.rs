//! Weights that are 4-bit indices into 16 steps: nibbles as in Q4_0, looked up in a register.

use super::quants::Packed;
use super::{Q8Blocks, dot_pair, start};
use crate::q8::Q8Block;
use crate::simd::Dot;

/// The steps of IQ4_NL and IQ4_XS with 128 added.
pub(super) const UNEVEN: [u8; 16] =
    [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

/// The floats of MXFP4 and NVFP4, doubled to be whole, with 16 added.
pub(super) const DOUBLED: [u8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

/// Two vectors of indices, of quads `j` and `4 + j`, as weights.
#[inline(always)]
pub(super) fn look_up<D: Dot>(d: D, steps: D::W, both: D::W) -> [D::W; 2] {
    let mask = d.splat_w(0x0f);
    [d.lookup(steps, d.and(both, mask)), d.lookup(steps, d.and(d.shr4(both), mask))]
}

/// The integer sums with [`UNEVEN`] steps.
#[inline(always)]
pub(super) fn dot_uneven<D: Dot, const T: usize, const N: usize>(
    packed: Packed<'_, D, N>,
    acts: Q8Blocks<'_, T>,
) -> [[D::I; N]; T] {
    let d = packed.head.d;
    let steps = d.table(&UNEVEN);
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        sums[t] = [d.start_biased(acts[t].neg128); N];
    }
    for j in 0..4 {
        let mut w = [[steps; 2]; N];
        for n in 0..N {
            w[n] = look_up(d, steps, packed.vector(n, j));
        }
        for t in 0..T {
            for n in 0..N {
                sums[t][n] = d.dot_biased(sums[t][n], w[n][0], acts[t].quad(j));
                sums[t][n] = d.dot_biased(sums[t][n], w[n][1], acts[t].quad(4 + j));
            }
        }
    }
    sums
}

/// The same with [`DOUBLED`] steps.
#[inline(always)]
pub(super) fn dot_small<D: Dot, const T: usize, const N: usize>(
    packed: Packed<'_, D, N>,
    acts: Q8Blocks<'_, T>,
) -> [[D::I; N]; T] {
    let d = packed.head.d;
    let steps = d.table(&DOUBLED);
    let mut sums = start(d, acts, |act| 2 * act.neg8);
    for j in 0..4 {
        let mut w = [[steps; 2]; N];
        for n in 0..N {
            w[n] = look_up(d, steps, packed.vector(n, j));
        }
        dot_pair(d, &w, acts, [j, j + 4], &mut sums);
    }
    sums
}

/// The integer sums of half `SIDE` with [`DOUBLED`] steps. Of the vectors of a half, byte `64j + 4r + i` holds
/// elements `4j + i` (low) and `8 + 4j + i` (high) of row `r`.
#[inline(always)]
pub(super) fn half_small<D: Dot, const T: usize, const N: usize, const SIDE: usize>(
    packed: Packed<'_, D, N>,
    acts: Q8Blocks<'_, T>,
) -> [[D::I; N]; T] {
    let d = packed.head.d;
    let steps = d.table(&DOUBLED);
    // The offset, of which twice as much stands ready.
    let begin = |act: &Q8Block| act.neg32[SIDE] >> 1;
    let mut acc = [[d.start_nibbles(0); N]; T];
    for t in 0..T {
        acc[t] = [d.start_nibbles(begin(&acts[t])); N];
    }
    for j in 0..2 {
        let mut w = [[steps; 2]; N];
        for n in 0..N {
            w[n] = look_up(d, steps, packed.vector(n, 2 * SIDE + j));
        }
        for t in 0..T {
            for n in 0..N {
                for i in 0..2 {
                    let quad = acts[t].quad(4 * SIDE + j + 2 * i);
                    acc[t][n] = d.dot_nibbles(acc[t][n], w[n][i], quad);
                }
            }
        }
    }
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        for n in 0..N {
            sums[t][n] = d.end_nibbles(acc[t][n], begin(&acts[t]));
        }
    }
    sums
}
