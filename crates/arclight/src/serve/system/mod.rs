//! What a server has of the system: signals, a service manager that is told, limits.

#[cfg(not(unix))]
mod other;
#[cfg(unix)]
mod unix;

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

/// What a signal wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// The server is to end.
    End,
    /// Options, keys and certificates are to be read again.
    #[cfg_attr(not(unix), expect(dead_code, reason = "no signal is for that there"))]
    Reload,
}
