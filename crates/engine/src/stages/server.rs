//! A stage before the front: it listens, loads its layers when a front tells how large the cache is, and takes the
//! steps that the front orders.
//!
//! One thread computes. Others read connections ([`port`]) and give it what comes, in order. It takes a step when its
//! order and, behind the first stage, its rows are there. It keeps its weights when a front goes away; a front that comes back with
//! the same sizes need not wait for them.

use super::greet::{self, Call, GreetError, Identity};
use super::ledger::Limits;
use super::link::Link;
use super::message::{Message, Role, Sizes, rows_frame};
use super::options::StageOptions;
use super::order::{GivenRows, Order};
use super::part::{Cache, Whole};
use super::port::{self, Shared};
use super::session::{Command, Session};
use super::status::{StageStatus, State};
use crate::company::Watchman;
use crate::control::Control;
use crate::error::Error;
use crate::file::ModelFile;
use crate::load::{self, Loaded};
use crate::options::LoadOptions;
use crate::room::Room;
use graph::{Executor, KV_CLASSES, Outputs};
use kernels::KV_PAGE;
use models::Hparams;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use topology::Machine;

/// How long the stage behind may take to be there: the front has just spoken to it.
const NEXT: Duration = Duration::from_secs(10);

/// No order is longer: the page tables of so many sequences are beyond any machine.
const LONGEST_ORDER: usize = 256 << 20;

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
pub(super) struct Part {
    executor: Executor,
    sizes: Sizes,
    pub(super) cache: Cache,
    /// Who looks after its cores, unless they are fixed.
    watchman: Option<Watchman>,
}

