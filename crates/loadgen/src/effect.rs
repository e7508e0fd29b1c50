//! What intruders do to the others: times while one is being read, beside all other times.
//!
//! An intruder's prompt is being read from when it is sent until its first token (or its end, if it
//! gets none). Afterwards it is one sequence more among the others, and no longer an intruder.

use crate::record::{Outcome, Record};
use crate::run::Run;
use crate::stats::Summary;
use serde::Serialize;

/// Figures of requests by whether an intruder was there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Intruders that were sent.
    pub sent: usize,
    /// Of them, those without an answer.
    pub failed: usize,
    /// Their prompts as the server counted them, on average.
    pub input_counted_mean: Option<f64>,
    /// Their own time to first token.
    pub ttft_ms: Option<Summary>,
    /// Of requests whose first token was waited for while one was read.
    pub disturbed_ttft_ms: Option<Summary>,
    /// Of the others.
    pub undisturbed_ttft_ms: Option<Summary>,
    /// Of requests that wrote while one was read.
    pub disturbed_tpot_ms: Option<Summary>,
    /// Of the others.
    pub undisturbed_tpot_ms: Option<Summary>,
    /// Between two events, while one was read.
    pub disturbed_itl_ms: Option<Summary>,
    /// Between all other events.
    pub undisturbed_itl_ms: Option<Summary>,
}

impl Effect {
    /// Of a run; none if it had no intruders.
    pub fn of(run: &Run) -> Option<Effect> {
        let intruders = &run.intruders;
        if intruders.is_empty() {
            return None;
        }
        let read: Vec<(f64, f64)> = intruders
            .iter()
            .map(|i| (i.sent, i.tokens.first().copied().unwrap_or(i.end)))
            .collect();
        let disturbed = |from: f64, to: f64| read.iter().any(|&(f, t)| from < t && f < to);
        let done = || run.records.iter().filter(|r| r.is_done());
        let ttft = |which: bool| {
            Summary::of(done().filter_map(|r| {
                let first = *r.tokens.first()?;
                (disturbed(r.sent, first) == which).then(|| r.ttft())?
            }))
        };
        let tpot = |which: bool| {
            Summary::of(done().filter_map(|r| {
                let (first, last) = (*r.tokens.first()?, *r.tokens.last()?);
                (disturbed(first, last) == which).then(|| r.tpot())?
            }))
        };
        let itl = |which: bool| {
            let pairs = done().flat_map(|r| r.tokens.windows(2));
            let pairs = pairs.filter(|pair| disturbed(pair[0], pair[1]) == which);
            Summary::of(pairs.map(|pair| pair[1] - pair[0]))
        };
        let counted: Vec<usize> = intruders.iter().filter_map(|i| i.input).collect();
        let sum = counted.iter().sum::<usize>() as f64;
        Some(Effect {
            sent: intruders.len(),
            failed: intruders.iter().filter(|i| matches!(i.outcome, Outcome::Failed(_))).count(),
            input_counted_mean: (!counted.is_empty()).then(|| sum / counted.len() as f64),
            ttft_ms: Summary::of(intruders.iter().filter_map(Record::ttft)),
            disturbed_ttft_ms: ttft(true),
            undisturbed_ttft_ms: ttft(false),
            disturbed_tpot_ms: tpot(true),
            undisturbed_tpot_ms: tpot(false),
            disturbed_itl_ms: itl(true),
            undisturbed_itl_ms: itl(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Reason;
    use crate::record::tests::{done, failed};
    use crate::run::Load;

    #[test]
    fn overlaps_by_hand() {
        // Read from 10 to 12; writing until 20.
        let intruder = Record { intruder: true, ..done(10.0, 0.0, &[12.0, 20.0]) };
        // Never answered: there from 30 to its end.
        let lost = Record { intruder: true, end: 31.0, ..failed(30.0, Reason::Timeout) };
        let run = Run {
            load: Load::Closed(4),
            records: vec![
                done(0.0, 0.0, &[1.0, 2.0, 9.0]),   // before
                done(8.0, 0.0, &[9.0, 11.0, 13.0]), // writes through both ends
                done(11.0, 0.0, &[12.5, 13.5]),     // waits while it is read, writes after
                done(12.5, 0.0, &[13.0, 14.0]),     // beside its answer
                done(29.0, 0.0, &[29.5, 30.5]),     // the other one
            ],
            intruders: vec![intruder, lost],
            planned: 5,
            seconds: 31.0,
            interrupted: false,
        };
        let e = Effect::of(&run).unwrap();
        let count = |s: Option<Summary>| s.map_or(0, |s| s.count);
        assert_eq!((e.sent, e.failed, e.ttft_ms.unwrap().max), (2, 1, 2000.0));
        assert_eq!((count(e.disturbed_ttft_ms), count(e.undisturbed_ttft_ms)), (1, 4));
        assert_eq!(e.disturbed_ttft_ms.unwrap().max, 1500.0);
        assert_eq!((count(e.disturbed_tpot_ms), count(e.undisturbed_tpot_ms)), (2, 3));
        assert_eq!(e.disturbed_tpot_ms.unwrap().max, 2000.0);
        // 9 to 11, 11 to 13, 29.5 to 30.5.
        assert_eq!((count(e.disturbed_itl_ms), count(e.undisturbed_itl_ms)), (3, 4));
        assert_eq!(Effect::of(&Run { intruders: vec![], ..run }), None);
    }
}
