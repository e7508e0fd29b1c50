//! Q2_K: 16 half blocks of 16 two-bit values; 4-bit scales and minima, themselves scaled in half
//! precision.
//!
//! Packed per block of 256: `[16]` d, `[16]` dmin (half floats), `[16][16]` scales and minima (low and
//! high nibble of a byte), then a vector per half block: of byte `4r + i`, bits `2q..2q + 2` are
//! element `4q + i` of row `r`.

use super::sums::add_halves;
use super::{
    ACT_BLOCK, Fetch, Part, Tile, block, check_acts, check_parts, fetch, groups, load_scales, part,
    slices, within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q2K;

/// Half blocks (of 16 columns) of a block.
const HALVES: usize = 16;
const SUPER_MIN: usize = 2 * TILE_ROWS;
const SCALES: usize = 4 * TILE_ROWS;
const QUANTS: usize = SCALES + HALVES * TILE_ROWS;
const BLOCK: usize = QUANTS + HALVES * 64;
/// Lines to fetch with each activation block.
const FETCHED: usize = BLOCK.div_ceil(32 * HALVES);

/// Where the file keeps element `i`: byte and shift of its bit pair.
pub(super) const fn file_place(i: usize) -> (usize, usize) {
    (i / 128 * 32 + i % 32, i / 32 % 4 * 2)
}

impl Tile for Q2K {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 256;

    fn bytes(blocks: usize) -> usize {
        blocks * BLOCK
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let tile = &mut tile[b * BLOCK..][..BLOCK];
        tile[2 * row..][..2].copy_from_slice(&block[80..82]);
        tile[SUPER_MIN + 2 * row..][..2].copy_from_slice(&block[82..]);
        for (j, &scale) in block[..16].iter().enumerate() {
            tile[SCALES + j * TILE_ROWS + row] = scale;
        }
        for i in 0..256 {
            let (byte, shift) = file_place(i);
            let q = block[16 + byte] >> shift & 3;
            let (at, shift) = (QUANTS + i / 16 * 64 + 4 * row + i % 4, i / 4 % 4 * 2);
            tile[at] = tile[at] & !(3 << shift) | q << shift;
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let tile = &tile[b * BLOCK..][..BLOCK];
        block[16..80].fill(0);
        block[80..82].copy_from_slice(&tile[2 * row..][..2]);
        block[82..].copy_from_slice(&tile[SUPER_MIN + 2 * row..][..2]);
        for (j, scale) in block[..16].iter_mut().enumerate() {
            *scale = tile[SCALES + j * TILE_ROWS + row];
        }
        for i in 0..256 {
            let q = tile[QUANTS + i / 16 * 64 + 4 * row + i % 4] >> (i / 4 % 4 * 2) & 3;
            let (byte, shift) = file_place(i);
            block[16 + byte] |= q << shift;
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
            let packed: [&[u8; BLOCK]; N] = within(slices(parts, block * BLOCK, BLOCK), 0);
            let units = load_scales(d, within(packed, 0), groups);
            let mins = load_scales(d, within(packed, SUPER_MIN), groups);
            for j in 0..HALVES / 2 {
                fetch::<_, N, FETCHED>(d, parts, block * BLOCK + j * 64 * FETCHED, next);
                // SAFETY: `block < blocks`, and there are `blocks * HALVES / 2` activation blocks.
                unsafe {
                    let b = block * HALVES / 2 + j;
                    add(d, packed, groups, j, units, mins, acts, b, &mut acc);
                }
            }
        }
        acc
    }
}

/// Adds the products of activation block `b`, the `j`th of a packed block, given the scale and the
/// minimum of the whole block.
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
    unit_mins: [D::F; N],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; N]; T],
) {
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let mask = d.splat_w(3);
    let mut sums = [[[d.splat_i(0); N]; T]; 2];
    let (mut scales, mut mins) = ([units; 2], [unit_mins; 2]);
    for side in 0..2 {
        let half = 2 * j + side;
        let mut pairs = [mask; N];
        for n in 0..N {
            pairs[n] = d.load_w(part(packed[n], QUANTS + half * 64), groups[n]);
            let both = part(packed[n], SCALES + half * TILE_ROWS);
            scales[side][n] = d.mul(units[n], d.load_low(both, groups[n]));
            mins[side][n] = d.mul(unit_mins[n], d.load_high(both, groups[n]));
        }
        for pair in 0..2 {
            let q = 2 * pair;
            let mut w = [[mask; 2]; N];
            for n in 0..N {
                w[n] = [d.and(pairs[n], mask), d.and(d.shr2(pairs[n]), mask)];
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
    for t in 0..T {
        for side in 0..2 {
            let dsum = d.splat(act(t).dsums[side]);
            for n in 0..N {
                acc[t][n] = d.fnma(mins[side][n], dsum, acc[t][n]);
            }
        }
    }
}
