//! Service-level objectives: how many requests meet them, and up to which rate.
//!
//! A request meets its objective when both its time to first token and its time per output token keep
//! to their bounds; the share that does is the *attainment*, and *goodput* is the highest rate whose
//! attainment reaches the target, 90 % by default. A scale multiplies both bounds: less than 1 is
//! stricter. A request that failed meets nothing; an answer of one token has no time per output token
//! to exceed. Requests that were given up when the user ended the run are left out.
//!
//! Sources: DistServe (Zhong et al., 2024), sections 2 and 6; Sandwich, sections 7.1 and 7.3. Where
//! Sandwich serves batches it asks the 90th percentile of each of the two times apart; the shares
//! apart stand beside the common one for that.

use crate::error::{Error, positive};
use crate::record::{Outcome, Record};
use crate::stats::sorted;
use serde::Serialize;

/// Bounds in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// Time to first token, from the scheduled arrival.
    pub ttft: f64,
    /// Time per output token after the first.
    pub tpot: f64,
    /// Share of requests that must meet both, 0 to 1.
    pub target: f64,
}

/// Shares of requests that keep to the bounds at one scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Attainment {
    /// What both bounds are multiplied by.
    pub scale: f64,
    /// Both.
    pub both: f64,
    /// That to the first token.
    pub ttft: f64,
    /// That per output token.
    pub tpot: f64,
}

/// The highest rate that serves well.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodput {
    /// What both bounds are multiplied by.
    pub scale: f64,
    /// Requests per second at which the target share meets both bounds; none if no rate does.
    pub rate: Option<f64>,
    /// The same where each bound is to be met by the target share, by different requests perhaps.
    pub rate_apart: Option<f64>,
    /// `rate` is the highest that was tried: the true one may be higher.
    pub at_least: bool,
}

impl Slo {
    /// Bounds in milliseconds and a target in percent.
    ///
    /// # Errors
    /// When a bound is not positive or the target not within 0 and 100.
    pub fn new(ttft_ms: f64, tpot_ms: f64, target_percent: f64) -> Result<Slo, Error> {
        if !(target_percent > 0.0 && target_percent <= 100.0) {
            let (value, reason) = (target_percent.to_string(), "it must lie within 0 and 100");
            return Err(Error::Value { what: "slo-target", value, reason });
        }
        Ok(Slo {
            ttft: positive("slo-ttft", ttft_ms)? / 1e3,
            tpot: positive("slo-tpot", tpot_ms)? / 1e3,
            target: target_percent / 100.0,
        })
    }

    /// The scale from which on a request meets the bound for the first token, and that per token.
    fn needs(&self, record: &Record) -> (f64, f64) {
        match (record.is_done(), record.ttft()) {
            (true, Some(ttft)) => (ttft / self.ttft, record.tpot().unwrap_or(0.0) / self.tpot),
            _ => (f64::INFINITY, f64::INFINITY),
        }
    }

    fn all_needs(&self, records: &[Record]) -> impl Iterator<Item = (f64, f64)> {
        records.iter().filter(|r| r.outcome != Outcome::Unfinished).map(|r| self.needs(r))
    }

    /// Shares at a scale; none of no requests.
    pub fn attainment(&self, records: &[Record], scale: f64) -> Option<Attainment> {
        let needs: Vec<(f64, f64)> = self.all_needs(records).collect();
        let share = |meets: &dyn Fn(&(f64, f64)) -> bool| {
            needs.iter().filter(|n| meets(n)).count() as f64 / needs.len() as f64
        };
        (!needs.is_empty()).then(|| Attainment {
            scale,
            both: share(&|n| n.0.max(n.1) <= scale),
            ttft: share(&|n| n.0 <= scale),
            tpot: share(&|n| n.1 <= scale),
        })
    }

    /// The scales from which on requests meet both bounds, ascending; infinite for those that failed.
    pub fn scales(&self, records: &[Record]) -> Vec<f64> {
        sorted(self.all_needs(records).map(|(ttft, tpot)| ttft.max(tpot)))
    }

    /// The strictest scale at which the target share meets both bounds.
    pub fn strictest(&self, records: &[Record]) -> Option<f64> {
        let scales = self.scales(records);
        // As many as make the share; products like 0.9 · 10 may lie a little above 9.
        let enough = (self.target * scales.len() as f64 - 1e-9).ceil() as usize;
        scales.get(enough.max(1) - 1).copied().filter(|s| s.is_finite())
    }

