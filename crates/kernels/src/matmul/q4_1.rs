//! Q4_1: 32 four-bit values, a half-precision scale and minimum.
//!
//! Packed per block: `[16]` scales, `[16]` minima, `[256]` bytes of nibbles as in Q4_0.

use super::sums::add_mins;
use super::{
    ACT_BLOCK, Fetch, Part, Tile, accumulate, check_acts, check_parts, dot_nibbles, fetch, groups,
    load_scales, slices, within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q4_1;

const MINS: usize = 2 * TILE_ROWS;
const NIBBLES: usize = 4 * TILE_ROWS;
const BLOCK: usize = NIBBLES + 16 * TILE_ROWS;

impl Tile for Q4_1 {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 32;

    fn bytes(blocks: usize) -> usize {
        blocks * BLOCK
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let tile = &mut tile[b * BLOCK..][..BLOCK];
        tile[2 * row..][..2].copy_from_slice(&block[..2]);
        tile[MINS + 2 * row..][..2].copy_from_slice(&block[2..4]);
        for (j, quad) in block[4..].as_chunks::<4>().0.iter().enumerate() {
            tile[NIBBLES + 64 * j + 4 * row..][..4].copy_from_slice(quad);
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let tile = &tile[b * BLOCK..][..BLOCK];
        block[..2].copy_from_slice(&tile[2 * row..][..2]);
        block[2..4].copy_from_slice(&tile[MINS + 2 * row..][..2]);
        for (j, quad) in block[4..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            quad.copy_from_slice(&tile[NIBBLES + 64 * j + 4 * row..][..4]);
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
        for b in 0..blocks {
            fetch::<_, N, { BLOCK / 64 }>(d, parts, b * BLOCK, next);
            let packed: [&[u8; BLOCK]; N] = within(slices(parts, b * BLOCK, BLOCK), 0);
            let scales = load_scales(d, within(packed, 0), groups);
            let mins = load_scales(d, within(packed, MINS), groups);
            let nibbles = within(packed, NIBBLES);
            // SAFETY: `b < blocks`, the length of all activations.
            unsafe {
                let sums = dot_nibbles(d, nibbles, groups, acts, b, |_| 0);
                accumulate(d, sums, scales, acts, b, &mut acc);
                add_mins(d, mins, acts, b, &mut acc);
            }
        }
        acc
    }
}
