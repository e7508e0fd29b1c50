//! Q8_0: 32 signed bytes and a half-precision scale.
//!
//! Packed in pairs of blocks: `[2][16]` scales, then `[2][8][16][4]` quants with 128 added; a last
//! single block keeps the place of both scales.

use super::{ACT_BLOCK, Tile, accumulate, block, check_acts, fetch, load_scales, part};
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
    fn dot<D: Dot, const T: usize, const G: usize, const FETCH: bool>(
        d: D,
        tile: &[u8],
        acts: [&[Q8Block]; T],
        g: usize,
    ) -> [[D::F; G]; T] {
        let blocks = acts[0].len();
        check_acts(acts, blocks);
        assert!(tile.len() == Self::bytes(blocks));
        let mut acc = [[d.splat(0.0); G]; T];
        let (pairs, last) = tile.as_chunks::<PAIR>();
        for (p, pair) in pairs.iter().enumerate() {
            if FETCH {
                fetch::<_, { PAIR / 64 }>(d, pair);
            }
            for odd in 0..2 {
                // SAFETY: `tile` has `blocks / 2` pairs, so block `2p + odd` is below `blocks`.
                unsafe { add(d, pair, odd, acts, 2 * p + odd, g, &mut acc) };
            }
        }
        if !last.is_empty() {
            // SAFETY: `tile` has a remainder if `blocks` is odd, so the last block is `blocks - 1`.
            unsafe { add(d, last, 0, acts, blocks - 1, g, &mut acc) };
        }
        acc
    }
}

/// Adds the products of block `b`, which is block `odd` of `pair`.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
unsafe fn add<D: Dot, const T: usize, const G: usize>(
    d: D,
    pair: &[u8],
    odd: usize,
    acts: [&[Q8Block]; T],
    b: usize,
    g: usize,
    acc: &mut [[D::F; G]; T],
) {
    let (scale, quants) = places(odd);
    let quants: &[u8; QUANTS] = part(pair, quants);
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let mut sums = [[d.splat_i(0); G]; T];
    for t in 0..T {
        sums[t] = [d.start_biased(act(t).neg128); G];
    }
    for (j, bytes) in quants.as_chunks::<64>().0.iter().enumerate() {
        for i in 0..G {
            let w = d.load_w(bytes, g + i);
            for t in 0..T {
                sums[t][i] = d.dot_biased(sums[t][i], w, act(t).quad(j));
            }
        }
    }
    let scales = load_scales(d, part(pair, scale), g);
    // SAFETY: the caller's contract.
    unsafe { accumulate(d, sums, scales, acts, b, acc) };
}
