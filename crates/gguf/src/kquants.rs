//! Q4_K and Q6_K: blocks of 256 elements whose sub-blocks have scales of their own.
//!
//! Dequantisation is bit for bit that of ggml's reference. Quantisation searches: for each
//! sub-block it tries a range of step sizes, finds for each the scale (and minimum) of least
//! weighted squared error given the rounded values, and keeps the best; then it quantises the
//! scales and rounds all values once more against the scales that a reader will see. Larger
//! values weigh more, as they matter more to a dot product.

use half::f16;

use crate::blocks::half_scale;
use crate::{Error, TensorType};

/// Elements of a block.
const LEN: usize = 256;

// Q4_K: f16 d; f16 dmin; 12 bytes of 6-bit scales and minima; 128 bytes of nibbles.
// y = (d · scale) · q − (dmin · min), for 8 sub-blocks of 32.

const Q4_SUB: usize = 32;
const Q4_SUBS: usize = LEN / Q4_SUB;
const Q4_BYTES: usize = 2 + 2 + 12 + LEN / 2;

/// The 8 scales and 8 minima of a Q4_K block, 6 bits each. Bytes 0–3 and 4–7 hold the scales and
/// minima of sub-blocks 0–3 in their low 6 bits; bytes 8–11 hold the low 4 bits of those of
/// sub-blocks 4–7 (scale low, minimum high), whose upper 2 bits are the upper 2 of bytes 0–7.
fn unpack_scales(b: &[u8; 12]) -> ([u8; Q4_SUBS], [u8; Q4_SUBS]) {
    let (mut scales, mut mins) = ([0; Q4_SUBS], [0; Q4_SUBS]);
    for j in 0..4 {
        scales[j] = b[j] & 63;
        mins[j] = b[j + 4] & 63;
        scales[j + 4] = b[j + 8] & 15 | b[j] >> 6 << 4;
        mins[j + 4] = b[j + 8] >> 4 | b[j + 4] >> 6 << 4;
    }
    (scales, mins)
}

