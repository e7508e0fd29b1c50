//! The scales and minima of Q4_K and Q5_K: 6 bits each for 8 sub-blocks, themselves scaled in half
//! precision.
//!
//! Packed: `[16]` d, `[16]` dmin (half floats), `[8][16]` scales, `[8][16]` minima (a byte each, which
//! costs 2.8 % of the size of a Q4_K file and saves the unpacking).

use super::part;
use super::quants::{Head, Packed, get_half, put_half};
use crate::TILE_ROWS;
use crate::simd::Dot;

/// Sub-blocks of a block.
pub(super) const SUBS: usize = 8;
/// Bytes of all of it.
pub(super) const HEAD: usize = MINS + SUBS * TILE_ROWS;
const SUPER_MIN: usize = 2 * TILE_ROWS;
const SCALES: usize = 4 * TILE_ROWS;
const MINS: usize = SCALES + SUBS * TILE_ROWS;

/// Puts the first 16 bytes of a block of row `row` into their places.
pub(super) fn put(head: &mut [u8], row: usize, block: &[u8]) {
    put_half(head, 0, row, block);
    put_half(head, SUPER_MIN, row, &block[2..]);
    let six = &block[4..16];
    for j in 0..4 {
        let high = |low: u8, byte: u8| low | byte >> 6 << 4;
        head[SCALES + j * TILE_ROWS + row] = six[j] & 63;
        head[MINS + j * TILE_ROWS + row] = six[j + 4] & 63;
        head[SCALES + (j + 4) * TILE_ROWS + row] = high(six[j + 8] & 15, six[j]);
        head[MINS + (j + 4) * TILE_ROWS + row] = high(six[j + 8] >> 4, six[j + 4]);
    }
}

/// Gives them back.
pub(super) fn get(head: &[u8], row: usize, block: &mut [u8]) {
    get_half(head, 0, row, block);
    get_half(head, SUPER_MIN, row, &mut block[2..]);
    let six = &mut block[4..16];
    for j in 0..4 {
        let scale = |j: usize| head[SCALES + j * TILE_ROWS + row];
        let min = |j: usize| head[MINS + j * TILE_ROWS + row];
        six[j] = scale(j) | scale(j + 4) >> 4 << 6;
        six[j + 4] = min(j) | min(j + 4) >> 4 << 6;
        six[j + 8] = scale(j + 4) & 15 | min(j + 4) << 4;
    }
}

/// d and -dmin: the file subtracts minima.
#[inline(always)]
pub(super) fn units<D: Dot, const N: usize>(head: Head<'_, D, N>) -> [[D::F; N]; 2] {
    let (scales, mut mins) = (head.half_floats(0), head.half_floats(SUPER_MIN));
    for n in 0..N {
        mins[n] = head.d.mul(mins[n], head.d.splat(-1.0));
    }
    [scales, mins]
}

/// Scales and what is added for the minima of a sub-block, whose [`units`] are these.
#[inline(always)]
pub(super) fn scales<D: Dot, const N: usize>(packed: Packed<'_, D, N>) -> [[D::F; N]; 2] {
    let Packed { head: Head { d, bytes, groups }, units: [mut scales, mut mins], sub, .. } = packed;
    for n in 0..N {
        let scale = d.load_u8(part(bytes[n], SCALES + sub * TILE_ROWS), groups[n]);
        let min = d.load_u8(part(bytes[n], MINS + sub * TILE_ROWS), groups[n]);
        (scales[n], mins[n]) = (d.mul(scales[n], scale), d.mul(mins[n], min));
    }
    [scales, mins]
}
