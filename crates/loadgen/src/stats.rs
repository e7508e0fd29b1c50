//! Figures of a run.
//!
//! Percentiles are interpolated ([`quantile`]), as by vLLM's benchmark.

use crate::record::{Outcome, Reason, Record, ms};
use crate::run::{Load, Run};
use serde::Serialize;
use std::collections::BTreeMap;
use topology::quantile;

/// Figures of many times, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Samples.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Half are shorter.
    pub p50: f64,
    /// 90 % are shorter.
    pub p90: f64,
    /// 95 % are shorter.
    pub p95: f64,
    /// 99 % are shorter.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Summary {
    /// Of samples in seconds; none of no samples.
    pub fn of(seconds: impl Iterator<Item = f64>) -> Option<Summary> {
        let sorted = sorted(seconds);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        let at = |p| ms(quantile(&sorted, p));
        Some(Summary {
            count: sorted.len(),
            max: ms(*sorted.last()?),
            mean: ms(mean),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
        })
    }
}

/// In ascending order.
pub(crate) fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Failures of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// What happened.
    pub reason: String,
    /// How often.
    pub count: usize,
    /// What was said the first time.
    pub example: String,
}

/// Figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Requests with an answer.
    pub completed: usize,
    /// Requests without.
    pub failed: usize,
    /// Requests that were given up when the user ended the run.
    pub unfinished: usize,
    /// Failures by kind.
    pub failures: Vec<Failures>,
    /// Answers with fewer tokens than were asked for.
    pub short: usize,
    /// Arrivals per second as they came, in an open loop.
    pub offered_per_second: Option<f64>,
    /// From the beginning to the end of the last request.
    pub seconds: f64,
    /// Answers per second.
    pub requests_per_second: f64,
    /// Tokens of answers per second.
    pub output_tokens_per_second: f64,
    /// Tokens of prompts and answers per second; none where the server does not count prompts.
    pub total_tokens_per_second: Option<f64>,
    /// Tokens of prompts, as meant, on average over answered requests that were counted too.
    pub input_asked_mean: Option<f64>,
    /// The same as the server counted them.
    pub input_counted_mean: Option<f64>,
    /// The largest difference between the two.
    pub input_worst_difference: Option<usize>,
    /// Prompt tokens that the server had in its cache, of all that it counted.
    pub cached_share: Option<f64>,
    /// Tokens of answers on average.
    pub output_mean: Option<f64>,
    /// Time to first token, from the scheduled arrival.
    pub ttft_ms: Option<Summary>,
    /// Time to first token, from sending.
    pub ttft_from_sending_ms: Option<Summary>,
    /// Time per output token after the first.
    pub tpot_ms: Option<Summary>,
    /// Times between events with text.
    pub itl_ms: Option<Summary>,
    /// Until the last token, from the scheduled arrival.
    pub e2e_ms: Option<Summary>,
    /// Until the last token, from sending.
    pub e2e_from_sending_ms: Option<Summary>,
    /// How late requests were sent.
    pub lag_ms: Option<Summary>,
}

impl Figures {
    /// Of a run.
    pub fn of(run: &Run) -> Figures {
        let records = &run.records;
        let done = || records.iter().filter(|r| r.is_done());
        let completed = done().count();
        let unfinished = records.iter().filter(|r| r.outcome == Outcome::Unfinished).count();
        let per_second = |n: usize| if run.seconds > 0.0 { n as f64 / run.seconds } else { 0.0 };
        let output: usize = done().map(Record::output_tokens).sum();
        let input: Option<usize> = done().map(|r| r.input).sum();
        let mean = |sum: usize, n: usize| (n > 0).then(|| sum as f64 / n as f64);

        let counted: Vec<(usize, usize)> =
            done().filter_map(|r| Some((r.input_asked?, r.input?))).collect();
        let cached: Vec<(usize, usize)> =
            done().filter_map(|r| Some((r.cached?, r.input?))).collect();
        let of_cached: usize = cached.iter().map(|c| c.1).sum();
        let open = matches!(run.load, Load::Open(_));
        let last = records.iter().map(|r| r.scheduled).fold(0.0, f64::max);
        Figures {
            completed,
            failed: records.len() - completed - unfinished,
            unfinished,
            failures: failures(records),
            short: done().filter(|r| r.output_tokens() < r.output_asked).count(),
            offered_per_second: (open && last > 0.0).then(|| records.len() as f64 / last),
            seconds: run.seconds,
            requests_per_second: per_second(completed),
            output_tokens_per_second: per_second(output),
            total_tokens_per_second: input.map(|input| per_second(input + output)),
            input_asked_mean: mean(counted.iter().map(|c| c.0).sum(), counted.len()),
            input_counted_mean: mean(counted.iter().map(|c| c.1).sum(), counted.len()),
            input_worst_difference: counted.iter().map(|c| c.0.abs_diff(c.1)).max(),
            cached_share: mean(cached.iter().map(|c| c.0).sum(), of_cached),
            output_mean: mean(output, completed),
            ttft_ms: Summary::of(done().filter_map(Record::ttft)),
            ttft_from_sending_ms: Summary::of(done().filter_map(Record::ttft_sent)),
            tpot_ms: Summary::of(done().filter_map(Record::tpot)),
            itl_ms: Summary::of(done().flat_map(Record::itl)),
            e2e_ms: Summary::of(done().filter_map(Record::e2e)),
            e2e_from_sending_ms: Summary::of(done().filter_map(Record::e2e_sent)),
            lag_ms: Summary::of(records.iter().map(Record::lag)),
        }
    }
}

