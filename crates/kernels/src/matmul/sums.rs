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

/// `acc[t][n] = fma(-mins[n], dsum[t], acc[t][n])`, with `dsum` of block `b`.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
pub(super) unsafe fn take_mins<D: Dot, const T: usize, const N: usize>(
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
            acc[t][n] = d.fnma(mins[n], dsum, acc[t][n]);
        }
    }
}

/// `f32(sums[t][n]) * scales[n]`: what a first half block gives to [`add_halves`]. Early, so that its
/// integer sums leave their registers to the second's.
#[inline(always)]
pub(super) fn scaled<D: Dot, const T: usize, const N: usize>(
    d: D,
    sums: [[D::I; N]; T],
    scales: [D::F; N],
) -> [[D::F; N]; T] {
    let mut scaled = [[d.splat(0.0); N]; T];
    for t in 0..T {
        for n in 0..N {
            scaled[t][n] = d.mul(d.to_f(sums[t][n]), scales[n]);
        }
    }
    scaled
}

/// The sum of two half blocks, `fma(f32(high), scales, low)`, times `d` of block `b`, is added to
/// `acc`; `low` as [`scaled`] gives it.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
pub(super) unsafe fn add_halves<D: Dot, const T: usize, const N: usize>(
    d: D,
    low: [[D::F; N]; T],
    high: [[D::I; N]; T],
    scales: [D::F; N],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; N]; T],
) {
    for t in 0..T {
        // SAFETY: the caller's contract.
        let act = d.splat(unsafe { block(acts[t], b) }.d);
        for n in 0..N {
            let both = d.fma(d.to_f(high[t][n]), scales[n], low[t][n]);
            acc[t][n] = d.fma(both, act, acc[t][n]);
        }
    }
}
