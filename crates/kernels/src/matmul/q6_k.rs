//! Q6_K: 16 half blocks of 16 six-bit values with offset 32; 8-bit scales, themselves scaled in
//! half precision.
//!
//! Packed per block of 256: `[16]` d (half floats), padding to a vector, `[16][16]` scales, then
//! per half block three vectors: the low nibbles of its quads 0 and 1 (low and high half of a
//! byte), of its quads 2 and 3, and the high bit pairs of all four quads. Of a byte of the last,
//! bits `2q..2q + 2` are of quad `q`.

use super::{
    ACT_BLOCK, Fetch, Part, Tile, accumulate, block, check_acts, check_parts, fetch, groups,
    load_scales, part, slices, within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q6K;

/// Half blocks (of 16 columns) of a block.
const HALVES: usize = 16;
const SUPER: usize = 0;
const SCALES: usize = 64;
const QUANTS: usize = SCALES + HALVES * TILE_ROWS;
/// Packed quants of a half block.
const HALF: usize = 3 * 64;
const BLOCK: usize = QUANTS + HALVES * HALF;
/// Lines to fetch with each activation block.
const FETCHED: usize = BLOCK.div_ceil(32 * HALVES);

/// Where the file keeps the 16 elements of half block `half`: the low nibbles' place and shift, the
/// high bit pairs' place and shift.
const fn file_place(half: usize) -> (usize, usize, usize, usize) {
    let (part, run, l) = (half / 8, half / 2 % 4, half % 2 * 16);
    (part * 64 + run % 2 * 32 + l, run / 2 * 4, 128 + part * 32 + l, run * 2)
}

/// A nibble, or a bit pair, of each of 16 bytes.
const NIBBLES: u128 = u128::from_ne_bytes([0x0f; 16]);
const PAIRS: u128 = u128::from_ne_bytes([0x03; 16]);

impl Tile for Q6K {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 256;

    fn bytes(blocks: usize) -> usize {
        blocks * BLOCK
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let tile = &mut tile[b * BLOCK..][..BLOCK];
        tile[SUPER + 2 * row..][..2].copy_from_slice(&block[208..]);
        for (j, &scale) in block[192..208].iter().enumerate() {
            tile[SCALES + j * TILE_ROWS + row] = scale;
        }
        for half in 0..HALVES {
            let (low, low_shift, high, high_shift) = file_place(half);
            let low = u128::from_le_bytes(*part(block, low)) >> low_shift & NIBBLES;
            let high = u128::from_le_bytes(*part(block, high)) >> high_shift & PAIRS;
            // Quads, the first lowest.
            let quad = |x: u128, q: usize| (x >> (32 * q)) as u32;
            let words = [
                quad(low, 0) | quad(low, 1) << 4,
                quad(low, 2) | quad(low, 3) << 4,
                quad(high, 0) | quad(high, 1) << 2 | quad(high, 2) << 4 | quad(high, 3) << 6,
            ];
            for (vector, word) in words.into_iter().enumerate() {
                let at = QUANTS + half * HALF + vector * 64 + 4 * row;
                tile[at..][..4].copy_from_slice(&word.to_le_bytes());
            }
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let tile = &tile[b * BLOCK..][..BLOCK];
        block[..192].fill(0);
        block[208..].copy_from_slice(&tile[SUPER + 2 * row..][..2]);
        for (j, scale) in block[192..208].iter_mut().enumerate() {
            *scale = tile[SCALES + j * TILE_ROWS + row];
        }
        for half in 0..HALVES {
            let word = |vector: usize| {
                let at = QUANTS + half * HALF + vector * 64 + 4 * row;
                u128::from(u32::from_le_bytes(*part(tile, at)))
            };
            let (w0, w1, w2) = (word(0), word(1), word(2));
            let low = w0 | w0 >> 4 << 32 | w1 << 64 | w1 >> 4 << 96;
            let high = w2 | w2 >> 2 << 32 | w2 >> 4 << 64 | w2 >> 6 << 96;
            let (low_at, low_shift, high_at, high_shift) = file_place(half);
            for (at, bits) in
                [(low_at, (low & NIBBLES) << low_shift), (high_at, (high & PAIRS) << high_shift)]
            {
                let to = &mut block[at..][..16];
                let have = u128::from_le_bytes(*part(to, 0));
                to.copy_from_slice(&(have | bits).to_le_bytes());
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
        let blocks = acts[0].len() / (HALVES / 2);
        check_acts(acts, blocks * HALVES / 2);
        check_parts(parts, Self::bytes(blocks));
        let groups = groups(parts);
        let mut acc = [[d.splat(0.0); N]; T];
        for block in 0..blocks {
            let packed = within(slices(parts, block * BLOCK, BLOCK), 0);
            let scales = load_scales(d, within(packed, SUPER), groups);
            for j in 0..HALVES / 2 {
                fetch::<_, N, FETCHED>(d, parts, block * BLOCK + j * 64 * FETCHED, next);
                let b = block * HALVES / 2 + j;
                // SAFETY: `block < blocks`, and there are `blocks * HALVES / 2` activation blocks.
                unsafe {
                    add::<D, T, N, 0>(d, packed, groups, j, scales, acts, b, &mut acc);
                    add::<D, T, N, 1>(d, packed, groups, j, scales, acts, b, &mut acc);
                }
            }
        }
        acc
    }
}

/// Adds the products of half `SIDE` of activation block `b`, the `j`th of a packed block, given the
/// scale of the whole block.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[expect(clippy::too_many_arguments, reason = "a loop's body")]
#[inline(always)]
unsafe fn add<D: Dot, const T: usize, const N: usize, const SIDE: usize>(
    d: D,
    packed: [&[u8; BLOCK]; N],
    groups: [usize; N],
    j: usize,
    mut scales: [D::F; N],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; N]; T],
) {
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let half = 2 * j + SIDE;
    let (nibble, pair) = (d.splat_w(0x0f), d.splat_w(0x30));
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        sums[t] = [d.splat_i(act(t).neg32[SIDE]); N];
    }
    let mut quads = [[nibble; N]; 4];
    for n in 0..N {
        let (at, group) = (QUANTS + half * HALF, groups[n]);
        let low01 = d.load_w(part(packed[n], at), group);
        let low23 = d.load_w(part(packed[n], at + 64), group);
        let high = d.load_w(part(packed[n], at + 128), group);
        quads[0][n] = d.or(d.and(low01, nibble), d.and(d.shl4(high), pair));
        quads[1][n] = d.or(d.and(d.shr4(low01), nibble), d.and(d.shl2(high), pair));
        quads[2][n] = d.or(d.and(low23, nibble), d.and(high, pair));
        quads[3][n] = d.or(d.and(d.shr4(low23), nibble), d.and(d.shr2(high), pair));
    }
    for q in 0..4 {
        for t in 0..T {
            for n in 0..N {
                sums[t][n] = d.dot(sums[t][n], quads[q][n], act(t).quad(4 * SIDE + q));
            }
        }
    }
    for n in 0..N {
        let scale = d.load_i8(part(packed[n], SCALES + half * TILE_ROWS), groups[n]);
        scales[n] = d.mul(scales[n], scale);
    }
    // SAFETY: the caller's contract.
    unsafe { accumulate(d, sums, scales, acts, b, acc) };
}
