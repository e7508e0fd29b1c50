//! The set of CPUs on which the calling thread may run: Linux's, or of a system that is asked nothing.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
pub(crate) use linux::{CpuSet, current, pin, thread_id};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{CpuSet, current, pin, thread_id};

/// Whether threads can be bound to CPUs here.
pub(crate) const PINS: bool = cfg!(target_os = "linux");
