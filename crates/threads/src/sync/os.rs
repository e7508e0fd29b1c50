//! Atomics of the standard library, and what the system has to sleep on.

use std::time::{Duration, Instant};

#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) use super::futex::Futex;
#[cfg(any(miri, not(target_os = "linux")))]
pub(crate) use super::queue::Futex;

pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// `std::cell::UnsafeCell` with the closure interface of loom's.
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Calls `ready` until it gives a value or `limit` has passed; zero means not at all.
///
/// The limit is time and not a count, because one pause instruction lasts from a few cycles to
/// more than a hundred, depending on the core. The clock is read once in 32 tries, and never by a
/// wait that ends within the first 32.
pub(crate) fn spin_until<T>(limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    if limit.is_zero() {
        return None;
    }
    let mut start = None;
    loop {
        for _ in 0..32 {
            if let Some(value) = ready() {
                return Some(value);
            }
            std::hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() >= limit {
            return None;
        }
    }
}
