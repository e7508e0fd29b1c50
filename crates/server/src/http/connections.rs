//! The connections of a server: their number, and which of them are closed for others.
//!
//! A connection *waits* until the head of a request has arrived, and again when its answers have been sent. In
//! between it *serves*.
//!
//! - At most [`Options::connections`] connections serve. A request on a further one gets 503, unless it is for
//!   `/health`, `/ping` or `/metrics`, or arrived at an operators' address. [`RESERVE`] such requests are served in
//!   addition, on each side of the server.
//! - At most as many connections wait. For a further one the oldest is closed: first those that have never sent a
//!   request, then idle ones, operators' connections last. So silent clients displace each other.
//! - An address has at most [`Options::per_address`] connections. For a further one its own oldest waiting connection
//!   is closed. If all of them serve, the further one is closed. A /64 network of IPv6 is one address.
//! - Connections of all kinds together are at most as many as the process may open files for. The oldest waiting
//!   connection is also closed when accepting fails, which is mostly due to a lack of file descriptors.
//! - Until its first request a connection may wait for the read timeout, the TLS handshake included; between
//!   requests for [`IDLE`]. An answer that HTTP/2's flow control holds back is bounded by the number alone.

use super::reserve::{FURTHER, LEAST_WAITING, RESERVE};
use super::sides::Side;
use crate::fault::Fault;
use crate::options::Options;
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Time that a connection may wait between requests. Gateways keep idle connections for 60 s mostly, and have to be
/// the first to close them.
const IDLE: Duration = Duration::from_secs(90);

/// Time between two lines of the log that report displaced connections.
const QUIET: Duration = Duration::from_secs(60);

/// Room for connections that serve, whose number can change.
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

    /// Has room for this many from now on. Present ones stay.
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
        self.settle();
    }

    fn settle(&mut self) {
        self.owed -= self.free.forget_permits(self.owed);
    }
}

/// The part of an address by which connections are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Source(IpAddr);

impl Source {
    fn of(address: IpAddr) -> Source {
        Source(match address.to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
            v4 => v4,
        })
    }
}

/// The order in which waiting connections are closed for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// No request has arrived on it.
    Stranger,
    Idle,
    /// It came to an operators' address.
    Operator,
}

/// An open connection.
struct Open {
    source: Option<Source>,
    operator: bool,
    /// Requests whose answers have not been sent.
    requests: usize,
    /// Held while it serves.
    permit: Option<OwnedSemaphorePermit>,
    /// A request has arrived on it.
    known: bool,
    /// When it began to wait or to serve.
    since: Instant,
    /// Its place among those that wait.
    turn: Option<u64>,
    /// It closes after the answer that is being sent.
    leaves: bool,
    shed: Arc<Notify>,
}

impl Open {
    fn class(&self) -> Class {
        match (self.operator, self.known) {
            (true, _) => Class::Operator,
            (false, false) => Class::Stranger,
            (false, true) => Class::Idle,
        }
    }
}

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    waiting: usize,
    /// Connections of one address, and whether that includes this machine's own.
    per_address: usize,
    with_loopback: bool,
    /// Connections of all kinds.
    all: usize,
}

impl Bounds {
    /// The bounds that options mean, and the number of connections that may serve. `files`: how many the process may
    /// open for connections.
    fn of(options: &Options, files: usize) -> (Bounds, usize) {
        let files = files.saturating_sub(FURTHER).max(2);
        let serving = options.connections.min(files - files / 4);
        let waiting = options.connections.max(LEAST_WAITING);
        // By default a single gateway can have most of them, and others some.
        let share = (options.connections - options.connections / 4).max(16);
        let bounds = Bounds {
            waiting,
            per_address: options.per_address.unwrap_or(share),
            with_loopback: options.per_address.is_some(),
            all: (serving + waiting).min(files) + 2 * RESERVE,
        };
        (bounds, serving)
    }

