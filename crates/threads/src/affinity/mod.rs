//! The set of CPUs on which the calling thread may run: Linux's, or of a system that is asked nothing.

#[cfg(all(target_os = "linux", not(miri)))]
mod linux;
#[cfg(any(miri, not(target_os = "linux")))]
mod other;

#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) use linux::{CpuSet, current, pin, thread_id};
#[cfg(any(miri, not(target_os = "linux")))]
pub(crate) use other::{CpuSet, current, pin, thread_id};

/// Whether threads can be bound to CPUs here.
pub(crate) const PINS: bool = cfg!(all(target_os = "linux", not(miri)));
