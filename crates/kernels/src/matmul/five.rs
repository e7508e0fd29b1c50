//! Weights of 5 bits: 32 columns in five vectors of bytes, of which quads 0 to 4 have the low bits.

use super::bits::{self, Run, run};
use super::panel::Sub;
use super::quants::{Head, Packed};
use super::{Q8Blocks, dot_pair, part, start};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

/// Bytes of 32 columns.
pub(super) const FIVE: usize = 5 * 4 * TILE_ROWS;

const RUNS: [Run; 12] = [
    run(0, 0, 5, 0, 0),
    run(1, 0, 5, 1, 0),
    run(2, 0, 5, 2, 0),
    run(3, 0, 5, 3, 0),
    run(4, 0, 5, 4, 0),
    run(5, 0, 3, 0, 5),
    run(5, 3, 2, 3, 5),
    run(6, 0, 3, 1, 5),
    run(6, 3, 2, 4, 5),
    run(7, 0, 3, 2, 5),
    run(7, 3, 1, 3, 7),
    run(7, 4, 1, 4, 7),
];

/// Puts 32 elements of row `row` into their places.
pub(super) fn put(packed: &mut [u8], row: usize, q: &[u8; 32]) {
    let quads: [u32; 8] = std::array::from_fn(|i| u32::from_le_bytes(*part(q, 4 * i)));
    bits::put::<8, 5>(packed, row, quads, &RUNS);
}

/// Gives them back.
pub(super) fn get(packed: &[u8], row: usize) -> [u8; 32] {
    let quads: [u32; 8] = bits::get(packed, row, &RUNS);
    std::array::from_fn(|i| quads[i / 4].to_le_bytes()[i % 4])
}

/// Elements in the file's form of Q5_0 and Q5_1: fifth bits, the first lowest; nibbles, those of the
/// first half low.
pub(super) fn from_file(fifth: &[u8], nibbles: &[u8]) -> [u8; 32] {
    std::array::from_fn(|i| {
        nibbles[i % 16] >> (i / 16 * 4) & 15 | (fifth[i / 8] >> (i % 8) & 1) << 4
    })
}

/// The reverse.
pub(super) fn to_file(q: &[u8; 32], fifth: &mut [u8], nibbles: &mut [u8]) {
    for (byte, q) in fifth.iter_mut().zip(q.as_chunks::<8>().0) {
        *byte = q.iter().rev().fold(0, |bits, q| bits << 1 | q >> 4);
    }
    for (i, byte) in nibbles.iter_mut().enumerate() {
        *byte = q[i] & 15 | q[i + 16] << 4;
    }
}

/// Quads `2 * pair` and the next of row vector `n`.
#[inline(always)]
fn two_quads<D: Dot, const N: usize>(packed: Packed<'_, D, N>, n: usize, pair: usize) -> [D::W; 2] {
    let d = packed.head.d;
    let (five, three) = (d.splat_w(31), d.splat_w(7));
    match pair {
        0 => [d.and(packed.vector(n, 0), five), d.and(packed.vector(n, 1), five)],
        1 => [d.and(packed.vector(n, 2), five), d.and(packed.vector(n, 3), five)],
        2 => {
            // Three bits of one vector, two of another to bits 3 and 4.
            let low = d.and(d.shr5(packed.vector(n, 0)), three);
            let high = d.and(d.shr2(packed.vector(n, 3)), d.splat_w(0x18));
            [d.and(packed.vector(n, 4), five), d.or(low, high)]
        }
        _ => {
            let (fourth, fifth) = (packed.vector(n, 3), packed.vector(n, 4));
            let low = d.and(d.shr5(packed.vector(n, 1)), three);
            let high = d.and(d.shr2(fifth), d.splat_w(0x18));
            let last = d.and(d.shr5(packed.vector(n, 2)), three);
            let last = d.or(last, d.and(d.shr4(fourth), d.splat_w(0x08)));
            [d.or(low, high), d.or(last, d.and(d.shr3(fifth), d.splat_w(0x10)))]
        }
    }
}

/// Puts the values into a panel.
#[inline(always)]
pub(super) fn unpack_five<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
    let Head { d, groups: [group], .. } = packed.head;
    for pair in 0..4 {
        let [first, second] = two_quads(packed, 0, pair);
        d.store_w(first, &mut to.quads[2 * pair], group);
        d.store_w(second, &mut to.quads[2 * pair + 1], group);
    }
}

/// The integer sums, each token's begun at `begin` of its block.
#[inline(always)]
pub(super) fn dot_five<D: Dot, const T: usize, const N: usize>(
    packed: Packed<'_, D, N>,
    acts: Q8Blocks<'_, T>,
    begin: impl Fn(&Q8Block) -> i32,
) -> [[D::I; N]; T] {
    let d = packed.head.d;
    let mut sums = start(d, acts, begin);
    for pair in 0..4 {
        let mut w = [[d.splat_w(0); 2]; N];
        for n in 0..N {
            w[n] = two_quads(packed, n, pair);
        }
        dot_pair(d, &w, acts, [2 * pair, 2 * pair + 1], &mut sums);
    }
    sums
}
