//! Q3_K and Q6_K, whose values have a fixed offset: y = (d · scale) · (q − offset), for 16 sub-blocks
//! of 16.

use super::LEN;
use super::fit::{WithoutMin, block_without_min};
use crate::blocks::{blocks, half};
use crate::search::Weighed;
use crate::{Error, TensorType};

const SUB: usize = 16;
const SUBS: usize = LEN / SUB;

// Q3_K: 32 bytes of high bits, bit r for elements 32r..32r + 32; 64 bytes of bit pairs as in Q2_K;
// 12 bytes of 6-bit scales with offset 32; f16 d. The values have the offset 4.

const Q3_BYTES: usize = LEN / 8 + LEN / 4 + 12 + 2;

/// The 16 scales, 6 bits each. Bytes 0–7 hold the low 4 bits of scales 0–7 (low) and 8–15 (high);
/// bytes 8–11 hold the high 2 bits, of scale j in byte 8 + j mod 4.
fn unpack_scales(b: &[u8]) -> [i8; SUBS] {
    std::array::from_fn(|j| {
        let low = b[j % 8] >> (j / 8 * 4) & 15;
        let high = b[8 + j % 4] >> (j / 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    })
}

fn pack_scales(scales: &[i8; SUBS]) -> [u8; 12] {
    let mut b = [0; 12];
    for (j, scale) in scales.iter().enumerate() {
        let stored = (scale + 32) as u8;
        b[j % 8] |= (stored & 15) << (j / 8 * 4);
        b[8 + j % 4] |= stored >> 4 << (j / 4 * 2);
    }
    b
}

pub(crate) fn q3_k_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<Q3_BYTES, LEN>(src, dst) {
        let (high, rest) = block.split_at(LEN / 8);
        let (pairs, rest) = rest.split_at(LEN / 4);
        let d = half(&rest[12..]);
        let scales = unpack_scales(rest).map(|scale| d * f32::from(scale));
        for (i, y) in y.iter_mut().enumerate() {
            let low = pairs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
            let q = low | (high[i % 32] >> (i / 32) & 1) << 2;
            *y = scales[i / SUB] * (f32::from(q) - 4.0);
        }
    }
}

pub(crate) fn q3_k_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x, weights) in src.blocks() {
        let WithoutMin { d, scales, q } =
            block_without_min(x, weights, (4, 32), TensorType::Q3_K, i)?;
        let high = |l: usize| (0..8).fold(0, |bits, r| bits | q[32 * r + l] >> 2 << r);
        dst.extend((0..32).map(high));
        for q in q.chunks(128) {
            let low = |at: usize, shift: u32| (q[at] & 3) << shift;
            let pairs = |l| low(l, 0) | low(32 + l, 2) | low(64 + l, 4) | low(96 + l, 6);
            dst.extend((0..32).map(pairs));
        }
        dst.extend(pack_scales(&scales));
        dst.extend(d.to_le_bytes());
    }
    Ok(())
}

// Q6_K: 128 bytes of low nibbles; 64 bytes of high bit pairs; 16 × i8 scales; f16 d. The values have
// the offset 32.

const Q6_BYTES: usize = LEN / 2 + LEN / 4 + SUBS + 2;

/// Where the 6 bits of element i stand: index and shift of its low four among the nibble bytes,
/// index and shift of its high two among the pair bytes. Each half of the block takes 64 nibble
/// and 32 pair bytes, and spreads its four runs of 32 elements over their bits.
const fn q6_place(i: usize) -> (usize, u32, usize, u32) {
    let (half, run, l) = (i / 128, i / 32 % 4, i % 32);
    (half * 64 + run % 2 * 32 + l, 4 * (run as u32 / 2), half * 32 + l, 2 * run as u32)
}

pub(crate) fn q6_k_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<Q6_BYTES, LEN>(src, dst) {
        let (nibbles, rest) = block.split_at(LEN / 2);
        let (pairs, scales) = rest.split_at(LEN / 4);
        let d = half(&scales[SUBS..]);
        for (i, y) in y.iter_mut().enumerate() {
            let (nibble, shift, pair, pair_shift) = q6_place(i);
            let q = nibbles[nibble] >> shift & 15 | (pairs[pair] >> pair_shift & 3) << 4;
            *y = d * f32::from(scales[i / SUB] as i8) * (f32::from(q) - 32.0);
        }
    }
}

pub(crate) fn q6_k_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x, weights) in src.blocks() {
        let WithoutMin { d, scales, q } =
            block_without_min(x, weights, (32, 128), TensorType::Q6_K, i)?;
        let (mut nibbles, mut pairs) = ([0u8; LEN / 2], [0u8; LEN / 4]);
        for (i, q) in q.into_iter().enumerate() {
            let (nibble, shift, pair, pair_shift) = q6_place(i);
            nibbles[nibble] |= (q & 15) << shift;
            pairs[pair] |= q >> 4 << pair_shift;
        }
        dst.extend(nibbles);
        dst.extend(pairs);
        dst.extend(scales.map(|s| s as u8));
        dst.extend(d.to_le_bytes());
    }
    Ok(())
}
