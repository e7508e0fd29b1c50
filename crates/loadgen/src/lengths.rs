//! How long prompts and answers are: fixed, or like those of a published trace.
//!
//! Only the quantiles of a trace are kept (`data/`, with sources and licences), or its means where no more is
//! published. A length is drawn by inverse transform: a uniform number chooses the probability, and between two known
//! quantiles the length is interpolated. Where only the mean is known, the distribution is assumed to be exponential:
//! no distribution of positive numbers with that mean has more entropy.
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
    /// Turns of LMSYS-Chat-1M, by their published means.
    LmsysChat,
}

impl Trace {
    /// All, by name.
    pub const ALL: [Trace; 6] = [
        Trace::ShareGpt,
        Trace::ShareGptShort,
        Trace::ShareGptMultiturn,
        Trace::AzureConv,
        Trace::AzureCode,
        Trace::LmsysChat,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Trace::ShareGpt => "sharegpt",
            Trace::ShareGptShort => "sharegpt-short",
            Trace::ShareGptMultiturn => "sharegpt-multiturn",
            Trace::AzureConv => "azure-conv",
            Trace::AzureCode => "azure-code",
            Trace::LmsysChat => "lmsys-chat",
        }
    }

    /// Distributions of prompts and of answers.
    fn known(self) -> [Known; 2] {
        let file = &*FILE;
        let set = match self {
            Trace::ShareGpt => &file.sharegpt_first_turn,
            Trace::ShareGptShort => &file.sharegpt_vllm_filter,
            Trace::ShareGptMultiturn => &file.sharegpt_multiturn_8k,
            Trace::AzureConv => &file.azure2023_conv,
            Trace::AzureCode => &file.azure2023_code,
            Trace::LmsysChat => {
                let Means { input, output } = file.lmsys_chat_1m;
                return [Known::Mean(input), Known::Mean(output)];
            }
        };
        [Known::Quantiles(&set.input), Known::Quantiles(&set.output)]
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
    lmsys_chat_1m: Means,
}

/// Mean lengths in tokens.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Means {
    #[serde(rename = "mean_in")]
    input: f64,
    #[serde(rename = "mean_out")]
    output: f64,
}

/// The published part of a distribution of lengths.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// Tokens at the file's quantiles.
    Quantiles(&'static [f64]),
    /// The mean, in tokens.
    Mean(f64),
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
    /// The length that a share `p` of all do not exceed, in tokens. Where only the mean is known, there is no longest
    /// one: then that of all is the largest number.
    pub fn at(self, p: f64) -> usize {
        let known = match self {
            Lengths::Fixed(n) => return n,
            Lengths::Inputs(trace) => trace.known()[0],
            Lengths::Outputs(trace) => trace.known()[1],
        };
        let value = match known {
            Known::Mean(mean) => -mean * (1.0 - p).ln(),
            Known::Quantiles(values) => {
                let probabilities = &FILE.quantiles;
                let above = probabilities.partition_point(|&q| q <= p).clamp(1, values.len() - 1);
                let (p0, p1) = (probabilities[above - 1], probabilities[above]);
                let (v0, v1) = (values[above - 1], values[above]);
                v0 + (v1 - v0) * ((p - p0) / (p1 - p0)).clamp(0.0, 1.0)
            }
        };
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
            for known in trace.known() {
                let Known::Quantiles(values) = known else { continue };
                assert_eq!(values.len(), p.len(), "{trace}");
                assert!(values.is_sorted() && values[0] >= 1.0, "{trace}");
            }
        }
    }

    #[test]
    fn what_is_drawn_has_the_quantiles_of_the_trace() {
        const N: usize = 100_000;
        for trace in Trace::ALL {
            for (of, known) in
                [Lengths::Inputs(trace), Lengths::Outputs(trace)].into_iter().zip(trace.known())
            {
                let drawn = of.draw("input", N, None, 5).unwrap();
                let Known::Quantiles(values) = known else { continue };
                for (&p, &value) in FILE.quantiles.iter().zip(values) {
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
    fn what_is_drawn_has_the_published_means_and_their_distribution() {
        const N: usize = 100_000;
        let (prompts, answers) =
            (Lengths::Inputs(Trace::LmsysChat), Lengths::Outputs(Trace::LmsysChat));
        for (of, mean) in [(prompts, 69.5), (answers, 214.5)] {
            let drawn = of.draw("input", N, None, 5).unwrap();
            let found = drawn.iter().sum::<usize>() as f64 / N as f64;
            // The deviation of an exponential distribution is its mean: five standard errors.
            assert!((found / mean - 1.0).abs() < 5.0 / (N as f64).sqrt(), "{of}: {found}");
            // The median is ln 2 of the mean.
            let short = drawn.iter().filter(|&&n| n as f64 <= mean * 2f64.ln()).count();
            assert!((short as f64 / N as f64 - 0.5).abs() < 0.01, "{of}: {short}");
        }
        assert_eq!((answers.at(0.0), answers.at(1.0)), (1, usize::MAX));
        let drawn = answers.draw("output", 1000, Some(100), 1).unwrap();
        assert!(drawn.iter().all(|n| (1..=100).contains(n)));
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
