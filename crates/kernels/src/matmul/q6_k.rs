//! Q6_K: 16 half blocks of 16 six-bit values with offset 32; 8-bit scales, themselves scaled in
//! half precision.
//!
//! Packed per block of 256: `[16]` d (half floats), padding to a vector, `[16][16]` scales, then
//! per half block three vectors, which hold quads 0 to 2 and, in the bits above, quad 3.

use super::bits::{self, Run, run, vector};
use super::halves::{self, Halves, SCALES};
use super::panel::{PanelKind, Sub};
use super::quants::{Packed, Quants, get_half, put_half};
use super::{block, load_scales, part, within};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q6K;

/// Half blocks (of 16 columns) of a block.
const HALVES: usize = 16;
const QUANTS: usize = SCALES + HALVES * TILE_ROWS;
/// Packed quants of a half block.
const HALF: usize = 3 * 64;

/// Where the file keeps the 16 elements of half block `half`: the low nibbles' place and shift, the
/// high bit pairs' place and shift.
const fn file_place(half: usize) -> (usize, usize, usize, usize) {
    let (part, run, l) = (half / 8, half / 2 % 4, half % 2 * 16);
    (part * 64 + run % 2 * 32 + l, run / 2 * 4, 128 + part * 32 + l, run * 2)
}

const RUNS: [Run; 6] = [
    run(0, 0, 6, 0, 0),
    run(1, 0, 6, 1, 0),
    run(2, 0, 6, 2, 0),
    run(3, 0, 2, 0, 6),
    run(3, 2, 2, 1, 6),
    run(3, 4, 2, 2, 6),
];

/// A nibble, or a bit pair, of each of 16 bytes.
const NIBBLES: u128 = u128::from_ne_bytes([0x0f; 16]);
const PAIRS: u128 = u128::from_ne_bytes([0x03; 16]);

impl Quants for Q6K {
    const BLOCK_COLS: usize = 256;
    const SUBS: usize = HALVES / 2;
    const HEAD: usize = QUANTS;
    const SUB: usize = 2 * HALF;
    const FAMILY: bool = true;

    fn put(group: &mut [u8], _sub: usize, row: usize, block: &[u8]) {
        put_half(group, 0, row, &block[208..]);
        for (j, &scale) in block[192..208].iter().enumerate() {
            group[SCALES + j * TILE_ROWS + row] = scale;
        }
        for half in 0..HALVES {
            let (low, low_shift, high, high_shift) = file_place(half);
            let low = u128::from_le_bytes(*part(block, low)) >> low_shift & NIBBLES;
            let high = u128::from_le_bytes(*part(block, high)) >> high_shift & PAIRS;
            let all = low | high << 4;
            let quads: [u32; 4] = std::array::from_fn(|q| (all >> (32 * q)) as u32);
            bits::put::<4, 3>(&mut group[QUANTS + half * HALF..], row, quads, &RUNS);
        }
    }

    fn get(group: &[u8], _sub: usize, row: usize, block: &mut [u8]) {
        block[..192].fill(0);
        get_half(group, 0, row, &mut block[208..]);
        for (j, scale) in block[192..208].iter_mut().enumerate() {
            *scale = group[SCALES + j * TILE_ROWS + row];
        }
        for half in 0..HALVES {
            let quads: [u32; 4] = bits::get(&group[QUANTS + half * HALF..], row, &RUNS);
            let all = quads.iter().rev().fold(0, |all, &quad| all << 32 | u128::from(quad));
            let (low, high) = (all & NIBBLES, all >> 4 & PAIRS);
            let (low_at, low_shift, high_at, high_shift) = file_place(half);
            for (at, bits) in [(low_at, low << low_shift), (high_at, high << high_shift)] {
                let to = &mut block[at..][..16];
                let have = u128::from_le_bytes(*part(to, 0));
                to.copy_from_slice(&(have | bits).to_le_bytes());
            }
        }
    }

    #[inline(always)]
    fn units<D: Dot, const N: usize>(d: D, head: [&[u8]; N], groups: [usize; N]) -> [[D::F; N]; 2] {
        [load_scales(d, within(head, 0), groups); 2]
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Halves);

    #[inline(always)]
    fn unpack<D: Dot>(
        d: D,
        packed: Packed<'_, 1>,
        group: usize,
        sub: usize,
        [[unit], _]: [[D::F; 1]; 2],
        to: &mut Sub,
    ) {
        let six = d.splat_w(63);
        for side in 0..2 {
            let at = SCALES + (2 * sub + side) * TILE_ROWS;
            let scale = d.mul(unit, Self::scale(d, part(packed.head[0], at), group));
            d.store(scale, if side == 0 { &mut to.scales } else { &mut to.others }, group);
            let mut v = [six; 3];
            for i in 0..3 {
                v[i] = vector(d, packed.quants[0], 3 * side + i, group);
                d.store_w(d.and(v[i], six), &mut to.quads[4 * side + i], group);
            }
            d.store_w(fourth(d, v), &mut to.quads[4 * side + 3], group);
        }
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
        unsafe { halves::add::<Self, D, T, N>(d, packed, groups, sub, units[0], acts, b, acc) }
    }
}

/// The quad above three others, two bits in each.
#[inline(always)]
fn fourth<D: Dot>(d: D, [v0, v1, v2]: [D::W; 3]) -> D::W {
    let low = d.and(d.shr6(v0), d.splat_w(0x03));
    let middle = d.and(d.shr4(v1), d.splat_w(0x0c));
    let high = d.and(d.shr2(v2), d.splat_w(0x30));
    d.or(d.or(low, middle), high)
}

impl Halves for Q6K {
    #[inline(always)]
    fn scale<D: Dot>(d: D, bytes: &[u8; TILE_ROWS], group: usize) -> D::F {
        d.load_i8(bytes, group)
    }

    #[inline(always)]
    unsafe fn half<D: Dot, const T: usize, const N: usize, const SIDE: usize>(
        d: D,
        quants: [&[u8]; N],
        groups: [usize; N],
        acts: [&[Q8Block]; T],
        b: usize,
    ) -> [[D::I; N]; T] {
        // SAFETY: the caller's contract.
        let act = |t: usize| unsafe { block(acts[t], b) };
        let six = d.splat_w(63);
        let mut sums = [[d.splat_i(0); N]; T];
        for t in 0..T {
            sums[t] = [d.splat_i(act(t).neg32[SIDE]); N];
        }
        for two in 0..2 {
            let mut w = [[six; 2]; N];
            for n in 0..N {
                let first = 3 * SIDE;
                let (v0, v1, v2) = (
                    vector(d, quants[n], first, groups[n]),
                    vector(d, quants[n], first + 1, groups[n]),
                    vector(d, quants[n], first + 2, groups[n]),
                );
                w[n] = match two {
                    0 => [d.and(v0, six), d.and(v1, six)],
                    _ => [d.and(v2, six), fourth(d, [v0, v1, v2])],
                };
            }
            for t in 0..T {
                let q = 4 * SIDE + 2 * two;
                let quads = [act(t).quad(q), act(t).quad(q + 1)];
                for n in 0..N {
                    sums[t][n] = d.dot_two(sums[t][n], w[n], quads);
                }
            }
        }
        sums
    }
}
