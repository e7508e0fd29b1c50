//! Unix: systemd's notifications, signals, the limit of open files.

use super::signal::Signal;
use sd_notify::NotifyState;
use std::io;
use tokio::signal::unix::{self, SignalKind, signal};

/// Tells the service manager that requests are served.
pub(in crate::serve) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Tells the service manager from now on that the server is still there, if it wants to know.
pub(in crate::serve) fn watch() {
    let Some(within) = sd_notify::watchdog_enabled() else { return };
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(within / 2).await;
            tell(&[NotifyState::Watchdog]);
        }
    });
}

/// Tells the service manager that options are read again; [`ready`] ends it.
pub(in crate::serve) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now]);
    }
}

/// Tells the service manager that the server ends.
pub(in crate::serve) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Without a service manager nobody hears it.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(state) {
        tracing::debug!("the service manager cannot be told: {e}");
    }
}

/// Lets the process open as many files as `connections` need, since systems allow 1024 by default; the number of files
/// that there are for connections.
pub(in crate::serve) fn allow_files(connections: usize) -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    // Beside connections: the model, the log, files of the runtime.
    const OTHER: u64 = 64;
    let need = connections as u64 + OTHER;
    let mut limit = getrlimit(Resource::Nofile);
    let Some(mut now) = limit.current else { return usize::MAX };
    if now < need {
        limit.current = Some(limit.maximum.map_or(need, |maximum| maximum.min(need)));
        if setrlimit(Resource::Nofile, limit).is_ok() {
            now = limit.current.unwrap_or(need);
        }
    }
    if now < need {
        tracing::warn!(
            "the process may open {now} files, and --max-connections needs {need}: fewer connections are served; \
             raise the limit (ulimit -n {need})"
        );
    }
    now.saturating_sub(OTHER) as usize
}

/// SIGINT and SIGTERM end a server, SIGHUP has it read its options again.
pub(in crate::serve) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
}

impl Signals {
    /// They are heard from now on.
    pub(in crate::serve) fn install() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    pub(in crate::serve) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::End,
            _ = self.terminate.recv() => Signal::End,
            _ = self.hang_up.recv() => Signal::Reload,
        }
    }
}
