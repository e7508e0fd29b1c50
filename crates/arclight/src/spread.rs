//! Measurements that were taken in turns, with their spread: the median, the least and the greatest.
//!
//! Ratios are of the same turn, which what disturbs the machine changes least. Two series are told apart when one is
//! [`faster`] than the other by more than chance.

use serde::Serialize;
use std::fmt;
use tune::tuner::{faster, median};

/// A median between the least and the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// The spread of some values; NaN without any.
    pub(crate) fn of(values: &[f64]) -> Spread {
        Spread {
            median: if values.is_empty() { f64::NAN } else { median(values) },
            low: values.iter().copied().fold(f64::NAN, f64::min),
            high: values.iter().copied().fold(f64::NAN, f64::max),
        }
    }

    /// The spread of the ratios of two series, turn by turn.
    pub(crate) fn of_ratios(of: &[f64], to: &[f64]) -> Spread {
        Spread::of(&of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<_>>())
    }
}

impl fmt::Display for Spread {
    /// `1.20 (1.05-1.33)`, with as many decimals as are asked for, two by default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { median, low, high } = self;
        let decimals = f.precision().unwrap_or(2);
        match f.sign_plus() {
            true => write!(f, "{median:+.decimals$} ({low:+.decimals$} to {high:+.decimals$})"),
            false => write!(f, "{median:.decimals$} ({low:.decimals$}-{high:.decimals$})"),
        }
    }
}

/// Whether one of two series of times is surely the faster one.
pub(crate) fn told_apart(one: &[f64], other: &[f64]) -> bool {
    faster(one, other) || faster(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_turn() {
        let spread = Spread::of_ratios(&[2.0, 9.0, 30.0], &[1.0, 3.0, 10.0]);
        assert_eq!(spread, Spread { median: 3.0, low: 2.0, high: 3.0 });
        assert_eq!(spread.to_string(), "3.00 (2.00-3.00)");
        assert_eq!(format!("{spread:+.1}"), "+3.0 (+2.0 to +3.0)");
        assert!(Spread::of(&[]).median.is_nan() && Spread::of(&[]).low.is_nan());
    }

    #[test]
    fn series_that_overlap_are_not_told_apart() {
        let times = |from: f64| (0..5).map(|i| from + f64::from(i)).collect::<Vec<_>>();
        assert!(told_apart(&times(1.0), &times(11.0)) && told_apart(&times(11.0), &times(1.0)));
        assert!(!told_apart(&times(1.0), &times(3.0)));
        assert!(!told_apart(&[1.0; 3], &[2.0; 3]), "three turns tell nothing");
    }
}
