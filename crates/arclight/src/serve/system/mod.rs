//! What a server has of the system: signals, a service manager that is told, limits.

#[cfg(not(unix))]
mod other;
mod signal;
#[cfg(unix)]
mod unix;

pub(super) use signal::Signal;

#[cfg(not(unix))]
use other::watch;
#[cfg(not(unix))]
pub(super) use other::{Signals, allow_files, ready, reloading, stopping};
#[cfg(unix)]
use unix::watch;
#[cfg(unix)]
pub(super) use unix::{Signals, allow_files, ready, reloading, stopping};

/// Tells the service manager that requests are served, and from then on that the server is still there.
pub(super) fn serving() {
    ready();
    watch();
}
