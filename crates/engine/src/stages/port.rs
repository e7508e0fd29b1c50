//! The port of a stage: it takes connections, greets them, and reads what comes on those that were accepted.
//!
//! There is one front at a time, and one stage before. A connection is part of the session only when its whole greeting
//! has succeeded; one that fails before ends nothing but itself. Greetings are at most [`GREETINGS`] at once: a new one
//! closes the oldest of the address that has the most.

use super::greet::{self, GreetError, Identity, SILENCE};
use super::ledger::Ledger;
use super::link::Link;
use super::message::{Bounds, Hello, Message, Role};
use super::order::Order;
use super::session::{Command, Session};
use super::status::StageStatus;
use super::tables::Tables;
use super::wire::WireError;
use std::io::Read;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Connections that may be greeting at once.
pub(super) const GREETINGS: usize = 32;

/// How often a refused connection is logged.
const REFUSALS: Duration = Duration::from_secs(1);

/// The state that all threads of a stage share.
pub(super) struct Shared {
    pub(super) me: Identity,
    /// Elements of a row.
    pub(super) width: usize,
    closed: AtomicBool,
    pub(super) status: Arc<StageStatus>,
    current: Mutex<Current>,
    greetings: Mutex<Vec<Guest>>,
    logged: Mutex<Option<Instant>>,
}

/// The session that there is.
#[derive(Default)]
struct Current {
    /// Sessions that were begun, whose number is the last one's.
    count: u64,
    session: Option<Begun>,
}

/// A session, for threads that greet.
struct Begun {
    id: u64,
    /// The front's name for it.
    name: u64,
    front: SocketAddr,
    ledger: Arc<Ledger>,
    /// The connection of the stage before, once there is one.
    before: Option<Arc<TcpStream>>,
}

/// A connection that greets.
struct Guest {
    stream: Arc<TcpStream>,
    from: IpAddr,
}

/// What a greeting has made of a connection.
struct Accepted {
    role: Role,
    session: u64,
    ledger: Arc<Ledger>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(me: Identity, width: usize, status: Arc<StageStatus>) -> Shared {
        Shared {
            me,
            width,
            closed: AtomicBool::new(false),
            status,
            current: Mutex::default(),
            greetings: Mutex::default(),
            logged: Mutex::default(),
        }
    }

    /// The front's name for a session, while it is not over.
    pub(super) fn name(&self, id: u64) -> Option<u64> {
        let current = lock(&self.current);
        current.session.as_ref().filter(|now| now.id == id).map(|now| now.name)
    }

    /// Takes a connection into the session, or begins one.
    fn accept(
        &self,
        hello: &Hello,
        stream: &Arc<TcpStream>,
        from: SocketAddr,
    ) -> Result<Accepted, String> {
        let mut current = lock(&self.current);
        match (hello.role, &mut current.session) {
            (Role::Before, _) if self.me.stage == 1 => Err("no stage is before it".to_owned()),
            (Role::Front, Some(now)) => Err(format!("it serves the front at {}", now.front)),
            (Role::Front, None) => {
                current.count += 1;
                let id = current.count;
                let ledger = Arc::new(Ledger::new(self.width, self.status.kept.clone()));
                let (name, front, before) = (hello.session, from, None);
                current.session = Some(Begun { id, name, front, ledger: ledger.clone(), before });
                Ok(Accepted { role: Role::Front, session: id, ledger })
            }
            (Role::Before, Some(now)) if now.name == hello.session => {
                if now.before.is_some() {
                    return Err("it has the stage before already".to_owned());
                }
                now.before = Some(stream.clone());
                let (session, ledger) = (now.id, now.ledger.clone());
                Ok(Accepted { role: Role::Before, session, ledger })
            }
            (Role::Before, _) => Err("no front has begun this session here".to_owned()),
        }
    }

