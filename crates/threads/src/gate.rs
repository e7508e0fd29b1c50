//! A gate: a generation on which threads wait, spinning briefly and then sleeping.
//!
//! Generation, poison and "somebody sleeps" share one word. So opening is one atomic
//! read-modify-write that also says whether the kernel must be asked to wake anybody, and neither
//! a wake-up nor a poisoning can slip between a look at the word and going to sleep on it.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public for the loom models"))]

use std::time::Duration;

use crate::sync::{Futex, Ordering, spin_until};

/// Somebody sleeps, or is about to.
const SLEEPER: u32 = 1;
/// A thread panicked: whoever waits here must leave.
const POISON: u32 = 2;
/// One generation; the counter above the flags wraps after 2^30 of them, and is only ever
/// compared with the one before it.
const STEP: u32 = 4;

/// The state of a gate as a waiter saw it: the word without [`SLEEPER`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seen(u32);

impl Seen {
    /// What a gate shows before it has ever opened.
    pub const NEW: Self = Self(0);

    /// The waiter must leave: a thread panicked.
    pub fn is_poisoned(self) -> bool {
        self.0 & POISON != 0
    }
}

/// See the module.
pub struct Gate(Futex);

impl Gate {
    /// A gate that has never opened.
    #[allow(clippy::new_without_default, reason = "internal")]
    pub fn new() -> Self {
        Self(Futex::new(Seen::NEW.0))
    }

    /// The state now, to be handed to [`Self::wait`].
    ///
    /// Relaxed is enough: all openings so far happened before the call (the caller has waited for
    /// them, or has since taken up a job that follows them), and the gate cannot open again without
    /// the caller.
    pub fn seen(&self) -> Seen {
        Seen(self.0.word().load(Ordering::Relaxed) & !SLEEPER)
    }

    /// Waits until the gate has opened or was poisoned since `seen`. Everything that happened
    /// before the opening is visible afterwards.
    pub fn wait(&self, seen: Seen, spin: Duration) -> Seen {
        let word = self.0.word();
        let changed = || {
            let now = Seen(word.load(Ordering::Acquire) & !SLEEPER);
            (now != seen).then_some(now)
        };
        if let Some(now) = spin_until(spin, changed) {
            return now;
        }
        loop {
            if let Some(now) = changed() {
                return now;
            }
            // A failed exchange means that the gate opened, or that another sleeper was first:
            // the comparison in the kernel tells the two apart.
            let _ = word.compare_exchange(
                seen.0,
                seen.0 | SLEEPER,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            self.0.sleep(seen.0 | SLEEPER);
        }
    }

    /// Starts the next generation. Only one thread at a time may open a gate.
    pub fn open(&self) {
        self.change(|word| (word & !SLEEPER).wrapping_add(STEP));
    }

    /// Lets everybody out, now and until [`Self::clear_poison`].
    pub fn poison(&self) {
        self.change(|word| (word & !SLEEPER) | POISON);
    }

    /// Makes a poisoned gate usable again. Nobody may be waiting.
    pub fn clear_poison(&self) {
        self.change(|word| word & !(SLEEPER | POISON));
    }

    fn change(&self, next: impl Fn(u32) -> u32) {
        let word = self.0.word();
        let mut old = word.load(Ordering::Relaxed);
        while let Err(now) =
            word.compare_exchange_weak(old, next(old), Ordering::Release, Ordering::Relaxed)
        {
            old = now;
        }
        if old & SLEEPER != 0 {
            self.0.wake_all();
        }
    }
}