    /// The highest of the rates, each with its attainment at one scale.
    pub fn goodput(&self, scale: f64, rates: &[(f64, Attainment)]) -> Goodput {
        let best = |share: &dyn Fn(&Attainment) -> f64| {
            let good = rates.iter().filter(|(_, a)| share(a) >= self.target - 1e-12);
            good.map(|&(rate, _)| rate).max_by(f64::total_cmp)
        };
        let rate = best(&|a| a.both);
        let highest = rates.iter().map(|&(rate, _)| rate).max_by(f64::total_cmp);
        Goodput {
            scale,
            rate,
            rate_apart: best(&|a| a.ttft.min(a.tpot)),
            at_least: rate.is_some() && rate == highest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Reason;
    use crate::record::tests::{done, failed};

    /// TTFT 100 ms, TPOT 10 ms.
    fn slo() -> Slo {
        Slo::new(100.0, 10.0, 90.0).unwrap()
    }

    /// A request of two tokens with these times.
    fn request(ttft: f64, tpot: f64) -> Record {
        done(0.0, 0.0, &[ttft, ttft + tpot])
    }

    #[test]
    fn a_request_counts_when_both_bounds_hold() {
        let records = [
            request(0.05, 0.005),
            request(0.05, 0.02), // slow tokens
            request(0.2, 0.005), // a late first one
            request(0.3, 0.03),
            done(0.0, 0.0, &[0.09]), // one token
            failed(0.0, Reason::Timeout),
            Record { outcome: Outcome::Unfinished, ..request(0.0, 0.0) },
            // Sent at once it would have been in time, but it was to be sent before.
            done(0.0, 0.09, &[0.15, 0.155]),
        ];
        let at = |scale| slo().attainment(&records, scale).unwrap();
        let a = at(1.0);
        let seventh = |n: f64| n / 7.0;
        assert_eq!((a.both, a.ttft, a.tpot), (seventh(2.0), seventh(3.0), seventh(4.0)));
        // Twice the bounds; sums of doubles make the borders inexact, so a little more.
        let a = at(2.0001);
        assert_eq!((a.both, a.ttft, a.tpot), (seventh(5.0), seventh(5.0), seventh(5.0)));
        assert_eq!(at(0.5001).both, seventh(1.0));
        assert_eq!(at(1e9).both, seventh(6.0), "what failed never counts");
        assert_eq!(slo().attainment(&[], 1.0), None);
    }

    #[test]
    fn the_strictest_scale_is_that_of_the_ninth_of_ten() {
        let records: Vec<Record> = (1..=10).map(|i| request(0.1 * f64::from(i), 0.0)).collect();
        assert!((slo().strictest(&records).unwrap() - 9.0).abs() < 1e-9);
        let mut records = records;
        records[0] = failed(0.0, Reason::Timeout);
        assert!((slo().strictest(&records).unwrap() - 10.0).abs() < 1e-9);
        records[1] = failed(0.0, Reason::Timeout);
        assert_eq!(slo().strictest(&records), None, "eight of ten are not 90 %");
        assert_eq!(slo().strictest(&[]), None);
    }

    #[test]
    fn goodput_is_the_highest_rate_that_reaches_the_target() {
        let a = |both, ttft, tpot| Attainment { scale: 1.0, both, ttft, tpot };
        let rates = [(1.0, a(1.0, 1.0, 1.0)), (2.0, a(0.9, 0.95, 0.95)), (4.0, a(0.8, 0.9, 0.9))];
        let g = slo().goodput(1.0, &rates);
        assert_eq!((g.rate, g.rate_apart, g.at_least), (Some(2.0), Some(4.0), false));
        let g = slo().goodput(1.0, &rates[..2]);
        assert_eq!((g.rate, g.at_least), (Some(2.0), true));
        let g = slo().goodput(1.0, &rates[2..]);
        assert_eq!((g.rate, g.rate_apart, g.at_least), (None, Some(4.0), false));
        // In any order.
        let g = slo().goodput(1.0, &[rates[2], rates[1], rates[0]]);
        assert_eq!((g.rate, g.at_least), (Some(2.0), false));
    }

    #[test]
    fn objectives_that_cannot_be() {
        for (ttft, tpot, target) in
            [(0.0, 1.0, 90.0), (1.0, -1.0, 90.0), (1.0, 1.0, 0.0), (1.0, 1.0, 101.0)]
        {
            assert!(Slo::new(ttft, tpot, target).unwrap_err().is_usage());
        }
    }
}
