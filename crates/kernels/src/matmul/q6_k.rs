//! Q6_K: 16 half blocks of 16 six-bit values with offset 32; 8-bit scales, themselves scaled in
//! half precision.
//!
//! Packed per block of 256: `[16]` d (half floats), padding to a vector, `[16][16]` scales, then
//! per half block three vectors, which hold quads 0 to 2 and, in the bits above, quad 3.

use super::bits::{self, Run, run};
use super::halves::{self, Halves, SCALES};
use super::panel::{PanelKind, Sub};
use super::quants::{Head, Packed, Quants, get_half, put_half};
use super::{Q8Blocks, dot_pair, part, start};
use crate::TILE_ROWS;
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
    fn units<D: Dot, const N: usize>(head: Head<'_, D, N>) -> [[D::F; N]; 2] {
        [head.half_floats(0); 2]
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Halves);

    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        let Packed { head: Head { d, bytes: [bytes], groups: [group] }, sub, .. } = packed;
        let ([[unit], _], six) = (packed.units, d.splat_w(63));
        for side in 0..2 {
            let at = SCALES + (2 * sub + side) * TILE_ROWS;
            let scale = d.mul(unit, Self::scale(d, part(bytes, at), group));
            d.store(scale, if side == 0 { &mut to.scales } else { &mut to.others }, group);
            let mut v = [six; 3];
            for i in 0..3 {
                v[i] = packed.vector(0, 3 * side + i);
                d.store_w(d.and(v[i], six), &mut to.quads[4 * side + i], group);
            }
            d.store_w(fourth(d, v), &mut to.quads[4 * side + 3], group);
        }
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        halves::add::<Self, D, T, N>(packed, acts, acc);
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
    fn half<D: Dot, const T: usize, const N: usize, const SIDE: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
    ) -> [[D::I; N]; T] {
        let d = packed.head.d;
        let six = d.splat_w(63);
        let mut sums = start(d, acts, |act| act.neg32[SIDE]);
        for two in 0..2 {
            let mut w = [[six; 2]; N];
            for n in 0..N {
                let first = 3 * SIDE;
                let v0 = packed.vector(n, first);
                let (v1, v2) = (packed.vector(n, first + 1), packed.vector(n, first + 2));
                w[n] = match two {
                    0 => [d.and(v0, six), d.and(v1, six)],
                    _ => [d.and(v2, six), fourth(d, [v0, v1, v2])],
                };
            }
            let q = 4 * SIDE + 2 * two;
            dot_pair(d, &w, acts, [q, q + 1], &mut sums);
        }
        sums
    }
}
