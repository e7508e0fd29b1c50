//! Plain floats and the 32-element block types, bit for bit as ggml's reference converts them.
//!
//! The order of float operations is part of the format: it is kept exactly. With weights, scales are
//! searched for, and no reference is followed.

use half::{bf16, f16};

use crate::search::{self, Weighed, extreme};
use crate::{Error, TensorType};

/// Elements of a block.
const LEN: usize = 32;

/// Blocks of bytes, and what each becomes.
pub(crate) fn blocks<'a, const BYTES: usize, const LEN: usize>(
    src: &'a [u8],
    dst: &'a mut [f32],
) -> impl Iterator<Item = (&'a [u8; BYTES], &'a mut [f32; LEN])> {
    src.as_chunks().0.iter().zip(dst.as_chunks_mut().0)
}

pub(crate) fn f32_to_f32(src: &[u8], dst: &mut [f32]) {
    for (y, x) in dst.iter_mut().zip(src.as_chunks().0) {
        *y = f32::from_le_bytes(*x);
    }
}

pub(crate) fn f32_from_f32(src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
    dst.extend(src.iter().flat_map(|x| x.to_le_bytes()));
    Ok(())
}

pub(crate) fn f16_to_f32(src: &[u8], dst: &mut [f32]) {
    for (y, x) in dst.iter_mut().zip(src.as_chunks().0) {
        *y = f16::from_le_bytes(*x).to_f32();
    }
}

pub(crate) fn f16_from_f32(src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
    dst.extend(src.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()));
    Ok(())
}

pub(crate) fn bf16_to_f32(src: &[u8], dst: &mut [f32]) {
    for (y, x) in dst.iter_mut().zip(src.as_chunks().0) {
        // A shift, so that NaN payloads pass through.
        *y = f32::from_bits(u32::from(u16::from_le_bytes(*x)) << 16);
    }
}

pub(crate) fn bf16_from_f32(src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
    // Rounds to nearest even; NaNs keep their upper payload and become quiet.
    dst.extend(src.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()));
    Ok(())
}

/// The f16 at the start of a field.
pub(crate) fn half(field: &[u8]) -> f32 {
    f16::from_le_bytes([field[0], field[1]]).to_f32()
}

/// A block's scale in half precision, refused if it overflows. `block` counts from 0.
pub(crate) fn half_scale(
    scale: f32,
    ty: TensorType,
    block: usize,
    len: usize,
) -> Result<f16, Error> {
    let half = f16::from_f32(scale);
    if !half.is_finite() {
        return Err(Error::ScaleOverflow { ty, index: block * len, scale });
    }
    Ok(half)
}

/// `1 / d`, or 0 when that is not a number to multiply with: for `d` of 0, and for those so tiny
/// that half precision makes them 0 anyway.
pub(crate) fn inverse(d: f32) -> f32 {
    let inverse = 1.0 / d;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// Q8_0: f16 scale, 32 × i8.
pub(crate) fn q8_0_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<{ 2 + LEN }, LEN>(src, dst) {
        let d = half(block);
        for (y, &q) in y.iter_mut().zip(&block[2..]) {
            *y = f32::from(q as i8) * d;
        }
    }
}

pub(crate) fn q8_0_from_f32(src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x) in src.as_chunks::<LEN>().0.iter().enumerate() {
        let most = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        let d = most / 127.0;
        let inverse = inverse(d);
        dst.extend(half_scale(d, TensorType::Q8_0, i, LEN)?.to_le_bytes());
        // `round` goes half away from zero, as C's roundf.
        dst.extend(x.iter().map(|x| (x * inverse).round() as i8 as u8));
    }
    Ok(())
}

/// Scale of a block of elements in −`offset`..`offset`, and what to multiply with instead of dividing.
fn without_min(
    x: &[f32; LEN],
    weights: Option<&[f32; LEN]>,
    offset: u8,
    ty: TensorType,
    block: usize,
) -> Result<(f16, f32), Error> {
    if weights.is_some() {
        let d = half_scale(search::without_min(x, offset, weights), ty, block, LEN)?;
        return Ok((d, inverse(d.to_f32())));
    }
    // The first element of largest magnitude maps to -offset exactly, so its sign picks d's.
    let d = extreme(x) / -f32::from(offset);
    Ok((half_scale(d, ty, block, LEN)?, inverse(d)))
}

/// Q4_0: f16 scale, 16 bytes; byte i holds element i in its low and element i + 16 in its high
/// four bits, both with offset 8.
pub(crate) fn q4_0_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<{ 2 + LEN / 2 }, LEN>(src, dst) {
        let d = half(block);
        let (low, high) = y.split_at_mut(LEN / 2);
        for (i, &q) in block[2..].iter().enumerate() {
            low[i] = d * (f32::from(q & 15) - 8.0);
            high[i] = d * (f32::from(q >> 4) - 8.0);
        }
    }
}

