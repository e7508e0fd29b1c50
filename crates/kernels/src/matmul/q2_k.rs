//! Q2_K: 16 half blocks of 16 two-bit values; 4-bit scales and minima, themselves scaled in half
//! precision.
//!
//! Packed per block of 256: `[16]` d, `[16]` dmin (half floats), `[8][16][2]` scales and minima (low and
//! high nibble of a byte), then a vector per half block: of byte `4r + i`, bits `2q..2q + 2` are
//! element `4q + i` of row `r`.
//!
//! Integers scale values as well as minima, `d` and `dmin` come last. Per block of 256, with `a` the scale
//! of each activation block: `sum = fma(f32(values), a, sum)`, `min += minima · steps` in integers, and once
//! `acc = fnma(f32(min), dmin * step, fma(sum, d, acc))`. To eight products that makes three instructions of
//! the multiply units; with scales and minima as floats they were five.

use super::halves::{PAIR, add_integers, pair_place};
use super::quants::{Head, Packed, Quants, get_half, put_half};
use super::{Q8Blocks, dot_two_bits, part};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;
use std::ops::Range;

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
    const SCALE_LAST: bool = true;

    fn put(group: &mut [u8], _sub: usize, row: usize, block: &[u8]) {
        put_half(group, 0, row, &block[80..]);
        put_half(group, SUPER_MIN, row, &block[82..]);
        for (j, &scale) in block[..16].iter().enumerate() {
            group[SCALES + pair_place(j, row)] = scale;
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
            *scale = group[SCALES + pair_place(j, row)];
        }
        for i in 0..256 {
            let q = group[QUANTS + i / 16 * 64 + 4 * row + i % 4] >> (i / 4 % 4 * 2) & 3;
            let (byte, shift) = file_place(i);
            block[16 + byte] |= q << shift;
        }
    }

    #[inline(always)]
    fn units<D: Dot, const N: usize>(head: Head<'_, D, N>) -> [[D::F; N]; 2] {
        [head.half_floats(0), head.half_floats(SUPER_MIN)]
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let d = packed.head.d;
        let four = d.splat_w(15);
        let mut sums = [[[d.start_half(0); N]; T]; 2];
        for side in 0..2 {
            dot_two_bits(packed, side, acts, &mut sums[side]);
        }
        let mut scales = [four; N];
        for n in 0..N {
            scales[n] = d.and(pairs_at(packed.head, n, packed.sub), four);
        }
        add_integers(d, sums, scales, acts, acc);
    }

    #[inline(always)]
    unsafe fn add_minima<D: Dot, const T: usize, const N: usize>(
        head: Head<'_, D, N>,
        minimum: [D::F; N],
        acts: [&[Q8Block]; T],
        range: Range<usize>,
        acc: &mut [[D::F; N]; T],
    ) {
        let d = head.d;
        let four = d.splat_w(15);
        let mut steps = [[d.splat_i(0); N]; T];
        for (sub, b) in range.clone().enumerate() {
            let mut mins = [four; N];
            for n in 0..N {
                mins[n] = d.and(d.shr4(pairs_at(head, n, sub)), four);
            }
            // SAFETY: the caller's contract.
            let acts = unsafe { Q8Blocks::new(acts, b) };
            for t in 0..T {
                for n in 0..N {
                    steps[t][n] = d.dot_pairs(steps[t][n], mins[n], acts[t].steps());
                }
            }
        }
        // SAFETY: the caller's contract.
        let acts = unsafe { Q8Blocks::new(acts, range.start) };
        for t in 0..T {
            let step = d.splat(acts[t].step);
            for n in 0..N {
                acc[t][n] = d.fnma(d.to_f(steps[t][n]), d.mul(minimum[n], step), acc[t][n]);
            }
        }
    }
}

/// Scales and minima of both halves of sub-block `sub` of part `n`, a byte for each half.
#[inline(always)]
fn pairs_at<D: Dot, const N: usize>(head: Head<'_, D, N>, n: usize, sub: usize) -> D::W {
    head.d.load_pairs_u8(part(head.bytes[n], SCALES + sub * PAIR), head.groups[n])
}
