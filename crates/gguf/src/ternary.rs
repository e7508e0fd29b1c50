//! TQ1_0 and TQ2_0: blocks of 256 values of -1, 0 or 1 times a half-precision scale, for models
//! that were trained so. Both ways are bit for bit those of ggml's reference.

use half::f16;

use crate::blocks::{half, half_scale, inverse};
use crate::{Error, Integers, TensorType};

/// Elements of a block.
const LEN: usize = 256;

/// The scale at the end of a block, and the only one.
fn scale(block: &[u8], to: &mut Integers) {
    to.unit = half(&block[block.len() - 2..]);
    to.scales = [1; 16];
}

/// The scale and the values plus 1.
fn quantise(x: &[f32; LEN], ty: TensorType, block: usize) -> Result<(f16, [u8; LEN]), Error> {
    let d = x.iter().fold(0f32, |most, x| most.max(x.abs()));
    let inverse = inverse(d);
    Ok((half_scale(d, ty, block, LEN)?, x.map(|x| ((x * inverse).round() + 1.0) as u8)))
}

// TQ1_0: 48 bytes of five values each, 4 bytes of four; f16 d. A byte is a fraction of 256 in base
// 3, rounded up: times 3, the carry is the first digit and what is left the fraction of the rest.
// Value `n` of byte `i` of a run of `w` bytes is element `n * w + i` of the run's.

/// First byte, bytes and values of a byte of each run.
const RUNS: [(usize, usize, usize); 3] = [(0, 32, 5), (32, 16, 5), (48, 4, 4)];

pub(crate) fn tq1_0(block: &[u8], to: &mut Integers) {
    scale(block, to);
    let mut first = 0;
    for (at, bytes, digits) in RUNS {
        for (i, &byte) in block[at..at + bytes].iter().enumerate() {
            let mut fraction = byte;
            for n in 0..digits {
                let product = 3 * u16::from(fraction);
                to.quants[first + n * bytes + i] = (product >> 8) as i8 - 1;
                fraction = product as u8;
            }
        }
        first += bytes * digits;
    }
}

pub(crate) fn tq1_0_from_f32(src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x) in src.as_chunks().0.iter().enumerate() {
        let (d, q) = quantise(x, TensorType::TQ1_0, i)?;
        let mut first = 0;
        for (_, bytes, digits) in RUNS {
            for i in 0..bytes {
                // Five digits, of which a run of four leaves the last 0.
                let digit = |n| if n < digits { u16::from(q[first + n * bytes + i]) } else { 0 };
                let number = (0..5).fold(0, |number, n| 3 * number + digit(n));
                dst.push((number * 256).div_ceil(243) as u8);
            }
            first += bytes * digits;
        }
        dst.extend(d.to_le_bytes());
    }
    Ok(())
}

// TQ2_0: 64 bytes of four values of 2 bits, each half of the block in 32 bytes whose bit pairs are
// runs of 32 elements; f16 d.

pub(crate) fn tq2_0(block: &[u8], to: &mut Integers) {
    scale(block, to);
    for (i, q) in to.quants.iter_mut().enumerate() {
        let (half, run, l) = (i / 128, i / 32 % 4, i % 32);
        *q = (block[half * 32 + l] >> (2 * run) & 3) as i8 - 1;
    }
}

pub(crate) fn tq2_0_from_f32(src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x) in src.as_chunks().0.iter().enumerate() {
        let (d, q) = quantise(x, TensorType::TQ2_0, i)?;
        for half in q.chunks(128) {
            dst.extend(
                (0..32)
                    .map(|l| half[l] | half[32 + l] << 2 | half[64 + l] << 4 | half[96 + l] << 6),
            );
        }
        dst.extend(d.to_le_bytes());
    }
    Ok(())
}
