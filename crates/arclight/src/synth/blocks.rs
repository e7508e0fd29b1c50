//! Random weights made directly in their block format.
//!
//! Quantising random floats would take minutes for a file of gigabytes. Instead the quantised
//! values are random bits and only the scales are made by rule, so that the dequantised values are
//! uniform with mean 0 and a given standard deviation. Speed does not depend on the values, as
//! long as they are finite and no arithmetic runs into subnormals.

use gguf::TensorType;
use half::{bf16, f16};
use loadgen::Rng;
use std::io::{self, Write};

/// How many different scales there are; blocks take one at random.
const SCALES: usize = 256;
/// How many different blocks there are where they are not made of random bits.
const BLOCKS: usize = 4096;
/// Values of a plain float type are taken from a table, by 16 random bits each.
const FLOATS: usize = 1 << 16;
/// Bytes made between two writes.
const CHUNK: usize = 1 << 18;

/// Standard deviation of a uniform integer in 0..n: sqrt((n² - 1) / 12).
const STD_OF_16: f32 = 4.609_772;
const STD_OF_64: f32 = 18.472_95;
const STD_OF_BYTE: f32 = 73.612; // -127..=127, with -127 twice as likely

/// A source of random blocks of one type.
pub(crate) struct Blocks {
    form: Form,
    block_bytes: usize,
    rng: Rng,
}

enum Form {
    /// One entry per value of 16 random bits, in the type's encoding.
    Plain { table: Vec<u8>, width: usize },
    /// Whole blocks, one as likely as another.
    Whole { blocks: Vec<u8> },
    /// Random bytes with scales in between.
    Scaled { at: usize, scales: Vec<Vec<u8>>, signed: bool },
}

impl Blocks {
    /// Blocks of `ty` whose values have the standard deviation `sigma`.
    pub(crate) fn new(ty: TensorType, sigma: f32, mut rng: Rng) -> Blocks {
        let form = match ty {
            TensorType::F32 => plain(sigma, |v| v.to_le_bytes()),
            TensorType::F16 => plain(sigma, |v| f16::from_f32(v).to_le_bytes()),
            TensorType::BF16 => plain(sigma, |v| bf16::from_f32(v).to_le_bytes()),
            TensorType::Q8_0 => {
                let scales = scales(&mut rng, |rng| f16_bytes(around(rng, sigma / STD_OF_BYTE)));
                Form::Scaled { at: 0, scales, signed: true }
            }
            TensorType::Q4_0 => {
                let scales = scales(&mut rng, |rng| {
                    // Four bits minus 8 have the mean -½: scales of both signs make up for it.
                    let d = around(rng, sigma / STD_OF_16);
                    f16_bytes(if rng.bits() & 1 == 0 { d } else { -d })
                });
                Form::Scaled { at: 0, scales, signed: false }
            }
            TensorType::Q4_K => {
                let scales = scales(&mut rng, |rng| q4_k_scales(rng, sigma));
                Form::Scaled { at: 0, scales, signed: false }
            }
            TensorType::Q6_K => {
                let scales = scales(&mut rng, |rng| q6_k_scales(rng, sigma));
                Form::Scaled { at: 192, scales, signed: false }
            }
            // Scale and minimum, or scale and unit of the minima: values are 0 on average.
            TensorType::Q4_1 => halves(ty, 0, &[1.0, -7.5], sigma, &mut rng),
            TensorType::Q5_1 => halves(ty, 0, &[1.0, -15.5], sigma, &mut rng),
            TensorType::Q2_K => halves(ty, 80, &[1.0, 1.5], sigma, &mut rng),
            TensorType::Q5_K => halves(ty, 0, &[1.0, 15.5], sigma, &mut rng),
            TensorType::Q3_K => halves(ty, 108, &[1.0], sigma, &mut rng),
            TensorType::TQ1_0 => halves(ty, 52, &[1.0], sigma, &mut rng),
            TensorType::TQ2_0 => halves(ty, 64, &[1.0], sigma, &mut rng),
            TensorType::Q5_0
            | TensorType::IQ4_NL
            | TensorType::IQ4_XS
            | TensorType::IQ2_XXS
            | TensorType::IQ2_XS
            | TensorType::IQ2_S
            | TensorType::IQ3_XXS
            | TensorType::IQ3_S
            | TensorType::IQ1_S => halves(ty, 0, &[1.0], sigma, &mut rng),
            TensorType::IQ1_M => {
                let unit = rms_of_random(ty, 48, &mut rng, |rng| iq1_m_scales(rng, 1.0));
                let scales = scales(&mut rng, |rng| {
                    let d = signed(rng, sigma / unit);
                    iq1_m_scales(rng, d)
                });
                Form::Scaled { at: 48, scales, signed: false }
            }
            // Of others whole blocks, of uniform numbers, are made as for a file.
            _ => {
                let value = |_| (rng.unit_f32() * 2.0 - 1.0) * 3f32.sqrt() * sigma;
                let values: Vec<f32> = (0..BLOCKS * ty.block_len()).map(value).collect();
                let mut blocks = Vec::new();
                ty.quantize(&values, &mut blocks).expect("types of few bits are above");
                Form::Whole { blocks }
            }
        };
        let plain = matches!(form, Form::Plain { .. });
        // Floats are made four at a time, from one random number.
        let block_bytes = ty.block_bytes() * if plain { 4 } else { 1 };
        Blocks { form, block_bytes, rng }
    }

