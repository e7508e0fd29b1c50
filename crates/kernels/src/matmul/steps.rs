//! Weights that are 4-bit indices into 16 steps: nibbles as in Q4_0, looked up in a register.

use super::quants::Packed;
use super::{Q8Blocks, dot_pair, start};
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

/// The same with 16 steps of at most 5 bits, which have 16 added.
#[inline(always)]
pub(super) fn dot_small<D: Dot, const T: usize, const N: usize>(
    packed: Packed<'_, D, N>,
    steps: &[u8; 16],
    acts: Q8Blocks<'_, T>,
) -> [[D::I; N]; T] {
    let d = packed.head.d;
    let steps = d.table(steps);
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