    /// Takes a connection back that was accepted and is gone before that could be said.
    fn revoke(&self, accepted: &Accepted) {
        match accepted.role {
            Role::Front => self.forget(accepted.session),
            Role::Before => {
                let mut current = lock(&self.current);
                let session = current.session.as_mut();
                if let Some(now) = session.filter(|now| now.id == accepted.session) {
                    now.before = None;
                }
            }
        }
    }

    /// Ends a session, so that another may begin: its ledger, and the connection of the stage before.
    pub(super) fn forget(&self, id: u64) {
        let mut current = lock(&self.current);
        if let Some(now) = current.session.take_if(|now| now.id == id) {
            now.ledger.end();
            now.before.iter().for_each(|before| _ = before.shutdown(Shutdown::Both));
        }
    }

    /// Ends the session that there is, for good.
    pub(super) fn close(&self) {
        let id = lock(&self.current).session.as_ref().map(|now| now.id);
        id.iter().for_each(|id| self.forget(*id));
        self.closed.store(true, Relaxed);
    }

    fn refused(&self, from: SocketAddr, why: &GreetError) {
        self.status.refused();
        let mut logged = lock(&self.logged);
        if logged.is_none_or(|last| last.elapsed() >= REFUSALS) {
            *logged = Some(Instant::now());
            tracing::warn!("a connection of {from} was refused: {why}");
        }
    }
}

/// The place of a connection that greets.
struct Place {
    shared: Arc<Shared>,
    stream: Arc<TcpStream>,
}

impl Place {
    /// For a new connection, if need be that of another.
    fn take(shared: &Arc<Shared>, stream: &Arc<TcpStream>, from: IpAddr) -> Place {
        let mut guests = lock(&shared.greetings);
        if guests.len() >= GREETINGS {
            let of = |from: IpAddr| guests.iter().filter(|guest| guest.from == from).count();
            // Of several the last one is returned: the oldest, in this order.
            let most = (0..guests.len()).rev().max_by_key(|&at| of(guests[at].from));
            if let Some(at) = most {
                let _ = guests.remove(at).stream.shutdown(Shutdown::Both);
            }
        }
        guests.push(Guest { stream: stream.clone(), from });
        Place { shared: shared.clone(), stream: stream.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.shared.greetings).retain(|guest| !Arc::ptr_eq(&guest.stream, &self.stream));
    }
}

