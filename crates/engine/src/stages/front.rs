//! The front's side: it gives orders to all other stages, and gets the rows of the last of them.

use super::greet::{self, Call, GreetError, Identity};
use super::ledger::{Ledger, Limits};
use super::link::Link;
use super::message::{Message, Role, Sizes, step_frame};
use super::order::{Order, Told};
use super::port::Rows;
use super::tables::Tables;
use super::wire::WireError;
use crate::error::Error;
use crate::file::ModelFile;
use crate::options::{KvSize, LoadOptions};
use crate::room::Room;
use models::Hparams;
use std::collections::VecDeque;
use std::io::Read;
use std::net::TcpStream;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The first and the longest wait before a stage is looked for again.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// How often it is looked whether somebody still waits for stages that load.
const LOOK: Duration = Duration::from_millis(250);

/// How often somebody who waits for stages is told of it.
const TELL: Duration = Duration::from_secs(10);

/// A stage that is gone is told of by its neighbours, perhaps before its own connection breaks: how long after.
const CAUSE: Duration = Duration::from_millis(500);

/// Of its own orders the front needs no bounds.
const OWN: Limits = Limits {
    steps: usize::MAX,
    order: 0,
    sequences: usize::MAX,
    tokens: usize::MAX,
    context: usize::MAX,
    classes: 0,
    pages: 0,
};

/// Who is told that a stage is lost, from another thread.
type Listener = Arc<Mutex<Option<Box<dyn Fn() + Send>>>>;

/// The other stages.
pub(crate) struct Group {
    me: Identity,
    peers: Vec<String>,
    layers: Vec<Range<usize>>,
    width: usize,
    sizes: Sizes,
    session: Option<Session>,
    told: Listener,
}

/// Connections to all stages.
struct Session {
    links: Vec<Link>,
    /// What each stage may send: so the number of events is bounded, although their channel is not.
    ledgers: Vec<Arc<Ledger>>,
    events: Receiver<(usize, Event)>,
    /// Pages that the stages know of.
    tables: Tables,
    /// Of the last stage, not asked for yet.
    rows: VecDeque<(u64, Vec<f32>)>,
}

enum Event {
    Said(Message),
    Lost(String),
}

impl Session {
    /// Who is lost if a stage says that it cannot go on: one that is gone without a word, or else that stage.
    fn cause(&self, peer: usize, why: String) -> (usize, String) {
        let (begin, mut told) = (Instant::now(), vec![peer]);
        while let Some(left) = CAUSE.checked_sub(begin.elapsed())
            && let Ok((other, event)) = self.events.recv_timeout(left)
        {
            match event {
                Event::Said(Message::Fault(_)) => told.push(other),
                Event::Lost(lost) if !told.contains(&other) => return (other, lost),
                _ => {}
            }
        }
        (peer, why)
    }
}

impl Group {
    /// Not connected yet.
    pub(crate) fn new(file: &ModelFile, options: &LoadOptions) -> Result<Option<Group>, Error> {
        let Some(stage) = options.stage.as_ref().filter(|stage| stage.is_front()) else {
            return Ok(None);
        };
        stage.check()?;
        let gguf = file.gguf()?;
        let whole = super::part::Whole::read(&gguf, stage)?;
        let me = Identity::of(file, stage)?;
        let width = Hparams::read(&gguf)?.hidden;
        let (peers, layers, sizes) = (stage.peers.clone(), whole.layers, sizes(options));
        let told = Listener::default();
        Ok(Some(Group { me, peers, layers, width, sizes, session: None, told }))
    }

    /// Elements of a row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// How many steps can be under way at once.
    pub(crate) fn depth(&self) -> usize {
        self.peers.len() + 1
    }

    /// Has `told` called, on another thread, when a stage is lost.
    pub(crate) fn tell(&self, told: impl Fn() + Send + 'static) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(told));
    }

    fn lost(&self, peer: usize, reason: impl ToString) -> Error {
        Error::StageLost {
            stage: peer + 1,
            of: self.me.of as usize,
            address: self.peers[peer].clone(),
            reason: reason.to_string(),
        }
    }

    /// Connects to all stages, once.
    fn connect(&mut self) -> Result<(), (usize, GreetError)> {
        self.session = None;
        let nonce = greet::nonce().map_err(|e| (0, e.into()))?;
        let id = u64::from_le_bytes(*nonce.first_chunk().expect("a nonce has 32 bytes"));
        let (post, events) = channel();
        let (mut links, mut ledgers) = (Vec::new(), Vec::new());
        for (peer, address) in self.peers.iter().enumerate() {
            let io = |e: std::io::Error| (peer, GreetError::Unreachable(e.to_string()));
            let call = Call { role: Role::Front, stage: peer as u32 + 1, session: id };
            let stream = greet::connect(address, &self.me, call).map_err(|e| (peer, e))?;
            let reader = stream.try_clone().map_err(io)?;
            let (lost, told) = (post.clone(), self.told.clone());
            let lost = move |why| end(&lost, &told, peer, why);
            links.push(Link::new(stream, self.me.links(), lost).map_err(io)?);
            let ledger = Arc::new(Ledger::new(self.width, Arc::default()));
            ledgers.push(ledger.clone());
            let (post, told) = (post.clone(), self.told.clone());
            let read = move || read(reader, &ledger, &post, &told, peer);
            thread::Builder::new().name("stage-read".to_owned()).spawn(read).map_err(io)?;
        }
        let (tables, rows) = (Tables::default(), VecDeque::new());
        self.session = Some(Session { links, ledgers, events, tables, rows });
        Ok(())
    }

