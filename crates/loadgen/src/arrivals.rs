//! When requests arrive in an open loop.
//!
//! Times between arrivals are gamma distributed with mean 1/rate. The shape says how regular they
//! are: their coefficient of variation (standard deviation over mean) is 1/√shape. Shape 1 is the
//! Poisson process of independent users, which DistServe and Sandwich use; below 1 requests come in
//! bursts, above 1 evenly, and towards infinity like a clock.
//!
//! The same seed gives the same pattern at every rate, only faster, so that rates are compared on
//! the same luck.

use crate::error::{Error, positive};
use crate::rng::Rng;
use std::time::Duration;

/// A stream of arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    rate: f64,
    shape: f64,
}

/// Shapes beyond these are a mistake: one burst, or a clock within 1 %.
const SHAPES: std::ops::RangeInclusive<f64> = 0.01..=10_000.0;

impl Arrivals {
    /// `rate` requests per second on average, with times between them of this gamma `shape`.
    ///
    /// # Errors
    /// When the rate is no positive number or the shape not within 0.01 and 10 000.
    pub fn new(rate: f64, shape: f64) -> Result<Arrivals, Error> {
        if !SHAPES.contains(&shape) {
            let reason = "it must lie between 0.01 (bursts) and 10000 (a clock)";
            return Err(Error::Value { what: "burstiness", value: shape.to_string(), reason });
        }
        Ok(Arrivals { rate: positive("rate", rate)?, shape })
    }

    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Gamma shape of the times between arrivals.
    pub fn shape(&self) -> f64 {
        self.shape
    }

    /// The first `n` arrivals, from the beginning of the run.
    pub fn times(&self, n: usize, seed: u64) -> Vec<Duration> {
        let mut rng = Rng::new(seed, "arrivals");
        let mut now = 0.0;
        let gap = |rng: &mut Rng| match self.shape {
            1.0 => rng.exponential(),
            shape => rng.gamma(shape) / shape,
        };
        (0..n)
            .map(|_| {
                now += gap(&mut rng) / self.rate;
                // A rate of one in a million years is the user's; a Duration cannot hold all.
                Duration::try_from_secs_f64(now).unwrap_or(Duration::MAX)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(rate: f64, shape: f64, n: usize) -> Vec<f64> {
        let times = Arrivals::new(rate, shape).unwrap().times(n, 42);
        let mut last = Duration::ZERO;
        times.iter().map(|&t| (t - std::mem::replace(&mut last, t)).as_secs_f64()).collect()
    }

    #[test]
    fn counts_of_poisson_arrivals_have_their_mean_and_variance() {
        // 50 000 arrivals at 5/s: some 10 000 windows of a second, each with mean and variance 5.
        let times = Arrivals::new(5.0, 1.0).unwrap().times(50_000, 3);
        let windows = times.last().unwrap().as_secs();
        let mut counts = vec![0.0f64; windows as usize];
        for t in &times {
            if t.as_secs() < windows {
                counts[t.as_secs() as usize] += 1.0;
            }
        }
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<f64>() / n;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / n;
        // Five standard errors: √(5/n) of the mean, 5·√((2 + 1/5)/n) of the variance.
        assert!((mean - 5.0).abs() < 5.0 * (5.0 / n).sqrt(), "{mean}");
        assert!((variance - 5.0).abs() < 25.0 * (2.2 / n).sqrt(), "{variance}");
    }

    #[test]
    fn the_shape_sets_the_coefficient_of_variation() {
        for shape in [0.25, 1.0, 4.0, 100.0] {
            let gaps = gaps(20.0, shape, 100_000);
            let n = gaps.len() as f64;
            let mean = gaps.iter().sum::<f64>() / n;
            let sd = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n).sqrt();
            let (cv, expected) = (sd / mean, 1.0 / f64::sqrt(shape));
            // A relative error of 3 % is more than five standard errors of each.
            assert!((cv / expected - 1.0).abs() < 0.03, "{shape}: {cv}");
            assert!((mean * 20.0 - 1.0).abs() < 0.03, "{shape}: {mean}");
        }
    }

    #[test]
    fn a_seed_is_a_pattern_and_a_rate_its_speed() {
        let (slow, fast) = (gaps(1.0, 0.5, 50), gaps(4.0, 0.5, 50));
        // Durations are whole nanoseconds.
        assert!(slow.iter().zip(&fast).all(|(s, f)| (s - 4.0 * f).abs() < 1e-7));
        assert_ne!(
            Arrivals::new(1.0, 1.0).unwrap().times(5, 1),
            Arrivals::new(1.0, 1.0).unwrap().times(5, 2)
        );
    }

    #[test]
    fn rates_and_shapes_that_cannot_be() {
        for (rate, shape, what) in
            [(0.0, 1.0, "rate"), (f64::NAN, 1.0, "rate"), (1.0, 0.0, "burst"), (1.0, 1e9, "burst")]
        {
            let e = Arrivals::new(rate, shape).unwrap_err();
            assert!(e.to_string().starts_with(what) && e.is_usage(), "{e}");
        }
        assert_eq!(Arrivals::new(1e-300, 1.0).unwrap().times(1, 0), [Duration::MAX]);
    }
}
