//! The only door to atomics, cells and sleeping: the operating system's, or loom's models of them.
//!
//! Everything that has to be right under every interleaving is written against this module, so
//! that `--cfg loom` checks the code that ships and not a copy of it.

#[cfg(loom)]
mod model;
#[cfg(loom)]
use model as imp;
#[cfg(not(loom))]
mod os;
#[cfg(not(loom))]
use os as imp;

pub(crate) use imp::{AtomicU64, AtomicUsize, Futex, Ordering, UnsafeCell, spin_until};

/// A value on cache lines of its own.
///
/// 128 bytes: two 64-byte lines, because x86 prefetches lines in pairs, and one line of the Arm
/// cores that have 128-byte lines.
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
