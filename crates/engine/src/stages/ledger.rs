//! The bounds of one session: what a peer may send now, and how many bytes of it are kept.
//!
//! A peer may send an order only after this host has loaded its layers, at most [`Limits::steps`] before the oldest is
//! taken, and each with the next number. It may send rows only for the next step that was ordered, exactly as many as
//! the step has tokens. Both are decided from the head of a message, before memory is taken for the rest. Anything else
//! ends the connection.

use super::wire::WireError;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the shape of the model and the size of its cache allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Steps that may be under way.
    pub steps: usize,
    /// Bytes of an order.
    pub order: usize,
    /// Sequences of a step.
    pub sequences: usize,
    /// Tokens of a step.
    pub tokens: usize,
    /// Tokens of a sequence.
    pub context: usize,
    /// Classes of pages that every sequence has.
    pub classes: usize,
    /// Pages of a table.
    pub pages: usize,
}

/// Bytes of orders and rows that a host keeps, and the most that it has kept.
#[derive(Debug, Default)]
pub(super) struct Kept {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Kept {
    pub(super) fn now(&self) -> usize {
        self.now.load(Relaxed)
    }

    pub(super) fn most(&self) -> usize {
        self.most.load(Relaxed)
    }

    fn add(&self, bytes: usize) {
        let before = self.now.fetch_add(bytes, Relaxed);
        self.most.fetch_max(before + bytes, Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.now.fetch_sub(bytes, Relaxed);
    }
}

/// The ledger of one session.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Elements of a row.
    width: usize,
    kept: Arc<Kept>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a question waits for its answer.
    asked: bool,
    /// Known when the layers are loaded.
    limits: Option<Limits>,
    /// Steps that were ordered and not taken, the oldest first.
    steps: VecDeque<Step>,
    /// The number of the next order; any number may be the first.
    next: Option<u64>,
    /// How many of `steps` have their rows, or are getting them.
    fed: usize,
    over: bool,
}

#[derive(Debug)]
struct Step {
    number: u64,
    tokens: usize,
    /// That are kept for it.
    bytes: usize,
}

impl Ledger {
    pub(super) fn new(width: usize, kept: Arc<Kept>) -> Ledger {
        Ledger { width, kept, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a question, of which there is at most one at a time.
    pub(super) fn ask(&self) -> Result<(), WireError> {
        let mut state = self.state();
        if state.limits.is_some() {
            return Err(WireError::Unasked("a question after the layers were loaded"));
        }
        match std::mem::replace(&mut state.asked, true) {
            false => Ok(()),
            true => Err(WireError::Unasked("a question before the last one was answered")),
        }
    }

    /// Records the answer to it.
    pub(super) fn answer(&self) -> Result<(), WireError> {
        match std::mem::take(&mut self.state().asked) {
            true => Ok(()),
            false => Err(WireError::Unasked("an answer to no question")),
        }
    }

    /// Allows orders within these limits; none of those before them is under way.
    pub(super) fn allow(&self, limits: Option<Limits>) {
        self.state().limits = limits;
    }

    /// The limits, once orders may come.
    pub(super) fn limits(&self) -> Result<Limits, WireError> {
        self.state().limits.ok_or(WireError::Unasked("a step before its layers were loaded"))
    }

    /// Records the order of a step, whose message had this number of bytes.
    pub(super) fn order(&self, number: u64, tokens: usize, bytes: usize) -> Result<(), WireError> {
        let mut state = self.state();
        let limits =
            state.limits.ok_or(WireError::Unasked("a step before its layers were loaded"))?;
        if state.steps.len() >= limits.steps {
            return Err(WireError::Unasked("more steps than may be under way"));
        }
        if state.next.is_some_and(|next| next != number) {
            return Err(WireError::Unasked("a step out of order"));
        }
        if tokens > limits.tokens {
            return Err(WireError::Unasked("a step of more tokens than it may have"));
        }
        state.next = Some(number.wrapping_add(1));
        state.steps.push_back(Step { number, tokens, bytes });
        self.kept.add(bytes);
        self.changed.notify_all();
        Ok(())
    }

    /// Records that rows are coming, of this step and number of bytes. Rows may be here before their order, which takes
    /// another connection: the order is waited for, for this time at most.
    pub(super) fn rows(&self, number: u64, bytes: usize, wait: Duration) -> Result<(), WireError> {
        let end = Instant::now() + wait;
        let mut state = self.state();
        loop {
            if state.over {
                return Err(WireError::Closed);
            }
            let fed = state.fed;
            if let Some(step) = state.steps.get_mut(fed) {
                if step.number != number {
                    return Err(WireError::Unasked("rows of another step than the next"));
                }
                if Some(bytes) != step.tokens.checked_mul(self.width * size_of::<f32>()) {
                    return Err(WireError::Unasked("more or fewer rows than the step has"));
                }
                step.bytes += bytes;
                state.fed += 1;
                self.kept.add(bytes);
                return Ok(());
            }
            if state.next.is_some_and(|next| next != number) {
                return Err(WireError::Unasked("rows of another step than the next"));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WireError::Unasked("rows of a step that was not ordered"));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Records that the oldest step was taken.
    pub(super) fn taken(&self) {
        let mut state = self.state();
        if let Some(step) = state.steps.pop_front() {
            state.fed = state.fed.saturating_sub(1);
            self.kept.remove(step.bytes);
        }
    }

    /// Ends the session: nothing is allowed any more, and nothing is kept.
    pub(super) fn end(&self) {
        let mut state = self.state();
        (state.over, state.limits) = (true, None);
        let bytes = state.steps.drain(..).map(|step| step.bytes).sum();
        self.kept.remove(bytes);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { steps: 2, order: 100, sequences: 4, tokens: 8, context: 64, classes: 1, pages: 2 };

    /// Bytes of the rows of this number of tokens, of a width of 4.
    const fn rows(tokens: usize) -> usize {
        tokens * 16
    }

    fn ledger() -> (Ledger, Arc<Kept>) {
        let kept = Arc::new(Kept::default());
        let ledger = Ledger::new(4, kept.clone());
        ledger.allow(Some(LIMITS));
        (ledger, kept)
    }

    fn refused(result: Result<(), WireError>, why: &str) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn rows_are_taken_for_ordered_steps_alone_and_counted() {
        let (ledger, kept) = ledger();
        let at_once = Duration::ZERO;
        refused(ledger.rows(7, rows(3), at_once), "that was not ordered");
        ledger.order(7, 3, 50).unwrap();
        refused(ledger.rows(8, rows(3), at_once), "another step");
        refused(ledger.rows(7, rows(3) + 1, at_once), "more or fewer");
        refused(ledger.rows(7, usize::MAX, at_once), "more or fewer");
        assert_eq!(kept.now(), 50);
        ledger.rows(7, rows(3), at_once).unwrap();
        assert_eq!(kept.now(), 50 + rows(3));
        refused(ledger.rows(7, rows(3), at_once), "another step");
        refused(ledger.rows(8, rows(3), at_once), "that was not ordered");
        refused(ledger.order(9, 1, 50), "out of order");
        ledger.order(8, 1, 50).unwrap();
        refused(ledger.order(9, 1, 50), "more steps than may be under way");
        ledger.taken();
        refused(ledger.order(9, 9, 50), "more tokens");
        ledger.order(9, 8, 50).unwrap();
        ledger.rows(8, rows(1), at_once).unwrap();
        ledger.taken();
        ledger.rows(9, rows(8), at_once).unwrap();
        assert_eq!((kept.now(), kept.most()), (50 + rows(8), 50 + rows(8)));
        ledger.end();
        assert_eq!(kept.now(), 0);
        assert!(matches!(ledger.rows(10, 0, at_once), Err(WireError::Closed)));
        refused(ledger.order(10, 1, 50), "before its layers were loaded");
    }

    #[test]
    fn rows_wait_for_their_order_and_for_no_session_that_is_over() {
        let (ledger, _) = ledger();
        let long = Duration::from_secs(600);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ledger.rows(0, rows(2), long));
            ledger.order(0, 2, 10).unwrap();
            waiting.join().unwrap().unwrap();
            let waiting = scope.spawn(|| ledger.rows(1, rows(2), long));
            ledger.end();
            assert!(matches!(waiting.join().unwrap(), Err(WireError::Closed)));
        });
    }

    #[test]
    fn one_question_is_open_at_a_time() {
        let ledger = Ledger::new(4, Arc::default());
        refused(ledger.answer(), "an answer to no question");
        ledger.ask().unwrap();
        refused(ledger.ask(), "before the last one was answered");
        ledger.answer().unwrap();
        ledger.ask().unwrap();
        ledger.allow(Some(LIMITS));
        ledger.answer().unwrap();
        refused(ledger.ask(), "after the layers were loaded");
    }
}
