//! Connections: accepted up to a number, each with limits on time, and let end when the server is to
//! stop.

use super::gate::Peer;
use super::router::router;
use super::sides::Side;
use super::sockets::{Accepted, Listener};
use super::stall::Stalling;
use super::tls::Tls;
use crate::batch::{self, Worker};
use crate::error::Error;
use crate::models::{self, Models};
use crate::options::Options;
use crate::state::App;
use axum::Router;
use axum::extract::Request;
use futures_util::future::select_all;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown, Watcher};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt;

/// What a [`Server`] serves.
pub trait Site: Send + Sync + 'static {
    /// Limits on connections and times, as they are at this moment.
    fn options(&self) -> Arc<Options>;

    /// The service.
    ///
    /// # Errors
    /// When an option cannot be.
    fn router(self: Arc<Self>) -> Result<Router, Error>;

    /// Takes no more requests; those that run go on.
    fn stop(&self);

    /// What it does beside requests while the server runs, if anything.
    fn background(self: Arc<Self>) -> Option<Background>;
}

/// Work that does not end by itself.
pub type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

fn run(worker: Worker) -> Background {
    Box::pin(Arc::new(worker).run())
}

impl Site for App {
    fn options(&self) -> Arc<Options> {
        self.now()
    }

    fn router(self: Arc<Self>) -> Result<Router, Error> {
        router(self)
    }

    fn stop(&self) {
        App::stop(self);
    }

    fn background(self: Arc<Self>) -> Option<Background> {
        batch::worker(&self).map(run)
    }
}

impl Site for Models {
    fn options(&self) -> Arc<Options> {
        self.common().now()
    }

    fn router(self: Arc<Self>) -> Result<Router, Error> {
        models::router(self)
    }

    fn stop(&self) {
        Models::stop(self);
    }

    fn background(self: Arc<Self>) -> Option<Background> {
        models::worker(&self).map(run)
    }
}

/// Connections at once while the server waits for requests to end.
const LATE: usize = 16;

/// A server that listens. It accepts connections as soon as it [runs](Server::run), and answers 503
/// until the model is there. It speaks HTTP/1.1 and HTTP/2, of which a connection's first bytes tell, or TLS.
pub struct Server {
    site: Arc<dyn Site>,
    listeners: Vec<Listener>,
    /// How many of them, at the end, are for operators.
    operators: usize,
    tls: Option<Arc<Tls>>,
    router: Router,
}

impl Server {
    /// Listens on an address, without TLS.
    ///
    /// # Errors
    /// When the address is taken or not this machine's, or an option cannot be.
    pub async fn bind<S: Site>(site: Arc<S>, address: SocketAddr) -> Result<Server, Error> {
        Server::on(site, vec![Listener::tcp(address).await?], None)
    }

    /// Serves on all of these; with TLS on those of addresses.
    ///
    /// # Errors
    /// When an option cannot be.
    pub fn on<S: Site>(
        site: Arc<S>,
        listeners: Vec<Listener>,
        tls: Option<Arc<Tls>>,
    ) -> Result<Server, Error> {
        let router = site.clone().router()?;
        Ok(Server { site, listeners, operators: 0, tls, router })
    }

    /// Serves what is for operators (figures, states, loading by hand) on these, and no longer on the others.
    #[must_use]
    pub fn with_operators_on(mut self, listeners: Vec<Listener>) -> Server {
        self.operators += listeners.len();
        self.listeners.extend(listeners);
        self
    }

    /// Which side a listener is.
    fn side(&self, at: usize) -> Option<Side> {
        let clients = self.listeners.len() - self.operators;
        match self.operators {
            0 => None,
            _ if at < clients => Some(Side::Clients),
            _ => Some(Side::Operators),
        }
    }

