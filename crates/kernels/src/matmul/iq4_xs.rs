//! IQ4_XS: 8 sub-blocks of 32 indices into 16 uneven steps; 6-bit scales, themselves scaled in half
//! precision.
//!
//! Packed per block of 256: `[16]` d (half floats), padding to a vector, `[8][16]` scales (a signed
//! byte each), then `[8][256]` bytes of nibbles as in Q4_0.

use super::steps::dot_uneven;
use super::{
    ACT_BLOCK, Fetch, Part, Tile, accumulate, check_acts, check_parts, fetch, groups, load_scales,
    part, slices, within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Iq4Xs;

/// Sub-blocks of a block.
const SUBS: usize = 8;
const SCALES: usize = 64;
const NIBBLES: usize = SCALES + SUBS * TILE_ROWS;
const SUB: usize = 16 * TILE_ROWS;
const BLOCK: usize = NIBBLES + SUBS * SUB;
/// Lines to fetch with each sub-block.
const FETCHED: usize = BLOCK.div_ceil(64 * SUBS);

impl Tile for Iq4Xs {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 256;

    fn bytes(blocks: usize) -> usize {
        blocks * BLOCK
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let tile = &mut tile[b * BLOCK..][..BLOCK];
        tile[2 * row..][..2].copy_from_slice(&block[..2]);
        let (high, low) = (u16::from_le_bytes([block[2], block[3]]), &block[4..8]);
        for j in 0..SUBS {
            let low = low[j / 2] >> (j % 2 * 4) & 15;
            let scale = low | ((high >> (2 * j) & 3) as u8) << 4;
            tile[SCALES + j * TILE_ROWS + row] = scale.wrapping_sub(32);
        }
        for (i, quad) in block[8..].as_chunks::<4>().0.iter().enumerate() {
            tile[NIBBLES + 64 * i + 4 * row..][..4].copy_from_slice(quad);
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let tile = &tile[b * BLOCK..][..BLOCK];
        block[..2].copy_from_slice(&tile[2 * row..][..2]);
        let mut high = 0;
        block[4..8].fill(0);
        for j in 0..SUBS {
            let scale = tile[SCALES + j * TILE_ROWS + row].wrapping_add(32);
            block[4 + j / 2] |= (scale & 15) << (j % 2 * 4);
            high |= u16::from(scale >> 4) << (2 * j);
        }
        block[2..4].copy_from_slice(&high.to_le_bytes());
        for (i, quad) in block[8..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            quad.copy_from_slice(&tile[NIBBLES + 64 * i + 4 * row..][..4]);
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
        let blocks = acts[0].len() / SUBS;
        check_acts(acts, blocks * SUBS);
        check_parts(parts, Self::bytes(blocks));
        let groups = groups(parts);
        let mut acc = [[d.splat(0.0); N]; T];
        for block in 0..blocks {
            let packed: [&[u8; BLOCK]; N] = within(slices(parts, block * BLOCK, BLOCK), 0);
            let unit = load_scales(d, within(packed, 0), groups);
            for j in 0..SUBS {
                fetch::<_, N, FETCHED>(d, parts, block * BLOCK + j * 64 * FETCHED, next);
                let mut scales = unit;
                for n in 0..N {
                    let scale = d.load_i8(part(packed[n], SCALES + j * TILE_ROWS), groups[n]);
                    scales[n] = d.mul(unit[n], scale);
                }
                let nibbles: [&[u8; SUB]; N] = within(packed, NIBBLES + j * SUB);
                let b = block * SUBS + j;
                // SAFETY: `block < blocks`, and there are `blocks * SUBS` activation blocks.
                unsafe {
                    let sums = dot_uneven(d, nibbles, groups, acts, b);
                    accumulate(d, sums, scales, acts, b, &mut acc);
                }
            }
        }
        acc
    }
}
