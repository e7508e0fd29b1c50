//! Q6_K: 16 half blocks of 16 six-bit values with offset 32; 8-bit scales, themselves scaled in
//! half precision.
//!
//! Packed per block of 256: `[16]` d (half floats), padding to a vector, `[16][16]` scales, then
//! per half block three vectors: the low nibbles of its quads 0 and 1 (low and high half of a
//! byte), of its quads 2 and 3, and the high bit pairs of all four quads. Of a byte of the last,
//! bits `2q..2q + 2` are of quad `q`.

use super::{ACT_BLOCK, Tile, accumulate, block, check_acts, fetch, load_scales, part};
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

/// Where the file keeps element `i`: index and shift of its low nibble, index and shift of its high
/// bit pair.
const fn file_place(i: usize) -> (usize, usize, usize, usize) {
    let (half, run, l) = (i / 128, i / 32 % 4, i % 32);
    (half * 64 + run % 2 * 32 + l, run / 2 * 4, 128 + half * 32 + l, run * 2)
}

/// Where a tile keeps element `i` of row `row`, likewise.
const fn tile_place(i: usize, row: usize) -> (usize, usize, usize, usize) {
    let (half, quad, lane) = (i / 16, i / 4 % 4, 4 * row + i % 4);
    let at = QUANTS + half * HALF + lane;
    (at + quad / 2 * 64, quad % 2 * 4, at + 128, quad * 2)
}

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
        for i in 0..256 {
            let (low, low_shift, high, high_shift) = file_place(i);
            let (low, high) = (block[low] >> low_shift & 15, block[high] >> high_shift & 3);
            let (low_at, low_shift, high_at, high_shift) = tile_place(i, row);
            tile[low_at] = tile[low_at] & !(15 << low_shift) | low << low_shift;
            tile[high_at] = tile[high_at] & !(3 << high_shift) | high << high_shift;
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let tile = &tile[b * BLOCK..][..BLOCK];
        block[..192].fill(0);
        block[208..].copy_from_slice(&tile[SUPER + 2 * row..][..2]);
        for (j, scale) in block[192..208].iter_mut().enumerate() {
            *scale = tile[SCALES + j * TILE_ROWS + row];
        }
        for i in 0..256 {
            let (low, low_shift, high, high_shift) = tile_place(i, row);
            let (low, high) = (tile[low] >> low_shift & 15, tile[high] >> high_shift & 3);
            let (low_at, low_shift, high_at, high_shift) = file_place(i);
            block[low_at] |= low << low_shift;
            block[high_at] |= high << high_shift;
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
        let (blocks, rest) = tile.as_chunks::<BLOCK>();
        assert!(rest.is_empty());
        check_acts(acts, blocks.len() * HALVES / 2);
        let mut acc = [[d.splat(0.0); G]; T];
        for (n, packed) in blocks.iter().enumerate() {
            for j in 0..HALVES / 2 {
                if FETCH {
                    fetch::<_, { BLOCK.div_ceil(32 * HALVES) }>(
                        d,
                        &packed[j * (BLOCK / (HALVES / 2))..],
                    );
                }
                let b = n * HALVES / 2 + j;
                // SAFETY: `b` is below the number of activation blocks, checked above.
                unsafe {
                    add::<D, T, G, 0>(d, packed, j, acts, b, g, &mut acc);
                    add::<D, T, G, 1>(d, packed, j, acts, b, g, &mut acc);
                }
            }
        }
        acc
    }
}

/// Adds the products of half `SIDE` of activation block `b`, the `j`th of a packed block.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
unsafe fn add<D: Dot, const T: usize, const G: usize, const SIDE: usize>(
    d: D,
    packed: &[u8; BLOCK],
    j: usize,
    acts: [&[Q8Block]; T],
    b: usize,
    g: usize,
    acc: &mut [[D::F; G]; T],
) {
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let half = 2 * j + SIDE;
    let quants: &[u8; HALF] = part(packed, QUANTS + half * HALF);
    let (nibble, pair) = (d.splat_w(0x0f), d.splat_w(0x30));
    let mut sums = [[d.splat_i(0); G]; T];
    for t in 0..T {
        sums[t] = [d.splat_i(act(t).neg32[SIDE]); G];
    }
    for i in 0..G {
        let vector = |v: usize| d.load_w(part(quants, v * 64), g + i);
        let (low01, low23, high) = (vector(0), vector(1), vector(2));
        let quads = [
            d.or(d.and(low01, nibble), d.and(d.shl4(high), pair)),
            d.or(d.and(d.shr4(low01), nibble), d.and(d.shl2(high), pair)),
            d.or(d.and(low23, nibble), d.and(high, pair)),
            d.or(d.and(d.shr4(low23), nibble), d.and(d.shr2(high), pair)),
        ];
        for (q, &quad) in quads.iter().enumerate() {
            for t in 0..T {
                sums[t][i] = d.dot(sums[t][i], quad, act(t).quad(4 * SIDE + q));
            }
        }
    }
    let mut scales: [_; G] = load_scales(d, part(packed, SUPER), g);
    for i in 0..G {
        scales[i] = d.mul(scales[i], d.load_i8(part(packed, SCALES + half * TILE_ROWS), g + i));
    }
    // SAFETY: the caller's contract.
    unsafe { accumulate(d, sums, scales, acts, b, acc) };
}