    /// Connects to all stages, and waits for those that are not there yet. Soon after `stop` is set it fails.
    ///
    /// # Errors
    /// When a stage refuses: it is another one, or has another model, version or key.
    pub(crate) fn wait(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        let (mut wait, mut told) = (WAITS.0, None::<Instant>);
        loop {
            let (peer, error) = match self.connect() {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            if stop.load(Relaxed) || matches!(error, GreetError::Refused(_)) {
                return Err(self.lost(peer, error));
            }
            if told.is_none_or(|told| told.elapsed() > TELL) {
                told = Some(Instant::now());
                let (stage, of, address) = (peer + 1, self.me.of, &self.peers[peer]);
                tracing::info!("waiting for stage {stage}/{of} at {address}: {error}");
            }
            thread::sleep(wait);
            wait = (wait * 2).min(WAITS.1);
        }
    }

    /// Connects to all stages anew and has them ready, with the sizes that they had; one attempt.
    /// Soon after `stop` says so it fails.
    pub(crate) fn again(&mut self, pages: &[u32], stop: &dyn Fn() -> bool) -> Result<(), Error> {
        self.connect().map_err(|(peer, error)| self.lost(peer, error))?;
        self.begin_loading()?;
        self.ready(pages, stop)
    }

    /// Lets go of all connections.
    pub(crate) fn disconnect(&mut self) {
        self.session = None;
    }

    /// Asks every stage something that it answers.
    fn ask(&mut self, message: impl Fn(usize) -> Message) -> Result<(), Error> {
        let Some(session) = &self.session else { return Err(self.lost(0, "not connected")) };
        for (peer, (link, ledger)) in session.links.iter().zip(&session.ledgers).enumerate() {
            ledger.ask().map_err(|e| self.lost(peer, e))?;
            link.send(message(peer).frame()).map_err(|e| self.lost(peer, e))?;
        }
        Ok(())
    }

    /// The next event but signs of life.
    fn next(&mut self, wait: Option<Duration>) -> Result<Option<(usize, Message)>, Error> {
        let Some(session) = &self.session else { return Err(self.lost(0, "not connected")) };
        let next = match wait {
            None => session.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => session.events.recv_timeout(wait),
        };
        let (peer, event) = match next {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            // Every reader tells before it ends.
            Err(RecvTimeoutError::Disconnected) => return Err(self.lost(0, "all are lost")),
        };
        let (peer, why) = match event {
            Event::Said(Message::Fault(why)) => session.cause(peer, why),
            Event::Lost(why) => (peer, why),
            Event::Said(message) => return Ok(Some((peer, message))),
        };
        self.session = None;
        Err(self.lost(peer, why))
    }

    /// Asks all stages how much would fit; the least.
    fn fits(&mut self, sizes: Sizes) -> Result<Room, Error> {
        self.ask(|_| Message::Ask(sizes))?;
        let mut least = Room { context: usize::MAX, tokens: usize::MAX };
        let mut answers = 0;
        while answers < self.peers.len() {
            match self.next(None)? {
                Some((_, Message::Fits { context, tokens })) => {
                    least.context = least.context.min(context);
                    least.tokens = least.tokens.min(tokens);
                    answers += 1;
                }
                Some((peer, _)) => return Err(self.lost(peer, "it answers something else")),
                None => {}
            }
        }
        Ok(least)
    }

    /// Has all stages load their layers, as this host is about to.
    pub(crate) fn load(&mut self, options: &LoadOptions) -> Result<(), Error> {
        self.sizes = sizes(options);
        self.begin_loading()
    }

    fn begin_loading(&mut self) -> Result<(), Error> {
        let (sizes, peers, layers) = (self.sizes, self.peers.clone(), self.layers.clone());
        self.ask(|peer| {
            let Range { start, end } = layers[peer];
            let layers = (start as u32, end as u32);
            Message::Load { sizes, layers, next: peers.get(peer + 1).cloned() }
        })
    }

    /// Waits until all have loaded; `pages` are those that they must have. Soon after `stop` says so it fails.
    pub(crate) fn ready(&mut self, pages: &[u32], stop: &dyn Fn() -> bool) -> Result<(), Error> {
        let mut ready = 0;
        while ready < self.peers.len() {
            match self.next(Some(LOOK))? {
                None if stop() => return Err(self.lost(0, "nobody waits for it any more")),
                Some((_, Message::Ready(theirs))) if theirs == pages => ready += 1,
                Some((peer, Message::Ready(_))) => {
                    return Err(self.lost(peer, "it counts other pages of the cache"));
                }
                Some((peer, _)) => return Err(self.lost(peer, "it answers something else")),
                None => {}
            }
        }
        // The last of them sends rows.
        if let Some(last) = self.session.as_ref().and_then(|session| session.ledgers.last()) {
            last.allow(Some(OWN));
        }
        Ok(())
    }

    /// Sends a step to all.
    pub(crate) fn send(&mut self, order: &Order) -> Result<(), Error> {
        self.check()?;
        let Some(session) = &mut self.session else { return Err(self.lost(0, "not connected")) };
        let frame = step_frame(&Told::of(order, &mut session.tables));
        let last = session.ledgers.len() - 1;
        let mut sent = session.ledgers[last]
            .order(order.number, order.tokens(), 0)
            .map_err(|e| (last, e.to_string()));
        for (peer, link) in session.links.iter().enumerate() {
            sent = sent.and_then(|()| link.send(frame.clone()).map_err(|e| (peer, e.to_owned())));
        }
        sent.map_err(|(peer, why)| self.lost(peer, why))
    }

    /// Whether all stages are there.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        while let Some((peer, message)) = self.next(Some(Duration::ZERO))? {
            self.heard(peer, message)?;
        }
        Ok(())
    }

    fn heard(&mut self, peer: usize, message: Message) -> Result<(), Error> {
        match (message, &mut self.session) {
            (Message::Rows { number, rows }, Some(session)) => {
                session.rows.push_back((number, rows));
                Ok(())
            }
            _ => Err(self.lost(peer, "it says something that nobody asked for")),
        }
    }

    /// The rows of a step, which all stages before have taken.
    pub(crate) fn rows(&mut self, number: u64) -> Result<Vec<f32>, Error> {
        loop {
            let first = self.session.as_mut().and_then(|session| session.rows.pop_front());
            match first {
                Some((of, rows)) if of == number => {
                    let session = self.session.iter();
                    session.flat_map(|session| session.ledgers.last()).for_each(|of| of.taken());
                    return Ok(rows);
                }
                Some(_) => {
                    return Err(self.lost(self.peers.len() - 1, "it sent rows of another step"));
                }
                None => {}
            }
            if let Some((peer, message)) = self.next(None)? {
                self.heard(peer, message)?;
            }
        }
    }
}

