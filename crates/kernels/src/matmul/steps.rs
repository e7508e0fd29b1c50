//! Weights that are 4-bit indices into 16 steps: nibbles as in Q4_0, looked up in a register.

use super::{block, part};
use crate::q8::Q8Block;
use crate::simd::Dot;

/// The steps of IQ4_NL and IQ4_XS with 128 added.
pub(super) const UNEVEN: [u8; 16] =
    [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

/// Two vectors of indices, of quads `j` and `4 + j`, as weights.
#[inline(always)]
fn look_up<D: Dot>(d: D, steps: D::W, both: D::W) -> [D::W; 2] {
    let mask = d.splat_w(0x0f);
    [d.lookup(steps, d.and(both, mask)), d.lookup(steps, d.and(d.shr4(both), mask))]
}

/// The integer sums of 32 columns with [`UNEVEN`] steps.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
pub(super) unsafe fn dot_uneven<D: Dot, const T: usize, const N: usize>(
    d: D,
    nibbles: [&[u8; 256]; N],
    groups: [usize; N],
    acts: [&[Q8Block]; T],
    b: usize,
) -> [[D::I; N]; T] {
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let steps = d.table(&UNEVEN);
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        sums[t] = [d.start_biased(act(t).neg128); N];
    }
    for j in 0..4 {
        let mut w = [[steps; 2]; N];
        for n in 0..N {
            w[n] = look_up(d, steps, d.load_w(part(nibbles[n], 64 * j), groups[n]));
        }
        for t in 0..T {
            for n in 0..N {
                sums[t][n] = d.dot_biased(sums[t][n], w[n][0], act(t).quad(j));
                sums[t][n] = d.dot_biased(sums[t][n], w[n][1], act(t).quad(4 + j));
            }
        }
    }
    sums
}

/// The same with 16 steps of at most 5 bits, which have 16 added.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
pub(super) unsafe fn dot_small<D: Dot, const T: usize, const N: usize>(
    d: D,
    steps: &[u8; 16],
    nibbles: [&[u8; 256]; N],
    groups: [usize; N],
    acts: [&[Q8Block]; T],
    b: usize,
) -> [[D::I; N]; T] {
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let steps = d.table(steps);
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        sums[t] = [d.splat_i(2 * act(t).neg8); N];
    }
    for j in 0..4 {
        let mut w = [[steps; 2]; N];
        for n in 0..N {
            w[n] = look_up(d, steps, d.load_w(part(nibbles[n], 64 * j), groups[n]));
        }
        for t in 0..T {
            let quads = [act(t).quad(j), act(t).quad(j + 4)];
            for n in 0..N {
                sums[t][n] = d.dot_two(sums[t][n], w[n], quads);
            }
        }
    }
    sums
}
