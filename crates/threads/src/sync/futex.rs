//! Futexes of Linux.

use std::sync::atomic::AtomicU32;

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
