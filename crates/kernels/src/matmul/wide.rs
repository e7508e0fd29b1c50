//! The types that are unpacked when they are loaded: blocks of 256 signed bytes with a small scale for
//! every 16 and one float, which hold them exactly (see [`gguf::Integers`]).
//!
//! Packed per block: `[16]` floats, `[16][16]` scales (a byte each), then `[64][16][4]` bytes with 64
//! added, four of a row together: 8.6 bits for each value.

use super::sums::add_halves;
use super::{
    ACT_BLOCK, Fetch, Part, Tile, block, check_acts, check_parts, fetch, groups, part, slices,
    within,
};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;
use gguf::Integers;

/// A block's form for [`Tile::put`] and [`Tile::get`] is not the file's but [`Wide::form`]'s.
pub(crate) struct Wide;

/// Half blocks (of 16 columns) of a block.
const HALVES: usize = 16;
const SCALES: usize = 4 * TILE_ROWS;
const QUANTS: usize = SCALES + HALVES * TILE_ROWS;
/// Packed values of a half block.
const HALF: usize = 4 * 64;
const BLOCK: usize = QUANTS + HALVES * HALF;
/// Lines to fetch with each activation block.
const FETCHED: usize = BLOCK.div_ceil(32 * HALVES);
/// What makes the values unsigned: they are in -62..=62.
const BIAS: i8 = 64;

impl Wide {
    /// Bytes of a block as [`Wide::form`] gives it.
    pub(crate) const FORM: usize = 4 + HALVES + 256;

    /// A block as bytes: the float, the scales, the values.
    pub(crate) fn form(of: &Integers) -> [u8; Self::FORM] {
        let mut bytes = [0; Self::FORM];
        bytes[..4].copy_from_slice(&of.unit.to_le_bytes());
        bytes[4..20].copy_from_slice(&of.scales);
        for (byte, q) in bytes[20..].iter_mut().zip(of.quants) {
            *byte = q as u8;
        }
        bytes
    }

    /// The reverse.
    pub(crate) fn integers(form: &[u8; Self::FORM]) -> Integers {
        Integers {
            unit: f32::from_le_bytes(*part(form, 0)),
            scales: *part(form, 4),
            quants: part::<256>(form, 20).map(|q| q as i8),
        }
    }
}

impl Tile for Wide {
    type Act = Q8Block;

    const ACT_COLS: usize = ACT_BLOCK;
    const BLOCK_COLS: usize = 256;

    fn bytes(blocks: usize) -> usize {
        blocks * BLOCK
    }

    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]) {
        let tile = &mut tile[b * BLOCK..][..BLOCK];
        tile[4 * row..][..4].copy_from_slice(&block[..4]);
        for (j, &scale) in block[4..20].iter().enumerate() {
            tile[SCALES + j * TILE_ROWS + row] = scale;
        }
        for (j, quad) in block[20..].as_chunks::<4>().0.iter().enumerate() {
            let biased = quad.map(|q| q.wrapping_add_signed(BIAS));
            tile[QUANTS + 64 * j + 4 * row..][..4].copy_from_slice(&biased);
        }
    }

    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]) {
        let tile = &tile[b * BLOCK..][..BLOCK];
        block[..4].copy_from_slice(&tile[4 * row..][..4]);
        for (j, scale) in block[4..20].iter_mut().enumerate() {
            *scale = tile[SCALES + j * TILE_ROWS + row];
        }
        for (j, quad) in block[20..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let biased = part::<4>(tile, QUANTS + 64 * j + 4 * row);
            *quad = biased.map(|q| q.wrapping_add_signed(-BIAS));
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
            let mut units = [d.splat(0.0); N];
            for n in 0..N {
                units[n] = d.load_f32(part(packed[n], 0), groups[n]);
            }
            for j in 0..HALVES / 2 {
                fetch::<_, N, FETCHED>(d, parts, block * BLOCK + j * 64 * FETCHED, next);
                // SAFETY: `block < blocks`, and there are `blocks * HALVES / 2` activation blocks.
                unsafe { add(d, packed, groups, j, units, acts, block * HALVES / 2 + j, &mut acc) };
            }
        }
        acc
    }
}

/// Adds the products of activation block `b`, the `j`th of a packed block, given the scale of the
/// whole block.
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
    let mut sums = [[[d.splat_i(0); N]; T]; 2];
    let mut scales = [units; 2];
    for side in 0..2 {
        let half = 2 * j + side;
        for t in 0..T {
            sums[side][t] = [d.splat_i(2 * act(t).neg32[side]); N];
        }
        for q in 0..4 {
            let mut w = [d.splat_w(0); N];
            for n in 0..N {
                w[n] = d.load_w(part(packed[n], QUANTS + half * HALF + 64 * q), groups[n]);
            }
            for t in 0..T {
                for n in 0..N {
                    sums[side][t][n] = d.dot(sums[side][t][n], w[n], act(t).quad(4 * side + q));
                }
            }
        }
        for n in 0..N {
            let scale = d.load_u8(part(packed[n], SCALES + half * TILE_ROWS), groups[n]);
            scales[side][n] = d.mul(units[n], scale);
        }
    }
    // SAFETY: the caller's contract.
    unsafe { add_halves(d, sums, scales, acts, b, acc) };
}
