//! The searches: scales of sub-blocks, and of whole blocks from them.

use half::f16;

use super::LEN;
use crate::blocks::half_scale;
use crate::{Error, TensorType};

/// The nearest integer in 0..=most. (Several times as fast as `f32::round`, which is a call where
/// SSE4.1 cannot be assumed.)
pub(super) fn nearest(x: f32, most: u8) -> u8 {
    ((x + 0.5) as u8).min(most)
}

/// A block of `SUBS` sub-blocks: `x ≈ d · scale · q − dmin · min`.
pub(super) struct WithMin<const SUBS: usize> {
    pub(super) d: f16,
    pub(super) dmin: f16,
    pub(super) scales: [u8; SUBS],
    pub(super) mins: [u8; SUBS],
    pub(super) q: [u8; LEN],
}

/// Quantises block `block` with q in 0..=`most`, scales and minima in 0..=`most_scale`.
pub(super) fn block_with_min<const SUB: usize, const SUBS: usize>(
    x: &[f32; LEN],
    (most, most_scale): (u8, u8),
    ty: TensorType,
    block: usize,
) -> Result<WithMin<SUBS>, Error> {
    let subs = x.as_chunks::<SUB>().0;
    let (mut scales, mut mins) = ([0f32; SUBS], [0f32; SUBS]);
    for (j, x) in subs.iter().enumerate() {
        (scales[j], mins[j]) = with_min(x, most);
    }
    let half = |v: &[f32; SUBS]| {
        let top = v.iter().fold(0f32, |m, &v| m.max(v));
        half_scale(top / f32::from(most_scale), ty, block, LEN)
    };
    let (d, dmin) = (half(&scales)?, half(&mins)?);
    let steps = |v: f32, unit: f16| match unit.to_f32() {
        0.0 => 0,
        unit => (v / unit).round().min(f32::from(most_scale)) as u8,
    };
    let scales = scales.map(|v| steps(v, d));
    let mins = mins.map(|v| steps(v, dmin));

    let mut q = [0u8; LEN];
    for (j, (q, x)) in q.as_chunks_mut::<SUB>().0.iter_mut().zip(subs).enumerate() {
        let scale = d.to_f32() * f32::from(scales[j]);
        let min = dmin.to_f32() * f32::from(mins[j]);
        if scale > 0.0 {
            for (q, x) in q.iter_mut().zip(x) {
                *q = nearest((x + min) / scale, most);
            }
        }
    }
    Ok(WithMin { d, dmin, scales, mins, q })
}

/// The `(scale, min)`, both ≥ 0, such that `x ≈ scale · q − min` with q in 0..=`most`.
fn with_min<const N: usize>(x: &[f32; N], most: u8) -> (f32, f32) {
    let low = x.iter().fold(0f32, |m, &x| m.min(x));
    let high = x.iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x));
    let steps = f32::from(most);
    // All alike and not positive: the minimum alone says it.
    let Some(range) = Some(high - low).filter(|r| *r > 0.0 && (steps / r).is_finite()) else {
        return (0.0, -low);
    };
    let rms = (x.iter().map(|x| x * x).sum::<f32>() / N as f32).sqrt();
    let weights = x.map(|x| rms + x.abs());

    let mut best = (range / steps, -low);
    let mut least = f32::INFINITY;
    // `most` steps over the range is the plain choice; fewer reproduce data that does not use them
    // all, more clip an outlier to serve the rest.
    for tenth in -10..=10 {
        let (mut scale, mut min) = (range / (steps + tenth as f32 * 0.1), -low);
        // Round, fit, round against the fit, fit again. RMSE of Q4_K on unit gaussians with mean 0.5
        // is 0.0713 with one pass, 0.0707 with two, 0.0706 with three; ggml's search gives 0.0708.
        for _ in 0..2 {
            let inverse = 1.0 / scale;
            let q = x.map(|x| f32::from(nearest((x + min) * inverse, most)));
            let Some(fit) = least_squares(x, &q, &weights) else { break };
            (scale, min) = fit;
            let error: f32 = (0..N).map(|i| weights[i] * (scale * q[i] - min - x[i]).powi(2)).sum();
            if error < least {
                (best, least) = (fit, error);
            }
        }
    }
    best
}

/// The `(scale, min)` of least weighted error for given q, with min ≥ 0; `None` if undetermined.
fn least_squares<const N: usize>(x: &[f32; N], q: &[f32; N], w: &[f32; N]) -> Option<(f32, f32)> {
    let (mut sw, mut sq, mut sqq, mut sx, mut sqx) = (0f32, 0f32, 0f32, 0f32, 0f32);
    for i in 0..N {
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

/// A block of 16 sub-blocks of 16: `x ≈ d · scale · (q − offset)`.
pub(super) struct WithoutMin {
    pub(super) d: f16,
    pub(super) scales: [i8; 16],
    pub(super) q: [u8; LEN],
}

/// Quantises block `block` with q in 0..2 · `offset` and scales in −`scale_offset`..`scale_offset`.
pub(super) fn block_without_min(
    x: &[f32; LEN],
    (offset, scale_offset): (u8, u8),
    ty: TensorType,
    block: usize,
) -> Result<WithoutMin, Error> {
    let subs = x.as_chunks::<16>().0;
    let fitted: [f32; 16] = std::array::from_fn(|j| without_min(&subs[j], offset));
    // The scale of largest magnitude maps to the lower end, which reaches further, so its sign
    // picks d's.
    let most = fitted.iter().fold(0f32, |m, &s| if s.abs() > m.abs() { s } else { m });
    let end = f32::from(scale_offset);
    let d = half_scale(most / -end, ty, block, LEN)?;
    let unit = d.to_f32();
    let scales = fitted.map(|s| match unit {
        0.0 => 0,
        unit => (s / unit).round().clamp(-end, end - 1.0) as i8,
    });
    let q = std::array::from_fn(|i| match unit * f32::from(scales[i / 16]) {
        0.0 => offset,
        scale => nearest(x[i] / scale + f32::from(offset), 2 * offset - 1),
    });
    Ok(WithoutMin { d, scales, q })
}

/// The scale such that `x ≈ scale · q` with q in −`offset`..`offset`.
fn without_min(x: &[f32; 16], offset: u8) -> f32 {
    let most = x.iter().fold(0f32, |m, &x| if x.abs() > m.abs() { x } else { m });
    let steps = f32::from(offset);
    if !(steps / most).is_finite() {
        return 0.0;
    }
    let mut best = most / -steps;
    let mut gain = 0f32;
    // The least error for given q is Σwx² − (Σwqx)² / Σwq², so the best q has the largest gain.
    // Weights that grow with the values, as in `with_min`; with their squares, RMSE on gaussians is 2 %
    // (Q6_K) to 4 % (Q3_K) greater.
    for tenth in -9..=9 {
        let steps_per_unit = (-steps + tenth as f32 * 0.1) / most;
        let (mut sqx, mut sqq) = (0f32, 0f32);
        for x in x {
            let q = f32::from(nearest(x * steps_per_unit + steps, 2 * offset - 1)) - steps;
            let w = x.abs();
            sqx += w * q * x;
            sqq += w * q * q;
        }
        if sqq > 0.0 && sqx * sqx > gain * sqq {
            (best, gain) = (sqx / sqq, sqx * sqx / sqq);
        }
    }
    best
}
