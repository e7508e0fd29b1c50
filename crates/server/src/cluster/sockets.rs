//! The sockets for cache events: one that publishes, and one that answers questions for what was missed.
//!
//! Each connection has a task of its own, which reads messages from those that are [`Kept`] and waits for its peer
//! alone. A peer that does not read misses messages, or is left: nothing waits for it, and nothing is kept for it.

use super::kept::{Change, Kept};
use super::zmtp::{self, Inbox, Said, ZmtpError};
use bytes::Bytes;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// Bounds of the connections to a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// Connections at once from one address.
    pub of_address: usize,
    /// Time for a greeting.
    pub greeting: Duration,
    /// Time that a peer may take for some messages ([`BATCH`]).
    pub send: Duration,
    /// Questions that are answered at once.
    pub replays: usize,
    /// Time for an answer, and for the next question.
    pub replay: Duration,
}

/// Messages that are written together.
const BATCH: usize = 64;

/// Prefixes of topics that a connection may have.
const SUBSCRIPTIONS: usize = 64;

/// The number after the last message of an answer.
const END: [u8; 8] = (-1_i64).to_be_bytes();

/// A socket that is served.
#[derive(Clone, Copy, Debug)]
pub(super) enum Socket {
    Publish,
    Replay,
}

/// A socket's connections, by their addresses.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<Vec<IpAddr>>);

/// The place of a connection.
struct Place {
    peers: Arc<Peers>,
    from: IpAddr,
}

impl Peers {
    fn all(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(self: &Arc<Self>, from: IpAddr, bounds: &Bounds) -> Option<Place> {
        let mut all = self.all();
        let same = all.iter().filter(|other| **other == from).count();
        if all.len() >= bounds.connections || same >= bounds.of_address {
            return None;
        }
        all.push(from);
        Some(Place { peers: self.clone(), from })
    }
}

#[cfg(test)]
impl Peers {
    pub(super) fn count(&self) -> usize {
        self.all().len()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.peers.all();
        if let Some(at) = all.iter().position(|other| *other == self.from) {
            all.swap_remove(at);
        }
    }
}

/// Takes connections to a socket.
pub(super) async fn accept(
    listener: TcpListener,
    socket: Socket,
    kept: Weak<Kept>,
    peers: Arc<Peers>,
    bounds: Bounds,
) {
    let replays = Arc::new(Semaphore::new(bounds.replays));
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // Too many files, perhaps.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some(place) = peers.place(from.ip(), &bounds) else {
            tracing::debug!("a connection of {from} for cache events is one too many");
            continue;
        };
        let Some(news) = kept.upgrade().map(|kept| kept.news()) else { return };
        let (kept, replays) = (kept.clone(), replays.clone());
        tokio::spawn(async move {
            let served = async {
                stream.set_nodelay(true)?;
                let peer = Peer { stream, inbox: Inbox::default(), bounds };
                match socket {
                    Socket::Publish => subscriber(peer, &kept, news).await,
                    Socket::Replay => asker(peer, &kept, &replays).await,
                }
            };
            if let Err(why) = served.await {
                tracing::debug!("{from}, which had cache events, is left: {why}");
            }
            drop(place);
        });
    }
}

/// A connection.
struct Peer<S> {
    stream: S,
    inbox: Inbox,
    bounds: Bounds,
}