    fn limits(&self, source: Source) -> bool {
        self.with_loopback || !source.0.is_loopback()
    }
}

struct Table {
    room: Room,
    bounds: Bounds,
    next: u64,
    open: HashMap<u64, Open>,
    /// In the order in which they are closed: class, turn and number.
    waiting: BTreeSet<(Class, u64, u64)>,
    sources: HashMap<Source, usize>,
    /// When the log reported last that connections were displaced.
    reported: Option<Instant>,
}

impl Table {
    fn turn(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn waits(&mut self, id: u64) {
        let turn = self.turn();
        let Some(open) = self.open.get_mut(&id) else { return };
        open.turn = Some(turn);
        open.since = Instant::now();
        self.waiting.insert((open.class(), turn, id));
    }

    fn stops_waiting(&mut self, id: u64) {
        let Some(open) = self.open.get_mut(&id) else { return };
        if let Some(turn) = open.turn.take() {
            self.waiting.remove(&(open.class(), turn, id));
        }
    }

    fn remove(&mut self, id: u64) -> Option<Open> {
        self.stops_waiting(id);
        let open = self.open.remove(&id)?;
        if let Some(source) = open.source
            && let Some(count) = self.sources.get_mut(&source)
        {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&source);
            }
        }
        Some(open)
    }

    /// Closes the oldest waiting connection, of one address if one is named. Whether there was one.
    fn shed(&mut self, of: Option<Source>) -> bool {
        let open = &self.open;
        let is_of = |id: &u64| of.is_none() || open.get(id).is_some_and(|open| open.source == of);
        let Some(&(_, _, id)) = self.waiting.iter().find(|(_, _, id)| is_of(id)) else {
            return false;
        };
        let Some(open) = self.remove(id) else { return false };
        open.shed.notify_one();
        let now = Instant::now();
        if self.reported.is_none_or(|last| now - last > QUIET) {
            self.reported = Some(now);
            let (waiting, open) = (self.waiting.len(), self.open.len());
            tracing::warn!(waiting, open, "connections without a request are closed for new ones");
        }
        true
    }

    /// Whether there is room for one more connection, which others may have been closed for.
    fn admits(&mut self, source: Option<Source>) -> bool {
        if let Some(source) = source.filter(|source| self.bounds.limits(*source)) {
            let count = |table: &Table| table.sources.get(&source).copied().unwrap_or(0);
            while count(self) >= self.bounds.per_address {
                if !self.shed(Some(source)) {
                    return false;
                }
            }
        }
        while self.open.len() >= self.bounds.all {
            if !self.shed(None) {
                return false;
            }
        }
        true
    }

    fn trim(&mut self) {
        while self.waiting.len() > self.bounds.waiting && self.shed(None) {}
    }
}

/// All connections of a server.
pub(super) struct Connections {
    table: Mutex<Table>,
    /// Of clients, and of operators.
    reserve: [Arc<Semaphore>; 2],
    files: usize,
}

