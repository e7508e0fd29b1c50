//! Medians and quantiles of measurements, and shares in words: one rule for the whole workspace.
//!
//! Between two samples values are interpolated (type 7 of Hyndman and Fan, 1996; the default of NumPy and R):
//! with n samples in order, the quantile of p stands at place (n − 1) · p, counted from 0.

/// The median: the middle sample, or the mean of the two in the middle. `None` without samples. They may be
/// in any order, and infinite.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The quantile `p`, 0 to 1, of finite samples in ascending order.
///
/// # Panics
/// Without samples.
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let place = (sorted.len() - 1) as f64 * p;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    let part = place - place.floor();
    sorted[below] + (sorted[above] - sorted[below]) * part
}

/// A share in a sentence: `12 %`, `3.4 %`, `less than 0.1 %`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.1 => "less than 0.1 %".to_owned(),
        p if p > 0.0 && p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_two_figures_where_that_says_more() {
        let words = [0.0, 0.0004, 0.001, 0.0342, 0.0994, 0.0996, 0.5, 1.0].map(percent);
        let wanted = ["0 %", "less than 0.1 %", "0.1 %", "3.4 %", "9.9 %", "10 %", "50 %", "100 %"];
        assert_eq!(words, wanted);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[f64::INFINITY; 2]), Some(f64::INFINITY));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn quantiles_are_those_of_numpy() {
        // numpy.quantile([15, 20, 35, 40, 50], [0, 0.4, 0.5, 0.9, 0.99, 1])
        let samples = [15.0, 20.0, 35.0, 40.0, 50.0];
        for (p, expected) in
            [(0.0, 15.0), (0.4, 29.0), (0.5, 35.0), (0.9, 46.0), (0.99, 49.6), (1.0, 50.0)]
        {
            let got = quantile(&samples, p);
            // Sums of a few doubles.
            assert!((got - expected).abs() < 1e-9, "{p}: {got}");
        }
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
    }
}
