//! MXFP4: 32 floats of 4 bits that share a power of two.
//!
//! Packed in fours of blocks: `[4][16]` powers (the file's byte), then `[4][256]` bytes of nibbles as
//! in Q4_0. What is left at the end keeps the place of four powers.

use super::steps::dot_small;
use super::{
    ACT_BLOCK, Fetch, Part, Tile, accumulate, check_acts, check_parts, fetch, groups, part, slices,
    within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Mxfp4;

/// The floats, doubled to be whole, with 16 added. The stored power is half of what the format's
/// means.
const DOUBLED: [u8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

const POWERS: usize = TILE_ROWS;
const NIBBLES: usize = 16 * TILE_ROWS;
const FOUR: usize = 4 * (POWERS + NIBBLES);

/// Where the powers and the nibbles of block `b` begin.
const fn places(b: usize) -> (usize, usize) {
    let (four, i) = (b / 4 * FOUR, b % 4);
    (four + i * POWERS, four + 4 * POWERS + i * NIBBLES)
}

impl Tile for Mxfp4 {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 32;

    fn bytes(blocks: usize) -> usize {
        blocks.div_ceil(4) * 4 * POWERS + blocks * NIBBLES
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let (power, nibbles) = places(b);
        tile[power + row] = block[0];
        for (j, quad) in block[1..].as_chunks::<4>().0.iter().enumerate() {
            tile[nibbles + 64 * j + 4 * row..][..4].copy_from_slice(quad);
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let (power, nibbles) = places(b);
        block[0] = tile[power + row];
        for (j, quad) in block[1..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
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
        for four in 0..blocks / 4 {
            let fours = slices(parts, four * FOUR, FOUR);
            fetch::<_, N, { FOUR / 64 }>(d, parts, four * FOUR, next);
            for i in 0..4 {
                // SAFETY: `4 * four + i` is below four times `blocks / 4`.
                unsafe { add(d, fours, groups, i, acts, 4 * four + i, &mut acc) };
            }
        }
        let done = blocks / 4 * 4;
        for b in done..blocks {
            let at = blocks / 4 * FOUR;
            let last = slices(parts, at, Self::bytes(blocks) - at);
            // SAFETY: `b < blocks`, the length of all activations.
            unsafe { add(d, last, groups, b - done, acts, b, &mut acc) };
        }
        acc
    }
}

/// Adds the products of block `b`, which is block `i` of `fours`.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
unsafe fn add<D: Dot, const T: usize, const N: usize>(
    d: D,
    fours: [&[u8]; N],
    groups: [usize; N],
    i: usize,
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; N]; T],
) {
    let (power, nibbles) = places(i);
    let nibbles: [&[u8; NIBBLES]; N] = within(fours, nibbles);
    let mut scales = [d.splat(0.0); N];
    for n in 0..N {
        scales[n] = d.load_power(part(fours[n], power), groups[n]);
    }
    // SAFETY: the caller's contract.
    unsafe {
        let sums = dot_small(d, &DOUBLED, nibbles, groups, acts, b);
        accumulate(d, sums, scales, acts, b, acc);
    }
}
