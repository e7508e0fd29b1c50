//! How clients and the service manager reach a server: sockets, TLS, signals.

use super::args::ServeArgs;
use super::reload::Settings;
use crate::error::Error;
use crate::term::note;
use arclight_server::{Listener, Server, Site, Tls};
use sd_notify::NotifyState;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often it is looked whether the keys have changed.
const LOOK: Duration = Duration::from_secs(10);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Address(SocketAddr),
    /// A socket in the file system.
    Socket(PathBuf),
}

/// A server that listens, and what of it can change while it runs.
pub(super) struct Front {
    server: Server,
    signals: Signals,
    tls: Option<Arc<Tls>>,
    settings: Settings,
}

impl Front {
    /// Listens where the command line says, or on the sockets that the service manager has opened. Signals are heard
    /// from now on.
    pub(super) async fn open<S: Site>(
        site: Arc<S>,
        settings: Settings,
        args: &ServeArgs,
    ) -> Result<Front, Error> {
        let signals = Signals::install()?;
        allow_connections(site.options().connections);
        let tls = match args.tls_files() {
            Some((certificate, key)) => Some(Arc::new(Tls::open(certificate, key)?)),
            None => None,
        };
        let mut listeners = Listener::inherited()?;
        if listeners.is_empty() {
            listeners = listen(args.places()?).await?;
        }
        let operators = listen(args.admin_places()?).await?;
        let server = Server::on(site, listeners, tls.clone())?.with_operators_on(operators);
        let operators = server.operators_urls();
        if !operators.is_empty() {
            note!("for operators: {}", operators.join(" and "));
        }
        Ok(Front { server, signals, tls, settings })
    }

    /// The addresses by which clients reach it, in words.
    pub(super) fn urls(&self) -> String {
        self.server.urls().join(" and ")
    }

    /// The base of OpenAI's API, in words.
    pub(super) fn base(&self) -> String {
        let base = |url: String| if url.starts_with("unix:") { url } else { format!("{url}/v1") };
        self.server.urls().into_iter().map(base).collect::<Vec<_>>().join(" and ")
    }

    /// The address in lists of servers.
    pub(super) fn listed(&self) -> String {
        let first = self.server.urls().into_iter().next().unwrap_or_default();
        first.strip_prefix("http://").map(str::to_owned).unwrap_or(first)
    }

    /// Serves until a signal or `failed` says that it is to end; why it failed.
    pub(super) async fn run(self, failed: impl Future<Output = Error>) -> Result<(), Error> {
        let Front { server, signals, tls, mut settings } = self;
        let mut error = None;
        let stop = async {
            tokio::select! {
                failed = failed => error = Some(failed),
                () = signals.last(tls.as_deref(), &mut settings) => {}
            }
            tell(&[NotifyState::Stopping]);
        };
        server.run(stop).await;
        error.map_or(Ok(()), Err)
    }
}

async fn listen(places: Vec<Place>) -> Result<Vec<Listener>, Error> {
    let mut listeners = Vec::new();
    for place in places {
        listeners.push(match place {
            Place::Address(address) => Listener::tcp(address).await?,
            Place::Socket(path) => Listener::unix(&path).await?,
        });
    }
    Ok(listeners)
}

/// Tells the service manager that requests are served, and from then on that it is still there, if it wants to know.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
    let Some(within) = sd_notify::watchdog_enabled() else { return };
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(within / 2).await;
            tell(&[NotifyState::Watchdog]);
        }
    });
}

/// Without a service manager nobody hears it.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(state) {
        tracing::debug!("the service manager cannot be told: {e}");
    }
}

/// Reads options, keys and certificates again.
fn reload(tls: Option<&Tls>, settings: &mut Settings) {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now]);
    }
    settings.reload();
    if let Some(Err(e)) = tls.map(Tls::reload) {
        tracing::error!("the certificate stays as it was: {e}");
    }
    tracing::info!("options, keys and certificates were read again");
    tell(&[NotifyState::Ready]);
}

/// Lets the process have as many files open as it has connections, since systems give 1024 to those
/// who do not ask.
fn allow_connections(connections: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    // Beside connections: the model, the log, what the runtime has.
    let need = connections as u64 + 64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= need) {
        return;
    }
    let most = limit.maximum.map_or(need, |maximum| maximum.min(need));
    limit.current = Some(most);
    if setrlimit(Resource::Nofile, limit).is_err() || most < need {
        tracing::warn!(
            "files that may be open are fewer than --max-connections {connections} needs: raise the \
             limit (ulimit -n {need})"
        );
    }
}

/// SIGINT, SIGTERM and SIGHUP.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn install() -> Result<Signals, Error> {
        let listen = |kind| {
            signal(kind)
                .map_err(|source| Error::Io { what: "cannot listen to signals".into(), source })
        };
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for one that ends the program; after it a second ends it at once. At SIGHUP options, keys and
    /// certificates are read again, and keys when their file has changed.
    async fn last(mut self, tls: Option<&Tls>, settings: &mut Settings) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => break,
                _ = self.terminate.recv() => break,
                _ = self.hang_up.recv() => reload(tls, settings),
                () = tokio::time::sleep(LOOK) => settings.look(),
            }
        }
        note!("stopping: requests are finished first; once more to end at once");
        tokio::spawn(async move {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            std::process::exit(crate::interrupt::EXIT_CODE.into());
        });
    }
}
