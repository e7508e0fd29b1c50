//! What a stage before the front does, for those who watch it.

use super::ledger::Kept;
use super::options::StageOptions;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How far a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No front is there.
    Waiting,
    /// A front is there and has not said how large the cache is.
    Connected,
    /// It loads its layers.
    Loading,
    /// It takes steps.
    Serving,
}

impl State {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Connected => "connected",
            State::Loading => "loading",
            State::Serving => "serving",
        }
    }
}

/// What a stage has done.
#[derive(Debug)]
pub struct StageStatus {
    /// Which it is, from 1 on.
    pub stage: usize,
    /// How many there are.
    pub of: usize,
    /// Its layers.
    pub layers: Range<usize>,
    state: AtomicU8,
    steps: AtomicU64,
    tokens: AtomicU64,
    busy: AtomicU64, // nanoseconds
    sent: AtomicU64,
    received: AtomicU64,
    refused: AtomicU64,
    pub(super) kept: Arc<Kept>,
}

/// The counts of a [`StageStatus`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    /// Steps.
    pub steps: u64,
    /// Tokens in them.
    pub tokens: u64,
    /// How long they took.
    pub busy: Duration,
    /// Bytes of rows that were sent to the stage behind.
    pub sent: u64,
    /// Bytes of rows that came from the stage before.
    pub received: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Bytes of orders and rows that are kept until their step is taken.
    pub kept: usize,
    /// The most that these have been.
    pub most_kept: usize,
}

impl StageStatus {
    pub(super) fn new(stage: &StageOptions, layers: Range<usize>) -> StageStatus {
        StageStatus {
            stage: stage.number,
            of: stage.of,
            layers,
            state: AtomicU8::new(State::Waiting as u8),
            steps: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            kept: Arc::default(),
        }
    }

    /// How far it is.
    pub fn state(&self) -> State {
        let all = [State::Waiting, State::Connected, State::Loading, State::Serving];
        all[usize::from(self.state.load(Relaxed)).min(all.len() - 1)]
    }

    /// What it has done.
    pub fn counts(&self) -> StageCounts {
        StageCounts {
            steps: self.steps.load(Relaxed),
            tokens: self.tokens.load(Relaxed),
            busy: Duration::from_nanos(self.busy.load(Relaxed)),
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            refused: self.refused.load(Relaxed),
            kept: self.kept.now(),
            most_kept: self.kept.most(),
        }
    }

    pub(super) fn set(&self, state: State) {
        self.state.store(state as u8, Relaxed);
    }

    pub(super) fn stepped(&self, tokens: usize, sent: usize, busy: Duration) {
        self.steps.fetch_add(1, Relaxed);
        self.tokens.fetch_add(tokens as u64, Relaxed);
        self.busy.fetch_add(busy.as_nanos() as u64, Relaxed);
        self.sent.fetch_add(sent as u64, Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
}
