//! Q8_0: 32 signed bytes and a half-precision scale.
//!
//! Packed in pairs of blocks: `[2][16]` scales, then `[2][8][16][4]` quants with 128 added; a last
//! single block keeps the place of both scales.

use super::{Tile, block, check_acts, part};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Simd;

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

    #[inline(always)]
    fn dot<S: Simd, const T: usize>(s: S, tile: &[u8], acts: [&[Q8Block]; T]) -> [S::F; T] {
        let blocks = acts[0].len();
        check_acts(acts, blocks);
        assert!(tile.len() == Self::bytes(blocks));
        let mut acc = [s.splat(0.0); T];
        let (pairs, last) = tile.as_chunks::<PAIR>();
        for (p, pair) in pairs.iter().enumerate() {
            for odd in 0..2 {
                let (scales, quants) = places(odd);
                // SAFETY: `tile` has `blocks / 2` pairs, so block `2p + odd` is below `blocks`.
                unsafe {
                    add(s, part(pair, scales), part(pair, quants), acts, 2 * p + odd, &mut acc);
                }
            }
        }
        if !last.is_empty() {
            let (scales, quants) = places(0);
            // SAFETY: `tile` has a remainder if `blocks` is odd, so the last block is `blocks - 1`.
            unsafe { add(s, part(last, scales), part(last, quants), acts, blocks - 1, &mut acc) };
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
    quants: &[u8; QUANTS],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [S::F; T],
) {
    let mut sums = [s.splat_i(0); T];
    for t in 0..T {
        // SAFETY: the caller's contract.
        sums[t] = s.start_biased(unsafe { block(acts[t], b) }.neg128());
    }
    for (j, bytes) in quants.as_chunks::<64>().0.iter().enumerate() {
        let w = s.load_w(bytes);
        for t in 0..T {
            // SAFETY: the caller's contract.
            sums[t] = s.dot_biased(sums[t], w, unsafe { block(acts[t], b) }.quad(j));
        }
    }
    let scale = s.load_f16(scales);
    for t in 0..T {
        // SAFETY: the caller's contract.
        let d = s.splat(unsafe { block(acts[t], b) }.d);
        acc[t] = s.fma(s.to_f(sums[t]), s.mul(scale, d), acc[t]);
    }
}
