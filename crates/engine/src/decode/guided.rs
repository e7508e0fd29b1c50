//! The constraint of an answer, which makes masks on a thread of its own.
//!
//! The state that a mask depends on is known when a token has been sampled: the thread takes that token and makes the
//! mask for the next one while the step with it is computed. A mask that takes longer than a step holds up its own
//! answer only (see [`Batch`](super::Batch)); constraints do not delay each other.
//!
//! Limits: a constraint that never returns keeps its thread after the answer was cancelled.

use super::request::Constraint;
use crate::error::message;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Rings when a mask is there, for all answers of a batch.
#[derive(Clone, Default)]
pub(crate) struct Bell(Arc<(Mutex<u64>, Condvar)>);

impl Bell {
    /// How often it has rung.
    pub(crate) fn rings(&self) -> u64 {
        *lock(&self.0.0)
    }

    fn ring(&self) {
        *lock(&self.0.0) += 1;
        self.0.1.notify_all();
    }

    /// Waits until it has rung more often than `rings` times, for `most` at most.
    pub(crate) fn wait(&self, rings: u64, most: Duration) {
        let quiet = |now: &mut u64| *now == rings;
        let waited = self.0.1.wait_timeout_while(lock(&self.0.0), most, quiet);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mask, or why there is none.
type Mask = Result<Vec<u32>, String>;

/// A token that was sampled, and the mask that it was sampled with, whose memory is used again.
type Taken = (u32, Vec<u32>);

/// A constraint and its thread.
pub(crate) struct Guided {
    taken: Sender<Taken>,
    made: Arc<Mutex<Option<Mask>>>,
    bell: Bell,
    /// The mask for the next token.
    ready: Option<Mask>,
}

impl Guided {
    /// Starts the thread, which makes the first mask, of `words` words.
    pub(crate) fn new(constraint: Box<dyn Constraint>, words: usize, bell: &Bell) -> Guided {
        // At most one token: the next one is chosen with the mask that follows from it.
        let (taken, tokens) = channel();
        let made = Arc::default();
        let (own, bell) = (Arc::clone(&made), bell.clone());
        let unpinned = threads::unpinned();
        let ring = bell.clone();
        let body = move || {
            unpinned();
            serve(constraint, words, &tokens, |mask| {
                *lock(&own) = Some(mask);
                ring.ring();
            });
        };
        let begun = thread::Builder::new().name("constraint".to_owned()).spawn(body);
        let ready = begun.err().map(|error| Err(format!("no thread can be started: {error}")));
        Guided { taken, made, bell, ready }
    }

    /// Whether the mask for the next token is there; waits for it until then.
    pub(crate) fn is_ready(&mut self, until: Option<Instant>) -> bool {
        while self.ready.is_none() {
            let rings = self.bell.rings();
            self.ready = lock(&self.made).take();
            if self.ready.is_some() {
                break;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let Some(left) = left.filter(|left| !left.is_zero()) else { return false };
            self.bell.wait(rings, left);
        }
        true
    }

    /// The mask for the next token, which is [ready](Guided::is_ready).
    pub(crate) fn mask(&mut self) -> Mask {
        self.ready.take().unwrap_or_else(|| Err("its mask is not there".to_owned()))
    }

    /// Has the mask made that follows `token`.
    pub(crate) fn accept(&self, token: u32, mask: Vec<u32>) {
        // A thread that has ended has left the reason.
        _ = self.taken.send((token, mask));
    }
}

/// Makes a mask, and another after each token, until the answer ends or the constraint fails.
fn serve(
    mut constraint: Box<dyn Constraint>,
    words: usize,
    tokens: &Receiver<Taken>,
    give: impl Fn(Mask),
) {
    let mut mask = Vec::new();
    let mut token = None;
    loop {
        mask.clear();
        mask.resize(words, u32::MAX);
        let made = catch_unwind(AssertUnwindSafe(|| {
            token.map_or(Ok(()), |token| constraint.accept(token))?;
            constraint.allow(&mut mask)
        }));
        let made = made.unwrap_or_else(|panic| Err(format!("it panicked: {}", message(&*panic))));
        let failed = made.is_err();
        give(made.map(|()| std::mem::take(&mut mask)));
        if failed {
            return;
        }
        let Ok(taken) = tokens.recv() else { return };
        (token, mask) = (Some(taken.0), taken.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens in turn, and what it does when they are through.
    struct Turn(Vec<u32>, fn());

    impl Constraint for Turn {
        fn allow(&mut self, mask: &mut [u32]) -> Result<(), String> {
            let Some(next) = self.0.first() else {
                (self.1)();
                return Err("through".to_owned());
            };
            mask.fill(0);
            mask[*next as usize / 32] = 1 << (next % 32);
            Ok(())
        }

        fn accept(&mut self, token: u32) -> Result<(), String> {
            if self.0.remove(0) == token { Ok(()) } else { Err(format!("not {token}")) }
        }
    }

    const LATER: Duration = Duration::from_secs(60);

    fn next(guided: &mut Guided) -> Mask {
        assert!(guided.is_ready(Some(Instant::now() + LATER)));
        guided.mask()
    }

    #[test]
    fn masks_follow_tokens_until_the_constraint_fails() {
        let bell = Bell::default();
        for (fails, why) in [((|| {}) as fn(), "through"), (|| panic!("no"), "it panicked: no")] {
            let mut guided = Guided::new(Box::new(Turn(vec![3, 40], fails)), 2, &bell);
            for token in [3, 40] {
                let mask = next(&mut guided).unwrap();
                let bit = |at: usize| if token as usize / 32 == at { 1 << (token % 32) } else { 0 };
                assert_eq!(mask, [bit(0), bit(1)]);
                guided.accept(token, mask);
            }
            assert_eq!(next(&mut guided), Err(why.to_owned()));
        }
        let mut guided = Guided::new(Box::new(Turn(vec![3], || {})), 1, &bell);
        let mask = next(&mut guided).unwrap();
        guided.accept(4, mask);
        assert_eq!(next(&mut guided), Err("not 4".to_owned()));
        assert_eq!(bell.rings(), 8);
    }

    #[test]
    fn a_mask_that_is_not_there_is_not_waited_for() {
        struct Waits(Receiver<()>);
        impl Constraint for Waits {
            fn allow(&mut self, _: &mut [u32]) -> Result<(), String> {
                self.0.recv().map_err(|e| e.to_string())
            }
            fn accept(&mut self, _: u32) -> Result<(), String> {
                Ok(())
            }
        }
        let (go, wait) = channel();
        let bell = Bell::default();
        let mut guided = Guided::new(Box::new(Waits(wait)), 1, &bell);
        assert!(!guided.is_ready(None) && !guided.is_ready(Some(Instant::now())));
        go.send(()).unwrap();
        bell.wait(0, LATER);
        assert!(guided.is_ready(None));
        assert_eq!(guided.mask(), Ok(vec![u32::MAX]));
    }
}
