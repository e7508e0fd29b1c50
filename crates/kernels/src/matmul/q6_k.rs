//! Q6_K: 16 half blocks of 16 six-bit values with offset 32; 8-bit scales, themselves scaled in
//! half precision.
//!
//! Packed per block of 256: `[16]` d (half floats), padding to a vector, `[16][16]` scales, then
//! per half block three vectors: the low nibbles of its quads 0 and 1 (low and high half of a
//! byte), of its quads 2 and 3, and the high bit pairs of all four quads. Of a byte of the last,
//! bits `2q..2q + 2` are of quad `q`.

use super::{Tile, block, check_acts, part};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Simd;

pub(crate) struct Q6K;

/// Half blocks (of 16 columns) of a block.
const HALVES: usize = 16;
const D: usize = 0;
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

    fn bytes(blocks: usize) -> usize {
        blocks * BLOCK
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let tile = &mut tile[b * BLOCK..][..BLOCK];
        tile[D + 2 * row..][..2].copy_from_slice(&block[208..]);
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
        block[208..].copy_from_slice(&tile[D + 2 * row..][..2]);
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

    #[inline(always)]
    fn dot<S: Simd, const T: usize>(s: S, tile: &[u8], acts: [&[Q8Block]; T]) -> [S::F; T] {
        let (blocks, rest) = tile.as_chunks::<BLOCK>();
        assert!(rest.is_empty());
        check_acts(acts, blocks.len() * HALVES / 2);
        let mut acc = [s.splat(0.0); T];
        for (i, packed) in blocks.iter().enumerate() {
            let d = s.load_f16(part(packed, D));
            for j in 0..HALVES / 2 {
                let scales: &[u8; 2 * TILE_ROWS] = part(packed, SCALES + j * 2 * TILE_ROWS);
                let quants: &[u8; 2 * HALF] = part(packed, QUANTS + j * 2 * HALF);
                // SAFETY: `b` is below the number of activation blocks, checked above.
                unsafe {
                    let b = i * HALVES / 2 + j;
                    add::<S, T, 0>(s, d, scales, quants, acts, b, &mut acc);
                    add::<S, T, 1>(s, d, scales, quants, acts, b, &mut acc);
                }
            }
        }
        acc
    }
}

/// Adds the products of half `SIDE` of activation block `b`. `scales` and `quants` are those of the
/// whole block of 32 columns.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
unsafe fn add<S: Simd, const T: usize, const SIDE: usize>(
    s: S,
    d: S::F,
    scales: &[u8; 2 * TILE_ROWS],
    quants: &[u8; 2 * HALF],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [S::F; T],
) {
    let (nibble, pair) = (s.splat_w(0x0f), s.splat_w(0x30));
    let vector = |v: usize| s.load_w(part(quants, SIDE * HALF + v * 64));
    let (low01, low23, high) = (vector(0), vector(1), vector(2));
    let quads = [
        s.or(s.and(low01, nibble), s.and(s.shl4(high), pair)),
        s.or(s.and(s.shr4(low01), nibble), s.and(s.shl2(high), pair)),
        s.or(s.and(low23, nibble), s.and(high, pair)),
        s.or(s.and(s.shr4(low23), nibble), s.and(s.shr2(high), pair)),
    ];
    let mut sums = [s.splat_i(0); T];
    for t in 0..T {
        // SAFETY: the caller's contract.
        sums[t] = s.splat_i(unsafe { block(acts[t], b) }.neg32[SIDE]);
    }
    for (q, &quad) in quads.iter().enumerate() {
        for t in 0..T {
            // SAFETY: the caller's contract.
            sums[t] = s.dot(sums[t], quad, unsafe { block(acts[t], b) }.quad(4 * SIDE + q));
        }
    }
    let scale = s.mul(d, s.load_i8(part(scales, SIDE * TILE_ROWS)));
    for t in 0..T {
        // SAFETY: the caller's contract.
        let d = s.splat(unsafe { block(acts[t], b) }.d);
        acc[t] = s.fma(s.to_f(sums[t]), s.mul(scale, d), acc[t]);
    }
}
