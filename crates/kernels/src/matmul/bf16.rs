//! bfloat16: `[column pair][16 rows][2]`, so that one broadcast pair of activations feeds a register
//! of 16 rows. The arithmetic is in [`crate::bf16`]; here pairs are widened for fused
//! multiply-adds.

use super::{Fetch, Part, Sums, Tile, check_acts, check_parts, fetch, part, slices, within};
use crate::TILE_ROWS;
use crate::bf16::{WidePair, weight};
use crate::simd::Dot;

pub(crate) struct Bf16;

/// Bytes of a pair of columns.
pub(super) const PAIR: usize = 2 * 2 * TILE_ROWS;

/// Where column `column` of row `row` is.
fn at(column: usize, row: usize) -> usize {
    column / 2 * PAIR + row * 4 + column % 2 * 2
}

impl Tile for Bf16 {
    type Act = WidePair;

    const ACT_COLS: usize = 2;
    const BLOCK_COLS: usize = 1;

    fn bytes(columns: usize) -> usize {
        columns.div_ceil(2) * PAIR
    }

    fn put(tile: &mut [u8], column: usize, row: usize, block: &[u8]) {
        let bits = weight(u16::from_le_bytes(*part(block, 0)));
        tile[at(column, row)..][..2].copy_from_slice(&bits.to_le_bytes());
    }

    fn put_row(tile: &mut [u8], row: usize, blocks: &[u8], len: usize) {
        let (twos, last) = blocks.as_chunks::<4>();
        for (pair, &[a, b, c, d]) in tile.as_chunks_mut::<PAIR>().0.iter_mut().zip(twos) {
            let two = [weight(u16::from_le_bytes([a, b])), weight(u16::from_le_bytes([c, d]))];
            let both = u32::from(two[0]) | u32::from(two[1]) << 16;
            pair.as_chunks_mut::<4>().0[row] = both.to_le_bytes();
        }
        if !last.is_empty() {
            Self::put(tile, blocks.len() / len - 1, row, last);
        }
    }

    fn get(tile: &[u8], column: usize, row: usize, block: &mut [u8]) {
        block.copy_from_slice(&tile[at(column, row)..][..2]);
    }

    const SUMS: Sums = Sums::Pairs;
    const TWO_FROM: usize = 1;

    #[inline(always)]
    fn dot<D: Dot, const T: usize, const N: usize, const U: usize>(
        d: D,
        parts: [Part<'_>; N],
        acts: [&[WidePair]; T],
        next: Fetch,
    ) -> [[D::F; N]; T] {
        let pairs = acts[0].len();
        check_acts(acts, pairs);
        check_parts(parts, pairs * PAIR);
        let mut acc = [[d.splat(0.0); N]; T];
        let mut p = 0;
        // SAFETY: all activation rows have `pairs` elements, checked above.
        unsafe {
            while p + U <= pairs {
                pair(d, parts, acts, p, &mut acc, next);
                if U == 2 {
                    pair(d, parts, acts, p + 1, &mut acc, next);
                }
                p += U;
            }
            if U == 2 && p < pairs {
                pair(d, parts, acts, p, &mut acc, next);
            }
        }
        acc
    }
}

/// Adds the products of pair `p` of columns.
///
/// # Safety
///
/// Every element of `acts` has it.
#[inline(always)]
unsafe fn pair<D: Dot, const T: usize, const N: usize>(
    d: D,
    parts: [Part<'_>; N],
    acts: [&[WidePair]; T],
    p: usize,
    acc: &mut [[D::F; N]; T],
    next: Fetch,
) {
    let weights: [&[u8; PAIR]; N] = within(slices(parts, p * PAIR, PAIR), 0);
    fetch::<D, T, N>(d, parts, p * PAIR, 1, next);
    let (mut even, mut odd) = ([d.splat(0.0); N], [d.splat(0.0); N]);
    for n in 0..N {
        let w = d.load_w(weights[n], parts[n].group);
        (even[n], odd[n]) = (d.even_bf16(w), d.odd_bf16(w));
    }
    // SAFETY: the caller's contract.
    let x = |t: usize| unsafe { *acts[t].get_unchecked(p) };
    for t in 0..T {
        for n in 0..N {
            acc[t][n] = d.fma(odd[n], d.splat(x(t)[1]), acc[t][n]);
        }
    }
    for t in 0..T {
        for n in 0..N {
            acc[t][n] = d.fma(even[n], d.splat(x(t)[0]), acc[t][n]);
        }
    }
}
