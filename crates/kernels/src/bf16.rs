//! Activations in bfloat16, and what products of bfloat16 mean.
//!
//! Columns go in pairs, as `vdpbf16ps` takes them, and for each pair, in this order and each rounded
//! once, `acc = fma(w[2p + 1], x[2p + 1], acc)` and `acc = fma(w[2p], x[2p], acc)`. An odd number of
//! columns ends with a pair whose second half is zero.
//!
//! The instruction takes subnormal numbers for zeros and gives zeros for them; other instructions
//! do not. So that it never matters, weights and activations below [`LEAST`] in magnitude count as
//! zero: then a product is a multiple of 2^-126, the smallest normal number, and so are all sums.
//!
//! Each instruction set has the activations in the form that it multiplies fastest: pairs of
//! bfloat16 for `vdpbf16ps`, and already widened to `f32` for fused multiply-adds, whose operands
//! would otherwise have to be taken apart for every tile again.

use crate::acts::elements_mut;
#[cfg(target_arch = "x86_64")]
use crate::arch::avx512bf16::Avx512Bf16;
use crate::simd::{LANES, Simd};

/// Smaller magnitudes count as zero: 2^-56, about 1.4e-17. With 8 significant bits, the last of a
/// product then stands for 2^(2 · (-56 - 7)) at least.
pub(crate) const LEAST: f32 = f32::from_bits((127 - 56) << 23);

/// Two columns of activations, widened.
pub(crate) type WidePair = [f32; 2];

/// A weight as it counts.
pub(crate) fn weight(bits: u16) -> u16 {
    let small = bits & 0x7fff < (LEAST.to_bits() >> 16) as u16;
    if small { 0 } else { bits }
}

/// Rounds `x` to bfloat16 and keeps it as `f32`; `row` has a [`WidePair`] for every two columns.
#[inline(always)]
pub(crate) fn widened<S: Simd>(s: S, x: &[f32], row: &mut [u8]) {
    let out = elements_mut::<WidePair>(row).as_flattened_mut();
    for (x, out) in x.chunks(LANES).zip(out.chunks_mut(LANES)) {
        s.store_part(s.round_bf16(s.load_part(x, 0.0)), out);
    }
}

/// Rounds `x` to bfloat16; `row` has a word for every two columns, the first of them lower.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn packed(s: Avx512Bf16, x: &[f32], row: &mut [u8]) {
    let s = s.avx512();
    for (x, out) in x.chunks(LANES).zip(elements_mut::<u32>(row).chunks_mut(LANES / 2)) {
        let mut lanes = [0.0; LANES];
        s.store(s.round_bf16(s.load_part(x, 0.0)), &mut lanes);
        for ([even, odd], out) in lanes.as_chunks::<2>().0.iter().zip(out) {
            *out = even.to_bits() >> 16 | odd.to_bits();
        }
    }
}
