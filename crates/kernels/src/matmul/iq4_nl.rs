//! IQ4_NL: 32 indices into 16 uneven steps and a half-precision scale.
//!
//! Packed as Q4_0: in pairs of blocks, `[2][16]` scales, then `[2][256]` bytes of nibbles. A last
//! single block keeps the place of both scales.

use super::steps::dot_uneven;
use super::{
    ACT_BLOCK, Fetch, Part, Tile, accumulate, check_acts, check_parts, fetch, groups, load_scales,
    slices, within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Iq4Nl;

const SCALES: usize = 2 * TILE_ROWS;
const NIBBLES: usize = 16 * TILE_ROWS;
const PAIR: usize = 2 * (SCALES + NIBBLES);

/// Where the scales and the nibbles of block `b` begin.
const fn places(b: usize) -> (usize, usize) {
    let (pair, odd) = (b / 2 * PAIR, b % 2);
    (pair + odd * SCALES, pair + 2 * SCALES + odd * NIBBLES)
}

impl Tile for Iq4Nl {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 32;

    fn bytes(blocks: usize) -> usize {
        blocks / 2 * PAIR + blocks % 2 * (2 * SCALES + NIBBLES)
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let (scale, nibbles) = places(b);
        tile[scale + 2 * row..][..2].copy_from_slice(&block[..2]);
        for (j, quad) in block[2..].as_chunks::<4>().0.iter().enumerate() {
            tile[nibbles + 64 * j + 4 * row..][..4].copy_from_slice(quad);
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let (scale, nibbles) = places(b);
        block[..2].copy_from_slice(&tile[scale + 2 * row..][..2]);
        for (j, quad) in block[2..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            quad.copy_from_slice(&tile[nibbles + 64 * j + 4 * row..][..4]);
        }
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
    let (scale, nibbles) = places(odd);
    let nibbles: [&[u8; NIBBLES]; N] = within(pairs, nibbles);
    let scales = load_scales(d, within(pairs, scale), groups);
    // SAFETY: the caller's contract.
    unsafe {
        let sums = dot_uneven(d, nibbles, groups, acts, b);
        accumulate(d, sums, scales, acts, b, acc);
    }
}