impl StageServer {
    /// Listens on `address`, as the stage that `options` name. How large the cache is the front will say; of the
    /// options those count that choose cores and how the file is read.
    ///
    /// # Errors
    /// When the model cannot be cut so, the address cannot be had, or other hosts can reach it and there is no key.
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
        let me = Identity::of(file, stage)?;
        let machine = load::restrict(&Machine::read()?, options)?;
        let fault = |source| Error::StageListen { address: address.to_owned(), source };
        let listener = TcpListener::bind(address).map_err(fault)?;
        let bound = listener.local_addr().map_err(fault)?;
        if stage.key.is_empty() && !stage.without_key && !bound.ip().is_loopback() {
            return Err(Error::StageKey { address: bound });
        }
        // Orders and rows are bounded by the ledger of their session, which one front has at a time; other commands are
        // one for each connection.
        let (post, inbox) = channel();
        let status = Arc::new(StageStatus::new(stage, layers.clone()));
        let shared = Arc::new(Shared::new(me, width, status));
        let (heard, posts) = (shared.clone(), post.clone());
        let accept = move || port::accept(&listener, &heard, &posts);
        let accepting = thread::Builder::new().name("stage-accept".to_owned()).spawn(accept);
        let accepting = Some(accepting.map_err(fault)?);
        let (file, options, address) = (file.clone(), options.clone(), bound);
        Ok(StageServer { file, options, machine, layers, address, shared, post, inbox, accepting })
    }

    /// Elements of a row.
    #[cfg(any(fuzzing, test))]
    pub(super) fn width(&self) -> usize {
        self.shared.width
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
        loop {
            // Between two steps it takes all that has come meanwhile.
            let command = match session.as_ref().is_some_and(|now| self.can_step(now)) {
                true => self.inbox.try_recv().ok(),
                false => self.inbox.recv().ok(),
            };
            match command {
                Some(Command::Stop) => break,
                Some(command) => self.obey(command, &mut session, &mut part),
                None => {
                    if let Some(now) = &mut session
                        && let Err(why) = self.step(now, &mut part)
                    {
                        // What a step that failed has left is not to be relied on.
                        part = None;
                        self.fail(&mut session, &why);
                    }
                }
            }
        }
    }

    fn obey(&self, command: Command, session: &mut Option<Session>, part: &mut Option<Part>) {
        match (command, &mut *session) {
            (Command::Begin(new), _) => {
                tracing::debug!("the front at {} has connected", new.front);
                self.shared.status.set(State::Connected);
                *session = Some(new);
            }
            (Command::End(id, why), now) => {
                if let Some(now) = now.take_if(|now| now.id == id) {
                    match now.ledger.limits().is_ok() {
                        true => tracing::warn!("the front at {} is gone: {why}", now.front),
                        // It asked how much would fit, or did not find all stages.
                        false => tracing::debug!("the front at {} is gone: {why}", now.front),
                    }
                    self.shared.status.set(State::Waiting);
                }
                // Only now may another begin: this was the last that is kept of it.
                self.shared.forget(id);
            }
            (Command::Broken(id, why), Some(now)) if now.id == id => self.fail(session, &why),
            (Command::Said(id, message), Some(now)) if now.id == id => {
                if let Err(why) = self.hear(now, part, message) {
                    self.fail(session, &why);
                }
            }
            (Command::Step(id, order), Some(now)) if now.id == id => now.orders.push_back(order),
            (Command::Rows(id, rows), Some(now)) if now.id == id => now.rows.push_back(rows),
            // Of a session that is over.
            _ => {}
        }
    }

    /// Tells the front that this stage cannot go on, and ends the session.
    fn fail(&self, session: &mut Option<Session>, why: &str) {
        tracing::error!("{why}");
        if let Some(session) = session.take() {
            session.ledger.end();
            // A front that does not read need not have it.
            let _ = session.link.send(Message::Fault(why.to_owned()).frame());
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
                let Room { context, tokens } = self.fits(sizes).map_err(|e| e.to_string())?;
                session.ledger.answer().map_err(|e| e.to_string())?;
                session.link.send(Message::Fits { context, tokens }.frame())?;
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
                let loaded = part.as_ref().ok_or("nothing is loaded")?;
                session.ledger.allow(Some(limits(&sizes, &loaded.cache, self.shared.me.of)));
                session.ledger.answer().map_err(|e| e.to_string())?;
                session.link.send(Message::Ready(loaded.cache.pages()).frame())?;
                tracing::info!("taking steps for the front at {}", session.front);
                self.shared.status.set(State::Serving);
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

    fn fits(&self, sizes: Sizes) -> Result<Room, Error> {
        let (machine, options) = (&self.machine, self.options(sizes));
        Ok(load::size(&self.file, machine, std::slice::from_ref(machine), &options)?.room)
    }

    pub(super) fn load(&self, sizes: Sizes) -> Result<Part, Error> {
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
        let name = self.shared.name(session.id).ok_or("the session is over")?;
        let of = self.shared.me.of;
        let fault =
            |e: &dyn std::fmt::Display| format!("stage {stage}/{of} at {address}, behind it: {e}");
        let call = Call { role: Role::Before, stage, session: name };
        let stream = loop {
            match greet::connect(address, &self.shared.me, call) {
                Ok(stream) => break stream,
                Err(e @ GreetError::Refused(_)) => return Err(fault(&e)),
                Err(e) if begin.elapsed() > NEXT => return Err(fault(&e)),
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        };
        let (post, id) = (self.post.clone(), session.id);
        let said = fault(&"the connection is lost");
        let lost = move |why| _ = post.send(Command::Broken(id, format!("{said}: {why}")));
        Link::new(stream, self.shared.me.links(), lost).map_err(|e| fault(&e))
    }

    fn is_first(&self) -> bool {
        self.shared.me.stage == 1
    }

    /// Whether all is there for the oldest step.
    fn can_step(&self, session: &Session) -> bool {
        !session.orders.is_empty() && (self.is_first() || !session.rows.is_empty())
    }

    /// Takes the oldest step.
    fn step(&self, session: &mut Session, part: &mut Option<Part>) -> Result<(), String> {
        let Some(order) = session.orders.pop_front() else { return Ok(()) };
        let rows = session.rows.pop_front();
        let part = part.as_mut().ok_or("a step before anything is loaded")?;
        let begin = Instant::now();
        let given = GivenRows { rows: rows.as_deref(), width: self.shared.width };
        let frame = part.take(&order, given);
        let frame = frame.map_err(|e| e.to_string())?;
        self.shared.status.stepped(order.tokens(), frame.len(), begin.elapsed());
        // Before the rows are sent: after them the front may order the next.
        session.ledger.taken();
        Ok(session.next.as_ref().unwrap_or(&session.link).send(frame)?)
    }
}

impl Part {
    /// Takes a step; the frame of the rows that it gives.
    pub(super) fn take(
        &mut self,
        order: &Order,
        given: GivenRows<'_>,
    ) -> Result<Vec<u8>, graph::Error> {
        if let Some(watchman) = &mut self.watchman {
            watchman.settle(&mut self.executor);
        }
        let begin = Instant::now();
        order.run(&mut self.executor, &self.cache.map, given, |_| Outputs::AllHidden)?;
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
        self.shared.close();
        // Wakes the thread that listens, which then lets go of the address.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
        if let (Ok(_), Some(accepting)) = (woken, self.accepting.take()) {
            let _ = accepting.join();
        }
    }
}

/// What a front may order of layers that are loaded with these sizes.
pub(super) fn limits(sizes: &Sizes, cache: &Cache, stages: u32) -> Limits {
    let context = sizes.context.unwrap_or(0);
    Limits {
        steps: stages as usize,
        order: order_bound(sizes),
        sequences: sizes.sequences,
        tokens: sizes.step_tokens,
        context,
        classes: cache.classes.len(),
        pages: table_bound(context),
    }
}

/// Pages of the largest table: those of a context, and some.
fn table_bound(context: usize) -> usize {
    context.div_ceil(KV_PAGE) + 16
}

/// Bytes of the largest order: tokens, and for each sequence the pages of a context in each class, twice.
fn order_bound(sizes: &Sizes) -> usize {
    let pages = 4 * table_bound(sizes.context.unwrap_or(0));
    let each = 1024 + 2 * KV_CLASSES * (pages + 64);
    (4096 + 8 * sizes.step_tokens + sizes.sequences.saturating_mul(each)).min(LONGEST_ORDER)
}