fn end(post: &Sender<(usize, Event)>, told: &Listener, peer: usize, why: String) {
    // Who has let go of the connections does not hear it.
    if post.send((peer, Event::Lost(why))).is_ok() {
        let told = told.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().for_each(|told| told());
    }
}

fn read(
    mut stream: TcpStream,
    ledger: &Ledger,
    post: &Sender<(usize, Event)>,
    told: &Listener,
    peer: usize,
) {
    let why = loop {
        match heard(&mut stream, ledger) {
            Ok(None) => {}
            Ok(Some(message)) => {
                let fault = matches!(message, Message::Fault(_));
                if post.send((peer, Event::Said(message))).is_err() {
                    return;
                }
                if fault {
                    let told = told.lock().unwrap_or_else(PoisonError::into_inner);
                    told.iter().for_each(|told| told());
                    // Nothing that comes after it counts.
                    return;
                }
            }
            Err(why) => break why,
        }
    };
    end(post, told, peer, why.to_string());
}

/// Reads the next message of a stage, if it is more than a sign of life and was asked for.
pub(super) fn heard(from: &mut impl Read, ledger: &Ledger) -> Result<Option<Message>, WireError> {
    match Message::read(from, &Rows(ledger, Duration::ZERO))? {
        Message::Ping => Ok(None),
        message @ (Message::Fits { .. } | Message::Ready(_)) => {
            ledger.answer()?;
            Ok(Some(message))
        }
        message @ (Message::Rows { .. } | Message::Fault(_)) => Ok(Some(message)),
        _ => Err(WireError::Unasked("what a stage does not say")),
    }
}

/// The sizes that options ask for.
fn sizes(options: &LoadOptions) -> Sizes {
    Sizes {
        kv: options.kv,
        context: options.context,
        kv_size: options.kv_size,
        sequences: options.sequences.unwrap_or(1),
        step_tokens: options.most_step_tokens(),
    }
}

/// `options` with a cache that fits on all hosts of a model, `own` being what fits on this one: whoever has the least
/// room decides.
pub(crate) fn agree(
    group: &mut Group,
    options: &LoadOptions,
    own: Room,
) -> Result<LoadOptions, Error> {
    let theirs = group.fits(sizes(options))?;
    let (context, tokens) = (theirs.context.min(own.context), theirs.tokens.min(own.tokens));
    let kv_size = match options.kv_size {
        // Each sequence has its own.
        KvSize::Each => KvSize::Each,
        KvSize::Tokens(_) | KvSize::Fit => KvSize::Tokens(tokens),
    };
    Ok(LoadOptions { context: Some(context), kv_size, ..options.clone() })
}
