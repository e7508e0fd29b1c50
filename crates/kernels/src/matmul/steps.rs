//! Weights that are 4-bit indices into 16 steps: nibbles as in Q4_0, looked up in a register.

use super::Q8Blocks;
use super::panel::Sub;
use super::quants::{Head, Packed};
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

/// Puts the weights of a sub-block into a panel.
#[inline(always)]
pub(super) fn unpack_steps<D: Dot>(steps: &[u8; 16], packed: Packed<'_, D, 1>, to: &mut Sub) {
    let Head { d, groups: [group], .. } = packed.head;
    let steps = d.table(steps);
    for j in 0..4 {
        let [low, high] = look_up(d, steps, packed.vector(0, j));
        d.store_w(low, &mut to.quads[j], group);
        d.store_w(high, &mut to.quads[4 + j], group);
    }
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

/// Integer sums with [`DOUBLED`] steps, each token's begun at what takes the 16 back: `ready` of its block
/// shifted by `BY`.
#[inline(always)]
pub(super) fn start_doubled<D: Dot, const T: usize, const N: usize, const BY: i32>(
    d: D,
    acts: Q8Blocks<'_, T>,
    ready: impl Fn(&Q8Block) -> i32,
) -> [[D::I; N]; T] {
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        sums[t] = [d.splat_shifted::<BY>(ready(&acts[t])); N];
    }
    sums
}

/// Adds the products of two vectors from `first` on with [`DOUBLED`] steps, of which `quads` are the low and the
/// high nibbles' quads of the one, then of the other.
#[inline(always)]
pub(super) fn dot_doubled<D: Dot, const T: usize, const N: usize>(
    packed: Packed<'_, D, N>,
    first: usize,
    acts: Q8Blocks<'_, T>,
    quads: [usize; 4],
    sums: &mut [[D::I; N]; T],
) {
    let d = packed.head.d;
    let steps = d.table(&DOUBLED);
    let mut w = [[steps; 4]; N];
    for n in 0..N {
        let one = look_up(d, steps, packed.vector(n, first));
        let other = look_up(d, steps, packed.vector(n, first + 1));
        w[n] = [one[0], one[1], other[0], other[1]];
    }
    for t in 0..T {
        // Not by `map`, which may not be inlined where an instruction set is switched on.
        let mut four = [0; 4];
        for i in 0..4 {
            four[i] = acts[t].quad(quads[i]);
        }
        for n in 0..N {
            sums[t][n] = d.dot_four(sums[t][n], w[n], four);
        }
    }
}
