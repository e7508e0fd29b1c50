//! Times of one thing over all rounds: median and quartiles.

use crate::term;
use serde::Serialize;
use std::fmt;

/// Times of one thing, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    /// First and third quartile.
    low: f64,
    high: f64,
    /// Of every round.
    samples: Vec<f64>,
}

impl Summary {
    /// # Panics
    /// Without samples.
    pub(super) fn new(samples: Vec<f64>) -> Summary {
        let mut sorted = samples.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |share| topology::quantile(&sorted, share);
        Summary { median: at(0.5), low: at(0.25), high: at(0.75), samples }
    }

    /// Whether its upper quartile is below the lower quartile of another.
    pub(super) fn is_below(&self, other: &Summary) -> bool {
        self.high < other.low
    }

    /// Half of what lies between the quartiles, as a percentage of the median.
    fn spread(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.median * 100.0
    }
}

impl fmt::Display for Summary {
    /// `0.63 ± 4%`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} ±{:>2.0}%", term::rate(self.median), self.spread().min(999.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_samples() {
        let s = Summary::new(vec![5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((s.median, s.low, s.high), (3.0, 2.0, 4.0));
        assert_eq!(s.samples[0], 5.0);
        assert_eq!(s.to_string(), "3.00 ±33%");
        let s = Summary::new(vec![1.0, 2.0]);
        assert_eq!((s.median, s.low, s.high), (1.5, 1.25, 1.75));
        assert_eq!(Summary::new(vec![7.0]).to_string(), "7.00 ± 0%");
    }
}
