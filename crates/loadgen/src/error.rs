//! The one error type of the crate: what keeps a benchmark from beginning.
//!
//! Faults of single requests are figures, not errors: see [`crate::Failure`].

use std::io;
use std::path::PathBuf;

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is no URL of a server.
    #[error("{url}: {reason}; write http://HOST:PORT")]
    Url {
        /// As given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An encrypted connection was asked for.
    #[error("{url}: https is not supported; measure the server itself at http://HOST:PORT")]
    Https {
        /// As given.
        url: String,
    },
    /// A value that cannot be.
    #[error("{what} is {value}: {reason}")]
    Value {
        /// The quantity, as its option calls it.
        what: &'static str,
        /// As given.
        value: String,
        /// What it must be.
        reason: &'static str,
    },
    /// Nothing a distribution can give lies within the bounds.
    #[error("{what} of at most {most}: the shortest of {of} is {least}")]
    NoneSoShort {
        /// Input or output.
        what: &'static str,
        /// The bound.
        most: usize,
        /// The distribution.
        of: String,
        /// The least that it gives.
        least: usize,
    },
    /// A user's file of requests cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of it says nothing that can be sent.
    #[error("{} line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The system refuses a thread or what waits for the network.
    #[error("the system gives no thread or no event queue")]
    System(#[source] io::Error),
    /// The server does not answer at all.
    #[error("{at} does not answer: {reason}")]
    Unreachable {
        /// Address.
        at: String,
        /// Why.
        reason: String,
    },
    /// The server refuses what every request needs.
    #[error("{at} answers HTTP {status}: {message}")]
    Refused {
        /// Address with path.
        at: String,
        /// Status.
        status: u16,
        /// The server's words.
        message: String,
    },
    /// The server answers something else than the interface says.
    #[error("{at}: {reason}")]
    Answer {
        /// Address with path.
        at: String,
        /// What is wrong with the answer.
        reason: String,
    },
}

impl Error {
    /// Whether the command line is at fault, rather than a file or the server.
    pub fn is_usage(&self) -> bool {
        use Error::{Https, NoneSoShort, Url, Value};
        matches!(self, Url { .. } | Https { .. } | Value { .. } | NoneSoShort { .. })
    }
}

/// `value`, when it is a positive finite number.
pub(crate) fn positive(what: &'static str, value: f64) -> Result<f64, Error> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        let value = value.to_string();
        Err(Error::Value { what, value, reason: "it must be a positive number" })
    }
}
