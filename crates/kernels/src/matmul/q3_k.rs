//! Q3_K: 16 half blocks of 16 three-bit values with offset 4; 6-bit scales, themselves scaled in half
//! precision.
//!
//! Packed per block of 256: `[16]` d (half floats), padding to a vector, `[16][16]` scales (a signed
//! byte each: 5.5 % more than the file, and nothing to unpack), then per 32 columns three vectors:
//! the low bit pairs of each half as in Q2_K, and the high bits of both: of byte `4r + i`, bit `q` is
//! of element `4q + i` of row `r`.

use super::q2_k::file_place;
use super::sums::add_halves;
use super::{
    ACT_BLOCK, Fetch, Part, Tile, block, check_acts, check_parts, fetch, groups, load_scales, part,
    slices, within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q3K;

/// Sub-blocks of 32 columns, each of two half blocks.
const SUBS: usize = 8;
const SCALES: usize = 64;
const QUANTS: usize = SCALES + 2 * SUBS * TILE_ROWS;
/// Packed values of a sub-block.
const SUB: usize = 3 * 64;
const BLOCK: usize = QUANTS + SUBS * SUB;
/// Lines to fetch with each sub-block.
const FETCHED: usize = BLOCK.div_ceil(64 * SUBS);

/// Where a tile keeps element `i` of row `row`: byte and shift of its low bit pair, byte and shift of
/// its high bit.
const fn tile_place(i: usize, row: usize) -> (usize, usize, usize, usize) {
    let (sub, half, lane) = (QUANTS + i / 32 * SUB, i / 16 % 2, 4 * row + i % 4);
    (sub + half * 64 + lane, i / 4 % 4 * 2, sub + 128 + lane, i / 4 % 8)
}

impl Tile for Q3K {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 256;

    fn bytes(blocks: usize) -> usize {
        blocks * BLOCK
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let tile = &mut tile[b * BLOCK..][..BLOCK];
        tile[2 * row..][..2].copy_from_slice(&block[108..]);
        let six = &block[96..108];
        for j in 0..2 * SUBS {
            let scale = six[j % 8] >> (j / 8 * 4) & 15 | (six[8 + j % 4] >> (j / 4 * 2) & 3) << 4;
            tile[SCALES + j * TILE_ROWS + row] = scale.wrapping_sub(32);
        }
        for i in 0..256 {
            let (byte, shift) = file_place(i);
            let (low, high) = (block[32 + byte] >> shift & 3, block[i % 32] >> (i / 32) & 1);
            let (low_at, low_shift, high_at, high_shift) = tile_place(i, row);
            tile[low_at] = tile[low_at] & !(3 << low_shift) | low << low_shift;
            tile[high_at] = tile[high_at] & !(1 << high_shift) | high << high_shift;
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let tile = &tile[b * BLOCK..][..BLOCK];
        block[..108].fill(0);
        block[108..].copy_from_slice(&tile[2 * row..][..2]);
        let six = &mut block[96..108];
        for j in 0..2 * SUBS {
            let scale = tile[SCALES + j * TILE_ROWS + row].wrapping_add(32);
            six[j % 8] |= (scale & 15) << (j / 8 * 4);
            six[8 + j % 4] |= scale >> 4 << (j / 4 * 2);
        }
        for i in 0..256 {
            let (low, low_shift, high, high_shift) = tile_place(i, row);
            let (low, high) = (tile[low] >> low_shift & 3, tile[high] >> high_shift & 1);
            let (byte, shift) = file_place(i);
            block[32 + byte] |= low << shift;
            block[i % 32] |= high << (i / 32);
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
            let units = load_scales(d, within(packed, 0), groups);
            for j in 0..SUBS {
                fetch::<_, N, FETCHED>(d, parts, block * BLOCK + j * 64 * FETCHED, next);
                // SAFETY: `block < blocks`, and there are `blocks * SUBS` activation blocks.
                unsafe { add(d, packed, groups, j, units, acts, block * SUBS + j, &mut acc) };
            }
        }
        acc
    }
}

/// Adds the products of activation block `b` and sub-block `j`, given the scale of the whole block.
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
    units: [D::F; N],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; N]; T],
) {
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let (low, high) = (d.splat_w(3), d.splat_w(4));
    let mut sums = [[[d.splat_i(0); N]; T]; 2];
    let mut scales = [units; 2];
    for side in 0..2 {
        for t in 0..T {
            // The offset, of which 8 times the sum stands ready.
            sums[side][t] = [d.splat_i(act(t).neg32[side] >> 3); N];
        }
        let (mut pairs, mut bits) = ([low; N], [low; N]);
        for n in 0..N {
            pairs[n] = d.load_w(part(packed[n], QUANTS + j * SUB + side * 64), groups[n]);
            bits[n] = d.load_w(part(packed[n], QUANTS + j * SUB + 128), groups[n]);
            if side == 1 {
                bits[n] = d.shr4(bits[n]);
            }
            let scale = d.load_i8(part(packed[n], SCALES + (2 * j + side) * TILE_ROWS), groups[n]);
            scales[side][n] = d.mul(units[n], scale);
        }
        for pair in 0..2 {
            let q = 2 * pair;
            let mut w = [[low; 2]; N];
            for n in 0..N {
                // Bits `q` and `q + 1` go to bit 2.
                let [first, second] = match q {
                    0 => [d.shl2(bits[n]), d.shl2(d.shr1(bits[n]))],
                    _ => [bits[n], d.shr1(bits[n])],
                };
                w[n] = [
                    d.or(d.and(pairs[n], low), d.and(first, high)),
                    d.or(d.and(d.shr2(pairs[n]), low), d.and(second, high)),
                ];
                pairs[n] = d.shr4(pairs[n]);
            }
            for t in 0..T {
                let quads = [act(t).quad(4 * side + q), act(t).quad(4 * side + q + 1)];
                for n in 0..N {
                    sums[side][t][n] = d.dot_two(sums[side][t][n], w[n], quads);
                }
            }
        }
    }
    // SAFETY: the caller's contract.
    unsafe { add_halves(d, sums, scales, acts, b, acc) };
}
