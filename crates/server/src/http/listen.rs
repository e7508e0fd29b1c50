//! Connections: accepted up to a number, each with limits on time, and let end when the server is to
//! stop.

use super::gate::Peer;
use super::router::router;
use super::stall::Stalling;
use crate::error::Error;
use crate::models::{self, Models};
use crate::options::Options;
use crate::state::App;
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt;

/// What a [`Server`] serves.
pub trait Site: Send + Sync + 'static {
    /// Limits on connections and times.
    fn options(&self) -> &Options;

    /// The service.
    ///
    /// # Errors
    /// When an option cannot be.
    fn router(self: Arc<Self>) -> Result<Router, Error>;

    /// Takes no more requests; those that run go on.
    fn stop(&self);
}

impl Site for App {
    fn options(&self) -> &Options {
        &self.options
    }

    fn router(self: Arc<Self>) -> Result<Router, Error> {
        router(self)
    }

    fn stop(&self) {
        App::stop(self);
    }
}

impl Site for Models {
    fn options(&self) -> &Options {
        &self.common().options
    }

    fn router(self: Arc<Self>) -> Result<Router, Error> {
        models::router(self)
    }

    fn stop(&self) {
        Models::stop(self);
    }
}

/// A server that listens. It accepts connections as soon as it [runs](Server::run), and answers 503
/// until the model is there.
pub struct Server {
    site: Arc<dyn Site>,
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
}

impl Server {
    /// Listens on an address.
    ///
    /// # Errors
    /// When the address is taken or not this machine's, or an option cannot be.
    pub async fn bind<S: Site>(site: Arc<S>, address: SocketAddr) -> Result<Server, Error> {
        let router = site.clone().router()?;
        let fault = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        Ok(Server { site, listener, address, router })
    }

    /// Where it listens: with the port, if it was left to the system.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is done; then takes no more requests, lets those that run end, and cuts
    /// what has not ended when the options' time for that is over.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { site, listener, router, .. } = self;
        let options = site.options();
        let room = Arc::new(Semaphore::new(options.connections));
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let accepted = async {
                let permit = room.clone().acquire_owned().await;
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                () = &mut stop => break,
                accepted = accepted => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, or a client that was gone at once: neither is cured by
                    // trying again without pause.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let served = graceful.watch(connection(options, router.clone(), stream, peer));
            connections.spawn(async move {
                let _permit = permit;
                if let Err(error) = served.await {
                    tracing::debug!(%peer, %error, "a connection ended early");
                }
            });
            while connections.try_join_next().is_some() {}
        }
        drop(listener);
        site.stop();
        let left = connections.len();
        if left > 0 {
            tracing::info!(connections = left, "waiting for requests to end");
        }
        if tokio::time::timeout(options.drain, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests that did not end in time are cut off");
        }
        connections.shutdown().await;
    }
}

fn connection(
    options: &Options,
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> + use<> {
    // Tokens are small and are to be seen at once.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(Stalling::new(stream, options.write_timeout));
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        let request: Request = request.map(axum::body::Body::new);
        router.clone().oneshot(request)
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.read_timeout)
        .max_buf_size(256 << 10)
        .serve_connection(stream, service)
}