    /// Writes `bytes` bytes of blocks and tells `made` of every piece.
    pub(crate) fn write(
        &mut self,
        bytes: usize,
        out: &mut dyn Write,
        made: &dyn Fn(usize),
    ) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK.next_multiple_of(self.block_bytes).min(bytes.max(1))];
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(CHUNK / self.block_bytes * self.block_bytes).min(buffer.len());
            self.fill(&mut buffer[..piece]);
            out.write_all(&buffer[..piece])?;
            made(piece);
            left -= piece;
        }
        Ok(())
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        match &self.form {
            Form::Plain { table, width } => {
                for four in bytes.chunks_mut(4 * width) {
                    let mut bits = self.rng.bits();
                    for value in four.chunks_mut(*width) {
                        let at = (bits as usize % FLOATS) * width;
                        value.copy_from_slice(&table[at..at + width]);
                        bits >>= 16;
                    }
                }
            }
            Form::Whole { blocks } => {
                for block in bytes.chunks_exact_mut(self.block_bytes) {
                    let at = self.rng.below(BLOCKS) * self.block_bytes;
                    block.copy_from_slice(&blocks[at..][..self.block_bytes]);
                }
            }
            Form::Scaled { at, scales, signed } => {
                self.rng.fill(bytes);
                if *signed {
                    // Quantisers never give -128.
                    bytes.iter_mut().filter(|b| **b == 0x80).for_each(|b| *b = 0x81);
                }
                for block in bytes.chunks_exact_mut(self.block_bytes) {
                    // The random bytes that are overwritten choose what overwrites them.
                    let scale = &scales[usize::from(block[*at])];
                    block[*at..at + scale.len()].copy_from_slice(scale);
                }
            }
        }
    }
}

fn plain<const N: usize>(sigma: f32, encode: impl Fn(f32) -> [u8; N]) -> Form {
    // Uniform between ±√3 sigma.
    let value = |i: usize| ((i as f32 + 0.5) / FLOATS as f32 * 2.0 - 1.0) * 3f32.sqrt() * sigma;
    Form::Plain { table: (0..FLOATS).flat_map(|i| encode(value(i))).collect(), width: N }
}

fn scales(rng: &mut Rng, one: impl Fn(&mut Rng) -> Vec<u8>) -> Vec<Vec<u8>> {
    (0..SCALES).map(|_| one(rng)).collect()
}

/// `value` give or take a tenth, as scales of neighbouring blocks differ.
fn around(rng: &mut Rng, value: f32) -> f32 {
    value * (0.9 + 0.2 * rng.unit_f32())
}

fn f16_bytes(value: f32) -> Vec<u8> {
    f16::from_f32(value).to_le_bytes().into()
}

/// Scales of a Q4_K block: f16 d, f16 dmin, then 6-bit scales and minima packed into 12 bytes.
/// A value is `d * scale * q - dmin * min`; with equal scales and minima and `dmin = 7.5 d` the
/// mean is 0.
fn q4_k_scales(rng: &mut Rng, sigma: f32) -> Vec<u8> {
    let scales: [u8; 8] = std::array::from_fn(|_| 32 + rng.below(32) as u8);
    let d = sigma / STD_OF_16 / rms(scales.iter().map(|&s| f32::from(s)));
    let mut bytes = [f16_bytes(d), f16_bytes(7.5 * d)].concat();
    let low = |j: usize| scales[j] | (scales[j + 4] >> 4) << 6;
    bytes.extend((0..4).map(low)); // scales 0 to 3, and the upper bits of 4 to 7
    bytes.extend((0..4).map(low)); // minima, which are the same
    bytes.extend((4..8).map(|j| scales[j] & 15 | (scales[j] & 15) << 4));
    bytes
}

