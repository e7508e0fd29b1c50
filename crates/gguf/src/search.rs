//! Searches for the scale, with or without a minimum, of least weighted squared error; and the
//! weights.
//!
//! Without measured importances the larger of two values weighs more, as it matters more to a dot
//! product. With them, a value weighs as much as its column's inputs are large in the square, on text;
//! this is multiplied by √(σ² + x²), σ² being the mean square of the values about it, which is
//! llama.cpp's choice too: large values remain more important than their columns alone say.

/// The nearest integer in 0..=most. (Several times as fast as `f32::round`, which is a call where
/// SSE4.1 cannot be assumed.)
pub(crate) fn nearest(x: f32, most: u8) -> u8 {
    ((x + 0.5) as u8).min(most)
}

/// The value of largest magnitude, the first of equals.
pub(crate) fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0f32, |most, &x| if x.abs() > most.abs() { x } else { most })
}

/// Values of whole blocks, and their weights if there are any.
#[derive(Clone, Copy)]
pub(crate) struct Weighed<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) weights: Option<&'a [f32]>,
}

impl<'a> Weighed<'a> {
    /// Each block: its number, values and weights.
    pub(crate) fn blocks<const LEN: usize>(
        self,
    ) -> impl Iterator<Item = (usize, &'a [f32; LEN], Option<&'a [f32; LEN]>)> {
        let weights = move |i: usize| self.weights.map(|w| &w.as_chunks().0[i]);
        self.x.as_chunks().0.iter().enumerate().map(move |(i, x)| (i, x, weights(i)))
    }
}

/// Values over which σ² is taken.
const NEIGHBOURS: usize = 256;

/// What importances less than this share of their mean count as: a column that the text never used
/// still gets values near its own, and sums stay numbers to divide by.
const LEAST: f32 = 1e-6;

/// Importances of a row such that their mean is 1; all 1 if they are all 0.
pub(crate) fn normalised(importance: &[f32]) -> Vec<f32> {
    let mean = importance.iter().map(|&i| f64::from(i)).sum::<f64>() / importance.len() as f64;
    let relative = |&i: &f32| ((f64::from(i) / mean) as f32).max(LEAST);
    match mean > 0.0 {
        true => importance.iter().map(relative).collect(),
        false => vec![1.0; importance.len()],
    }
}

/// The weights of a row's values, of `importance` as [`normalised`] gives it.
pub(crate) fn weights(x: &[f32], importance: &[f32]) -> Vec<f32> {
    let mut weights = importance.to_vec();
    for (weights, x) in weights.chunks_mut(NEIGHBOURS).zip(x.chunks(NEIGHBOURS)) {
        let square = |x: &f32| f64::from(*x).powi(2);
        let mean = x.iter().map(square).sum::<f64>() / x.len() as f64;
        if mean > 0.0 {
            for (weight, x) in weights.iter_mut().zip(x) {
                *weight *= (1.0 + square(x) / mean).sqrt() as f32;
            }
        }
    }
    weights
}

/// The `(scale, min)`, both ≥ 0, such that `x ≈ scale · q − min` with q in 0..=`most`.
pub(crate) fn with_min<const N: usize>(
    x: &[f32; N],
    most: u8,
    weights: Option<&[f32; N]>,
) -> (f32, f32) {
    let low = x.iter().fold(0f32, |m, &x| m.min(x));
    let high = x.iter().fold(f32::NEG_INFINITY, |m, &x| m.max(x));
    let steps = f32::from(most);
    // All alike and not positive: the minimum alone says it.
    let Some(range) = Some(high - low).filter(|r| *r > 0.0 && (steps / r).is_finite()) else {
        return (0.0, -low);
    };
    let weights = weights.copied().unwrap_or_else(|| {
        let rms = (x.iter().map(|x| x * x).sum::<f32>() / N as f32).sqrt();
        x.map(|x| rms + x.abs())
    });

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

/// The scale such that `x ≈ scale · q` with q in −`offset`..`offset`.
pub(crate) fn without_min<const N: usize>(
    x: &[f32; N],
    offset: u8,
    weights: Option<&[f32; N]>,
) -> f32 {
    let most = extreme(x);
    let steps = f32::from(offset);
    if !(steps / most).is_finite() {
        return 0.0;
    }
    let mut best = most / -steps;
    let mut gain = 0f32;
    // Weights that grow with the values, as in `with_min`; with their squares, RMSE on gaussians is 2 %
    // (Q6_K) to 4 % (Q3_K) greater.
    let weights = weights.copied().unwrap_or_else(|| x.map(f32::abs));
    // The least error for given q is Σwx² − (Σwqx)² / Σwq², so the best q has the largest gain.
    for tenth in -9..=9 {
        let steps_per_unit = (-steps + tenth as f32 * 0.1) / most;
        let (mut sqx, mut sqq) = (0f32, 0f32);
        for (x, w) in x.iter().zip(weights) {
            let q = f32::from(nearest(x * steps_per_unit + steps, 2 * offset - 1)) - steps;
            sqx += w * q * x;
            sqq += w * q * q;
        }
        if sqq > 0.0 && sqx * sqx > gain * sqq {
            (best, gain) = (sqx / sqq, sqx * sqx / sqq);
        }
    }
    best
}

/// The unit such that whole multiples of it, from −`below` to `above`, come nearest to `values`, each
/// counting by its weight. Without weights, that of which the most extreme value is `end` times.
pub(crate) fn unit<const N: usize>(
    values: &[f32; N],
    weights: Option<&[f32; N]>,
    (end, below, above): (f32, f32, f32),
) -> f32 {
    let most = extreme(values);
    let mut best = most / end;
    let Some(weights) = weights else { return best };
    let mut least = f32::INFINITY;
    // Up to 6 % more or less, which is a step of the 15 that Q2_K's scales have.
    for i in -20..=20 {
        let unit = most / (end * (1.0 + i as f32 * 0.003));
        let miss = |(v, w): (&f32, &f32)| {
            let multiple = (v / unit).round().clamp(-below, above);
            w * (multiple * unit - v).powi(2)
        };
        let error: f32 = values.iter().zip(weights).map(miss).sum();
        if error < least {
            (best, least) = (unit, error);
        }
    }
    best
}

/// The sums of runs of `LEN` weights.
pub(crate) fn totals<const LEN: usize, const N: usize>(weights: &[f32]) -> [f32; N] {
    std::array::from_fn(|j| weights[j * LEN..][..LEN].iter().sum())
}