/// Takes connections as long as the stage is there.
pub(super) fn accept(listener: &TcpListener, shared: &Arc<Shared>, post: &Sender<Command>) {
    loop {
        let connection = listener.accept();
        if shared.closed.load(Relaxed) {
            return;
        }
        let Ok((stream, from)) = connection else {
            // Too many files, perhaps.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let stream = Arc::new(stream);
        let place = Place::take(shared, &stream, from.ip());
        let (shared, post) = (shared.clone(), post.clone());
        let hear = move || match greet(&stream, from, &shared, place) {
            Ok(accepted) => serve(&stream, from, &accepted, &shared, &post),
            Err(why) => shared.refused(from, &why),
        };
        // Without a thread the connection is closed.
        let _ = thread::Builder::new().name("stage-read".to_owned()).spawn(hear);
    }
}

/// Greets a connection. One that fails is no part of the session afterwards.
fn greet(
    stream: &Arc<TcpStream>,
    from: SocketAddr,
    shared: &Shared,
    place: Place,
) -> Result<Accepted, GreetError> {
    let mut accepted = None;
    let greeted = greet::hear(stream, &shared.me, |hello| {
        accepted = Some(shared.accept(hello, stream, from)?);
        Ok(())
    });
    drop(place);
    match (greeted, accepted) {
        (Ok(()), Some(accepted)) => Ok(accepted),
        (Ok(()), None) => Err(WireError::Closed.into()),
        (Err(why), accepted) => {
            accepted.iter().for_each(|accepted| shared.revoke(accepted));
            Err(why)
        }
    }
}

/// Reads a connection that was accepted, until it ends.
fn serve(
    stream: &TcpStream,
    from: SocketAddr,
    accepted: &Accepted,
    shared: &Shared,
    post: &Sender<Command>,
) {
    let (id, ledger) = (accepted.session, &accepted.ledger);
    if accepted.role == Role::Before {
        let why = read_rows(stream, id, ledger, shared, post);
        let _ = post.send(Command::Broken(id, format!("the stage before is lost: {why}")));
        return;
    }
    let (lost, most) = (post.clone(), shared.me.links());
    let link = stream.try_clone();
    let link = link.and_then(|writer| {
        Link::new(writer, most, move |why| _ = lost.send(Command::End(id, why)))
    });
    match link {
        Ok(link) => {
            let _ = post.send(Command::Begin(Session::new(id, from, link, ledger.clone())));
            let why = read_front(stream, id, ledger, post);
            if !why.is_loss() {
                let _ = post.send(Command::Broken(id, format!("the front is refused: {why}")));
            }
            let _ = post.send(Command::End(id, why.to_string()));
        }
        Err(e) => {
            tracing::warn!("the front at {from} cannot be answered: {e}");
            shared.forget(id);
        }
    }
}

/// Reads what the front says; why no more comes.
fn read_front(stream: &TcpStream, id: u64, ledger: &Ledger, post: &Sender<Command>) -> WireError {
    let (mut stream, mut tables) = (stream, Tables::default());
    loop {
        match said(&mut stream, &mut tables, ledger) {
            Ok(None) => {}
            Ok(Some(Said::Message(message))) => _ = post.send(Command::Said(id, message)),
            Ok(Some(Said::Step(order))) => _ = post.send(Command::Step(id, order)),
            Err(why) => return why,
        }
    }
}

/// A message of the front that the thread that computes has to have.
pub(super) enum Said {
    /// A question.
    Message(Message),
    Step(Order),
}

/// Reads the next message of a front, if it is more than a sign of life.
pub(super) fn said(
    from: &mut impl Read,
    tables: &mut Tables,
    ledger: &Ledger,
) -> Result<Option<Said>, WireError> {
    match Message::read(from, &Orders(ledger))? {
        Message::Ping => Ok(None),
        message @ (Message::Ask(_) | Message::Load { .. }) => {
            ledger.ask()?;
            Ok(Some(Said::Message(message)))
        }
        Message::Step(told) => {
            let order = told.order(tables, &ledger.limits()?).map_err(WireError::Unasked)?;
            ledger.order(order.number, order.tokens(), order.bytes())?;
            Ok(Some(Said::Step(order)))
        }
        _ => Err(WireError::Unasked("what a front does not say")),
    }
}

/// Reads the rows of the stage before; why no more come.
fn read_rows(
    mut stream: &TcpStream,
    id: u64,
    ledger: &Ledger,
    shared: &Shared,
    post: &Sender<Command>,
) -> WireError {
    loop {
        match rows(&mut stream, ledger, SILENCE) {
            Ok(None) => {}
            Ok(Some(rows)) => {
                shared.status.received(size_of_val(&*rows));
                let _ = post.send(Command::Rows(id, rows));
            }
            Err(why) => return why,
        }
    }
}

/// Reads the next rows of a stage before, if it is more than a sign of life; their order is waited for.
pub(super) fn rows(
    from: &mut impl Read,
    ledger: &Ledger,
    wait: Duration,
) -> Result<Option<Vec<f32>>, WireError> {
    match Message::read(from, &Rows(ledger, wait))? {
        Message::Ping => Ok(None),
        Message::Rows { rows, .. } => Ok(Some(rows)),
        _ => Err(WireError::Unasked("something else than rows")),
    }
}

/// What a front may send.
struct Orders<'l>(&'l Ledger);

impl Bounds for Orders<'_> {
    fn step(&self) -> Result<usize, WireError> {
        Ok(self.0.limits()?.order)
    }
}

/// What a stage before may send, whose rows may be here this long before their order.
pub(super) struct Rows<'l>(pub(super) &'l Ledger, pub(super) Duration);

impl Bounds for Rows<'_> {
    fn rows(&self, number: u64, bytes: usize) -> Result<(), WireError> {
        self.0.rows(number, bytes, self.1)
    }
}
