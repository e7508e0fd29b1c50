//! What is known of one request when it is over.
//!
//! Times are seconds from the beginning of the run, by the monotonic clock.

use serde::{Serialize, Serializer};
use std::fmt;

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Position in the workload; intruders are counted apart.
    pub id: usize,
    /// A long prompt that was sent to disturb the others.
    pub intruder: bool,
    /// When it was to be sent. In a closed loop, when it was sent.
    pub scheduled: f64,
    /// When it was sent: before a connection was made.
    pub sent: f64,
    /// When each event with text came.
    pub tokens: Vec<f64>,
    /// When the answer, the fault, or the benchmark ended.
    pub end: f64,
    /// Prompt tokens that were meant; none for a text of the user's.
    pub input_asked: Option<usize>,
    /// Answer tokens that were asked for.
    pub output_asked: usize,
    /// Prompt tokens, as the server counts.
    pub input: Option<usize>,
    /// Prompt tokens that the server had in its cache, if it says so.
    pub cached: Option<usize>,
    /// Answer tokens, as the server counts.
    pub output: Option<usize>,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// With an answer.
    Done,
    /// Without.
    Failed(Failure),
    /// The benchmark ended before it did.
    Unfinished,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is counted.
    pub reason: Reason,
    /// What the server or the system says.
    pub message: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// No connection.
    Connect,
    /// A connection that broke.
    Broken,
    /// An answer with this status.
    Status(u16),
    /// No end within the time that was given.
    Timeout,
    /// An error in the middle of the stream.
    ErrorEvent,
    /// A stream that ended before the answer did.
    CutOff,
    /// Something that is no stream of completions.
    Malformed,
    /// A proper end, but no token before it.
    Empty,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Connect => f.write_str("no connection"),
            Reason::Broken => f.write_str("connection broken"),
            Reason::Status(status) => write!(f, "HTTP {status}"),
            Reason::Timeout => f.write_str("timeout"),
            Reason::ErrorEvent => f.write_str("error in the stream"),
            Reason::CutOff => f.write_str("stream cut off"),
            Reason::Malformed => f.write_str("malformed answer"),
            Reason::Empty => f.write_str("empty answer"),
        }
    }
}

impl Record {
    /// Whether it has an answer.
    pub fn is_done(&self) -> bool {
        self.outcome == Outcome::Done
    }

    /// Tokens of the answer: the server's count, or events with text where it does not count.
    pub fn output_tokens(&self) -> usize {
        self.output.unwrap_or(self.tokens.len())
    }

    /// Time to first token, in seconds from the scheduled arrival.
    pub fn ttft(&self) -> Option<f64> {
        Some(self.tokens.first()? - self.scheduled)
    }

    /// The same from sending.
    pub fn ttft_sent(&self) -> Option<f64> {
        Some(self.tokens.first()? - self.sent)
    }

    /// Time per output token after the first, in seconds; none for answers of one token.
    pub fn tpot(&self) -> Option<f64> {
        let (first, last) = (self.tokens.first()?, self.tokens.last()?);
        match self.output_tokens() {
            0 | 1 => None,
            n => Some((last - first) / (n - 1) as f64),
        }
    }

    /// Times between events with text, in seconds.
    pub fn itl(&self) -> impl Iterator<Item = f64> {
        self.tokens.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// Until the last token, in seconds from the scheduled arrival.
    pub fn e2e(&self) -> Option<f64> {
        Some(self.tokens.last()? - self.scheduled)
    }

    /// The same from sending.
    pub fn e2e_sent(&self) -> Option<f64> {
        Some(self.tokens.last()? - self.sent)
    }

    /// How late it was sent, in seconds.
    pub fn lag(&self) -> f64 {
        self.sent - self.scheduled
    }
}

/// As `docs/serving-bench.md` describes it: milliseconds, and figures beside times.
impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Row<'a> {
            id: usize,
            outcome: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            message: Option<&'a str>,
            scheduled_ms: f64,
            sent_ms: f64,
            end_ms: f64,
            ttft_ms: Option<f64>,
            ttft_from_sending_ms: Option<f64>,
            tpot_ms: Option<f64>,
            e2e_ms: Option<f64>,
            e2e_from_sending_ms: Option<f64>,
            input_asked: Option<usize>,
            input_tokens: Option<usize>,
            cached_tokens: Option<usize>,
            output_asked: usize,
            output_tokens: usize,
            token_times_ms: Vec<f64>,
        }
        let (outcome, failure) = match &self.outcome {
            Outcome::Done => ("done", None),
            Outcome::Failed(failure) => ("failed", Some(failure)),
            Outcome::Unfinished => ("unfinished", None),
        };
        Row {
            id: self.id,
            outcome,
            reason: failure.map(|f| f.reason.to_string()),
            message: failure.map(|f| f.message.as_str()),
            scheduled_ms: ms(self.scheduled),
            sent_ms: ms(self.sent),
            end_ms: ms(self.end),
            ttft_ms: self.ttft().map(ms),
            ttft_from_sending_ms: self.ttft_sent().map(ms),
            tpot_ms: self.tpot().map(ms),
            e2e_ms: self.e2e().map(ms),
            e2e_from_sending_ms: self.e2e_sent().map(ms),
            input_asked: self.input_asked,
            input_tokens: self.input,
            cached_tokens: self.cached,
            output_asked: self.output_asked,
            output_tokens: self.output_tokens(),
            token_times_ms: self.tokens.iter().copied().map(ms).collect(),
        }
        .serialize(serializer)
    }
}

/// Milliseconds, to the microsecond: what lies below is noise, and would triple the file.
pub(crate) fn ms(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A request scheduled at `at` and sent `lag` later, with tokens at these times.
    pub(crate) fn done(at: f64, lag: f64, tokens: &[f64]) -> Record {
        Record {
            id: 0,
            intruder: false,
            scheduled: at,
            sent: at + lag,
            tokens: tokens.to_vec(),
            end: tokens.last().copied().unwrap_or(at + lag),
            input_asked: Some(10),
            output_asked: tokens.len(),
            input: Some(10),
            cached: None,
            output: Some(tokens.len()),
            outcome: Outcome::Done,
        }
    }

    /// A request that failed.
    pub(crate) fn failed(at: f64, reason: Reason) -> Record {
        let failure = Failure { reason, message: "why".to_owned() };
        Record { outcome: Outcome::Failed(failure), output: None, ..done(at, 0.0, &[]) }
    }

    #[test]
    fn figures_by_hand() {
        let mut r = done(1.0, 0.25, &[2.0, 2.5, 4.0]);
        assert_eq!((r.ttft(), r.ttft_sent()), (Some(1.0), Some(0.75)));
        assert_eq!((r.e2e(), r.e2e_sent(), r.lag()), (Some(3.0), Some(2.75), 0.25));
        assert_eq!(r.tpot(), Some(1.0));
        assert_eq!(r.itl().collect::<Vec<_>>(), [0.5, 1.5]);
        // Five tokens in three events: the time is shared by four.
        r.output = Some(5);
        assert_eq!(r.tpot(), Some(0.5));
        r.output = None;
        assert_eq!((r.output_tokens(), r.tpot()), (3, Some(1.0)));
        assert_eq!(done(0.0, 0.0, &[1.0]).tpot(), None);
        assert_eq!(failed(0.0, Reason::Timeout).ttft(), None);
    }
}
