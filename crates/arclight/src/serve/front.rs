//! How clients reach a server, and what ends it or has it read its options again.

use super::args::ServeArgs;
use super::places::Place;
use super::reload::Settings;
use super::system::{self, Signal, Signals};
use crate::error::Error;
use crate::term::note;
use arclight_server::{Listener, Server, Site, Tls};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use topology::Machine;

/// How often it is looked whether the keys have changed.
const LOOK: Duration = Duration::from_secs(10);

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
        let fault = |source| Error::Io { what: "cannot listen to signals".into(), source };
        let signals = Signals::install().map_err(fault)?;
        let files = system::allow_files(site.options().files());
        let tls = match args.access.tls_files() {
            Some((certificate, key)) => Some(Arc::new(Tls::open(certificate, key)?)),
            None => None,
        };
        let mut listeners = Listener::inherited()?;
        if listeners.is_empty() {
            listeners = listen(args.places()?).await?;
        }
        let operators = listen(args.admin_places()?).await?;
        let server = Server::on(site, listeners, tls.clone())?;
        let server = server.with_operators_on(operators).with_files(files);
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
                () = last(signals, tls.as_deref(), &mut settings) => {}
            }
            system::stopping();
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

/// Reads options, keys and certificates again.
fn reload(tls: Option<&Tls>, settings: &mut Settings) {
    system::reloading();
    settings.reload();
    if let Some(Err(e)) = tls.map(Tls::reload) {
        tracing::error!("the certificate stays as it was: {e}");
    }
    tracing::info!("options, keys and certificates were read again");
    system::ready();
}

/// Waits for a signal that ends the program; after it a second ends it at once. When one asks for it, options, keys and
/// certificates are read again, and keys when their file has changed.
async fn last(mut signals: Signals, tls: Option<&Tls>, settings: &mut Settings) {
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::End => break,
                Signal::Reload => reload(tls, settings),
            },
            () = tokio::time::sleep(LOOK) => settings.look(),
        }
    }
    note!("stopping: requests are finished first; once more to end at once");
    tokio::spawn(async move {
        while signals.next().await != Signal::End {}
        std::process::exit(crate::interrupt::EXIT_CODE.into());
    });
}

/// The threads of HTTP.
pub(crate) fn runtime() -> Result<Runtime, Error> {
    let cores = Machine::read()?.usable_cores();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(if cores > 4 { 2 } else { 1 })
        // These read long bodies and render templates: work for a few, not for as many as there are
        // requests.
        .max_blocking_threads(if cores > 4 { 4 } else { 2 })
        .thread_name("http")
        .enable_all()
        .build()
        .map_err(|source| Error::Io { what: "cannot start threads for HTTP".into(), source })
}
