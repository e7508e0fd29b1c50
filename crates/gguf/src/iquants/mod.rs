//! The IQ types below 4 bits: runs of 4 or 8 values are rows of a fixed table.
//!
//! Indices, signs and scales are packed differently in each; see there. Signs are a bit each, or 7
//! bits for 8 values: the eighth makes the number of minus signs even. Scales are odd numbers, for
//! which the 3 or 4 bits in the file count the steps.

mod codebook;
mod fit;
mod grids;
mod make;

pub(crate) use make::{
    iq1_m_from_f32, iq1_s_from_f32, iq2_s_from_f32, iq2_xs_from_f32, iq2_xxs_from_f32,
    iq3_s_from_f32, iq3_xxs_from_f32,
};

use half::f16;

use crate::Integers;
use crate::blocks::half;

/// The little-endian words of a field.
fn words(field: &[u8]) -> impl Iterator<Item = u16> {
    field.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b))
}

/// The scale that `steps` bits stand for.
fn odd(steps: u32) -> u8 {
    (2 * steps + 1) as u8
}

/// 8 signs from 7.
fn even(signs: u32) -> u8 {
    (signs | (signs.count_ones() % 2) << 7) as u8
}

/// Table entries with signs, the first the lowest bit.
fn signed<const N: usize>(to: &mut [i8], row: [i8; N], signs: u8) {
    for (i, (to, value)) in to.iter_mut().zip(row).enumerate() {
        *to = if signs >> i & 1 == 1 { -value } else { value };
    }
}

/// f16 d; then for every 32 values, 8 bytes: 4 indices, 4 × 7 signs, 4 bits of scale.
pub(crate) fn iq2_xxs(block: &[u8], to: &mut Integers) {
    to.unit = half(block) / 8.0;
    for (j, field) in block[2..].as_chunks::<8>().0.iter().enumerate() {
        let [i0, i1, i2, i3, rest @ ..] = *field;
        let rest = u32::from_le_bytes(rest);
        to.scales[2 * j..][..2].fill(odd(rest >> 28));
        for (k, index) in [i0, i1, i2, i3].into_iter().enumerate() {
            let signs = even(rest >> (7 * k) & 127);
            signed(&mut to.quants[32 * j + 8 * k..], grids::IQ2_XXS[usize::from(index)], signs);
        }
    }
}

/// f16 d; 32 words of 9 bits of index and 7 signs; 16 scales of 4 bits.
pub(crate) fn iq2_xs(block: &[u8], to: &mut Integers) {
    to.unit = half(block) / 8.0;
    for (k, word) in words(&block[2..66]).enumerate() {
        let signs = even(u32::from(word >> 9));
        signed(&mut to.quants[8 * k..], grids::IQ2_XS[usize::from(word & 511)], signs);
    }
    nibble_scales(&block[66..], to);
}

/// f16 d; 32 low bytes of indices; 32 bytes of signs; 32 × 2 high bits of indices; 16 scales of 4
/// bits.
pub(crate) fn iq2_s(block: &[u8], to: &mut Integers) {
    to.unit = half(block) / 8.0;
    let (low, signs, high) = (&block[2..34], &block[34..66], &block[66..74]);
    for k in 0..32 {
        let index = usize::from(low[k]) | usize::from(high[k / 4] >> (k % 4 * 2) & 3) << 8;
        signed(&mut to.quants[8 * k..], grids::IQ2_S[index], signs[k]);
    }
    nibble_scales(&block[74..], to);
}

/// A scale of 4 bits for every 16 values, low nibbles first.
fn nibble_scales(field: &[u8], to: &mut Integers) {
    for (pair, &byte) in to.scales.as_chunks_mut::<2>().0.iter_mut().zip(field) {
        *pair = [odd(u32::from(byte & 15)), odd(u32::from(byte >> 4))];
    }
}

/// f16 d; 64 indices; then for every 32 values a word of 4 × 7 signs and 4 bits of scale.
pub(crate) fn iq3_xxs(block: &[u8], to: &mut Integers) {
    to.unit = half(block) / 4.0;
    let (indices, rest) = block[2..].split_at(64);
    for (j, rest) in rest.as_chunks().0.iter().enumerate() {
        let rest = u32::from_le_bytes(*rest);
        to.scales[2 * j..][..2].fill(odd(rest >> 28));
        for k in 0..4 {
            let signs = even(rest >> (7 * k) & 127);
            for side in 0..2 {
                let at = 8 * j + 2 * k + side;
                let row = grids::IQ3_XXS[usize::from(indices[at])];
                signed(&mut to.quants[4 * at..], row, signs >> (4 * side));
            }
        }
    }
}

/// f16 d; 64 low bytes of indices; 64 high bits; 32 bytes of signs; 8 scales of 4 bits.
pub(crate) fn iq3_s(block: &[u8], to: &mut Integers) {
    to.unit = half(block);
    let (low, high, signs) = (&block[2..66], &block[66..74], &block[74..106]);
    for k in 0..64 {
        let index = usize::from(low[k]) | usize::from(high[k / 8] >> (k % 8) & 1) << 8;
        signed(&mut to.quants[4 * k..], grids::IQ3_S[index], signs[k / 2] >> (k % 2 * 4));
    }
    for (four, &byte) in to.scales.as_chunks_mut::<4>().0.iter_mut().zip(&block[106..]) {
        let (low, high) = (odd(u32::from(byte & 15)), odd(u32::from(byte >> 4)));
        *four = [low, low, high, high];
    }
}

/// Eight entries of the ternary table, an eighth above or below, all times 8.
fn shifted(to: &mut [i8], index: usize, down: bool) {
    let shift = if down { -1 } else { 1 };
    for (to, value) in to.iter_mut().zip(grids::IQ1[index]) {
        *to = value + shift;
    }
}

/// f16 d; 32 low bytes of indices; then for every 32 values a word: 4 × 3 high bits, 3 bits of
/// scale, and whether the shift is down.
pub(crate) fn iq1_s(block: &[u8], to: &mut Integers) {
    to.unit = half(block) / 8.0;
    for (j, word) in words(&block[34..]).enumerate() {
        to.scales[2 * j..][..2].fill(odd(u32::from(word >> 12 & 7)));
        for k in 0..4 {
            let index = usize::from(block[2 + 4 * j + k]) | usize::from(word >> (3 * k) & 7) << 8;
            shifted(&mut to.quants[32 * j + 8 * k..], index, word >> 15 == 1);
        }
    }
}

/// 32 low bytes of indices; 32 nibbles: 3 high bits and whether the shift is down; 4 words of 4 × 3
/// bits of scale, whose upper nibbles are the f16 d, lowest first.
pub(crate) fn iq1_m(block: &[u8], to: &mut Integers) {
    let mut d = 0;
    for (j, word) in words(&block[48..]).enumerate() {
        d |= word >> 12 << (4 * j);
        for k in 0..4 {
            to.scales[4 * j + k] = odd(u32::from(word >> (3 * k) & 7));
        }
    }
    to.unit = f16::from_bits(d).to_f32() / 8.0;
    for k in 0..32 {
        let nibble = block[32 + k / 2] >> (k % 2 * 4);
        let index = usize::from(block[k]) | usize::from(nibble & 7) << 8;
        shifted(&mut to.quants[8 * k..], index, nibble >> 3 & 1 == 1);
    }
}
