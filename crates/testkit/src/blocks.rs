//! Blocks of types that can only be read.

use crate::Rng;
use gguf::TensorType;
use half::f16;

/// Random blocks of a type whose values are rows of tables, `elements` in all, with standard
/// deviation `deviation`.
///
/// # Panics
/// For other types, and unless `elements` are whole blocks.
pub fn random_blocks(ty: TensorType, elements: usize, deviation: f32, rng: &mut Rng) -> Vec<u8> {
    assert!(ty.has_integers(), "{ty} can be quantised");
    let len = ty.bytes_for(elements).expect("whole blocks");
    let mut bytes: Vec<u8> = (0..len).map(|_| rng.bits() as u8).collect();
    scale(ty, &mut bytes, || 1.0);
    let mut values = vec![0.0; elements];
    ty.dequantize(&bytes, &mut values).expect("whole blocks");
    let unit = (values.iter().map(|v| v * v).sum::<f32>() / elements as f32).sqrt();
    // Random indices have a mean, which signs make up for.
    scale(ty, &mut bytes, || if rng.bits() & 1 == 0 { deviation } else { -deviation } / unit);
    bytes
}

/// Sets the half-precision scale of every block.
fn scale(ty: TensorType, bytes: &mut [u8], mut next: impl FnMut() -> f32) {
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        let d = f16::from_f32(next()).to_le_bytes();
        match ty {
            TensorType::TQ1_0 => block[52..].copy_from_slice(&d),
            TensorType::TQ2_0 => block[64..].copy_from_slice(&d),
            // The upper nibbles of the last four words.
            TensorType::IQ1_M => {
                for (j, at) in [49, 51, 53, 55].into_iter().enumerate() {
                    block[at] = block[at] & 15 | (d[j / 2] >> (j % 2 * 4) & 15) << 4;
                }
            }
            _ => block[..2].copy_from_slice(&d),
        }
    }
}
