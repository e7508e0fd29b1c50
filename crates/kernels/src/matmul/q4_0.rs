//! Q4_0: 32 four-bit values with offset 8 and a half-precision scale.
//!
//! Packed in pairs of blocks, so that every vector is aligned: `[2][16]` scales, then `[2][256]`
//! bytes of nibbles. A last single block keeps the place of both scales.

use super::{Tile, block, check_acts, dot_nibbles, part};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Simd;

pub(crate) struct Q4_0;

const SCALES: usize = 2 * TILE_ROWS;
const NIBBLES: usize = 16 * TILE_ROWS;
const PAIR: usize = 2 * (SCALES + NIBBLES);

/// Where the scales and the nibbles of block `b` begin.
const fn places(b: usize) -> (usize, usize) {
    let (pair, odd) = (b / 2 * PAIR, b % 2);
    (pair + odd * SCALES, pair + 2 * SCALES + odd * NIBBLES)
}

impl Tile for Q4_0 {
    type Act = Q8Block;

    fn bytes(blocks: usize) -> usize {
        blocks / 2 * PAIR + blocks % 2 * (2 * SCALES + NIBBLES)
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let (scale, nibbles) = places(b);
        tile[scale + 2 * row..][..2].copy_from_slice(&block[..2]);
        for (j, quad) in block[2..].chunks_exact(4).enumerate() {
            tile[nibbles + 64 * j + 4 * row..][..4].copy_from_slice(quad);
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let (scale, nibbles) = places(b);
        block[..2].copy_from_slice(&tile[scale + 2 * row..][..2]);
        for (j, quad) in block[2..].chunks_exact_mut(4).enumerate() {
            quad.copy_from_slice(&tile[nibbles + 64 * j + 4 * row..][..4]);
        }
    }

    #[inline(always)]
    fn dot<S: Simd, const T: usize>(s: S, tile: &[u8], acts: [&[Q8Block]; T]) -> [S::F; T] {
        let blocks = acts[0].len();
        check_acts(acts, blocks);
        assert!(tile.len() == Self::bytes(blocks));
        let mut acc = [s.splat(0.0); T];
        let (pairs, last) = tile.as_chunks::<PAIR>();
        for (p, pair) in pairs.iter().enumerate() {
            for odd in 0..2 {
                let (scales, nibbles) = places(odd);
                // SAFETY: `tile` has `blocks / 2` pairs, so block `2p + odd` is below `blocks`.
                unsafe {
                    add(s, part(pair, scales), part(pair, nibbles), acts, 2 * p + odd, &mut acc);
                }
            }
        }
        if !last.is_empty() {
            let (scales, nibbles) = places(0);
            // SAFETY: `tile` has a remainder if `blocks` is odd, so the last block is `blocks - 1`.
            unsafe { add(s, part(last, scales), part(last, nibbles), acts, blocks - 1, &mut acc) };
        }
        acc
    }
}

/// Adds block `b`'s products.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
unsafe fn add<S: Simd, const T: usize>(
    s: S,
    scales: &[u8; SCALES],
    nibbles: &[u8; NIBBLES],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [S::F; T],
) {
    // SAFETY: the caller's contract.
    let sums = unsafe { dot_nibbles(s, nibbles, acts, b, |a| a.neg8) };
    let scale = s.load_f16(scales);
    for t in 0..T {
        // SAFETY: the caller's contract.
        let d = s.splat(unsafe { block(acts[t], b) }.d);
        acc[t] = s.fma(s.to_f(sums[t]), s.mul(scale, d), acc[t]);
    }
}
