//! Q3_K: 16 half blocks of 16 three-bit values with offset 4; 6-bit scales, themselves scaled in half
//! precision.
//!
//! Packed per block of 256: `[16]` d (half floats), padding to a vector, `[8][16][2]` scales (a signed
//! byte each: 5.5 % more than the file, and nothing to unpack), then per 32 columns three vectors, which
//! hold quads 0 to 5 and, in the bits above, quads 6 and 7.

use super::bits::{self, Run, run};
use super::halves::{PAIR, SCALES, add_integers, pair_place};
use super::q2_k::file_place;
use super::quants::{Head, Packed, Quants, get_half, put_half};
use super::{Q8Blocks, part};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct Q3K;

/// Sub-blocks of 32 columns, each of two half blocks.
const SUBS: usize = 8;
const QUANTS: usize = SCALES + 2 * SUBS * TILE_ROWS;
/// Packed values of a sub-block.
const SUB: usize = 3 * 64;

const RUNS: [Run; 10] = [
    run(0, 0, 3, 0, 0),
    run(1, 0, 3, 0, 3),
    run(2, 0, 3, 1, 0),
    run(3, 0, 3, 1, 3),
    run(4, 0, 3, 2, 0),
    run(5, 0, 3, 2, 3),
    run(6, 0, 2, 0, 6),
    run(6, 2, 1, 2, 6),
    run(7, 0, 2, 1, 6),
    run(7, 2, 1, 2, 7),
];

impl Quants for Q3K {
    const BLOCK_COLS: usize = 256;
    const SUBS: usize = SUBS;
    const HEAD: usize = QUANTS;
    const SUB: usize = SUB;
    const SCALE_LAST: bool = true;

    fn put(group: &mut [u8], _sub: usize, row: usize, block: &[u8]) {
        put_half(group, 0, row, &block[108..]);
        let six = &block[96..108];
        for j in 0..2 * SUBS {
            let scale = six[j % 8] >> (j / 8 * 4) & 15 | (six[8 + j % 4] >> (j / 4 * 2) & 3) << 4;
            group[SCALES + pair_place(j, row)] = scale.wrapping_sub(32);
        }
        for sub in 0..SUBS {
            let quads: [u32; 8] = std::array::from_fn(|q| {
                let (byte, shift) = file_place(32 * sub + 4 * q);
                let low = u32::from_le_bytes(*part(block, 32 + byte)) >> shift & 0x0303_0303;
                let high = u32::from_le_bytes(*part(block, 4 * q)) >> sub & 0x0101_0101;
                low | high << 2
            });
            bits::put::<8, 3>(&mut group[QUANTS + sub * SUB..], row, quads, &RUNS);
        }
    }

    fn get(group: &[u8], _sub: usize, row: usize, block: &mut [u8]) {
        block[..108].fill(0);
        get_half(group, 0, row, &mut block[108..]);
        let six = &mut block[96..108];
        for j in 0..2 * SUBS {
            let scale = group[SCALES + pair_place(j, row)].wrapping_add(32);
            six[j % 8] |= (scale & 15) << (j / 8 * 4);
            six[8 + j % 4] |= scale >> 4 << (j / 4 * 2);
        }
        for sub in 0..SUBS {
            let quads: [u32; 8] = bits::get(&group[QUANTS + sub * SUB..], row, &RUNS);
            for (q, quad) in quads.into_iter().enumerate() {
                for (i, value) in quad.to_le_bytes().into_iter().enumerate() {
                    let (byte, shift) = file_place(32 * sub + 4 * q + i);
                    block[32 + byte] |= (value & 3) << shift;
                    block[4 * q + i] |= value >> 2 << sub;
                }
            }
        }
    }

    #[inline(always)]
    fn units<D: Dot, const N: usize>(head: Head<'_, D, N>) -> [[D::F; N]; 2] {
        [head.half_floats(0); 2]
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let Packed { head: Head { d, bytes, groups }, sub, .. } = packed;
        let mut scales = [d.splat_w(0); N];
        for n in 0..N {
            scales[n] = d.load_pairs_i8(part(bytes[n], SCALES + sub * PAIR), groups[n]);
        }
        let sums = [half::<D, T, N, 0>(packed, acts), half::<D, T, N, 1>(packed, acts)];
        add_integers(d, sums, scales, acts, acc);
    }
}

/// The integer sums of half `SIDE`.
#[inline(always)]
fn half<D: Dot, const T: usize, const N: usize, const SIDE: usize>(
    packed: Packed<'_, D, N>,
    acts: Q8Blocks<'_, T>,
) -> [[D::N; N]; T] {
    let d = packed.head.d;
    let (two, three) = (d.splat_w(3), d.splat_w(7));
    let mut sums = [[d.start_half(0); N]; T];
    for t in 0..T {
        // The offset, of which 8 times the sum stands ready.
        sums[t] = [d.start_half(acts[t].neg32[SIDE] >> 3); N];
    }
    for pair in 0..2 {
        let mut w = [[three; 2]; N];
        for n in 0..N {
            w[n] = match (SIDE, pair) {
                (1, 1) => {
                    let high = packed.vector(n, 2);
                    let low = d.and(d.shr6(packed.vector(n, 0)), two);
                    let next = d.and(d.shr6(packed.vector(n, 1)), two);
                    [
                        d.or(low, d.and(d.shr4(high), d.splat_w(4))),
                        d.or(next, d.and(d.shr5(high), d.splat_w(4))),
                    ]
                }
                _ => {
                    let both = packed.vector(n, 2 * SIDE + pair);
                    [d.and(both, three), d.and(d.shr3(both), three)]
                }
            };
        }
        for t in 0..T {
            let q = 4 * SIDE + 2 * pair;
            let quads = [acts[t].quad(q), acts[t].quad(q + 1)];
            for n in 0..N {
                sums[t][n] = d.dot_nibbles(sums[t][n], w[n][0], quads[0]);
                sums[t][n] = d.dot_nibbles(sums[t][n], w[n][1], quads[1]);
            }
        }
    }
    sums
}
