//! Loom's models: every interleaving, every value that a weak load may return.

use std::time::Duration;

use loom::sync::{Condvar, Mutex};

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// A futex: the mutex stands for the kernel's lock on the queue of the address, under which it
/// compares the word and enqueues the sleeper in one step.
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

    pub(crate) fn sleep(&self, expected: u32) {
        let queue = self.queue.lock().unwrap();
        if self.word.load(Ordering::Relaxed) == expected {
            drop(self.wake.wait(queue).unwrap());
        }
    }

    pub(crate) fn wake_all(&self) {
        drop(self.queue.lock().unwrap());
        self.wake.notify_all();
    }
}

/// One look stands for a spin of any length: loom explores what the look may find.
pub(crate) fn spin_until<T>(limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    if limit.is_zero() { None } else { ready() }
}
