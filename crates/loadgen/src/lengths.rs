//! How long prompts and answers are: fixed, or like those of a published trace.
//!
//! Of a trace only quantiles are kept (`data/`, with sources and licences). A length is drawn by
//! inverse transform: a uniform number chooses the probability, and between two known quantiles the
//! length is interpolated.
//!
//! Limit: prompt and answer are drawn independently, while in the traces they may be related.

use crate::error::Error;
use crate::rng::Rng;
use serde::Deserialize;
use std::fmt;
use std::sync::LazyLock;

/// A published distribution of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// First turns of ShareGPT conversations.
    ShareGpt,
    /// The same, with the bounds of vLLM's benchmark: at most 1024 tokens each.
    ShareGptShort,
    /// The same with their histories, up to 8192 tokens.
    ShareGptMultiturn,
    /// Conversations in Azure's cloud, 2023.
    AzureConv,
    /// Code completion in Azure's cloud, 2023.
    AzureCode,
}

impl Trace {
    /// All, by name.
    pub const ALL: [Trace; 5] = [
        Trace::ShareGpt,
        Trace::ShareGptShort,
        Trace::ShareGptMultiturn,
        Trace::AzureConv,
        Trace::AzureCode,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Trace::ShareGpt => "sharegpt",
            Trace::ShareGptShort => "sharegpt-short",
            Trace::ShareGptMultiturn => "sharegpt-multiturn",
            Trace::AzureConv => "azure-conv",
            Trace::AzureCode => "azure-code",
        }
    }

    fn set(self) -> &'static Set {
        let file = &*FILE;
        match self {
            Trace::ShareGpt => &file.sharegpt_first_turn,
            Trace::ShareGptShort => &file.sharegpt_vllm_filter,
            Trace::ShareGptMultiturn => &file.sharegpt_multiturn_8k,
            Trace::AzureConv => &file.azure2023_conv,
            Trace::AzureCode => &file.azure2023_code,
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Debug, Deserialize)]
struct File {
    quantiles: Vec<f64>,
    sharegpt_first_turn: Set,
    sharegpt_vllm_filter: Set,
    sharegpt_multiturn_8k: Set,
    azure2023_conv: Set,
    azure2023_code: Set,
}

/// Lengths in tokens at the file's quantiles.
#[derive(Debug, Deserialize)]
struct Set {
    #[serde(rename = "in")]
    input: Vec<f64>,
    #[serde(rename = "out")]
    output: Vec<f64>,
}

static FILE: LazyLock<File> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../data/trace_quantiles.json"))
        .expect("a constant file, which the tests read")
});

/// A distribution of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// Always this many tokens.
    Fixed(usize),
    /// As the prompts of a trace.
    Inputs(Trace),
    /// As the answers of a trace.
    Outputs(Trace),
}

