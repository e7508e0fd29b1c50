//! What types of quantised weights have in common: nibbles, scales, the fold into sums.

use super::parts::part;
use crate::q8::Q8Block;
use crate::simd::Dot;

/// Block `b` of a token.
///
/// # Safety
///
/// `b < acts.len()`.
#[inline(always)]
pub(super) unsafe fn block(acts: &[Q8Block], b: usize) -> &Q8Block {
    debug_assert!(b < acts.len());
    // SAFETY: the caller's contract.
    unsafe { acts.get_unchecked(b) }
}

/// The integer sums of 32 columns of nibbles, each token's begun at `start` of its block. Byte
/// `64j + 4r + i` holds elements `4j + i` (low) and `16 + 4j + i` (high) of row `r`.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
pub(super) unsafe fn dot_nibbles<D: Dot, const T: usize, const N: usize>(
    d: D,
    nibbles: [&[u8; 256]; N],
    groups: [usize; N],
    acts: [&[Q8Block]; T],
    b: usize,
    start: impl Fn(&Q8Block) -> i32,
) -> [[D::I; N]; T] {
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let mask = d.splat_w(0x0f);
    let mut acc = [[d.start_nibbles(0); N]; T];
    for t in 0..T {
        acc[t] = [d.start_nibbles(start(act(t))); N];
    }
    for j in 0..4 {
        let (mut low, mut high) = ([mask; N], [mask; N]);
        for n in 0..N {
            let both = d.load_w(part(nibbles[n], 64 * j), groups[n]);
            (low[n], high[n]) = (d.and(both, mask), d.and(d.shr4(both), mask));
        }
        for t in 0..T {
            for n in 0..N {
                acc[t][n] = d.dot_nibbles(acc[t][n], low[n], act(t).quad(j));
            }
        }
        for t in 0..T {
            for n in 0..N {
                acc[t][n] = d.dot_nibbles(acc[t][n], high[n], act(t).quad(4 + j));
            }
        }
    }
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        for n in 0..N {
            sums[t][n] = d.end_nibbles(acc[t][n], start(act(t)));
        }
    }
    sums
}

/// The half floats of 16 rows, widened, of each part.
#[inline(always)]
pub(super) fn load_scales<D: Dot, const N: usize>(
    d: D,
    scales: [&[u8; 32]; N],
    groups: [usize; N],
) -> [D::F; N] {
    let mut wide = [d.splat(0.0); N];
    for n in 0..N {
        wide[n] = d.load_f16(scales[n], groups[n]);
    }
    wide
}

/// `acc[t][n] = fma(f32(sums[t][n]), scales[n] * d[t], acc[t][n])`, with `d` of block `b`.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
pub(super) unsafe fn accumulate<D: Dot, const T: usize, const N: usize>(
    d: D,
    sums: [[D::I; N]; T],
    scales: [D::F; N],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; N]; T],
) {
    for t in 0..T {
        // SAFETY: the caller's contract.
        let act = d.splat(unsafe { block(acts[t], b) }.d);
        for n in 0..N {
            acc[t][n] = d.fma(d.to_f(sums[t][n]), d.mul(scales[n], act), acc[t][n]);
        }
    }
}

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