    /// Where it listens: the first address, if there is one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listeners.iter().find_map(Listener::address)
    }

    /// All addresses by which clients reach it: `http://127.0.0.1:8080`, `unix:/run/arclight.sock`.
    pub fn urls(&self) -> Vec<String> {
        self.urls_of(&self.listeners[..self.listeners.len() - self.operators])
    }

    /// All addresses for operators alone.
    pub fn operators_urls(&self) -> Vec<String> {
        self.urls_of(&self.listeners[self.listeners.len() - self.operators..])
    }

    fn urls_of(&self, listeners: &[Listener]) -> Vec<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = |one: &Listener| match one.address() {
            Some(address) => format!("{scheme}://{address}"),
            None => one.to_string(),
        };
        listeners.iter().map(url).collect()
    }

    /// Serves until `stop` is done; then answers 503 to further requests, lets those that run end, and cuts
    /// what has not ended when the options' time for that is over.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let sides: Vec<Option<Side>> = (0..self.listeners.len()).map(|at| self.side(at)).collect();
        let Server { site, listeners, tls, router, .. } = self;
        let mut room = Room::new(site.options().connections);
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        // Ends when it is dropped.
        let mut beside = JoinSet::new();
        if let Some(work) = site.clone().background() {
            beside.spawn(work);
        }
        let mut stop = pin!(stop);
        let watch = async {
            match &tls {
                Some(tls) => tls.watch().await,
                None => std::future::pending().await,
            }
        };
        let mut watch = pin!(watch);
        let door = Door { router, tls: tls.clone(), site: site.clone() };
        loop {
            room.set(site.options().connections);
            let accepted = async {
                let permit = room.free.clone().acquire_owned().await;
                let each = listeners.iter().map(|one| Box::pin(one.accept()));
                let (accepted, from, _) = select_all(each).await;
                (accepted, (listeners[from].address().is_some(), sides[from]), permit)
            };
            let (accepted, from, permit) = tokio::select! {
                () = &mut stop => break,
                () = &mut watch => continue,
                // There may be room for more now.
                () = tokio::time::sleep(Duration::from_secs(1)) => continue,
                accepted = accepted => accepted,
            };
            let accepted = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, or a client that was gone at once: neither is cured by
                    // trying again without pause.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let served = door.clone().serve(accepted, from, Some(graceful.watcher()));
            connections.spawn(async move {
                let _permit = permit;
                served.await;
            });
            while connections.try_join_next().is_some() {}
        }
        site.stop();
        let left = connections.len();
        if left > 0 {
            tracing::info!(connections = left, "waiting for requests to end");
        }
        let drained = tokio::time::timeout(site.options().drain, graceful.shutdown());
        // Who connects meanwhile is told that the server is about to end: `/health`, too.
        let mut late = JoinSet::new();
        let refuse = async {
            loop {
                let each = listeners.iter().map(|one| Box::pin(one.accept()));
                let (accepted, from, _) = select_all(each).await;
                match accepted {
                    Ok(accepted) if late.len() < LATE => {
                        let from = (listeners[from].address().is_some(), sides[from]);
                        late.spawn(door.clone().serve(accepted, from, None));
                    }
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
                while late.try_join_next().is_some() {}
            }
        };
        tokio::select! {
            drained = drained => if drained.is_err() {
                tracing::warn!("requests that did not end in time are cut off");
            },
            () = refuse => {}
        }
        late.shutdown().await;
        connections.shutdown().await;
    }
}

/// What a connection comes to.
#[derive(Clone)]
struct Door {
    router: Router,
    tls: Option<Arc<Tls>>,
    site: Arc<dyn Site>,
}

/// Room for connections, whose number can change.
struct Room {
    free: Arc<Semaphore>,
    all: usize,
    /// Connections that have to end before there is room again.
    owed: usize,
}

impl Room {
    fn new(all: usize) -> Room {
        Room { free: Arc::new(Semaphore::new(all)), all, owed: 0 }
    }

    /// Has room for so many from now on; those that there are stay.
    fn set(&mut self, all: usize) {
        if all > self.all {
            let more = all - self.all;
            let paid = more.min(self.owed);
            self.owed -= paid;
            self.free.add_permits(more - paid);
        } else {
            self.owed += self.all - all;
        }
        self.all = all;
        self.owed -= self.free.forget_permits(self.owed);
    }
}

impl Door {
    /// Serves a connection until it ends, or until `watcher` ends it after the request that runs.
    /// It came over the network or not, and to a side.
    async fn serve(
        self,
        accepted: Accepted,
        (remote, side): (bool, Option<Side>),
        watcher: Option<Watcher>,
    ) {
        let Accepted { stream, peer } = accepted;
        let from = (Peer(peer), side);
        let options = self.site.options();
        let (read, write) = (options.read_timeout, options.write_timeout);
        let stream = Stalling::new(stream, write);
        let tls = self.tls.as_ref().filter(|_| remote).map(|tls| tls.acceptor());
        let served = match tls {
            None => watched(connection(self.router, stream, from, read), watcher).await,
            Some(tls) => match tokio::time::timeout(read, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    watched(connection(self.router, stream, from, read), watcher).await
                }
                Ok(Err(error)) => Err(error.into()),
                Err(late) => Err(late.into()),
            },
        };
        if let Err(error) = served {
            tracing::debug!(?peer, error, "a connection ended early");
        }
    }
}

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn watched(
    connection: impl GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>>,
    watcher: Option<Watcher>,
) -> Ended {
    match watcher {
        Some(watcher) => watcher.watch(connection).await,
        None => connection.await,
    }
}

fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    router: Router,
    stream: S,
    (peer, side): (Peer, Option<Side>),
    read_timeout: Duration,
) -> impl GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>> {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        side.map(|side| request.extensions_mut().insert(side));
        let request: Request = request.map(axum::body::Body::new);
        router.clone().oneshot(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(read_timeout)
        .max_buf_size(256 << 10);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_streams(STREAMS);
    builder.serve_connection(TokioIo::new(stream), service).into_owned()
}

/// How often it is asked whether a client of HTTP/2 is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Requests of one connection of HTTP/2 at once.
const STREAMS: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_connections_follows_its_number() {
        let mut room = Room::new(2);
        let held: Vec<_> = (0..2).map(|_| room.free.clone().try_acquire_owned().unwrap()).collect();
        // Fewer than there are: nobody is sent away, and nobody else comes.
        room.set(1);
        drop(held);
        room.set(1);
        assert_eq!(room.free.available_permits(), 1);
        room.set(3);
        assert_eq!(room.free.available_permits(), 3);
        let held: Vec<_> = (0..3).map(|_| room.free.clone().try_acquire_owned().unwrap()).collect();
        room.set(1);
        room.set(2);
        drop(held);
        room.set(2);
        assert_eq!(room.free.available_permits(), 2);
    }
}
