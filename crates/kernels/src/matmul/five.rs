//! Weights of 5 bits: 32 columns of nibbles as in Q4_0, and 64 bytes of fifth bits. Of the fifth
//! bits, bit `q` of byte `4r + i` is of element `4q + i` of row `r`.

use super::{block, part};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

/// Bytes of 32 columns.
pub(super) const FIVE: usize = FIFTH + 4 * TILE_ROWS;
const FIFTH: usize = 16 * TILE_ROWS;

/// Where element `i` of row `row` is: byte and shift of its nibble, byte and shift of its fifth bit.
const fn place(i: usize, row: usize) -> (usize, usize, usize, usize) {
    let (quad, lane) = (i / 4, 4 * row + i % 4);
    (quad % 4 * 64 + lane, quad / 4 * 4, FIFTH + lane, quad)
}

/// Puts 32 elements of row `row` into their places.
pub(super) fn put(packed: &mut [u8], row: usize, q: &[u8; 32]) {
    for (i, q) in q.iter().enumerate() {
        let (nibble, shift, fifth, bit) = place(i, row);
        packed[nibble] = packed[nibble] & !(15 << shift) | (q & 15) << shift;
        packed[fifth] = packed[fifth] & !(1 << bit) | q >> 4 << bit;
    }
}

/// Gives them back.
pub(super) fn get(packed: &[u8], row: usize) -> [u8; 32] {
    std::array::from_fn(|i| {
        let (nibble, shift, fifth, bit) = place(i, row);
        packed[nibble] >> shift & 15 | (packed[fifth] >> bit & 1) << 4
    })
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

/// The integer sums of 32 columns, each token's begun at `start` of its block.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
pub(super) unsafe fn dot_five<D: Dot, const T: usize, const N: usize>(
    d: D,
    packed: [&[u8; FIVE]; N],
    groups: [usize; N],
    acts: [&[Q8Block]; T],
    b: usize,
    start: impl Fn(&Q8Block) -> i32,
) -> [[D::I; N]; T] {
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let (nibble, fifth) = (d.splat_w(0x0f), d.splat_w(0x10));
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        sums[t] = [d.splat_i(start(act(t))); N];
    }
    for j in 0..4 {
        let mut w = [[nibble; 2]; N];
        for n in 0..N {
            let both = d.load_w(part(packed[n], 64 * j), groups[n]);
            let bits = d.load_w(part(packed[n], FIFTH), groups[n]);
            let bits = if j % 2 == 0 { bits } else { d.shr1(bits) };
            // Bits `j`, one lower where `j` is odd, and `j + 4` go to bit 4.
            let [low, high] = match j / 2 {
                0 => [d.shl4(bits), bits],
                _ => [d.shl2(bits), d.shr2(bits)],
            };
            w[n] = [
                d.or(d.and(both, nibble), d.and(low, fifth)),
                d.or(d.and(d.shr4(both), nibble), d.and(high, fifth)),
            ];
        }
        for t in 0..T {
            let quads = [act(t).quad(j), act(t).quad(j + 4)];
            for n in 0..N {
                sums[t][n] = d.dot_two(sums[t][n], w[n], quads);
            }
        }
    }
    sums
}
