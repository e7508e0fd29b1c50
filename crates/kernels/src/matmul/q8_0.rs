//! Q8_0: 32 signed bytes and a half-precision scale.
//!
//! Packed in pairs of blocks: `[2][16]` scales, then `[2][8][16][4]` quants with 128 added; a last
//! single block keeps the place of both scales.

use super::{
    ACT_BLOCK, Fetch, Part, Tile, accumulate, block, check_acts, check_parts, fetch, groups,
    load_scales, part, slices, within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q8_0;

const SCALES: usize = 2 * TILE_ROWS;
const QUANTS: usize = 32 * TILE_ROWS;
const PAIR: usize = 2 * (SCALES + QUANTS);
/// Adds 128 to a signed byte.
const BIAS: u8 = 0x80;

/// Where the scales and the quants of block `b` begin.
const fn places(b: usize) -> (usize, usize) {
    let (pair, odd) = (b / 2 * PAIR, b % 2);
    (pair + odd * SCALES, pair + 2 * SCALES + odd * QUANTS)
}

impl Tile for Q8_0 {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 32;

    fn bytes(blocks: usize) -> usize {
        blocks / 2 * PAIR + blocks % 2 * (2 * SCALES + QUANTS)
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let (scale, quants) = places(b);
        tile[scale + 2 * row..][..2].copy_from_slice(&block[..2]);
        for (j, quad) in block[2..].as_chunks::<4>().0.iter().enumerate() {
            tile[quants + 64 * j + 4 * row..][..4].copy_from_slice(&quad.map(|q| q ^ BIAS));
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let (scale, quants) = places(b);
        block[..2].copy_from_slice(&tile[scale + 2 * row..][..2]);
        for (j, quad) in block[2..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *quad = part::<4>(tile, quants + 64 * j + 4 * row).map(|q| q ^ BIAS);
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
    let (scale, quants) = places(odd);
    let quants: [&[u8; QUANTS]; N] = within(pairs, quants);
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        sums[t] = [d.start_biased(act(t).neg128); N];
    }
    for j in 0..8 {
        let mut w = [d.splat_w(0); N];
        for n in 0..N {
            w[n] = d.load_w(part(quants[n], 64 * j), groups[n]);
        }
        for t in 0..T {
            for n in 0..N {
                sums[t][n] = d.dot_biased(sums[t][n], w[n], act(t).quad(j));
            }
        }
    }
    let scales = load_scales(d, within(pairs, scale), groups);
    // SAFETY: the caller's contract.
    unsafe { accumulate(d, sums, scales, acts, b, acc) };
}