impl Connections {
    pub(super) fn new(options: &Options, files: usize) -> Connections {
        let (bounds, serving) = Bounds::of(options, files);
        let table = Table {
            room: Room::new(serving),
            bounds,
            next: 0,
            open: HashMap::new(),
            waiting: BTreeSet::new(),
            sources: HashMap::new(),
            reported: None,
        };
        let reserve = std::array::from_fn(|_| Arc::new(Semaphore::new(RESERVE)));
        Connections { table: Mutex::new(table), reserve, files }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes other options.
    pub(super) fn set(&self, options: &Options) {
        let (bounds, serving) = Bounds::of(options, self.files);
        let mut table = self.table();
        table.bounds = bounds;
        table.room.set(serving);
    }

    /// A place for a connection that was accepted; `None` if it has to be closed.
    pub(super) fn open(
        self: &Arc<Connections>,
        peer: Option<IpAddr>,
        side: Option<Side>,
    ) -> Option<Arc<Seat>> {
        let source = peer.map(Source::of);
        let mut table = self.table();
        if !table.admits(source) {
            tracing::debug!(?peer, "a connection is closed: there is no room for it");
            return None;
        }
        let id = table.turn();
        let shed = Arc::new(Notify::new());
        let open = Open {
            source,
            operator: side == Some(Side::Operators),
            requests: 0,
            permit: None,
            known: false,
            since: Instant::now(),
            turn: None,
            leaves: false,
            shed: shed.clone(),
        };
        table.open.insert(id, open);
        if let Some(source) = source {
            *table.sources.entry(source).or_default() += 1;
        }
        table.waits(id);
        table.trim();
        Some(Arc::new(Seat { all: self.clone(), id, side, shed, leave: Notify::new() }))
    }

    /// Closes the connection that has waited longest, so that its file descriptor is free. Whether there was one.
    pub(super) fn shed(&self) -> bool {
        self.table().shed(None)
    }
}

/// The place of a connection, which it has until this is dropped.
pub(super) struct Seat {
    all: Arc<Connections>,
    id: u64,
    side: Option<Side>,
    shed: Arc<Notify>,
    leave: Notify,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.all.table().remove(self.id);
    }
}

/// A request is served until this is dropped, which is when its answer has been sent.
pub(super) struct Serving {
    seat: Arc<Seat>,
    _reserve: Option<OwnedSemaphorePermit>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut table = self.seat.all.table();
        let id = self.seat.id;
        let Some(open) = table.open.get_mut(&id) else { return };
        open.requests -= 1;
        if open.requests == 0 {
            open.permit = None;
            table.room.settle();
            table.waits(id);
            table.trim();
        }
    }
}

/// A request for which there is no room.
#[derive(Clone, Copy, Debug)]
struct NoRoom;

impl Seat {
    /// The head of a request has arrived. Marks it if there is no room for it.
    pub(super) fn begin<B>(self: &Arc<Seat>, request: &mut axum::http::Request<B>) -> Serving {
        let operators = self.side == Some(Side::Operators);
        let reserved = operators || is_reserved(request.uri().path());
        let mut table = self.all.table();
        table.stops_waiting(self.id);
        let free = table.room.free.clone();
        let mut reserve = None;
        let admitted = match table.open.get_mut(&self.id) {
            Some(open) => {
                open.known = true;
                open.requests += 1;
                open.since = Instant::now();
                if open.permit.is_none() {
                    open.permit = free.try_acquire_owned().ok();
                }
                if open.permit.is_none() && reserved {
                    let side = self.all.reserve[usize::from(operators)].clone();
                    reserve = side.try_acquire_owned().ok();
                }
                let admitted = open.permit.is_some() || reserve.is_some();
                open.leaves |= !admitted;
                admitted
            }
            // It is being closed for another.
            None => false,
        };
        drop(table);
        if !admitted {
            request.extensions_mut().insert(NoRoom);
            self.leave.notify_one();
        }
        Serving { seat: self.clone(), _reserve: reserve }
    }

    /// Waits until the connection is to be closed for another.
    pub(super) async fn shed(&self) {
        self.shed.notified().await;
    }

    /// Waits until the connection is to be closed after the answers that it has begun.
    pub(super) async fn leave(&self) {
        self.leave.notified().await;
    }

    /// Waits until the connection has waited for too long: for its first request, for the next one, or, if it is to
    /// be closed, for its client to read. `blocked`: whether it waits for the client to read, which has a limit of
    /// its own.
    pub(super) async fn expiry(&self, options: &Options, blocked: impl Fn() -> bool) {
        let (read, write) = (options.read_timeout, options.write_timeout);
        loop {
            let now = Instant::now();
            let end = match self.all.table().open.get(&self.id) {
                None => return,
                Some(open) if open.leaves => Some(open.since + write),
                Some(open) if open.requests > 0 => None,
                Some(open) if open.known => Some(open.since + IDLE.max(read)),
                Some(open) => Some(open.since + read),
            };
            match end {
                Some(end) if end > now => tokio::time::sleep_until(end).await,
                Some(_) if !blocked() => return,
                _ => tokio::time::sleep(read).await,
            }
        }
    }
}