async fn within<T>(
    time: Duration,
    what: &'static str,
    future: impl Future<Output = Result<T, ZmtpError>>,
) -> Result<T, ZmtpError> {
    timeout(time, future).await.map_err(|_| ZmtpError::Late(what))?
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    /// Greets as this socket, a peer that is one of those.
    async fn greet(&mut self, socket: &str, peers: &[&str]) -> Result<(), ZmtpError> {
        let greeting = self.bounds.greeting;
        within(greeting, "a greeting", async {
            self.stream.write_all(&zmtp::greeting(socket)).await?;
            let Said::Greeting = self.read().await? else {
                return Err(ZmtpError::Bad("something else than a greeting"));
            };
            match self.read().await? {
                Said::Command(name, metadata) if name == "READY" => {
                    zmtp::check_ready(&metadata, peers)
                }
                _ => Err(ZmtpError::Bad("something else than READY")),
            }
        })
        .await
    }

    /// The next of what the peer says. It may be dropped while it waits.
    async fn read(&mut self) -> Result<Said, ZmtpError> {
        loop {
            if let Some(said) = self.inbox.next()? {
                return Ok(said);
            }
            if self.stream.read_buf(&mut self.inbox.buffer).await? == 0 {
                return Err(ZmtpError::Closed);
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), ZmtpError> {
        let send = self.bounds.send;
        within(send, "more messages", async { Ok(self.stream.write_all(bytes).await?) }).await
    }

    /// Answers a command that any peer may send.
    async fn command(&mut self, name: &Bytes, rest: &Bytes) -> Result<(), ZmtpError> {
        let mut answer = Vec::new();
        if name == "PING" {
            zmtp::put_pong(&mut answer, rest);
        }
        self.write(&answer).await
    }
}

/// The prefixes of topics that a peer has subscribed to.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(Vec<Bytes>);

impl Subscriptions {
    /// Takes what a peer has said, if it is about subscriptions.
    pub(super) fn hear(&mut self, said: &Said) -> Result<(), ZmtpError> {
        let (subscribe, topic) = match said {
            Said::Command(name, topic) if name == "SUBSCRIBE" => (true, topic.clone()),
            Said::Command(name, topic) if name == "CANCEL" => (false, topic.clone()),
            Said::Message(frames) => match frames.first().map(|frame| (frame.first(), frame)) {
                Some((Some(1), frame)) => (true, frame.slice(1..)),
                Some((Some(0), frame)) => (false, frame.slice(1..)),
                _ => return Err(ZmtpError::Bad("something else than a subscription")),
            },
            _ => return Ok(()),
        };
        match (subscribe, self.0.iter().position(|known| *known == topic)) {
            (true, _) if self.0.len() >= SUBSCRIPTIONS => {
                return Err(ZmtpError::Bad("too many subscriptions"));
            }
            // One that is made twice is ended twice.
            (true, _) => self.0.push(topic),
            (false, Some(at)) => _ = self.0.swap_remove(at),
            (false, None) => {}
        }
        Ok(())
    }

    fn want(&self, topic: &[u8]) -> bool {
        self.0.iter().any(|prefix| topic.starts_with(prefix))
    }
}

/// Sends a subscriber what it wants, from now on.
async fn subscriber<S: AsyncRead + AsyncWrite + Unpin>(
    mut peer: Peer<S>,
    kept: &Weak<Kept>,
    mut news: watch::Receiver<u64>,
) -> Result<(), ZmtpError> {
    peer.greet("PUB", &["SUB", "XSUB"]).await?;
    let mut subscriptions = Subscriptions::default();
    let mut next = *news.borrow_and_update();
    let mut bytes = Vec::new();
    loop {
        tokio::select! {
            said = peer.read() => {
                let said = said?;
                subscriptions.hear(&said)?;
                if let Said::Command(name, rest) = &said {
                    peer.command(name, rest).await?;
                }
            }
            changed = news.changed() => {
                // Nothing is published any more when the server ends.
                let (Ok(()), Some(kept)) = (changed, kept.upgrade()) else { return Ok(()) };
                let some = kept.from(next, BATCH);
                drop(kept);
                bytes.clear();
                for (number, Change { topic, payload }) in &some {
                    if subscriptions.want(topic) {
                        zmtp::put_message(&mut bytes, &[topic, &number.to_be_bytes(), payload]);
                    }
                    next = number + 1;
                }
                peer.write(&bytes).await?;
                if some.len() == BATCH {
                    // Perhaps there are more.
                    news.mark_changed();
                }
            }
        }
    }
}

/// The first number that a peer asks for: the last frame, perhaps after an empty one.
pub(super) fn question(frames: &[Bytes]) -> Option<u64> {
    Some(u64::from_be_bytes(frames.last()?.as_ref().try_into().ok()?))
}

/// Answers a peer's questions.
async fn asker<S: AsyncRead + AsyncWrite + Unpin>(
    mut peer: Peer<S>,
    kept: &Weak<Kept>,
    replays: &Semaphore,
) -> Result<(), ZmtpError> {
    peer.greet("ROUTER", &["DEALER", "REQ"]).await?;
    let time = peer.bounds.replay;
    loop {
        let frames = match within(time, "a question", peer.read()).await? {
            Said::Message(frames) => frames,
            Said::Command(name, rest) => {
                peer.command(&name, &rest).await?;
                continue;
            }
            Said::Greeting => return Err(ZmtpError::Bad("a second greeting")),
        };
        let first = question(&frames).ok_or(ZmtpError::Bad("no number of 8 bytes"))?;
        within(time, "an answer", async {
            let _one = replays.acquire().await.map_err(|_| ZmtpError::Closed)?;
            replay(&mut peer, kept, first).await
        })
        .await?;
    }
}

/// Sends the messages from a number on that were there when it was asked.
async fn replay<S: AsyncRead + AsyncWrite + Unpin>(
    peer: &mut Peer<S>,
    kept: &Weak<Kept>,
    first: u64,
) -> Result<(), ZmtpError> {
    let (mut next, mut bytes) = (first, Vec::new());
    let Some(end) = kept.upgrade().map(|kept| *kept.news().borrow()) else { return Ok(()) };
    while next < end {
        let Some(kept) = kept.upgrade() else { return Ok(()) };
        let some = kept.from(next, BATCH);
        drop(kept);
        bytes.clear();
        for (number, Change { payload, .. }) in some.iter().filter(|(number, _)| *number < end) {
            zmtp::put_message(&mut bytes, &[b"", &number.to_be_bytes(), payload]);
        }
        next = some.last().map_or(end, |(number, _)| number + 1);
        peer.write(&bytes).await?;
    }
    bytes.clear();
    zmtp::put_message(&mut bytes, &[b"", &END, b""]);
    peer.write(&bytes).await
}

/// Listens at an endpoint, `tcp://ADDRESS:PORT`, with `*` for every address.
pub(super) async fn listen(endpoint: &str) -> io::Result<(TcpListener, SocketAddr)> {
    let wrong = || io::Error::other("it must be tcp://ADDRESS:PORT, as in tcp://*:5557");
    let address = endpoint.strip_prefix("tcp://").ok_or_else(wrong)?;
    let listener = match address.strip_prefix("*:") {
        Some(port) => {
            let port: u16 = port.parse().map_err(|_| wrong())?;
            TcpListener::bind(("0.0.0.0", port)).await?
        }
        None => TcpListener::bind(address).await?,
    };
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}
