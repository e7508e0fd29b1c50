//! Progress of a request, for the watchdog and for tests.

use std::fmt;

/// Where a request that runs stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub id: u64,
    /// What was computed, encoded and sampled of it, counted.
    pub progress: u64,
    pub waits: Waits,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Step,
    /// Pages for so many tokens.
    Pages(usize),
    Image,
    Mask,
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waits::Step => f.write_str("it waits for a step"),
            Waits::Pages(tokens) => {
                write!(f, "it waits for room in the KV cache for {tokens} tokens")
            }
            Waits::Image => f.write_str("it waits for the encoder of its image"),
            Waits::Mask => f.write_str("it waits for the mask of its grammar"),
        }
    }
}
