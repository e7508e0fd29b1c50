//! Q5_0: 32 five-bit values with offset 16 and a half-precision scale.
//!
//! Packed in pairs of blocks: `[2][16]` scales, then the values of each as in [`super::five`]. A last
//! single block keeps the place of both scales.

use super::five::{self, FIVE, dot_five};
use super::{
    ACT_BLOCK, Fetch, Part, Tile, accumulate, check_acts, check_parts, fetch, groups, load_scales,
    slices, within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q5_0;

const SCALES: usize = 2 * TILE_ROWS;
const PAIR: usize = 2 * (SCALES + FIVE);

/// Where the scales and the quants of block `b` begin.
const fn places(b: usize) -> (usize, usize) {
    let (pair, odd) = (b / 2 * PAIR, b % 2);
    (pair + odd * SCALES, pair + 2 * SCALES + odd * FIVE)
}

impl Tile for Q5_0 {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 32;

    fn bytes(blocks: usize) -> usize {
        blocks / 2 * PAIR + blocks % 2 * (2 * SCALES + FIVE)
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let (scale, quants) = places(b);
        tile[scale + 2 * row..][..2].copy_from_slice(&block[..2]);
        five::put(&mut tile[quants..], row, &five::from_file(&block[2..6], &block[6..]));
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let (scale, quants) = places(b);
        block[..2].copy_from_slice(&tile[scale + 2 * row..][..2]);
        let (fifth, nibbles) = block[2..].split_at_mut(4);
        five::to_file(&five::get(&tile[quants..], row), fifth, nibbles);
    }

    const NARROW_TOKENS: usize = 4;

    #[inline(always)]
    fn dot<D: Dot, const T: usize, const N: usize>(
        d: D,
        parts: [Part<'_>; N],
        acts: [&[Q8Block]; T],
        next: Fetch,
    ) -> [[D::F; N]; T] {
        let blocks = acts[0].len();
        check_acts(acts, blocks);
        check_parts(parts, Self::bytes(blocks));
        let groups = groups(parts);
        let mut acc = [[d.splat(0.0); N]; T];
        for p in 0..blocks / 2 {
            let pairs = slices(parts, p * PAIR, PAIR);
            fetch::<_, N, { PAIR / 64 }>(d, parts, p * PAIR, next);
            for odd in 0..2 {
                // SAFETY: `2p + odd` is below twice `blocks / 2`.
                unsafe { add(d, pairs, groups, odd, acts, 2 * p + odd, &mut acc) };
            }
        }
        if blocks % 2 == 1 {
            let at = blocks / 2 * PAIR;
            let last = slices(parts, at, Self::bytes(blocks) - at);
            // SAFETY: there is a block, and this is the last one.
            unsafe { add(d, last, groups, 0, acts, blocks - 1, &mut acc) };
        }
        acc
    }
}

/// Adds the products of block `b`, which is block `odd` of `pairs`.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
unsafe fn add<D: Dot, const T: usize, const N: usize>(
    d: D,
    pairs: [&[u8]; N],
    groups: [usize; N],
    odd: usize,
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; N]; T],
) {
    let (scale, quants) = places(odd);
    let quants: [&[u8; FIVE]; N] = within(pairs, quants);
    let scales = load_scales(d, within(pairs, scale), groups);
    // SAFETY: the caller's contract.
    unsafe {
        let sums = dot_five(d, quants, groups, acts, b, |act| 2 * act.neg8);
        accumulate(d, sums, scales, acts, b, acc);
    }
}
