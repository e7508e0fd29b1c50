//! IQ4_NL and IQ4_XS: 4-bit indices into 16 uneven steps, finer about 0, where most weights are.
//!
//! Dequantisation is bit for bit that of ggml's reference. Quantisation searches: for each 32
//! elements it tries a range of step sizes, finds for each the scale of least weighted squared error
//! given the nearest steps, and keeps the best. Larger values weigh more, as they matter more to a
//! dot product. On unit gaussians RMSE is 2 % below that of ggml's reference.

use crate::blocks::{blocks, half, half_scale};
use crate::search::{Weighed, extreme, totals, unit};
use crate::{Error, TensorType};

/// Elements that share a scale.
const SUB: usize = 32;

/// The steps, which ggml chose for the weights of language models.
const STEPS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// 16 bytes as 32 elements, the low nibbles first, times `d`.
fn values(d: f32, nibbles: &[u8], to: &mut [f32; SUB]) {
    let (low, high) = to.split_at_mut(SUB / 2);
    for (i, &q) in nibbles.iter().enumerate() {
        low[i] = d * f32::from(STEPS[usize::from(q & 15)]);
        high[i] = d * f32::from(STEPS[usize::from(q >> 4)]);
    }
}

/// The reverse: the nearest steps to `x / d`.
fn nibbles(x: &[f32; SUB], d: f32) -> [u8; SUB / 2] {
    // Without a scale, the step nearest to 0.
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    std::array::from_fn(|i| nearest(x[i] * inverse) | nearest(x[i + SUB / 2] * inverse) << 4)
}

/// The step nearest to `x`.
fn nearest(x: f32) -> u8 {
    let above = |pair: &[i8]| x > (f32::from(pair[0]) + f32::from(pair[1])) / 2.0;
    STEPS.windows(2).filter(|pair| above(pair)).count() as u8
}

/// The scale of least weighted error.
fn fit(x: &[f32; SUB], weights: Option<&[f32; SUB]>) -> f32 {
    let most = extreme(x);
    if !(127.0 / most).is_finite() {
        return 0.0;
    }
    let weights = weights.copied().unwrap_or_else(|| x.map(f32::abs));
    let (mut best, mut gain) = (most / -127.0, 0f32);
    // The largest value goes to the first step, which is the longest, or to the last; steps that
    // are up to 6 % wider or narrower serve the rest.
    for (end, tries) in [(-127i8, -8..=8i8), (113, -8..=8)] {
        for steps in tries.map(|more| f32::from(end) + f32::from(more)) {
            let inverse = steps / most;
            let (mut sqx, mut sqq) = (0f32, 0f32);
            for (x, w) in x.iter().zip(weights) {
                let q = f32::from(STEPS[usize::from(nearest(x * inverse))]);
                sqx += w * q * x;
                sqq += w * q * q;
            }
            // The error is Σwx² − (Σwqx)² / Σwq².
            if sqq > 0.0 && sqx * sqx > gain * sqq {
                (best, gain) = (sqx / sqq, sqx * sqx / sqq);
            }
        }
    }
    best
}

// IQ4_NL: f16 d; 16 bytes of nibbles.

const NL_BYTES: usize = 2 + SUB / 2;

pub(crate) fn iq4_nl_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<NL_BYTES, SUB>(src, dst) {
        values(half(block), &block[2..], y);
    }
}

pub(crate) fn iq4_nl_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x, weights) in src.blocks() {
        let d = half_scale(fit(x, weights), TensorType::IQ4_NL, i, SUB)?;
        dst.extend(d.to_le_bytes());
        dst.extend(nibbles(x, d.to_f32()));
    }
    Ok(())
}

// IQ4_XS: f16 d; 8 × 2 high bits of scales; 8 × 4 low bits; 8 × 16 bytes of nibbles. Scales have
// the offset 32.

const LEN: usize = 256;
const SUBS: usize = LEN / SUB;
const XS_BYTES: usize = 2 + 2 + SUBS / 2 + LEN / 2;

pub(crate) fn iq4_xs_to_f32(src: &[u8], dst: &mut [f32]) {
    for (block, y) in blocks::<XS_BYTES, LEN>(src, dst) {
        let d = half(block);
        let high = u16::from_le_bytes([block[2], block[3]]);
        let subs = y.as_chunks_mut().0.iter_mut().zip(block[8..].chunks(SUB / 2));
        for (j, (y, nibbles)) in subs.enumerate() {
            let low = block[4 + j / 2] >> (j % 2 * 4) & 15;
            let scale = low | ((high >> (2 * j) & 3) as u8) << 4;
            values(d * (f32::from(scale) - 32.0), nibbles, y);
        }
    }
}

pub(crate) fn iq4_xs_from_f32(src: Weighed<'_>, dst: &mut Vec<u8>) -> Result<(), Error> {
    for (i, x, weights) in src.blocks::<LEN>() {
        let subs = x.as_chunks::<SUB>().0;
        let fitted: [f32; SUBS] =
            std::array::from_fn(|j| fit(&subs[j], weights.map(|w| &w.as_chunks().0[j])));
        // The scale of largest magnitude maps to -32 or near it, so its sign picks d's.
        let matters = weights.map(|w| totals::<SUB, SUBS>(w));
        let d = unit(&fitted, matters.as_ref(), (-32.0, 32.0, 31.0));
        let d = half_scale(d, TensorType::IQ4_XS, i, LEN)?;
        let unit = d.to_f32();
        let scales = fitted.map(|s| match unit {
            0.0 => 0,
            unit => (s / unit).round().clamp(-32.0, 31.0) as i8,
        });
        let (mut low, mut high) = ([0u8; SUBS / 2], 0u16);
        for (j, scale) in scales.into_iter().enumerate() {
            let stored = (scale + 32) as u8;
            low[j / 2] |= (stored & 15) << (j % 2 * 4);
            high |= u16::from(stored >> 4) << (2 * j);
        }
        dst.extend(d.to_le_bytes());
        dst.extend(high.to_le_bytes());
        dst.extend(low);
        for (x, scale) in subs.iter().zip(scales) {
            dst.extend(nibbles(x, unit * f32::from(scale)));
        }
    }
    Ok(())
}
