//! Q2_K: 16 half blocks of 16 two-bit values; 4-bit scales and minima, themselves scaled in half
//! precision.
//!
//! Packed per block of 256: `[16]` d, `[16]` dmin (half floats), `[16][16]` scales and minima (low and
//! high nibble of a byte), then a vector per half block: of byte `4r + i`, bits `2q..2q + 2` are
//! element `4q + i` of row `r`.

use super::halves::{add_halves, scaled};
use super::quants::{Packed, Quants, get_half, put_half};
use super::{block, load_scales, part, within};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q2K;

/// Half blocks (of 16 columns) of a block.
const HALVES: usize = 16;
const SUPER_MIN: usize = 2 * TILE_ROWS;
const SCALES: usize = 4 * TILE_ROWS;
const QUANTS: usize = SCALES + HALVES * TILE_ROWS;

/// Where the file keeps element `i`: byte and shift of its bit pair.
pub(super) const fn file_place(i: usize) -> (usize, usize) {
    (i / 128 * 32 + i % 32, i / 32 % 4 * 2)
}

impl Quants for Q2K {
    const BLOCK_COLS: usize = 256;
    const SUBS: usize = HALVES / 2;
    const HEAD: usize = QUANTS;
    const SUB: usize = 2 * 64;

    fn put(group: &mut [u8], _sub: usize, row: usize, block: &[u8]) {
        put_half(group, 0, row, &block[80..]);
        put_half(group, SUPER_MIN, row, &block[82..]);
        for (j, &scale) in block[..16].iter().enumerate() {
            group[SCALES + j * TILE_ROWS + row] = scale;
        }
        for i in 0..256 {
            let (byte, shift) = file_place(i);
            let q = block[16 + byte] >> shift & 3;
            let (at, shift) = (QUANTS + i / 16 * 64 + 4 * row + i % 4, i / 4 % 4 * 2);
            group[at] = group[at] & !(3 << shift) | q << shift;
        }
    }

    fn get(group: &[u8], _sub: usize, row: usize, block: &mut [u8]) {
        block[16..80].fill(0);
        get_half(group, 0, row, &mut block[80..]);
        get_half(group, SUPER_MIN, row, &mut block[82..]);
        for (j, scale) in block[..16].iter_mut().enumerate() {
            *scale = group[SCALES + j * TILE_ROWS + row];
        }
        for i in 0..256 {
            let q = group[QUANTS + i / 16 * 64 + 4 * row + i % 4] >> (i / 4 % 4 * 2) & 3;
            let (byte, shift) = file_place(i);
            block[16 + byte] |= q << shift;
        }
    }

    #[inline(always)]
    fn units<D: Dot, const N: usize>(d: D, head: [&[u8]; N], groups: [usize; N]) -> [[D::F; N]; 2] {
        let scales = load_scales(d, within(head, 0), groups);
        [scales, load_scales(d, within(head, SUPER_MIN), groups)]
    }

    #[inline(always)]
    unsafe fn add<D: Dot, const T: usize, const N: usize>(
        d: D,
        packed: Packed<'_, N>,
        groups: [usize; N],
        sub: usize,
        units: [[D::F; N]; 2],
        acts: [&[Q8Block]; T],
        b: usize,
        acc: &mut [[D::F; N]; T],
    ) {
        // SAFETY: the caller's contract.
        let act = |t: usize| unsafe { block(acts[t], b) };
        let mask = d.splat_w(3);
        let mut sums = [[[d.splat_i(0); N]; T]; 2];
        let (mut scales, mut mins) = ([units[0]; 2], [units[1]; 2]);
        for side in 0..2 {
            let mut pairs = [mask; N];
            for n in 0..N {
                pairs[n] = d.load_w(part(packed.quants[n], side * 64), groups[n]);
                let both = part(packed.head[n], SCALES + (2 * sub + side) * TILE_ROWS);
                scales[side][n] = d.mul(units[0][n], d.load_low(both, groups[n]));
                mins[side][n] = d.mul(units[1][n], d.load_high(both, groups[n]));
            }
            for two in 0..2 {
                let q = 4 * side + 2 * two;
                let mut w = [[mask; 2]; N];
                for n in 0..N {
                    w[n] = [d.and(pairs[n], mask), d.and(d.shr2(pairs[n]), mask)];
                    pairs[n] = d.shr4(pairs[n]);
                }
                for t in 0..T {
                    let quads = [act(t).quad(q), act(t).quad(q + 1)];
                    for n in 0..N {
                        sums[side][t][n] = d.dot_two(sums[side][t][n], w[n], quads);
                    }
                }
            }
        }
        let [low, high] = sums;
        // SAFETY: the caller's contract.
        unsafe { add_halves(d, scaled(d, low, scales[0]), high, scales[1], acts, b, acc) };
        for t in 0..T {
            for side in 0..2 {
                let dsum = d.splat(act(t).dsums[side]);
                for n in 0..N {
                    acc[t][n] = d.fnma(mins[side][n], dsum, acc[t][n]);
                }
            }
        }
    }
}
