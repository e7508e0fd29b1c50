//! NVFP4: 64 floats of 4 bits, of which each 16 have a scale of 8 bits; bit for bit as ggml's
//! reference converts them.
//!
//! A scale has 4 bits of exponent with bias 7 and 3 of mantissa (E4M3 without its sign). The four
//! scales of a block come first; then each 16 elements are 8 bytes, the first half's nibbles low. The
//! floats are MXFP4's, doubled, so the scale is half of what is stored.

use crate::blocks::blocks;
use crate::mxfp4::{DOUBLED, nearest};
use crate::{Error, TensorType};

/// Elements of a block, and of what shares a scale.
const LEN: usize = 64;
const PART: usize = 16;
const BYTES: usize = (LEN / PART) + LEN / 2;

/// The greatest stored scale, 1.75 · 2^8, and its byte.
const GREATEST: f32 = 448.0;
const GREATEST_BYTE: u8 = 0x7e;

/// Half of what a stored scale means. The eighth bit means nothing, but that E4M3's NaN, which is a
/// zero here, is the byte without it.
fn half_scale(byte: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(byte >> 3 & 15), f32::from(byte & 7));
    // 2^(exponent - 7 - 3 - 1), of which the mantissa's eighths and the half are part.
    let power = |exponent: u32| f32::from_bits((exponent + 127 - 11) << 23);
    match (byte, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => mantissa * power(1),
        _ => (8.0 + mantissa) * power(exponent),
    }
}

/// The stored scale for `x`, from 0 to [`GREATEST`]: rounded to nearest, halves away from zero. All of
/// the greatest exponent's are the greatest, as the reference has them.
fn byte_of(x: f32) -> u8 {
    /// The least number that is not subnormal.
    const NORMAL: f32 = 1.0 / 64.0;
    if x < NORMAL {
        // In steps of 2^-9, of which there are 7.
        return ((x * 512.0 + 0.5) as u8).min(7);
    }
    // Mantissa and exponent in one number: a carry goes from one to the other.
    let rounded = (x.to_bits() >> 19).div_ceil(2) - ((127 - 7) << 3);
    if rounded < 15 << 3 { rounded as u8 } else { GREATEST_BYTE }
}

pub(crate) fn nvfp4_to_f32(src: &[u8], dst: &mut [f32]) {
    for ([s0, s1, s2, s3, nibbles @ ..], y) in blocks::<BYTES, LEN>(src, dst) {
        let parts = nibbles.as_chunks::<{ PART / 2 }>().0.iter().zip(y.chunks_exact_mut(PART));
        for ((nibbles, y), &scale) in parts.zip([s0, s1, s2, s3]) {
            let d = half_scale(scale);
            let (low, high) = y.split_at_mut(PART / 2);
            for (i, &q) in nibbles.iter().enumerate() {
                low[i] = d * f32::from(DOUBLED[usize::from(q & 15)]);
                high[i] = d * f32::from(DOUBLED[usize::from(q >> 4)]);
            }
        }
    }
}

pub(crate) fn nvfp4_from_f32(src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
    for (b, x) in src.as_chunks::<LEN>().0.iter().enumerate() {
        let parts = x.as_chunks::<PART>().0;
        let at = dst.len();
        for x in parts {
            let most = x.iter().fold(0f32, |most, x| most.max(x.abs()));
            // The greatest float is 6.
            let scale = most / 6.0;
            if scale > GREATEST {
                let (ty, index) = (TensorType::NVFP4, b * LEN);
                return Err(Error::ScaleOverflow { ty, index, scale });
            }
            dst.push(byte_of(scale));
        }
        for (i, x) in parts.iter().enumerate() {
            let d = half_scale(dst[at + i]);
            let (low, high) = x.split_at(PART / 2);
            dst.extend(low.iter().zip(high).map(|(&x, &y)| nearest(x, d) | nearest(y, d) << 4));
        }
    }
    Ok(())
}