pub(crate) fn q4_0_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x, weights) in src.blocks() {
        let (d, inverse) = without_min(x, weights, 8, TensorType::Q4_0, i)?;
        dst.extend(d.to_le_bytes());
        dst.extend(nibbles(&x.map(|x| ((x * inverse + 8.5) as u8).min(15))));
    }
    Ok(())
}

/// Low bits of 32 elements as bytes, laid out as in Q4_0.
fn nibbles(q: &[u8; LEN]) -> impl Iterator<Item = u8> {
    let (low, high) = q.split_at(LEN / 2);
    low.iter().zip(high).map(|(low, high)| low & 15 | high << 4)
}

/// The fifth bits of 32 elements, the first lowest.
fn fifth_bits(q: &[u8; LEN]) -> [u8; 4] {
    q.iter().rev().fold(0u32, |bits, q| bits << 1 | u32::from(q >> 4)).to_le_bytes()
}

/// 32 elements of 5 bits.
fn five_bits(fifth: &[u8], nibbles: &[u8]) -> [u8; LEN] {
    let fifth = u32::from_le_bytes(*fifth.first_chunk().expect("4 bytes"));
    std::array::from_fn(|i| {
        let nibble = nibbles[i % (LEN / 2)] >> (i / (LEN / 2) * 4) & 15;
        nibble | ((fifth >> i & 1) as u8) << 4
    })
}

/// Scale, minimum and elements 0..=`most` of a block.
fn with_min(
    x: &[f32; LEN],
    weights: Option<&[f32; LEN]>,
    most: u8,
    ty: TensorType,
    block: usize,
) -> Result<([f16; 2], [u8; LEN]), Error> {
    let mut low = x.iter().fold(f32::INFINITY, |low, &x| low.min(x));
    let high = x.iter().fold(f32::NEG_INFINITY, |high, &x| high.max(x));
    let mut d = (high - low) / f32::from(most);
    let halves = |d, low| -> Result<[f16; 2], Error> {
        Ok([half_scale(d, ty, block, LEN)?, half_scale(low, ty, block, LEN)?])
    };
    if weights.is_none() {
        let inverse = inverse(d);
        return Ok((halves(d, low)?, x.map(|x| (((x - low) * inverse + 0.5) as u8).min(most))));
    }
    // The search wants a minimum that is not above 0: below the highest value it never is.
    let (scale, down) = search::with_min(&x.map(|x| x - high), most, weights);
    let stored = halves(scale, high - down)?;
    (d, low) = (stored[0].to_f32(), stored[1].to_f32());
    let inverse = inverse(d);
    Ok((stored, x.map(|x| search::nearest((x - low) * inverse, most))))
}

/// Q4_1: f16 scale, f16 minimum, 16 bytes as in Q4_0 but without offset.
pub(crate) fn q4_1_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<{ 4 + LEN / 2 }, LEN>(src, dst) {
        let (d, min) = (half(block), half(&block[2..]));
        let (low, high) = y.split_at_mut(LEN / 2);
        for (i, &q) in block[4..].iter().enumerate() {
            low[i] = d * f32::from(q & 15) + min;
            high[i] = d * f32::from(q >> 4) + min;
        }
    }
}

pub(crate) fn q4_1_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x, weights) in src.blocks() {
        let (halves, q) = with_min(x, weights, 15, TensorType::Q4_1, i)?;
        dst.extend(halves.map(f16::to_le_bytes).as_flattened());
        dst.extend(nibbles(&q));
    }
    Ok(())
}

/// Q5_0: f16 scale, 4 bytes of fifth bits, 16 bytes of nibbles as in Q4_0; offset 16.
pub(crate) fn q5_0_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<{ 6 + LEN / 2 }, LEN>(src, dst) {
        let d = half(block);
        *y = five_bits(&block[2..6], &block[6..]).map(|q| d * (f32::from(q) - 16.0));
    }
}

pub(crate) fn q5_0_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x, weights) in src.blocks() {
        let (d, inverse) = without_min(x, weights, 16, TensorType::Q5_0, i)?;
        dst.extend(d.to_le_bytes());
        let q = x.map(|x| ((x * inverse + 16.5) as u8).min(31));
        dst.extend(fifth_bits(&q));
        dst.extend(nibbles(&q));
    }
    Ok(())
}

/// Q5_1: f16 scale, f16 minimum, then as Q5_0 but without offset.
pub(crate) fn q5_1_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<{ 8 + LEN / 2 }, LEN>(src, dst) {
        let (d, min) = (half(block), half(&block[2..]));
        *y = five_bits(&block[4..8], &block[8..]).map(|q| d * f32::from(q) + min);
    }
}

pub(crate) fn q5_1_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x, weights) in src.blocks() {
        let (halves, q) = with_min(x, weights, 31, TensorType::Q5_1, i)?;
        dst.extend(halves.map(f16::to_le_bytes).as_flattened());
        dst.extend(fifth_bits(&q));
        dst.extend(nibbles(&q));
    }
    Ok(())
}
