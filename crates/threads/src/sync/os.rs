//! Atomics of the standard library, futexes of Linux.

use std::time::{Duration, Instant};

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// A word that threads can sleep on.
pub(crate) struct Futex(AtomicU32);

impl Futex {
    pub(crate) fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps until [`Self::wake_all`] if the word holds `expected`; may also return for no reason.
    pub(crate) fn sleep(&self, expected: u32) {
        // SAFETY: the address is that of a live, aligned u32, and a null timeout means none. All
        // results (woken, EAGAIN, EINTR) have the same answer: the caller looks at the word.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                expected,
                std::ptr::null::<libc::timespec>(),
            );
        }
    }

    /// Wakes every thread that sleeps here.
    pub(crate) fn wake_all(&self) {
        // SAFETY: as in `sleep`; the kernel uses the address as a key and never writes to it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                i32::MAX,
            );
        }
    }
}

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
