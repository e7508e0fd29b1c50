//! Accepts connections, serves each within its limits, and lets them end when the server is to stop.

use super::connections::{Connections, Seat};
use super::gate::Peer;
use super::held::Held;
use super::router::{router, routes};
use super::sides::Side;
use super::sockets::{Accepted, Listener};
use super::stall::Stalling;
use super::tls::Tls;
use crate::batch::{Gate, Worker, has_room};
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
use hyper_util::server::graceful::GracefulConnection;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
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

/// Works on the batches of a server with one model, if there are any.
fn worker(app: &Arc<App>) -> Option<Worker> {
    let store = app.options.files.clone()?;
    let of = app.clone();
    let gate = Gate::new(app.released.clone(), move |running| {
        of.model().is_ok_and(|model| has_room(std::iter::once(&*model), running))
    });
    let lines = routes().with_state(app.clone());
    Some(Worker::new(store, lines, app.options.keys.clone(), app.options.body_limit, gate))
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
        worker(&self).map(run)
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
    /// Files that may be open for connections.
    files: usize,
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
        Ok(Server { site, listeners, operators: 0, tls, router, files: usize::MAX })
    }

    /// Opens at most this many files for connections. Some of them are kept for monitoring, so fewer than
    /// [`Options::connections`] may be served.
    #[must_use]
    pub fn with_files(self, files: usize) -> Server {
        Server { files, ..self }
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
        let Server { site, listeners, tls, router, files, .. } = self;
        let all = Arc::new(Connections::new(&site.options(), files));
        let (stopping, stopped) = watch::channel(false);
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
        let door = Door { router, tls: tls.clone(), site: site.clone(), stopped };
        loop {
            all.set(&site.options());
            let (accepted, from) = tokio::select! {
                () = &mut stop => break,
                () = &mut watch => continue,
                // Options may have changed.
                () = tokio::time::sleep(Duration::from_secs(1)) => continue,
                accepted = accept(&listeners) => accepted,
            };
            match accepted {
                Ok(accepted) => {
                    let (remote, side) = (listeners[from].address().is_some(), sides[from]);
                    if let Some(seat) = all.open(accepted.peer, side) {
                        connections.spawn(door.clone().serve(accepted, remote, side, seat));
                    }
                }
                Err(error) => failed(&error, &all).await,
            }
            while connections.try_join_next().is_some() {}
        }
        site.stop();
        let left = connections.len();
        if left > 0 {
            tracing::info!(connections = left, "waiting for requests to end");
        }
        let _ = stopping.send(true);
        let ended = async { while connections.join_next().await.is_some() {} };
        let drained = tokio::time::timeout(site.options().drain, ended);
        // A client that connects meanwhile gets 503, from `/health` too.
        let (_open, stopped) = watch::channel(false);
        let door = Door { stopped, ..door };
        let mut late = JoinSet::new();
        let refuse = async {
            loop {
                match accept(&listeners).await {
                    (Ok(accepted), from) if late.len() < LATE => {
                        let (remote, side) = (listeners[from].address().is_some(), sides[from]);
                        if let Some(seat) = all.open(accepted.peer, side) {
                            late.spawn(door.clone().serve(accepted, remote, side, seat));
                        }
                    }
                    (Ok(_), _) => {}
                    (Err(error), _) => failed(&error, &all).await,
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

/// The next connection, and which listener it came to.
async fn accept(listeners: &[Listener]) -> (io::Result<Accepted>, usize) {
    let each = listeners.iter().map(|one| Box::pin(one.accept()));
    let (accepted, from, _) = select_all(each).await;
    (accepted, from)
}

/// Makes room where a connection cannot be accepted: mostly for lack of file descriptors, which a connection that
/// waits has. Otherwise trying again without a pause does not help.
async fn failed(error: &io::Error, all: &Connections) {
    tracing::warn!(%error, "a connection cannot be accepted");
    let is_gone = error.kind() == io::ErrorKind::ConnectionAborted;
    let pause = if is_gone || all.shed() { 1 } else { 50 };
    tokio::time::sleep(Duration::from_millis(pause)).await;
}

/// What all connections share.
#[derive(Clone)]
struct Door {
    router: Router,
    tls: Option<Arc<Tls>>,
    site: Arc<dyn Site>,
    /// Whether connections are to end after the request that runs.
    stopped: watch::Receiver<bool>,
}

impl Door {
    /// Serves a connection until it ends, its limits are reached, or it is closed for another. `remote`: it came over
    /// the network.
    async fn serve(self, accepted: Accepted, remote: bool, side: Option<Side>, seat: Arc<Seat>) {
        let Accepted { stream, peer } = accepted;
        let options = self.site.options();
        let (stream, blocked) = Stalling::new(stream, options.write_timeout);
        let tls = self.tls.as_ref().filter(|_| remote).map(|tls| tls.acceptor());
        let service = Service { router: self.router, from: (Peer(peer), side), seat: seat.clone() };
        let (first, stopped) = (self.stopped.clone(), self.stopped);
        let served = async {
            match tls {
                None => polite(connection(service, stream), &seat, stopped).await,
                Some(tls) => {
                    let stream = tokio::select! {
                        stream = tls.accept(stream) => stream?,
                        () = stop(first) => return Ok(()),
                    };
                    polite(connection(service, stream), &seat, stopped).await
                }
            }
        };
        let served: Ended = tokio::select! {
            served = served => served,
            () = seat.shed() => Err("another connection came".into()),
            () = seat.expiry(&options, || blocked.is_blocked()) => Err("no request came in time".into()),
        };
        if let Err(error) = served {
            tracing::debug!(?peer, error, "a connection ended early");
        }
    }
}

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Waits until the server is to stop.
async fn stop(mut stopped: watch::Receiver<bool>) {
    if stopped.wait_for(|stopped| *stopped).await.is_err() {
        // The server has ended, and ends its connections.
        std::future::pending::<()>().await;
    }
}

/// A connection that ends after the requests that run when its place or the server is to be left.
async fn polite(
    connection: impl GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>>,
    seat: &Seat,
    stopped: watch::Receiver<bool>,
) -> Ended {
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = seat.leave() => {}
        () = stop(stopped) => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

/// What answers the requests of a connection.
struct Service {
    router: Router,
    from: (Peer, Option<Side>),
    seat: Arc<Seat>,
}

fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    Service { router, from: (peer, side), seat }: Service,
    stream: S,
) -> impl GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>> {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        side.map(|side| request.extensions_mut().insert(side));
        let serving = seat.begin(&mut request);
        let request: Request = request.map(axum::body::Body::new);
        let response = router.clone().oneshot(request);
        async move { response.await.map(|response| response.map(|body| Held::body(body, serving))) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Its place limits the time for a head: from the first byte on, which this would not.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(256 << 10);
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
