//! Q2_K, Q4_K and Q5_K, whose sub-blocks have a minimum: y = (d · scale) · q − (dmin · min).

use super::LEN;
use super::fit::{WithMin, block_with_min};
use crate::blocks::{blocks, half};
use crate::search::Weighed;
use crate::{Error, TensorType};

// Q2_K: 16 bytes, scale in the low and minimum in the high nibble; 64 bytes of bit pairs; f16 d; f16
// dmin. 16 sub-blocks of 16; each half of the block spreads its four runs of 32 elements over the
// bit pairs of 32 bytes.

const Q2_BYTES: usize = 16 + LEN / 4 + 2 + 2;

pub(crate) fn q2_k_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<Q2_BYTES, LEN>(src, dst) {
        let (d, dmin) = (half(&block[80..]), half(&block[82..]));
        let factors: [(f32, f32); 16] = std::array::from_fn(|j| {
            (d * f32::from(block[j] & 15), dmin * f32::from(block[j] >> 4))
        });
        for (i, y) in y.iter_mut().enumerate() {
            let (scale, min) = factors[i / 16];
            let q = block[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
            *y = scale * f32::from(q) - min;
        }
    }
}

pub(crate) fn q2_k_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x, weights) in src.blocks() {
        let WithMin { d, dmin, scales, mins, q } =
            block_with_min::<16, 16>(x, weights, (3, 15), TensorType::Q2_K, i)?;
        dst.extend(scales.iter().zip(mins).map(|(scale, min)| scale | min << 4));
        for q in q.chunks(128) {
            dst.extend((0..32).map(|l| q[l] | q[32 + l] << 2 | q[64 + l] << 4 | q[96 + l] << 6));
        }
        dst.extend(d.to_le_bytes());
        dst.extend(dmin.to_le_bytes());
    }
    Ok(())
}

// Q4_K: f16 d; f16 dmin; 12 bytes of 6-bit scales and minima; 128 bytes of nibbles. 8 sub-blocks of
// 32; 32 bytes hold two of them: one in the low nibbles, the next in the high ones.
// Q5_K: between scales and nibbles 32 bytes of fifth bits, bit j for sub-block j.

const SUB: usize = 32;
const SUBS: usize = LEN / SUB;
const Q4_BYTES: usize = 2 + 2 + 12 + LEN / 2;
const Q5_BYTES: usize = Q4_BYTES + LEN / 8;

/// The 8 scales and 8 minima of a block, 6 bits each. Bytes 0–3 and 4–7 hold the scales and minima
/// of sub-blocks 0–3 in their low 6 bits; bytes 8–11 hold the low 4 bits of those of sub-blocks 4–7
/// (scale low, minimum high), whose upper 2 bits are the upper 2 of bytes 0–7.
fn unpack_scales(b: &[u8]) -> ([u8; SUBS], [u8; SUBS]) {
    let (mut scales, mut mins) = ([0; SUBS], [0; SUBS]);
    for j in 0..4 {
        scales[j] = b[j] & 63;
        mins[j] = b[j + 4] & 63;
        scales[j + 4] = b[j + 8] & 15 | b[j] >> 6 << 4;
        mins[j + 4] = b[j + 8] >> 4 | b[j + 4] >> 6 << 4;
    }
    (scales, mins)
}

fn pack_scales(scales: &[u8; SUBS], mins: &[u8; SUBS]) -> [u8; 12] {
    let mut b = [0; 12];
    for j in 0..4 {
        b[j] = scales[j] | scales[j + 4] >> 4 << 6;
        b[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        b[j + 8] = scales[j + 4] & 15 | mins[j + 4] << 4;
    }
    b
}

/// The scale and the minimum of every sub-block.
fn factors(block: &[u8]) -> [(f32, f32); SUBS] {
    let (d, dmin) = (half(block), half(&block[2..]));
    let (scales, mins) = unpack_scales(&block[4..16]);
    std::array::from_fn(|j| (d * f32::from(scales[j]), dmin * f32::from(mins[j])))
}

/// What both begin with.
fn head(of: &WithMin<SUBS>) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&of.d.to_le_bytes());
    bytes[2..4].copy_from_slice(&of.dmin.to_le_bytes());
    bytes[4..].copy_from_slice(&pack_scales(&of.scales, &of.mins));
    bytes
}

/// What both end with.
fn nibbles(q: &[u8; LEN]) -> impl Iterator<Item = u8> {
    q.chunks(2 * SUB).flat_map(|pair| {
        let (low, high) = pair.split_at(SUB);
        low.iter().zip(high).map(|(low, high)| low & 15 | high << 4)
    })
}

pub(crate) fn q4_k_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<Q4_BYTES, LEN>(src, dst) {
        let factors = factors(block);
        for (j, (y, q)) in y.chunks_exact_mut(2 * SUB).zip(block[16..].chunks(SUB)).enumerate() {
            let (low, high) = y.split_at_mut(SUB);
            let ((d0, m0), (d1, m1)) = (factors[2 * j], factors[2 * j + 1]);
            for (i, &q) in q.iter().enumerate() {
                low[i] = d0 * f32::from(q & 15) - m0;
                high[i] = d1 * f32::from(q >> 4) - m1;
            }
        }
    }
}

pub(crate) fn q4_k_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x, weights) in src.blocks() {
        let block = block_with_min::<SUB, SUBS>(x, weights, (15, 63), TensorType::Q4_K, i)?;
        dst.extend(head(&block));
        dst.extend(nibbles(&block.q));
    }
    Ok(())
}

pub(crate) fn q5_k_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<Q5_BYTES, LEN>(src, dst) {
        let factors = factors(block);
        let (fifth, nibbles) = block[16..].split_at(SUB);
        for (j, y) in y.chunks_exact_mut(SUB).enumerate() {
            let (scale, min) = factors[j];
            for (i, y) in y.iter_mut().enumerate() {
                let nibble = nibbles[j / 2 * SUB + i] >> (j % 2 * 4) & 15;
                let q = nibble | (fifth[i] >> j & 1) << 4;
                *y = scale * f32::from(q) - min;
            }
        }
    }
}

pub(crate) fn q5_k_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x, weights) in src.blocks() {
        let block = block_with_min::<SUB, SUBS>(x, weights, (31, 63), TensorType::Q5_K, i)?;
        dst.extend(head(&block));
        let fifth = |i: usize, j: usize| block.q[j * SUB + i] >> 4 << j;
        dst.extend((0..SUB).map(|i| (0..SUBS).fold(0, |bits, j| bits | fifth(i, j))));
        dst.extend(nibbles(&block.q));
    }
    Ok(())
}