/// Paths that are answered while all connections are busy.
fn is_reserved(path: &str) -> bool {
    matches!(path, "/health" | "/ping" | "/metrics")
}

/// Refuses requests for which there is no room.
pub(super) async fn refuse(request: Request, next: Next) -> Response {
    if request.extensions().get::<NoRoom>().is_none() {
        return next.run(request).await;
    }
    let fault = Fault::unavailable("all connections of this server are busy: try again soon");
    let mut response = fault.code("too_many_connections").into_response();
    // HTTP/2 has no such header.
    if request.version() < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http;

    #[test]
    fn room_for_connections_follows_its_number() {
        let mut room = Room::new(2);
        let held: Vec<_> = (0..2).map(|_| room.free.clone().try_acquire_owned().unwrap()).collect();
        // Below the present number: none is closed, and none is added.
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

    fn all(options: Options) -> Arc<Connections> {
        Arc::new(Connections::new(&options, usize::MAX))
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    /// A request on a connection, and whether there is room for it.
    fn ask(seat: &Arc<Seat>, path: &str) -> (Serving, bool) {
        let mut request = http::Request::get(path).body(()).unwrap();
        let serving = seat.begin(&mut request);
        (serving, request.extensions().get::<NoRoom>().is_none())
    }

    fn is_open(seat: &Seat) -> bool {
        seat.all.table().open.contains_key(&seat.id)
    }

    #[tokio::test]
    async fn the_oldest_stranger_is_closed_first_and_operators_last() {
        let all = all(Options { connections: 64, ..Options::default() });
        let open = |side| all.open(None, side).unwrap();
        let operator = open(Some(Side::Operators));
        let idle = open(None);
        drop(ask(&idle, "/"));
        let busy = open(None);
        let (_serving, admitted) = ask(&busy, "/");
        assert!(admitted);
        let strangers: Vec<_> = (0..62).map(|_| open(None)).collect();
        assert!(strangers.iter().all(|seat| is_open(seat)));
        let _more = open(None);
        assert!(!is_open(&strangers[0]) && is_open(&strangers[1]));
        strangers[0].shed().await;
        // A stranger that sends its request now is refused, since it is being closed.
        assert!(!ask(&strangers[0], "/health").1);
        for _ in 0..62 {
            assert!(all.shed());
        }
        assert!(strangers.iter().all(|seat| !is_open(seat)) && is_open(&idle));
        assert!(all.shed() && !is_open(&idle) && is_open(&operator));
        assert!(all.shed() && !is_open(&operator));
        assert!(!all.shed() && is_open(&busy), "a connection that serves stays");
    }

    #[test]
    fn monitoring_has_room_of_its_own_and_operators_have_it_for_all() {
        let all = all(Options { connections: 2, ..Options::default() });
        let open = |side| all.open(None, side).unwrap();
        let busy: Vec<_> = (0..2).map(|_| ask(&open(None), "/")).collect();
        assert!(busy.iter().all(|(_, admitted)| *admitted));
        let other = open(None);
        assert!(!ask(&other, "/v1/models").1);
        let mut held = Vec::new();
        for _ in 0..RESERVE {
            let (serving, admitted) = ask(&open(None), "/health");
            assert!(admitted);
            held.push(serving);
        }
        assert!(!ask(&open(None), "/metrics").1);
        let (operator, client) = (open(Some(Side::Operators)), open(Some(Side::Clients)));
        assert!(ask(&operator, "/models/load").1, "clients do not take it away");
        assert!(!ask(&client, "/health").1);
        drop((held, busy));
        assert!(ask(&client, "/v1/models").1);
    }

    #[test]
    fn a_connection_of_many_requests_counts_once_and_until_the_last_answer() {
        let all = all(Options { connections: 1, ..Options::default() });
        let (one, other) = (all.open(None, None).unwrap(), all.open(None, None).unwrap());
        let (first, second) = (ask(&one, "/"), ask(&one, "/"));
        assert!(first.1 && second.1);
        drop(first);
        assert!(!ask(&other, "/").1);
        drop(second);
        assert!(ask(&other, "/").1);
        // Fewer from now on: none are left to others, and the one that serves goes on.
        let running = ask(&one, "/");
        all.set(&Options { connections: 0, ..Options::default() });
        assert!(ask(&one, "/").1 && !ask(&other, "/").1);
        drop(running);
        assert!(!ask(&one, "/").1);
    }

    #[test]
    fn an_address_has_its_share() {
        let all = all(Options { connections: 64, ..Options::default() });
        let open = |text: &str| all.open(address(text), None);
        let busy: Vec<_> = (0..47).map(|_| ask(&open("192.0.2.1").unwrap(), "/")).collect();
        let silent = open("192.0.2.1").unwrap();
        // Its silent connection goes for its next one, and others' stay.
        let other = open("192.0.2.2").unwrap();
        let next = open("192.0.2.1").unwrap();
        assert!(!is_open(&silent) && is_open(&next) && is_open(&other));
        let _serving = ask(&next, "/");
        assert!(open("192.0.2.1").is_none(), "all of them serve");
        assert!(open("::ffff:192.0.2.1").is_none(), "the same address");
        assert!(open("192.0.2.2").is_some());
        // A /64 is one client.
        let network: Vec<_> = (0..48).filter_map(|i| open(&format!("2001:db8::{i:x}"))).collect();
        let _far = open("2001:db8:0:1::1").unwrap();
        let _near = open("2001:db8::ffff:1").unwrap();
        assert!(!is_open(&network[0]) && is_open(&network[1]));
        drop(busy);
        // This machine's own programs, such as a proxy, may have all; unless a number is given.
        let loopback: Vec<_> = (0..60).filter_map(|_| open("127.0.0.1")).collect();
        assert!(loopback.iter().filter(|seat| is_open(seat)).count() > 48);
        drop((loopback, network));
        all.set(&Options { connections: 64, per_address: Some(2), ..Options::default() });
        let few: Vec<_> = (0..3).filter_map(|_| open("127.0.0.2")).collect();
        assert_eq!(few.iter().map(|seat| is_open(seat)).collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn connections_leave_files_for_the_reserve() {
        let options = Options { connections: 1000, ..Options::default() };
        let (bounds, serving) = Bounds::of(&options, 465);
        assert_eq!((serving, bounds.all), (300, 464));
        let (bounds, serving) = Bounds::of(&options, usize::MAX);
        assert_eq!((serving, bounds.waiting, bounds.all), (1000, 1000, 2000 + 2 * RESERVE));
        let all = Arc::new(Connections::new(&options, 465));
        let seats: Vec<_> = (0..500).map(|_| all.open(None, None).unwrap()).collect();
        assert_eq!(seats.iter().filter(|seat| is_open(seat)).count(), 464);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_has_an_end() {
        let options = Options { read_timeout: Duration::from_secs(5), ..Options::default() };
        let all = all(Options::default());
        let seat = all.open(None, None).unwrap();
        let start = Instant::now();
        seat.expiry(&options, || false).await;
        assert_eq!(start.elapsed().as_secs(), 5);
        // An answer may take its time.
        let (serving, _) = ask(&seat, "/");
        let long = Duration::from_secs(1000);
        assert!(tokio::time::timeout(long, seat.expiry(&options, || false)).await.is_err());
        drop(serving);
        let start = Instant::now();
        seat.expiry(&options, || false).await;
        assert_eq!(start.elapsed(), IDLE);
        // A client that still reads is the matter of the write timeout.
        assert!(tokio::time::timeout(long, seat.expiry(&options, || true)).await.is_err());
    }
}