fn failures(records: &[Record]) -> Vec<Failures> {
    let mut by_reason: BTreeMap<Reason, (usize, &str)> = BTreeMap::new();
    for record in records {
        if let Outcome::Failed(failure) = &record.outcome {
            by_reason.entry(failure.reason).or_insert((0, &failure.message)).0 += 1;
        }
    }
    let failures = |(reason, (count, example)): (Reason, (usize, &str))| Failures {
        reason: reason.to_string(),
        count,
        example: example.to_owned(),
    };
    by_reason.into_iter().map(failures).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Arrivals;
    use crate::record::tests::{done, failed};

    #[test]
    fn summaries() {
        let s = Summary::of([0.004, 0.001, 0.002, 0.003].into_iter()).unwrap();
        assert_eq!((s.count, s.mean, s.p50, s.max), (4, 2.5, 2.5, 4.0));
        assert!((s.p90 - 3.7).abs() < 1e-9);
        assert_eq!(Summary::of(std::iter::empty()), None);
    }

    #[test]
    fn figures_of_a_run_by_hand() {
        let mut first = done(1.0, 0.0, &[1.5, 1.6, 1.7]);
        (first.input_asked, first.input, first.cached) = (Some(10), Some(12), Some(6));
        let mut second = done(2.0, 0.5, &[3.0]);
        second.output_asked = 2;
        second.cached = Some(0);
        let run = Run {
            load: Load::Open(Arrivals::new(1.0, 1.0).unwrap()),
            records: vec![
                first,
                second,
                failed(3.0, Reason::Status(429)),
                failed(4.0, Reason::Status(429)),
                failed(4.0, Reason::Timeout),
                Record { outcome: Outcome::Unfinished, ..done(4.0, 0.0, &[]) },
            ],
            intruders: vec![],
            planned: 9,
            seconds: 4.0,
            interrupted: true,
        };
        let f = Figures::of(&run);
        assert_eq!((f.completed, f.failed, f.unfinished, f.short), (2, 3, 1, 1));
        assert_eq!((f.requests_per_second, f.output_tokens_per_second), (0.5, 1.0));
        assert_eq!(f.total_tokens_per_second, Some((12 + 10 + 4) as f64 / 4.0));
        assert_eq!(f.offered_per_second, Some(1.5));
        assert_eq!((f.input_asked_mean, f.input_counted_mean), (Some(10.0), Some(11.0)));
        assert_eq!((f.input_worst_difference, f.cached_share), (Some(2), Some(6.0 / 22.0)));
        assert_eq!(f.output_mean, Some(2.0));
        let counts: Vec<_> = f.failures.iter().map(|f| (f.reason.as_str(), f.count)).collect();
        assert_eq!(counts, [("HTTP 429", 2), ("timeout", 1)]);
        assert_eq!(f.ttft_ms.unwrap().max, 1000.0);
        assert_eq!(f.ttft_from_sending_ms.unwrap().max, 500.0);
        assert_eq!(f.tpot_ms.unwrap().count, 1, "one answer has one token");
        assert_eq!(f.itl_ms.unwrap().count, 2);
        // Requests that failed were sent too.
        assert_eq!((f.lag_ms.unwrap().count, f.lag_ms.unwrap().max), (6, 500.0));
    }
}
