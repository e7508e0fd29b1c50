//! The answers that ended last, with their times.

use super::lock::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

/// How many are kept.
const KEPT: usize = 50;

/// An answer that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// How, as `finished_reason` of the metrics has it.
    pub(crate) end: &'static str,
    pub(crate) ended: SystemTime,
    /// Where, and how long it had waited; known of answers that ended by themselves.
    pub(crate) place: Option<(usize, Duration)>,
    pub(crate) prompt_tokens: usize,
    pub(crate) cached_tokens: usize,
    pub(crate) tokens: usize,
    /// From the submission to the first token.
    pub(crate) first: Option<Duration>,
    /// From the first token to the last.
    pub(crate) rest: Duration,
}

/// The last of them.
#[derive(Default)]
pub(crate) struct Recent(Mutex<VecDeque<Served>>);

impl Recent {
    pub(crate) fn note(&self, served: Served) {
        let mut all = lock(&self.0);
        all.truncate(KEPT - 1);
        all.push_front(served);
    }

    /// All that are kept, the last first.
    pub(super) fn all(&self) -> Vec<Served> {
        lock(&self.0).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_kept() {
        let recent = Recent::default();
        for tokens in 0..KEPT + 3 {
            recent.note(Served {
                end: "stop",
                ended: SystemTime::UNIX_EPOCH,
                place: None,
                prompt_tokens: 1,
                cached_tokens: 0,
                tokens,
                first: None,
                rest: Duration::ZERO,
            });
        }
        let all: Vec<usize> = recent.all().iter().map(|served| served.tokens).collect();
        assert_eq!((all.len(), all[0], all[KEPT - 1]), (KEPT, KEPT + 2, 3));
    }
}
