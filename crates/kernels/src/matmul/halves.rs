//! Types whose scales hold for 16 columns: both halves of an activation block are summed apart.
//!
//! Where a half's sum and its scale fit 16 bits, integers scale both ([`add_integers`]): exact, and a single
//! instruction of the multiply units. Else ([`Halves`]) floats do, per activation block, with `d` its scale
//! and each step rounded once: `acc = fma(fma(f32(high), scale[1], f32(low) * scale[0]), d, acc)`.

use super::quants::{Head, Packed};
use super::{Q8Blocks, part};
use crate::TILE_ROWS;
use crate::simd::Dot;

/// Where a group's head has the scales, a byte for each row and half block; what scales them all is
/// before.
pub(super) const SCALES: usize = 64;

/// What types that floats scale differ in.
pub(super) trait Halves {
    /// Where a group's head has the scales of half `side` of sub-block `sub`.
    #[inline(always)]
    fn scales(sub: usize, side: usize) -> usize {
        SCALES + (2 * sub + side) * TILE_ROWS
    }

    /// The scales of 16 rows.
    fn scale<D: Dot>(d: D, bytes: &[u8; TILE_ROWS], group: usize) -> D::F;

    /// The integer sums of half `SIDE`.
    fn half<D: Dot, const T: usize, const N: usize, const SIDE: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
    ) -> [[D::I; N]; T];
}

/// [`Quants::add`](super::quants::Quants::add) of such a type, the first of whose units scales the group.
#[inline(always)]
pub(super) fn add<K: Halves, D: Dot, const T: usize, const N: usize>(
    packed: Packed<'_, D, N>,
    acts: Q8Blocks<'_, T>,
    acc: &mut [[D::F; N]; T],
) {
    let Packed { head: Head { d, bytes, groups }, units: [units, _], sub, .. } = packed;
    let mut scales = [units; 2];
    for side in 0..2 {
        for n in 0..N {
            let at = K::scales(sub, side);
            scales[side][n] = d.mul(units[n], K::scale(d, part(bytes[n], at), groups[n]));
        }
    }
    let sums = K::half::<D, T, N, 0>(packed, acts);
    // Early, so that these sums leave their registers to the second half's.
    let mut low = [[d.splat(0.0); N]; T];
    for t in 0..T {
        for n in 0..N {
            low[t][n] = d.mul(d.to_f(sums[t][n]), scales[0][n]);
        }
    }
    let high = K::half::<D, T, N, 1>(packed, acts);
    for t in 0..T {
        let act = d.splat(acts[t].d);
        for n in 0..N {
            let both = d.fma(d.to_f(high[t][n]), scales[1][n], low[t][n]);
            acc[t][n] = d.fma(both, act, acc[t][n]);
        }
    }
}

/// `acc[t][n] = fma(f32(sums), d, acc[t][n])`, of the sums of both halves times their pair of scales.
#[inline(always)]
pub(super) fn add_integers<D: Dot, const T: usize, const N: usize>(
    d: D,
    [low, high]: [[[D::N; N]; T]; 2],
    scales: [D::W; N],
    acts: Q8Blocks<'_, T>,
    acc: &mut [[D::F; N]; T],
) {
    for t in 0..T {
        let act = d.splat(acts[t].d);
        for n in 0..N {
            let sum = d.scale_halves(low[t][n], high[t][n], scales[n]);
            acc[t][n] = d.fma(d.to_f(sum), act, acc[t][n]);
        }
    }
}

/// Where the scale of half block `j` of a row is, from the first one's: that of an even one is followed by
/// that of the next.
pub(super) const fn pair_place(j: usize, row: usize) -> usize {
    j / 2 * PAIR + 2 * row + j % 2
}

/// Bytes of a pair of scales of 16 rows.
pub(super) const PAIR: usize = 2 * TILE_ROWS;