/// Scales of a Q6_K block: 16 signed bytes, f16 d. Both signs make up for the mean of -½ that six
/// bits minus 32 have.
fn q6_k_scales(rng: &mut Rng, sigma: f32) -> Vec<u8> {
    let scales: [i8; 16] = std::array::from_fn(|_| {
        let scale = 64 + rng.below(64) as i8;
        if rng.bits() & 1 == 0 { scale } else { -scale }
    });
    let d = sigma / STD_OF_64 / rms(scales.iter().map(|&s| f32::from(s)));
    let mut bytes: Vec<u8> = scales.map(|s| s as u8).into();
    bytes.extend(f16_bytes(d));
    bytes
}

/// Half floats at `at` that are `factors` times a scale of either sign, such that the values have the
/// standard deviation `sigma` whatever the random bytes beside them.
fn halves(ty: TensorType, at: usize, factors: &[f32], sigma: f32, rng: &mut Rng) -> Form {
    let bytes = |d: f32| factors.iter().flat_map(|f| f16_bytes(f * d)).collect::<Vec<u8>>();
    let unit = rms_of_random(ty, at, rng, |_| bytes(1.0));
    let scales = scales(rng, |rng| bytes(signed(rng, sigma / unit)));
    Form::Scaled { at, scales, signed: false }
}

/// Root mean square of the values of random blocks that have `scale` at `at`.
fn rms_of_random(
    ty: TensorType,
    at: usize,
    rng: &mut Rng,
    scale: impl Fn(&mut Rng) -> Vec<u8>,
) -> f32 {
    let mut bytes = vec![0; 1024 * ty.block_bytes()];
    rng.fill(&mut bytes);
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        let scale = scale(rng);
        block[at..at + scale.len()].copy_from_slice(&scale);
    }
    let mut values = vec![0.0; 1024 * ty.block_len()];
    ty.dequantize(&bytes, &mut values).expect("1024 blocks");
    rms(values.into_iter())
}

/// A scale about `value`, of either sign: random bits of most types have a mean, which signs make up
/// for.
fn signed(rng: &mut Rng, value: f32) -> f32 {
    let scale = around(rng, value);
    if rng.bits() & 1 == 0 { scale } else { -scale }
}

/// Scales of an IQ1_M block: four words of four random scales of 3 bits, whose upper nibbles are
/// the f16 `d`, lowest first.
fn iq1_m_scales(rng: &mut Rng, d: f32) -> Vec<u8> {
    let (bits, random) = (f16::from_f32(d).to_bits(), rng.bits());
    let word = |j: usize| (random >> (16 * j)) as u16 & 0xfff | (bits >> (4 * j) & 15) << 12;
    (0..4).flat_map(|j| word(j).to_le_bytes()).collect()
}

fn rms(values: impl ExactSizeIterator<Item = f32>) -> f32 {
    let n = values.len() as f32;
    (values.map(|v| v * v).sum::<f32>() / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(ty: TensorType, seed: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let size = ty.bytes_for(1 << 18).unwrap();
        Blocks::new(ty, 0.03, Rng::new(seed, "x")).write(size, &mut bytes, &|_| {}).unwrap();
        assert_eq!(bytes.len(), size);
        bytes
    }

    #[test]
    fn every_type_has_the_asked_for_mean_and_deviation() {
        for info in gguf::TYPES {
            let mut values = vec![0.0; 1 << 18];
            info.ty.dequantize(&make(info.ty, 1), &mut values).unwrap();
            let n = values.len() as f64;
            let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
            let variance = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n;
            assert!(values.iter().all(|v| v.is_finite()), "{}", info.name);
            // The mean of 2^18 values has a deviation of 0.03 / 512; where scales have signs, one
            // of theirs over 256 scales adds half a step (0.0065) / 16.
            assert!(mean.abs() < 2e-3, "{}: mean {mean}", info.name);
            assert!((variance.sqrt() / 0.03 - 1.0).abs() < 0.03, "{}: {variance}", info.name);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        assert_eq!(make(TensorType::Q4_K, 1), make(TensorType::Q4_K, 1));
        assert_ne!(make(TensorType::Q4_K, 1), make(TensorType::Q4_K, 2));
    }
}
