//! What futexes do, by a lock and a condition: for systems without them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// A word that threads can sleep on. The lock stands for the kernel's on the queue of the address.
pub(crate) struct Futex {
    word: AtomicU32,
    queue: Mutex<()>,
    wake: Condvar,
}

impl Futex {
    pub(crate) fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value), queue: Mutex::new(()), wake: Condvar::new() }
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Sleeps until [`Self::wake_all`] if the word holds `expected`; may also return for no reason.
    pub(crate) fn sleep(&self, expected: u32) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if self.word.load(Ordering::Relaxed) == expected {
            drop(self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Wakes every thread that sleeps here. Whoever has changed the word before gets past a thread that
    /// has looked at it and does not sleep yet only when it does.
    pub(crate) fn wake_all(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_all();
    }
}
