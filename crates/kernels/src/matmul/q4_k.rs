//! Q4_K: 8 sub-blocks of 32 four-bit values; 6-bit scales and minima, themselves scaled in half
//! precision.
//!
//! Packed per block of 256: `[16]` d, `[16]` dmin (half floats), `[8][16]` scales, `[8][16]` minima
//! (a byte each, which costs 2.8 % of the file's size and saves the unpacking), then `[8][256]`
//! nibbles as in Q4_0.

use super::{
    ACT_BLOCK, Fetch, Part, Tile, accumulate, block, check_acts, check_parts, dot_nibbles, fetch,
    groups, load_scales, part, slices, within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q4K;

/// Sub-blocks of a block.
const SUBS: usize = 8;
const SUPER: usize = 0;
const SUPER_MIN: usize = SUPER + 2 * TILE_ROWS;
const SCALES: usize = SUPER_MIN + 2 * TILE_ROWS;
const MINS: usize = SCALES + SUBS * TILE_ROWS;
const NIBBLES: usize = MINS + SUBS * TILE_ROWS;
const BLOCK: usize = NIBBLES + SUBS * 256;
/// Lines to fetch with each sub-block.
const FETCHED: usize = BLOCK.div_ceil(64 * SUBS);

impl Tile for Q4K {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 256;

    fn bytes(blocks: usize) -> usize {
        blocks * BLOCK
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let tile = &mut tile[b * BLOCK..][..BLOCK];
        tile[SUPER + 2 * row..][..2].copy_from_slice(&block[..2]);
        tile[SUPER_MIN + 2 * row..][..2].copy_from_slice(&block[2..4]);
        let six = &block[4..16];
        for j in 0..4 {
            let high = |low: u8, byte: u8| low | byte >> 6 << 4;
            tile[SCALES + j * TILE_ROWS + row] = six[j] & 63;
            tile[MINS + j * TILE_ROWS + row] = six[j + 4] & 63;
            tile[SCALES + (j + 4) * TILE_ROWS + row] = high(six[j + 8] & 15, six[j]);
            tile[MINS + (j + 4) * TILE_ROWS + row] = high(six[j + 8] >> 4, six[j + 4]);
        }
        // The file pairs sub-blocks in the nibbles of a byte; here a byte's nibbles are of one
        // sub-block.
        for (pair, bytes) in block[16..].as_chunks::<32>().0.iter().enumerate() {
            for i in 0..16 {
                let (first, second) = (bytes[i], bytes[i + 16]);
                let at = NIBBLES + 2 * pair * 256 + i / 4 * 64 + 4 * row + i % 4;
                tile[at] = first & 15 | second << 4;
                tile[at + 256] = first >> 4 | second & 0xf0;
            }
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let tile = &tile[b * BLOCK..][..BLOCK];
        block[..2].copy_from_slice(&tile[SUPER + 2 * row..][..2]);
        block[2..4].copy_from_slice(&tile[SUPER_MIN + 2 * row..][..2]);
        let six = &mut block[4..16];
        for j in 0..4 {
            let scale = |j: usize| tile[SCALES + j * TILE_ROWS + row];
            let min = |j: usize| tile[MINS + j * TILE_ROWS + row];
            six[j] = scale(j) | scale(j + 4) >> 4 << 6;
            six[j + 4] = min(j) | min(j + 4) >> 4 << 6;
            six[j + 8] = scale(j + 4) & 15 | min(j + 4) << 4;
        }
        for (pair, bytes) in block[16..].as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for i in 0..16 {
                let at = NIBBLES + 2 * pair * 256 + i / 4 * 64 + 4 * row + i % 4;
                let (even, odd) = (tile[at], tile[at + 256]);
                bytes[i] = even & 15 | odd << 4;
                bytes[i + 16] = even >> 4 | odd & 0xf0;
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
            let packed = within(slices(parts, block * BLOCK, BLOCK), 0);
            let scales = load_scales(d, within(packed, SUPER), groups);
            let mins = load_scales(d, within(packed, SUPER_MIN), groups);
            for j in 0..SUBS {
                fetch::<_, N, FETCHED>(d, parts, block * BLOCK + j * 64 * FETCHED, next);
                // SAFETY: `block < blocks`, and there are `blocks * SUBS` activation blocks.
                unsafe {
                    add(d, packed, groups, j, scales, mins, acts, block * SUBS + j, &mut acc);
                };
            }
        }
        acc
    }
}

/// Adds the products of activation block `b` and sub-block `j`, given the scale and the minimum of
/// the whole block.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[expect(clippy::too_many_arguments, reason = "a loop's body")]
#[inline(always)]
unsafe fn add<D: Dot, const T: usize, const N: usize>(
    d: D,
    packed: [&[u8; BLOCK]; N],
    groups: [usize; N],
    j: usize,
    mut scales: [D::F; N],
    mut mins: [D::F; N],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; N]; T],
) {
    let nibbles = within(packed, NIBBLES + j * 256);
    // SAFETY: the caller's contract.
    let sums = unsafe { dot_nibbles(d, nibbles, groups, acts, b, |_| 0) };
    for n in 0..N {
        let scale = d.load_u8(part(packed[n], SCALES + j * TILE_ROWS), groups[n]);
        let min = d.load_u8(part(packed[n], MINS + j * TILE_ROWS), groups[n]);
        (scales[n], mins[n]) = (d.mul(scales[n], scale), d.mul(mins[n], min));
    }
    // SAFETY: the caller's contract.
    unsafe { accumulate(d, sums, scales, acts, b, acc) };
    for t in 0..T {
        // SAFETY: the caller's contract.
        let dsum = d.splat(unsafe { block(acts[t], b) }.dsum);
        for n in 0..N {
            acc[t][n] = d.fnma(mins[n], dsum, acc[t][n]);
        }
    }
}
