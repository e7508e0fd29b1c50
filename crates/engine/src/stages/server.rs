//! A stage before the front: it listens, loads its layers when a front tells how large the cache is, and takes the
//! steps that the front orders.
//!
//! One thread computes. Others read connections and give it what comes, in order. It takes a step when its order and,
//! behind the first stage, its rows are there. It keeps its weights when a front goes away; a front that comes back with
//! the same sizes need not wait for them.

use super::front::{identity, rows_bound};
use super::greet::{self, GreetError, Identity};
use super::link::Link;
use super::message::{Bounds, Message, Role, Sizes, rows_frame};
use super::order::Order;
use super::part::{Cache, StageOptions, Whole};
use super::status::{StageStatus, State};
use super::tables::Tables;
use crate::company::Watchman;
use crate::error::Error;
use crate::file::ModelFile;
use crate::load::{self, Control, Loaded};
use crate::options::LoadOptions;
use graph::{Executor, KV_CLASSES, Outputs};
use kernels::KV_PAGE;
use models::Hparams;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use topology::Machine;

/// Connections that may be greeting at once; more are closed.
const GREETINGS: usize = 32;

/// How long the stage behind may take to be there: the front has just spoken to it.
const NEXT: Duration = Duration::from_secs(10);

/// No order is longer: the page tables of so many sequences are beyond any machine.
const LONGEST_ORDER: usize = 256 << 20;

/// What the thread that computes is told.
enum Command {
    /// A front has begun a session.
    Begin(Session),
    Said(u64, Message),
    /// Of the stage before: a step's number, and its rows.
    Rows(u64, u64, Vec<f32>),
    /// A session is over.
    End(u64, String),
    /// A session cannot go on: another stage is lost.
    Broken(u64, String),
    Stop,
}

/// A front's session.
struct Session {
    /// Numbers of this process.
    id: u64,
    front: SocketAddr,
    link: Link,
    /// To the stage behind, if that is not the front.
    next: Option<Link>,
    ready: bool,
    tables: Tables,
    orders: VecDeque<Order>,
    rows: VecDeque<(u64, Vec<f32>)>,
}

/// The session that there is, as threads that greet have to know it.
struct Current {
    id: u64,
    /// What the front calls it.
    name: u64,
    front: SocketAddr,
    bounds: Bounds,
}

/// What all threads of a stage have.
struct Shared {
    me: Identity,
    width: usize,
    current: Mutex<Option<Current>>,
    greeting: AtomicUsize,
    closed: AtomicBool,
    sessions: Mutex<u64>,
    status: Arc<StageStatus>,
}

