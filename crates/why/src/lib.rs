//! Causes of low speed: sentences with their figures, and remedies.
//!
//! Callers pass plain counts. [`threads`] judges the work of an engine's threads, [`server`] the queue, the KV pages, the
//! prompts, the draft tokens and the experts of a server, and [`machine`] the machine that both run on. `arclight doctor`,
//! the reports of the command line and `/status.json` print the results. [`share()`] is the one place that compares work with
//! a limit of the machine.
//!
//! Limits: a sentence states no more than its figures support, and figures below the thresholds of a module have no
//! sentence. Thresholds are constants at the beginning of each module.
#![forbid(unsafe_code)]

pub mod machine;
pub mod server;
mod share;
pub mod threads;

pub use share::{NoShare, beaten_memory, share};

use serde::Serialize;
use std::fmt;

/// A cause of low speed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// A sentence with its figure.
    pub text: String,
    /// Remedies, the best first; empty if there is none.
    pub mend: Vec<String>,
}

impl Cause {
    fn new(text: String, mend: &[&str]) -> Cause {
        Cause { text, mend: mend.iter().map(|&text| text.to_owned()).collect() }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cause { text, mend } = self;
        match mend.first() {
            None => f.write_str(text),
            Some(first) => write!(f, "{text} What helps: {first}"),
        }
    }
}
