//! Q5_K: 8 sub-blocks of 32 five-bit values; 6-bit scales and minima, themselves scaled in half
//! precision.
//!
//! Packed per block of 256: `[16]` d, `[16]` dmin (half floats), `[8][16]` scales, `[8][16]` minima
//! (a byte each), then the values of each sub-block as in [`super::five`].

use super::five::{self, FIVE, dot_five};
use super::sums::add_mins;
use super::{
    ACT_BLOCK, Fetch, Part, Tile, accumulate, check_acts, check_parts, fetch, groups, load_scales,
    part, slices, within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q5K;

/// Sub-blocks of a block.
const SUBS: usize = 8;
const SUPER_MIN: usize = 2 * TILE_ROWS;
const SCALES: usize = 4 * TILE_ROWS;
const MINS: usize = SCALES + SUBS * TILE_ROWS;
const QUANTS: usize = MINS + SUBS * TILE_ROWS;
const BLOCK: usize = QUANTS + SUBS * FIVE;
/// Lines to fetch with each sub-block.
const FETCHED: usize = BLOCK.div_ceil(64 * SUBS);

impl Tile for Q5K {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 256;

    fn bytes(blocks: usize) -> usize {
        blocks * BLOCK
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let tile = &mut tile[b * BLOCK..][..BLOCK];
        tile[2 * row..][..2].copy_from_slice(&block[..2]);
        tile[SUPER_MIN + 2 * row..][..2].copy_from_slice(&block[2..4]);
        let six = &block[4..16];
        for j in 0..4 {
            let high = |low: u8, byte: u8| low | byte >> 6 << 4;
            tile[SCALES + j * TILE_ROWS + row] = six[j] & 63;
            tile[MINS + j * TILE_ROWS + row] = six[j + 4] & 63;
            tile[SCALES + (j + 4) * TILE_ROWS + row] = high(six[j + 8] & 15, six[j]);
            tile[MINS + (j + 4) * TILE_ROWS + row] = high(six[j + 8] >> 4, six[j + 4]);
        }
        // The file has bit `j` of 32 bytes for sub-block `j`, and pairs sub-blocks in the nibbles.
        let (fifth, nibbles) = block[16..].split_at(32);
        for j in 0..SUBS {
            let nibble = |i: usize| nibbles[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
            let q = std::array::from_fn(|i| nibble(i) | (fifth[i] >> j & 1) << 4);
            five::put(&mut tile[QUANTS + j * FIVE..], row, &q);
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let tile = &tile[b * BLOCK..][..BLOCK];
        block[..2].copy_from_slice(&tile[2 * row..][..2]);
        block[2..4].copy_from_slice(&tile[SUPER_MIN + 2 * row..][..2]);
        block[4..].fill(0);
        let six = &mut block[4..16];
        for j in 0..4 {
            let scale = |j: usize| tile[SCALES + j * TILE_ROWS + row];
            let min = |j: usize| tile[MINS + j * TILE_ROWS + row];
            six[j] = scale(j) | scale(j + 4) >> 4 << 6;
            six[j + 4] = min(j) | min(j + 4) >> 4 << 6;
            six[j + 8] = scale(j + 4) & 15 | min(j + 4) << 4;
        }
        let (fifth, nibbles) = block[16..].split_at_mut(32);
        for j in 0..SUBS {
            let q = five::get(&tile[QUANTS + j * FIVE..], row);
            for (i, q) in q.into_iter().enumerate() {
                fifth[i] |= q >> 4 << j;
                nibbles[j / 2 * 32 + i] |= (q & 15) << (j % 2 * 4);
            }
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
            let mut minus_min = load_scales(d, within(packed, SUPER_MIN), groups);
            for n in 0..N {
                minus_min[n] = d.mul(minus_min[n], d.splat(-1.0));
            }
            for j in 0..SUBS {
                fetch::<_, N, FETCHED>(d, parts, block * BLOCK + j * 64 * FETCHED, next);
                let (mut scales, mut mins) = (unit, minus_min);
                for n in 0..N {
                    let at = |field: usize| part(packed[n], field + j * TILE_ROWS);
                    scales[n] = d.mul(unit[n], d.load_u8(at(SCALES), groups[n]));
                    mins[n] = d.mul(minus_min[n], d.load_u8(at(MINS), groups[n]));
                }
                let quants = within(packed, QUANTS + j * FIVE);
                let b = block * SUBS + j;
                // SAFETY: `block < blocks`, and there are `blocks * SUBS` activation blocks.
                unsafe {
                    let sums = dot_five(d, quants, groups, acts, b, |_| 0);
                    accumulate(d, sums, scales, acts, b, &mut acc);
                    add_mins(d, mins, acts, b, &mut acc);
                }
            }
        }
        acc
    }
}