impl Shared {
    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stage that listens.
pub struct StageServer {
    file: Arc<ModelFile>,
    options: LoadOptions,
    machine: Machine,
    layers: Range<usize>,
    address: SocketAddr,
    shared: Arc<Shared>,
    post: Sender<Command>,
    inbox: Receiver<Command>,
    accepting: Option<JoinHandle<()>>,
}

/// Ends a stage from another thread.
#[derive(Clone)]
pub struct StageStop(Sender<Command>);

impl StageStop {
    /// Has [`StageServer::run`] return, after the step that it is in.
    pub fn stop(&self) {
        let _ = self.0.send(Command::Stop);
    }
}

/// The layers, loaded for a cache of some size.
struct Part {
    executor: Executor,
    sizes: Sizes,
    cache: Cache,
    /// Who looks after its cores, unless they are fixed.
    watchman: Option<Watchman>,
}

impl StageServer {
    /// Listens on `address`, as the stage that `options` name. How large the cache is the front will say; of the
    /// options those count that choose cores and how the file is read.
    ///
    /// # Errors
    /// When the model cannot be cut so, or the address cannot be had.
    pub fn bind(
        address: &str,
        file: &Arc<ModelFile>,
        options: &LoadOptions,
    ) -> Result<StageServer, Error> {
        let stage = options.stage.as_ref().filter(|stage| !stage.is_front());
        let stage: &StageOptions = stage.ok_or(Error::BadStage { number: 0, of: 0 })?;
        let gguf = file.gguf()?;
        let layers = Whole::read(&gguf, stage)?.own();
        let width = Hparams::read(&gguf)?.hidden;
        let me = identity(file, stage)?;
        let machine = load::restrict(&Machine::read()?, options)?;
        let fault = |source| Error::StageListen { address: address.to_owned(), source };
        let listener = TcpListener::bind(address).map_err(fault)?;
        let bound = listener.local_addr().map_err(fault)?;
        let (post, inbox) = channel();
        let status = Arc::new(StageStatus::new(stage, layers.clone()));
        let shared = Arc::new(Shared {
            me,
            width,
            current: Mutex::default(),
            greeting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            sessions: Mutex::new(0),
            status,
        });
        let (heard, posts) = (shared.clone(), post.clone());
        let accept = move || accept(&listener, &heard, &posts);
        let accepting = thread::Builder::new().name("stage-accept".to_owned()).spawn(accept);
        let accepting = Some(accepting.map_err(fault)?);
        let (file, options, address) = (file.clone(), options.clone(), bound);
        Ok(StageServer { file, options, machine, layers, address, shared, post, inbox, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its layers.
    pub fn layers(&self) -> Range<usize> {
        self.layers.clone()
    }

    /// What it does, for others to look at.
    pub fn status(&self) -> Arc<StageStatus> {
        self.shared.status.clone()
    }

    /// What ends it.
    pub fn stopper(&self) -> StageStop {
        StageStop(self.post.clone())
    }

    /// Serves fronts, one at a time, until it is stopped. This thread becomes the first that computes.
    pub fn run(self) {
        let mut session: Option<Session> = None;
        let mut part: Option<Part> = None;
        while let Ok(command) = self.inbox.recv() {
            match (command, &mut session) {
                (Command::Stop, _) => break,
                (Command::Begin(new), _) => {
                    tracing::debug!("the front at {} has connected", new.front);
                    self.shared.status.set(State::Connected);
                    session = Some(new);
                }
                (Command::End(id, why), Some(now)) if now.id == id => {
                    match now.ready {
                        true => tracing::warn!("the front at {} is gone: {why}", now.front),
                        // It asked how much would fit, or did not find all stages.
                        false => tracing::debug!("the front at {} is gone: {why}", now.front),
                    }
                    self.shared.status.set(State::Waiting);
                    session = None;
                }
                (Command::Broken(id, why), Some(now)) if now.id == id => {
                    self.fail(&mut session, &why);
                }
                (Command::Said(id, message), Some(now)) if now.id == id => {
                    if let Err(why) = self.hear(now, &mut part, message) {
                        self.fail(&mut session, &why);
                    }
                }
                (Command::Rows(id, number, rows), Some(now)) if now.id == id => {
                    now.rows.push_back((number, rows));
                }
                // Of a session that is over.
                _ => {}
            }
            if let Some(now) = &mut session
                && let Err(why) = self.advance(now, &mut part)
            {
                // What a step that failed has left is not to be relied on.
                part = None;
                self.fail(&mut session, &why);
            }
        }
    }

    /// Tells the front that this stage cannot go on, and ends the session.
    fn fail(&self, session: &mut Option<Session>, why: &str) {
        tracing::error!("{why}");
        if let Some(session) = session.take() {
            session.link.send(Message::Fault(why.to_owned()).frame());
        }
        self.shared.status.set(State::Waiting);
    }

    fn hear(
        &self,
        session: &mut Session,
        part: &mut Option<Part>,
        message: Message,
    ) -> Result<(), String> {
        match message {
            Message::Ask(sizes) => {
                let fits = self.fits(sizes).map_err(|e| e.to_string())?;
                let (context, tokens) = fits;
                session.link.send(Message::Fits { context, tokens }.frame());
            }
            Message::Load { sizes, layers, next } => {
                let own = (self.layers.start as u32, self.layers.end as u32);
                if layers != own {
                    return Err(format!(
                        "the front cuts the model otherwise: layers {} to {} are not {} to {}",
                        layers.0, layers.1, own.0, own.1
                    ));
                }
                if part.as_ref().is_none_or(|part| part.sizes != sizes) {
                    // Both at once may be too much.
                    *part = None;
                    self.shared.status.set(State::Loading);
                    *part = Some(self.load(sizes).map_err(|e| e.to_string())?);
                }
                session.next = next.map(|next| self.connect_next(session, &next)).transpose()?;
                let pages = part.as_ref().map(|part| part.cache.pages()).unwrap_or_default();
                session.link.send(Message::Ready(pages).frame());
                session.ready = true;
                tracing::info!("taking steps for the front at {}", session.front);
                self.shared.status.set(State::Serving);
            }
            Message::Step(told) if session.ready => {
                let sequences = part.as_ref().map_or(0, |part| part.sizes.sequences);
                session.orders.push_back(told.order(&mut session.tables, sequences)?);
            }
            _ => return Err("the front says something that has no place here".to_owned()),
        }
        Ok(())
    }

    fn options(&self, sizes: Sizes) -> LoadOptions {
        LoadOptions {
            kv: sizes.kv,
            context: sizes.context,
            kv_size: sizes.kv_size,
            sequences: Some(sizes.sequences),
            step_tokens: Some(sizes.step_tokens),
            ..self.options.clone()
        }
    }

    fn fits(&self, sizes: Sizes) -> Result<(usize, usize), Error> {
        let (machine, options) = (&self.machine, self.options(sizes));
        let size = load::size(&self.file, machine, std::slice::from_ref(machine), &options)?;
        Ok((size.room.context, size.room.tokens))
    }

    fn load(&self, sizes: Sizes) -> Result<Part, Error> {
        let begin = Instant::now();
        let options = self.options(sizes);
        let file = self.file.for_another()?;
        let control = Control::default();
        let loaded = load::load(&file, &self.machine, &options, &control, &mut |_| {})?;
        let Loaded { mut executor, cache, report, .. } = loaded;
        let cache = cache.expect("a stage shares its cache");
        let weights: usize = report.nodes.iter().map(|node| node.weights).sum();
        tracing::info!(
            "layers {} to {} are loaded: {} MiB in {:.1?}",
            self.layers.start,
            self.layers.end - 1,
            weights >> 20,
            begin.elapsed()
        );
        let watchman = Watchman::new(&mut executor, &self.machine, options.fixed_cores);
        Ok(Part { executor, sizes, cache, watchman })
    }

    /// Connects to the stage behind.
    fn connect_next(&self, session: &Session, address: &str) -> Result<Link, String> {
        let (stage, begin) = (self.shared.me.stage + 1, Instant::now());
        let current = self.shared.current().as_ref().map(|now| (now.id, now.name));
        let (_, name) = current.filter(|now| now.0 == session.id).ok_or("the session is over")?;
        let of = self.shared.me.of;
        let fault =
            |e: &dyn std::fmt::Display| format!("stage {stage}/{of} at {address}, behind it: {e}");
        let stream = loop {
            match greet::connect(address, &self.shared.me, (Role::Before, stage, name)) {
                Ok(stream) => break stream,
                Err(e @ GreetError::Refused(_)) => return Err(fault(&e)),
                Err(e) if begin.elapsed() > NEXT => return Err(fault(&e)),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        };
        let (post, id) = (self.post.clone(), session.id);
        let said = fault(&"the connection is lost");
        let lost = move |why| _ = post.send(Command::Broken(id, format!("{said}: {why}")));
        Link::new(stream, lost).map_err(|e| fault(&e))
    }

    /// Takes the steps for which all is there.
    fn advance(&self, session: &mut Session, part: &mut Option<Part>) -> Result<(), String> {
        let first = self.shared.me.stage == 1;
        while let Some(order) = session.orders.front() {
            let rows = match session.rows.front() {
                _ if first => None,
                None => return Ok(()),
                Some((number, _)) if *number != order.number => {
                    return Err("the stage before sent rows of another step".to_owned());
                }
                Some((_, rows)) => Some(rows.as_slice()),
            };
            let part = part.as_mut().ok_or("a step before anything is loaded")?;
            let begin = Instant::now();
            let frame = part.take(order, (rows, self.shared.width)).map_err(|e| e.to_string())?;
            self.shared.status.stepped(order.tokens(), frame.len(), begin.elapsed());
            session.next.as_ref().unwrap_or(&session.link).send(frame);
            session.orders.pop_front();
            if !first {
                session.rows.pop_front();
            }
        }
        Ok(())
    }
}

impl Part {
    /// Takes a step; the frame of the rows that it gives.
    fn take(
        &mut self,
        order: &Order,
        rows: (Option<&[f32]>, usize),
    ) -> Result<Vec<u8>, graph::Error> {
        let bad = |what: &str| Err(graph::Error::BadStep(what.to_owned()));
        let context = self.sizes.context.unwrap_or(0);
        if order.sequences.len() > self.sizes.sequences {
            return bad("more sequences than there may be");
        }
        if order.sequences.iter().any(|part| part.past + part.tokens.len() > context) {
            return bad("a sequence that is longer than the context");
        }
        if let Some(watchman) = &mut self.watchman {
            watchman.settle(&mut self.executor);
        }
        let begin = Instant::now();
        order.run(&mut self.executor, &self.cache.map, rows, |_| Outputs::AllHidden)?;
        if let Some(watchman) = &mut self.watchman {
            watchman.observe(&mut self.executor, begin.elapsed());
        }
        let given = self.executor.logits();
        let rows = (0..order.tokens()).map(|row| given.hidden(row));
        Ok(rows_frame(order.number, rows))
    }
}

impl Drop for StageServer {
    fn drop(&mut self) {
        self.shared.closed.store(true, Relaxed);
        // Wakes the thread that listens, which then lets go of the address.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
        if let (Ok(_), Some(accepting)) = (woken, self.accepting.take()) {
            let _ = accepting.join();
        }
    }
}

/// Takes connections as long as the stage is there.
fn accept(listener: &TcpListener, shared: &Arc<Shared>, post: &Sender<Command>) {
    for stream in listener.incoming() {
        if shared.closed.load(Relaxed) {
            return;
        }
        let Ok(stream) = stream else {
            // Too many files, perhaps.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if shared.greeting.fetch_add(1, Relaxed) >= GREETINGS {
            shared.greeting.fetch_sub(1, Relaxed);
            continue;
        }
        let (heard, post) = (shared.clone(), post.clone());
        let spawned = thread::Builder::new().name("stage-read".to_owned()).spawn(move || {
            let from = stream.peer_addr();
            let greeted = hear(stream, &heard, &post);
            if let (Err(why), Ok(from)) = (greeted, from) {
                heard.status.refused();
                tracing::warn!("a connection of {from} was refused: {why}");
            }
        });
        if spawned.is_err() {
            shared.greeting.fetch_sub(1, Relaxed);
        }
    }
}

/// Greets a connection, and reads what comes until it ends.
fn hear(mut stream: TcpStream, shared: &Shared, post: &Sender<Command>) -> Result<(), GreetError> {
    let from = stream.peer_addr();
    let mut begun = 0;
    let greeted = from.map_err(|e| GreetError::Unreachable(e.to_string())).and_then(|from| {
        let hello = greet::hear(&mut stream, &shared.me, |hello| {
            let mut current = shared.current();
            match (hello.role, &*current) {
                (Role::Front, Some(now)) => Err(format!("it serves the front at {}", now.front)),
                (Role::Front, None) => {
                    let mut last = shared.sessions.lock().unwrap_or_else(PoisonError::into_inner);
                    *last += 1;
                    begun = *last;
                    let (name, bounds) = (hello.session, Bounds::GREETING);
                    *current = Some(Current { id: begun, name, front: from, bounds });
                    Ok(())
                }
                (Role::Before, Some(now)) if now.name == hello.session => {
                    begun = now.id;
                    Ok(())
                }
                (Role::Before, _) => Err("no front has begun this session here".to_owned()),
            }
        })?;
        Ok((hello.role, from))
    });
    shared.greeting.fetch_sub(1, Relaxed);
    let (role, front) = match greeted {
        Ok(greeted) => greeted,
        Err(why) => {
            // It was the front, and went away before it was told.
            forget(shared, begun);
            return Err(why);
        }
    };
    let id = begun;
    if role == Role::Before {
        let why = read_rows(stream, shared, post, id);
        let why = format!("the stage before is lost: {why}");
        let _ = post.send(Command::Broken(id, why));
        return Ok(());
    }
    let lost = post.clone();
    let link = stream
        .try_clone()
        .and_then(|writer| Link::new(writer, move |why| _ = lost.send(Command::End(id, why))));
    match link {
        Ok(link) => {
            let (orders, rows) = (VecDeque::new(), VecDeque::new());
            let (next, ready, tables) = (None, false, Tables::default());
            let session = Session { id, front, link, next, ready, tables, orders, rows };
            let _ = post.send(Command::Begin(session));
            let why = read_front(stream, shared, post, id);
            let _ = post.send(Command::End(id, why));
        }
        Err(e) => tracing::warn!("the front at {front} cannot be answered: {e}"),
    }
    forget(shared, id);
    Ok(())
}

fn forget(shared: &Shared, id: u64) {
    let mut current = shared.current();
    if current.as_ref().is_some_and(|now| now.id == id) {
        *current = None;
    }
}

/// Reads what the front says; why no more comes.
fn read_front(mut stream: TcpStream, shared: &Shared, post: &Sender<Command>, id: u64) -> String {
    let mut bounds = Bounds::GREETING;
    loop {
        match Message::read(&mut stream, bounds) {
            Ok(Message::Ping) => {}
            Ok(message) => {
                if let Message::Load { sizes, .. } = &message {
                    bounds.step = order_bound(sizes);
                    let rows = rows_bound(sizes.step_tokens, shared.width);
                    shared.current().iter_mut().for_each(|now| now.bounds.rows = rows);
                }
                let _ = post.send(Command::Said(id, message));
            }
            Err(why) => return why.to_string(),
        }
    }
}

/// Reads the rows of the stage before; why no more come.
fn read_rows(mut stream: TcpStream, shared: &Shared, post: &Sender<Command>, id: u64) -> String {
    let bounds = || {
        let current = shared.current();
        current.as_ref().filter(|now| now.id == id).map_or(Bounds::GREETING, |now| now.bounds)
    };
    loop {
        match Message::read_within(&mut stream, bounds) {
            Ok(Message::Ping) => {}
            Ok(Message::Rows { number, rows }) => {
                shared.status.received(rows.len() * size_of::<f32>());
                let _ = post.send(Command::Rows(id, number, rows));
            }
            Ok(_) => return "it sent something else than rows".to_owned(),
            Err(why) => return why.to_string(),
        }
    }
}

/// Bytes of the largest order: tokens, and for each sequence the pages of a context in each class, twice as many as
/// there can be.
fn order_bound(sizes: &Sizes) -> usize {
    let pages = sizes.context.unwrap_or(0).div_ceil(KV_PAGE) * 4;
    let each = 1024 + 2 * KV_CLASSES * (pages + 64);
    (4096 + 8 * sizes.step_tokens + sizes.sequences.saturating_mul(each)).min(LONGEST_ORDER)
}