fn pack_scales(scales: &[u8; Q4_SUBS], mins: &[u8; Q4_SUBS]) -> [u8; 12] {
    let mut b = [0; 12];
    for j in 0..4 {
        b[j] = scales[j] | scales[j + 4] >> 4 << 6;
        b[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        b[j + 8] = scales[j + 4] & 15 | mins[j + 4] << 4;
    }
    b
}

pub(crate) fn q4_k_to_f32(src: &[u8], dst: &mut [f32]) {
    let blocks = src.as_chunks::<Q4_BYTES>().0;
    for (y, block) in dst.as_chunks_mut::<LEN>().0.iter_mut().zip(blocks) {
        let d = f16::from_le_bytes([block[0], block[1]]).to_f32();
        let dmin = f16::from_le_bytes([block[2], block[3]]).to_f32();
        let (packed, nibbles) = block[4..].split_first_chunk().expect("144-byte block");
        let (scales, mins) = unpack_scales(packed);
        let factors = |j: usize| (d * f32::from(scales[j]), dmin * f32::from(mins[j]));
        // 32 bytes hold two sub-blocks: one in the low nibbles, the next in the high ones.
        for (j, (y, q)) in y.chunks_exact_mut(2 * Q4_SUB).zip(nibbles.chunks(Q4_SUB)).enumerate() {
            let (low, high) = y.split_at_mut(Q4_SUB);
            let ((d0, m0), (d1, m1)) = (factors(2 * j), factors(2 * j + 1));
            for (i, &q) in q.iter().enumerate() {
                low[i] = d0 * f32::from(q & 15) - m0;
                high[i] = d1 * f32::from(q >> 4) - m1;
            }
        }
    }
}

pub(crate) fn q4_k_from_f32(src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
    for (block, x) in src.as_chunks::<LEN>().0.iter().enumerate() {
        let subs = x.as_chunks::<Q4_SUB>().0;
        let (mut scales, mut mins) = ([0f32; Q4_SUBS], [0f32; Q4_SUBS]);
        for (j, x) in subs.iter().enumerate() {
            (scales[j], mins[j]) = fit_with_min(x);
        }
        let half = |v: &[f32; Q4_SUBS]| {
            half_scale(v.iter().fold(0f32, |m, &v| m.max(v)) / 63.0, TensorType::Q4_K, block, LEN)
        };
        let (d, dmin) = (half(&scales)?, half(&mins)?);
        let six_bits = |v: f32, unit: f16| match unit.to_f32() {
            0.0 => 0,
            unit => (v / unit).round().min(63.0) as u8,
        };
        let scales = scales.map(|v| six_bits(v, d));
        let mins = mins.map(|v| six_bits(v, dmin));

        let mut q = [0u8; LEN];
        for (j, (q, x)) in q.as_chunks_mut::<Q4_SUB>().0.iter_mut().zip(subs).enumerate() {
            let scale = d.to_f32() * f32::from(scales[j]);
            let min = dmin.to_f32() * f32::from(mins[j]);
            if scale > 0.0 {
                for (q, x) in q.iter_mut().zip(x) {
                    *q = nearest((x + min) / scale, 15);
                }
            }
        }
        dst.extend(d.to_le_bytes());
        dst.extend(dmin.to_le_bytes());
        dst.extend(pack_scales(&scales, &mins));
        for pair in q.chunks_exact(2 * Q4_SUB) {
            let (low, high) = pair.split_at(Q4_SUB);
            dst.extend(low.iter().zip(high).map(|(low, high)| low | high << 4));
        }
    }
    Ok(())
}

/// The nearest integer in 0..=most. (Several times as fast as `f32::round`, which is a call where
/// SSE4.1 cannot be assumed.)
fn nearest(x: f32, most: u8) -> u8 {
    ((x + 0.5) as u8).min(most)
}

/// The `(scale, min)`, both ≥ 0, such that `x ≈ scale · q − min` with q in 0..=15.
fn fit_with_min(x: &[f32; Q4_SUB]) -> (f32, f32) {
    let low = x.iter().fold(0f32, |m, &x| m.min(x));
    let high = x.iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x));
    // All alike and not positive: the minimum alone says it.
    let Some(range) = Some(high - low).filter(|r| *r > 0.0 && (15.0 / r).is_finite()) else {
        return (0.0, -low);
    };
    let rms = (x.iter().map(|x| x * x).sum::<f32>() / Q4_SUB as f32).sqrt();
    let weights = x.map(|x| rms + x.abs());

    let mut best = (range / 15.0, -low);
    let mut least = f32::INFINITY;
    // 15 steps over the range is the plain choice; fewer reproduce data that does not use them
    // all, more clip an outlier to serve the rest.
    for tenth in -10..=10 {
        let (mut scale, mut min) = (range / (15.0 + tenth as f32 * 0.1), -low);
        // Round, fit, round against the fit, fit again. RMSE on unit gaussians with mean 0.5 is
        // 0.0713 with one pass, 0.0707 with two, 0.0706 with three; ggml's search gives 0.0708.
        for _ in 0..2 {
            let inverse = 1.0 / scale;
            let q = x.map(|x| f32::from(nearest((x + min) * inverse, 15)));
            let Some(fit) = least_squares(x, &q, &weights) else { break };
            (scale, min) = fit;
            let error: f32 =
                (0..Q4_SUB).map(|i| weights[i] * (scale * q[i] - min - x[i]).powi(2)).sum();
            if error < least {
                (best, least) = (fit, error);
            }
        }
    }
    best
}

/// The `(scale, min)` of least weighted error for given q, with min ≥ 0; `None` if undetermined.
fn least_squares(x: &[f32; Q4_SUB], q: &[f32; Q4_SUB], w: &[f32; Q4_SUB]) -> Option<(f32, f32)> {
    let (mut sw, mut sq, mut sqq, mut sx, mut sqx) = (0f32, 0f32, 0f32, 0f32, 0f32);
    for i in 0..Q4_SUB {
        sw += w[i];
        sq += w[i] * q[i];
        sqq += w[i] * q[i] * q[i];
        sx += w[i] * x[i];
        sqx += w[i] * q[i] * x[i];
    }
    let determinant = sw * sqq - sq * sq;
    let mut scale = (sw * sqx - sq * sx) / determinant;
    let mut min = (sq * sqx - sqq * sx) / determinant;
    if min < 0.0 {
        // The format has no positive offset.
        (scale, min) = (sqx / sqq, 0.0);
    }
    (determinant > 0.0 && scale.is_finite() && scale >= 0.0 && min.is_finite())
        .then_some((scale, min))
}

