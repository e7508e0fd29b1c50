//! Q5_1: 32 five-bit values, a half-precision scale and minimum.
//!
//! Packed per block: `[16]` scales, `[16]` minima, the values as in [`super::five`].

use super::five::{self, FIVE, dot_five};
use super::sums::add_mins;
use super::{
    ACT_BLOCK, Fetch, Part, Tile, accumulate, check_acts, check_parts, fetch, groups, load_scales,
    slices, within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q5_1;

const MINS: usize = 2 * TILE_ROWS;
const QUANTS: usize = 4 * TILE_ROWS;
const BLOCK: usize = QUANTS + FIVE;

impl Tile for Q5_1 {
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
        five::put(&mut tile[QUANTS..], row, &five::from_file(&block[4..8], &block[8..]));
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let tile = &tile[b * BLOCK..][..BLOCK];
        block[..2].copy_from_slice(&tile[2 * row..][..2]);
        block[2..4].copy_from_slice(&tile[MINS + 2 * row..][..2]);
        let (fifth, nibbles) = block[4..].split_at_mut(4);
        five::to_file(&five::get(&tile[QUANTS..], row), fifth, nibbles);
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
            let quants = within(packed, QUANTS);
            // SAFETY: `b < blocks`, the length of all activations.
            unsafe {
                let sums = dot_five(d, quants, groups, acts, b, |_| 0);
                accumulate(d, sums, scales, acts, b, &mut acc);
                add_mins(d, mins, acts, b, &mut acc);
            }
        }
        acc
    }
}