impl Lengths {
    fn quantiles(self) -> Option<&'static [f64]> {
        match self {
            Lengths::Fixed(_) => None,
            Lengths::Inputs(trace) => Some(&trace.set().input),
            Lengths::Outputs(trace) => Some(&trace.set().output),
        }
    }

    /// The length that a share `p` of all do not exceed, in tokens.
    pub fn at(self, p: f64) -> usize {
        let Some(values) = self.quantiles() else {
            let Lengths::Fixed(n) = self else { unreachable!("only these have no quantiles") };
            return n;
        };
        let probabilities = &FILE.quantiles;
        let above = probabilities.partition_point(|&q| q <= p).clamp(1, values.len() - 1);
        let (p0, p1) = (probabilities[above - 1], probabilities[above]);
        let (v0, v1) = (values[above - 1], values[above]);
        let value = v0 + (v1 - v0) * ((p - p0) / (p1 - p0)).clamp(0.0, 1.0);
        (value.round() as usize).max(1)
    }

    /// `n` lengths of at most `most` tokens. Longer ones are drawn again, so what comes is the
    /// distribution on the condition that it fits.
    pub(crate) fn draw(
        self,
        what: &'static str,
        n: usize,
        most: Option<usize>,
        seed: u64,
    ) -> Result<Vec<usize>, Error> {
        let least = self.at(0.0);
        let most = most.unwrap_or(usize::MAX);
        if least > most {
            return Err(Error::NoneSoShort { what, most, of: self.to_string(), least });
        }
        let mut rng = Rng::new(seed, what);
        // Drawing again is the same as drawing below the probability of what fits.
        let room = self.share_within(most);
        Ok((0..n).map(|_| self.at(rng.unit() * room).min(most)).collect())
    }

    /// The share of lengths of at most `most`.
    fn share_within(self, most: usize) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        if self.at(high) <= most {
            return high;
        }
        // `at` rises, so halving finds the border to the last bit.
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if self.at(middle) <= most { low = middle } else { high = middle }
        }
        low
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lengths::Fixed(n) => write!(f, "{n}"),
            Lengths::Inputs(trace) | Lengths::Outputs(trace) => f.pad(trace.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_sound() {
        let p = &FILE.quantiles;
        assert_eq!((p[0], p[p.len() - 1]), (0.0, 1.0));
        assert!(p.is_sorted_by(|a, b| a < b));
        for trace in Trace::ALL {
            for values in [&trace.set().input, &trace.set().output] {
                assert_eq!(values.len(), p.len(), "{trace}");
                assert!(values.is_sorted() && values[0] >= 1.0, "{trace}");
            }
        }
    }

    #[test]
    fn what_is_drawn_has_the_quantiles_of_the_trace() {
        const N: usize = 100_000;
        for trace in Trace::ALL {
            for of in [Lengths::Inputs(trace), Lengths::Outputs(trace)] {
                let drawn = of.draw("input", N, None, 5).unwrap();
                for (&p, &value) in FILE.quantiles.iter().zip(of.quantiles().unwrap()) {
                    let below = drawn.iter().filter(|&&n| (n as f64) < value).count() as f64;
                    let within = drawn.iter().filter(|&&n| n as f64 <= value).count() as f64;
                    // Five standard errors of a share, and what rounding to whole tokens shifts
                    // is between the two counts.
                    let error = 5.0 * (p * (1.0 - p) / N as f64).sqrt() + 1e-9;
                    assert!(below / N as f64 <= p + error, "{of} at {p}: {below} below {value}");
                    assert!(within / N as f64 >= p - error, "{of} at {p}: {within} to {value}");
                }
            }
        }
    }

    #[test]
    fn between_quantiles_lengths_are_interpolated() {
        let of = Lengths::Inputs(Trace::ShareGpt);
        // 16 tokens at 10 %, 19 at 15 %, 7398 at the end.
        assert_eq!((of.at(0.1), of.at(0.15), of.at(0.1 + 0.05 / 3.0)), (16, 19, 17));
        assert_eq!((of.at(0.0), of.at(1.0)), (1, 7398));
        assert_eq!(Lengths::Fixed(9).at(0.3), 9);
    }

    #[test]
    fn bounds_are_conditions() {
        let of = Lengths::Outputs(Trace::AzureConv);
        let drawn = of.draw("output", 50_000, Some(129), 1).unwrap();
        assert_eq!(drawn.iter().max(), Some(&129));
        // 129 is the median: half of what fits lies below the quantile of 25 %, which is 85.
        let share = drawn.iter().filter(|&&n| n <= 85).count() as f64 / drawn.len() as f64;
        assert!((share - 0.5).abs() < 0.02, "{share}");
        let e = of.draw("output", 1, Some(6), 1).unwrap_err();
        assert_eq!(e.to_string(), "output of at most 6: the shortest of azure-conv is 7");
        assert!(Lengths::Fixed(7).draw("input", 1, Some(6), 1).is_err());
        assert_eq!(Lengths::Fixed(7).draw("input", 2, None, 1).unwrap(), [7, 7]);
    }

    #[test]
    fn a_seed_gives_the_same_lengths() {
        let of = Lengths::Inputs(Trace::AzureCode);
        let draw = |what, seed| of.draw(what, 20, None, seed).unwrap();
        assert_eq!(draw("input", 1), draw("input", 1));
        assert_ne!(draw("input", 1), draw("input", 2));
        assert_ne!(draw("input", 1), draw("output", 1));
    }
}
