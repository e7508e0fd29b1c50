//! Connections: accepted up to a number, each with limits on time, and let end when the server is to
//! stop.

use super::gate::Peer;
use super::router::router;
use super::stall::Stalling;
use crate::error::Error;
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

/// Connections at once while the server waits for requests to end.
const LATE: usize = 16;

/// A server that listens. It accepts connections as soon as it [runs](Server::run), and answers 503
/// until the model is there.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
}

impl Server {
    /// Listens on an address.
    ///
    /// # Errors
    /// When the address is taken or not this machine's, or an option cannot be.
    pub async fn bind(app: Arc<App>, address: SocketAddr) -> Result<Server, Error> {
        let router = router(app.clone())?;
        let fault = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        Ok(Server { app, listener, address, router })
    }

    /// Where it listens: with the port, if it was left to the system.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is done; then answers 503 to further requests, lets those that run end, and cuts
    /// what has not ended when the options' time for that is over.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { app, listener, router, .. } = self;
        let room = Arc::new(Semaphore::new(app.options.connections));
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
            let served = graceful.watch(connection(&app, router.clone(), stream, peer));
            connections.spawn(async move {
                let _permit = permit;
                if let Err(error) = served.await {
                    tracing::debug!(%peer, %error, "a connection ended early");
                }
            });
            while connections.try_join_next().is_some() {}
        }
        app.stop();
        let left = connections.len();
        if left > 0 {
            tracing::info!(connections = left, "waiting for requests to end");
        }
        let drained = tokio::time::timeout(app.options.drain, graceful.shutdown());
        // Who connects meanwhile is told that the server is about to end: `/health`, too.
        let mut late = JoinSet::new();
        let refuse = async {
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) if late.len() < LATE => {
                        late.spawn(connection(&app, router.clone(), stream, peer));
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

fn connection(
    app: &App,
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> + use<> {
    // Tokens are small and are to be seen at once.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(Stalling::new(stream, app.options.write_timeout));
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        let request: Request = request.map(axum::body::Body::new);
        router.clone().oneshot(request)
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.options.read_timeout)
        .max_buf_size(256 << 10)
        .serve_connection(stream, service)
}
