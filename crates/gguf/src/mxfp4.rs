//! MXFP4: 32 floats of 4 bits that share a power of two, bit for bit as ggml's reference converts
//! them.
//!
//! Source: the OCP Microscaling Formats specification 1.0. The power is stored in 8 bits with bias
//! 127, as E8M0 says; all 256 of its values are numbers here.

use crate::Error;
use crate::blocks::blocks;

/// Elements of a block.
const LEN: usize = 32;
const BYTES: usize = 1 + LEN / 2;

/// The floats of 1 sign, 2 exponent and 1 mantissa bit, doubled to be whole. Both zeros are +0.
pub(crate) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half of the power of two that `exponent` stands for, 2^(exponent - 128).
fn half_power(exponent: u8) -> f32 {
    // The two smallest are subnormal: a bit of the mantissa.
    f32::from_bits(match exponent {
        0 | 1 => 1 << (21 + exponent),
        _ => u32::from(exponent - 1) << 23,
    })
}

pub(crate) fn mxfp4_to_f32(src: &[u8], dst: &mut [f32]) {
    for ([exponent, nibbles @ ..], y) in blocks::<BYTES, LEN>(src, dst) {
        let d = half_power(*exponent);
        let (low, high) = y.split_at_mut(LEN / 2);
        for (i, &q) in nibbles.iter().enumerate() {
            low[i] = d * f32::from(DOUBLED[usize::from(q & 15)]);
            high[i] = d * f32::from(DOUBLED[usize::from(q >> 4)]);
        }
    }
}

pub(crate) fn mxfp4_from_f32(src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
    for x in src.as_chunks::<LEN>().0 {
        let most = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        // The greatest float is 6 = 1.5 · 2^2. The reference takes the logarithm in single
        // precision, which counts the last numbers below a power of two to it.
        let log = f64::from(most).log2() as f32;
        let exponent = if most > 0.0 { (log.floor() + 125.0) as u8 } else { 0 };
        let d = half_power(exponent);
        let (low, high) = x.split_at(LEN / 2);
        dst.push(exponent);
        dst.extend(
            low.iter().zip(high).map(|(&low, &high)| nearest(low, d) | nearest(high, d) << 4),
        );
    }
    Ok(())
}

/// The first of those values of [`DOUBLED`] that, times `d`, are nearest to `x`.
pub(crate) fn nearest(x: f32, d: f32) -> u8 {
    let (mut best, mut least) = (0, f32::INFINITY);
    for (i, &value) in DOUBLED.iter().enumerate() {
        let error = (d * f32::from(value) - x).abs();
        if error < least {
            (best, least) = (i as u8, error);
        }
    }
    best
}
