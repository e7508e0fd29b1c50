//! Whole blocks: the scales of sub-blocks, and the scales of those.

use half::f16;

use super::LEN;
use crate::blocks::half_scale;
use crate::search::{nearest, totals, unit, with_min, without_min};
use crate::{Error, TensorType};

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
    weights: Option<&[f32; LEN]>,
    (most, most_scale): (u8, u8),
    ty: TensorType,
    block: usize,
) -> Result<WithMin<SUBS>, Error> {
    let subs = x.as_chunks::<SUB>().0;
    let (mut scales, mut mins) = ([0f32; SUBS], [0f32; SUBS]);
    for (j, x) in subs.iter().enumerate() {
        let weights = weights.map(|w| &w.as_chunks().0[j]);
        (scales[j], mins[j]) = with_min(x, most, weights);
    }
    let matters = weights.map(|w| totals::<SUB, SUBS>(w));
    let end = f32::from(most_scale);
    let half =
        |v: &[f32; SUBS]| half_scale(unit(v, matters.as_ref(), (end, 0.0, end)), ty, block, LEN);
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

/// A block of 16 sub-blocks of 16: `x ≈ d · scale · (q − offset)`.
pub(super) struct WithoutMin {
    pub(super) d: f16,
    pub(super) scales: [i8; 16],
    pub(super) q: [u8; LEN],
}

/// Quantises block `block` with q in 0..2 · `offset` and scales in −`scale_offset`..`scale_offset`.
pub(super) fn block_without_min(
    x: &[f32; LEN],
    weights: Option<&[f32; LEN]>,
    (offset, scale_offset): (u8, u8),
    ty: TensorType,
    block: usize,
) -> Result<WithoutMin, Error> {
    let subs = x.as_chunks::<16>().0;
    let fitted: [f32; 16] = std::array::from_fn(|j| {
        without_min(&subs[j], offset, weights.map(|w| &w.as_chunks().0[j]))
    });
    // The scale of largest magnitude maps to the lower end, which reaches further, so its sign
    // picks d's.
    let end = f32::from(scale_offset);
    let matters = weights.map(|w| totals::<16, 16>(w));
    let d = half_scale(unit(&fitted, matters.as_ref(), (-end, end, end - 1.0)), ty, block, LEN)?;
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
