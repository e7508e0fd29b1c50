//! The prefix cache on disk of an engine, and whether reading a prompt's pages takes less time than computing them.

use super::store::Store;
use crate::kv::disk::Found;
use std::sync::Arc;
use std::time::Duration;

/// Tokens of a step that tells how fast prompts are, at least.
const PROMPT: usize = 64;

/// What an engine has of a prefix cache on disk.
pub(crate) struct Disk {
    pub(super) store: Arc<Store>,
    /// Seconds that a token of a prompt takes, once one was computed; of late.
    seconds: Option<f64>,
    /// Tokens that were read.
    pub(super) restored: u64,
}

impl Disk {
    pub(crate) fn new(store: Arc<Store>) -> Disk {
        Disk { store, seconds: None, restored: 0 }
    }

    /// A step of so many tokens took so long.
    pub(crate) fn observe(&mut self, tokens: usize, took: Duration) {
        if tokens >= PROMPT {
            let seconds = took.as_secs_f64() / tokens as f64;
            self.seconds = Some(self.seconds.map_or(seconds, |old| 0.75 * old + 0.25 * seconds));
        }
    }

    /// Whether so many tokens are sooner read than computed, as far as both have been measured. What has not is tried.
    pub(super) fn is_faster(&self, found: &Found, tokens: usize) -> bool {
        let (Some(rate), Some(seconds)) = (self.store.rate(), self.seconds) else { return true };
        found.bytes as f64 / rate < tokens as f64 * seconds
    }
}