// Q6_K: 128 bytes of low nibbles; 64 bytes of high bit pairs; 16 × i8 scales; f16 d.
// y = (d · scale) · (q − 32), for 16 sub-blocks of 16.

const Q6_SUB: usize = 16;
const Q6_SUBS: usize = LEN / Q6_SUB;
const Q6_BYTES: usize = LEN / 2 + LEN / 4 + Q6_SUBS + 2;

/// Where the 6 bits of element i stand: index and shift of its low four among the nibble bytes,
/// index and shift of its high two among the pair bytes. Each half of the block takes 64 nibble
/// and 32 pair bytes, and spreads its four runs of 32 elements over their bits.
const fn q6_place(i: usize) -> (usize, u32, usize, u32) {
    let (half, run, l) = (i / 128, i / 32 % 4, i % 32);
    (half * 64 + run % 2 * 32 + l, 4 * (run as u32 / 2), half * 32 + l, 2 * run as u32)
}

pub(crate) fn q6_k_to_f32(src: &[u8], dst: &mut [f32]) {
    let blocks = src.as_chunks::<Q6_BYTES>().0;
    for (y, block) in dst.as_chunks_mut::<LEN>().0.iter_mut().zip(blocks) {
        let (nibbles, rest) = block.split_at(LEN / 2);
        let (pairs, rest) = rest.split_at(LEN / 4);
        let (scales, d) = rest.split_at(Q6_SUBS);
        let d = f16::from_le_bytes([d[0], d[1]]).to_f32();
        for (i, y) in y.iter_mut().enumerate() {
            let (nibble, shift, pair, pair_shift) = q6_place(i);
            let q = nibbles[nibble] >> shift & 15 | (pairs[pair] >> pair_shift & 3) << 4;
            *y = d * f32::from(scales[i / Q6_SUB] as i8) * (f32::from(q) - 32.0);
        }
    }
}

pub(crate) fn q6_k_from_f32(src: &[f32], dst: &mut Vec<u8>) -> Result<(), Error> {
    for (block, x) in src.as_chunks::<LEN>().0.iter().enumerate() {
        let subs = x.as_chunks::<Q6_SUB>().0;
        let mut fitted = [0f32; Q6_SUBS];
        for (scale, x) in fitted.iter_mut().zip(subs) {
            *scale = fit_symmetric(x);
        }
        // The scale of largest magnitude maps to -128, so its sign picks d's.
        let most = fitted.iter().fold(0f32, |m, &s| if s.abs() > m.abs() { s } else { m });
        let d = half_scale(most / -128.0, TensorType::Q6_K, block, LEN)?;
        let unit = d.to_f32();
        let scales = fitted.map(|s| match unit {
            0.0 => 0,
            unit => (s / unit).round().clamp(-128.0, 127.0) as i8,
        });

        let (mut nibbles, mut pairs) = ([0u8; LEN / 2], [0u8; LEN / 4]);
        for (i, x) in x.iter().enumerate() {
            let q = match unit * f32::from(scales[i / Q6_SUB]) {
                0.0 => 32,
                scale => nearest(x / scale + 32.0, 63),
            };
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

/// The scale such that `x ≈ scale · q` with q in -32..=31.
fn fit_symmetric(x: &[f32; Q6_SUB]) -> f32 {
    let most = x.iter().fold(0f32, |m, &x| if x.abs() > m.abs() { x } else { m });
    if !(32.0 / most).is_finite() {
        return 0.0;
    }
    let mut best = most / -32.0;
    let mut gain = 0f32;
    // The least error for given q is Σwx² − (Σwqx)² / Σwq², so the best q has the largest gain.
    for tenth in -9..=9 {
        let steps_per_unit = (-32.0 + tenth as f32 * 0.1) / most;
        let (mut sqx, mut sqq) = (0f32, 0f32);
        for x in x {
            let q = f32::from(nearest(x * steps_per_unit + 32.0, 63)) - 32.0;
            let w = x * x;
            sqx += w * q * x;
            sqq += w * q * q;
        }
        if sqq > 0.0 && sqx * sqx > gain * sqq {
            (best, gain) = (sqx / sqq, sqx * sqx / sqq);
        }
    }
    best
}
