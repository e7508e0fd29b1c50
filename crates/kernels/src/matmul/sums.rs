//! What products add beside scaled integer sums: minima, and half blocks with scales of their own.

use super::block;
use crate::q8::Q8Block;
use crate::simd::Dot;

/// `acc[t][n] = fma(mins[n], dsum[t], acc[t][n])`, with `dsum` of block `b`.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
pub(super) unsafe fn add_mins<D: Dot, const T: usize, const N: usize>(
    d: D,
    mins: [D::F; N],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; N]; T],
) {
    for t in 0..T {
        // SAFETY: the caller's contract.
        let dsum = d.splat(unsafe { block(acts[t], b) }.dsum);
        for n in 0..N {
            acc[t][n] = d.fma(mins[n], dsum, acc[t][n]);
        }
    }
}

/// The sum of two half blocks, `fma(f32(high), scales[1], f32(low) * scales[0])`, times `d` of block
/// `b`, is added to `acc`.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
pub(super) unsafe fn add_halves<D: Dot, const T: usize, const N: usize>(
    d: D,
    [low, high]: [[[D::I; N]; T]; 2],
    scales: [[D::F; N]; 2],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; N]; T],
) {
    for t in 0..T {
        // SAFETY: the caller's contract.
        let act = d.splat(unsafe { block(acts[t], b) }.d);
        for n in 0..N {
            let both = d.mul(d.to_f(low[t][n]), scales[0][n]);
            let both = d.fma(d.to_f(high[t][n]), scales[1][n], both);
            acc[t][n] = d.fma(both, act, acc[t][n]);
        }
    }
}
