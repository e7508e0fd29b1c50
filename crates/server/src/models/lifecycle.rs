//! When models are loaded and unloaded.
//!
//! A request takes a [`Lease`], which loads its model if need be and keeps it loaded until the answer has been sent.
//! One model is loaded at a time. Where there is no room for it, models without requests are unloaded, the one that
//! was asked for longest ago first. If all have requests, that one takes no more of them until those that it has have
//! ended: so no model keeps another waiting for ever. Pinned ones stay.
//!
//! The states are those of a [`Machine`]. A transition is made under its lock and never waits; what takes long runs on
//! a thread of its own, which reports its end to the machine. A request only waits for an answer, so a client that
//! hangs up leaves no transition half made.

use super::machine::{Answer, Effect, Event, Id, Machine, Phase, Waiter};
use super::{ModelEntry, ModelSource, Models};
use crate::fault::Fault;
use crate::http::routes;
use crate::model::{Abilities, Info};
use crate::options::Options;
use crate::recover::Mending;
use crate::state::{App, refused};
use axum::Router;
use axum::http::StatusCode;
use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How often it is looked whether a model has failed, or has been idle for long enough.
const LOOK: Duration = Duration::from_millis(250);

/// A model of a server.
pub(super) struct Entry {
    pub(super) app: Arc<App>,
    pub(super) router: Router,
    /// Its number in the machine.
    id: Id,
    source: Arc<dyn ModelSource>,
    pub(super) pinned: bool,
    /// A client has made it.
    pub(super) made: bool,
    info: OnceLock<Result<Info, String>>,
    abilities: OnceLock<Result<Abilities, String>>,
    mending: Mutex<Mending>,
}

/// A model at this moment.
pub(super) struct View {
    pub(super) phase: Phase,
    /// Why it does not work, from its failure until it is loaded again.
    pub(super) failure: Option<String>,
    /// Bytes that it has in memory.
    pub(super) bytes: u64,
    /// Time without requests.
    pub(super) idle: Duration,
    /// When it is unloaded if it gets no request; `None` if it is not.
    pub(super) expires: Option<Instant>,
    /// When it was asked for last.
    pub(super) asked: Instant,
}

/// The machine, and the requests that wait for its answers.
pub(super) struct Shared {
    pub(super) machine: Machine,
    entries: HashMap<Id, Arc<Entry>>,
    waiters: HashMap<Waiter, (Arc<Entry>, oneshot::Sender<Given>)>,
    next: Waiter,
}

/// What a request gets: a lease, if it asked for one.
type Given = Result<Option<Lease>, Fault>;

impl Shared {
    pub(super) fn new(machine: Machine) -> Shared {
        Shared { machine, entries: HashMap::new(), waiters: HashMap::new(), next: 0 }
    }

    /// Adds a model, which is not loaded.
    pub(super) fn add(&mut self, common: &App, entry: ModelEntry) -> Arc<Entry> {
        let ModelEntry { options, source, pinned, made, idle } = entry;
        let shared = common.now();
        let app = Arc::new(common.beside(Options {
            keys: shared.keys.clone(),
            origins: shared.origins.clone(),
            hosts: shared.hosts.clone(),
            body_limit: shared.body_limit,
            read_timeout: shared.read_timeout,
            write_timeout: shared.write_timeout,
            ping: shared.ping,
            connections: shared.connections,
            drain: shared.drain,
            ..options
        }));
        let id = self.machine.add(app.name().to_owned(), pinned, idle, Instant::now());
        let entry = Arc::new(Entry {
            router: routes().with_state(app.clone()),
            app,
            id,
            source,
            pinned,
            made,
            info: OnceLock::new(),
            abilities: OnceLock::new(),
            mending: Mutex::new(Mending::new(common.options.reload_wait)),
        });
        self.entries.insert(id, entry.clone());
        entry
    }
}

impl Entry {
    /// What its file says; read once.
    pub(super) fn info(&self) -> Result<&Info, &str> {
        self.info.get_or_init(|| self.source.info()).as_ref().map_err(String::as_str)
    }

    /// What its file says that it can do; read once.
    pub(super) fn abilities(&self) -> Result<Abilities, &str> {
        let abilities = self.abilities.get_or_init(|| self.source.abilities());
        abilities.as_ref().copied().map_err(String::as_str)
    }

    fn mending(&self) -> MutexGuard<'_, Mending> {
        self.mending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's hold on a model: it stays loaded.
pub(super) struct Lease {
    models: Arc<Models>,
    id: Id,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.models.step(Event::Left(self.id));
    }
}

/// A request that waits for an answer of the machine, which it may leave at any time.
struct Asked {
    models: Arc<Models>,
    id: Id,
    waiter: Waiter,
    answer: oneshot::Receiver<Given>,
}

impl Asked {
    async fn answer(mut self) -> Given {
        let ended = || Fault::internal("the server has lost the request for the model");
        (&mut self.answer).await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.models.step(Event::GaveUp(self.id, self.waiter));
    }
}

/// What is to be done for an effect, outside the lock.
enum Action {
    Measure(Arc<Entry>),
    Load(Arc<Entry>),
    Unload(Arc<Entry>),
    Answer(oneshot::Sender<Given>, Given),
}

impl Models {
    pub(super) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an event to the machine and carries out the effects. It never waits.
    pub(super) fn step(self: &Arc<Models>, event: Event) {
        let mut shared = self.shared();
        if let Event::GaveUp(_, waiter) = event {
            shared.waiters.remove(&waiter);
        }
        self.carry_out(shared, event);
    }

    /// Passes a request to the machine.
    fn ask(self: &Arc<Models>, entry: &Arc<Entry>, event: fn(Id, Waiter) -> Event) -> Asked {
        let (to, answer) = oneshot::channel();
        let mut shared = self.shared();
        let waiter = shared.next;
        shared.next += 1;
        shared.waiters.insert(waiter, (entry.clone(), to));
        self.carry_out(shared, event(entry.id, waiter));
        Asked { models: self.clone(), id: entry.id, waiter, answer }
    }

    fn carry_out(self: &Arc<Models>, mut shared: MutexGuard<'_, Shared>, event: Event) {
        let may_release = !matches!(event, Event::Look);
        let mut actions = Vec::new();
        for effect in shared.machine.step(event, Instant::now()) {
            actions.extend(self.action(&mut shared, effect));
        }
        drop(shared);
        for action in actions {
            match action {
                Action::Measure(entry) => self.measure(entry),
                Action::Load(entry) => self.load(entry),
                Action::Unload(entry) => self.unload(entry),
                // A lease for a client that has gone ends here.
                Action::Answer(to, given) => drop(to.send(given)),
            }
        }
        if may_release {
            self.common.released.notify_waiters();
        }
    }

    fn action(self: &Arc<Models>, shared: &mut Shared, effect: Effect) -> Option<Action> {
        let entry = |id: Id| shared.entries.get(&id).cloned();
        match effect {
            Effect::Measure(id) => entry(id).map(Action::Measure),
            Effect::Load(id) => entry(id).map(Action::Load),
            Effect::Unload(id) => entry(id).map(Action::Unload),
            Effect::Answer(waiter, answer) => {
                let (entry, to) = shared.waiters.remove(&waiter)?;
                let given = match answer {
                    Answer::Leased => Ok(Some(Lease { models: self.clone(), id: entry.id })),
                    Answer::Unloaded => Ok(None),
                    Answer::CannotLoad(why) => Err(cannot_load(entry.app.name(), &why)),
                    Answer::Later(why, again) => Err(refused(&why, again)),
                    Answer::Removed => Err(removed(entry.app.name())),
                };
                Some(Action::Answer(to, given))
            }
            Effect::Again(id, why, wait) => {
                let entry = entry(id)?;
                tracing::error!(
                    model = entry.app.name(),
                    "{why}; it is loaded again in {wait:.1?}"
                );
                None
            }
            Effect::Reloaded(id) => {
                entry(id)?.app.metrics.reloaded();
                None
            }
            Effect::Slow(slow) => {
                let entry = entry(slow.id)?;
                tracing::warn!(
                    model = entry.app.name(),
                    state = slow.what.word(),
                    seconds = slow.time.as_secs(),
                    requests = slow.requests,
                    "a model is slow to load or to leave"
                );
                None
            }
        }
    }

    fn measure(self: &Arc<Models>, entry: Arc<Entry>) {
        let (models, id) = (self.clone(), entry.id);
        let work = move || {
            let bytes = caught(|| entry.source.bytes());
            models.step(Event::Measured(id, bytes));
        };
        if let Err(why) = thread(work) {
            self.step(Event::Measured(id, Err(why)));
        }
    }

    fn load(self: &Arc<Models>, entry: Arc<Entry>) {
        let (models, id) = (self.clone(), entry.id);
        let work = move || {
            let name = entry.app.name();
            let begin = Instant::now();
            let loaded = caught(|| match models.common.check_running() {
                Ok(()) => entry.source.load(),
                Err(_) => Err("the server is shutting down".to_owned()),
            });
            let loaded = loaded.map(|model| {
                *entry.mending() = Mending::new(models.common.options.reload_wait);
                entry.app.ready(model);
            });
            match &loaded {
                Ok(()) => {
                    tracing::info!(model = name, seconds = begin.elapsed().as_secs_f64(), "loaded");
                }
                Err(why) => tracing::error!(model = name, "not loaded: {why}"),
            }
            models.step(Event::Loaded(id, loaded));
        };
        if let Err(why) = thread(work) {
            self.step(Event::Loaded(id, Err(why)));
        }
    }

    fn unload(self: &Arc<Models>, entry: Arc<Entry>) {
        let work = {
            let (models, entry) = (self.clone(), entry.clone());
            // Threads are joined and memory is given back.
            move || {
                let _ = caught(|| {
                    if let Some(model) = entry.app.unload() {
                        model.end(None);
                    }
                    Ok(())
                });
                tracing::info!(model = entry.app.name(), "unloaded");
                models.step(Event::Unloaded(entry.id));
            }
        };
        // Without a thread it is done here: memory is never kept for that.
        if thread(work.clone()).is_err() {
            work();
        }
    }

    /// Has a model loaded for a request, which waits for that at most until `deadline`. The load goes on if the request
    /// does not wait.
    ///
    /// # Errors
    /// When it cannot be loaded, is not in time, or the server is about to end.
    pub(super) async fn lease(
        self: &Arc<Models>,
        entry: &Arc<Entry>,
        deadline: Option<Instant>,
    ) -> Result<Lease, Fault> {
        self.common.check_running()?;
        let asked = self.ask(entry, Event::Lease);
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        let given = tokio::select! {
            biased;
            given = asked.answer() => given?,
            () = late => {
                let message = format!("{:?} was not loaded in time", entry.app.name());
                return Err(Fault::unavailable(message).code("loading"));
            }
        };
        self.common.check_running()?;
        given.ok_or_else(|| Fault::internal("the model was unloaded instead"))
    }

    /// Unloads a model when its requests have ended, also if the caller does not wait for that. One that is being
    /// loaded is unloaded when that has ended and the requests that waited for it have been answered.
    ///
    /// # Errors
    /// When it is pinned.
    pub(super) async fn release(self: &Arc<Models>, entry: &Arc<Entry>) -> Result<(), Fault> {
        if entry.pinned {
            let message = format!("{:?} is pinned: it stays loaded", entry.app.name());
            return Err(Fault::field("model", message).code("pinned"));
        }
        self.ask(entry, Event::Unload).answer().await.map(drop)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Arc<Entry>>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a model on the list, in the place of one of the same name, which is removed and leaves memory.
    pub(super) fn replace(self: &Arc<Models>, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let mut list = self.write();
        let before = list.iter_mut().find(|one| one.app.name() == entry.app.name());
        let before = match before {
            Some(before) => Some(std::mem::replace(before, entry)),
            None => {
                list.push(entry);
                None
            }
        };
        drop(list);
        if let Some(before) = &before {
            self.step(Event::Remove(before.id));
        }
        before
    }

    /// Takes a model off the list: it takes no more requests, and leaves memory. Gives its place in the list.
    pub(super) fn take_away(self: &Arc<Models>, entry: &Arc<Entry>) -> Option<usize> {
        let mut list = self.write();
        let at = list.iter().position(|one| Arc::ptr_eq(one, entry))?;
        list.remove(at);
        drop(list);
        self.step(Event::Remove(entry.id));
        Some(at)
    }

    /// Puts a model that was taken away back to its place.
    pub(super) fn put_back(self: &Arc<Models>, entry: &Arc<Entry>, at: usize) {
        self.step(Event::Restore(entry.id));
        let mut list = self.write();
        let at = at.min(list.len());
        list.insert(at, entry.clone());
    }

    /// Drops a model that was taken away and is out of memory.
    pub(super) fn forget(&self, entry: &Arc<Entry>) {
        let mut shared = self.shared();
        shared.machine.forget(entry.id);
        shared.entries.remove(&entry.id);
    }

    /// A model at this moment.
    pub(super) fn view(&self, entry: &Entry) -> View {
        let (shared, now) = (self.shared(), Instant::now());
        let Some(state) = shared.machine.get(entry.id) else {
            return View {
                phase: Phase::Unloaded(None),
                failure: None,
                bytes: 0,
                idle: Duration::ZERO,
                expires: None,
                asked: now,
            };
        };
        let mut view = View {
            phase: state.phase.clone(),
            failure: state.failed.clone(),
            bytes: state.bytes,
            idle: state.idle_time(now),
            expires: state.expires(now),
            asked: state.asked,
        };
        drop(shared);
        view.failure = view.failure.or_else(|| entry.app.failure());
        view
    }

    /// Whether a model is in memory.
    pub(super) fn is_loaded(&self, entry: &Entry) -> bool {
        self.view(entry).phase.is_loaded()
    }

    /// Sets for how long a model stays without requests; `None`: for ever.
    pub(super) fn stay(&self, entry: &Entry, idle: Option<Duration>) {
        self.shared().machine.stay(entry.id, idle);
    }

    /// Sets the same if the configuration has changed.
    pub(super) fn configure(&self, entry: &Entry, idle: Option<Duration>) {
        self.shared().machine.configure(entry.id, idle);
    }

    /// The loaded model that was asked for last; the first if none is loaded.
    pub(super) fn last_asked(&self) -> Option<Arc<Entry>> {
        let entries = self.entries();
        let views = entries.iter().map(|entry| (entry, self.view(entry)));
        let loaded = views.filter(|(_, view)| view.phase.is_loaded());
        let last = loaded.max_by_key(|(_, view)| view.asked).map(|(entry, _)| entry);
        last.or(entries.first()).cloned()
    }

    /// Loads what is pinned and calls `ready`, then has failed models loaded again and idle ones unloaded, until it is
    /// dropped. It waits for no model.
    ///
    /// # Errors
    /// When a pinned model cannot be loaded.
    pub async fn run(self: &Arc<Models>, ready: impl FnOnce()) -> Result<Infallible, Fault> {
        for entry in self.entries().iter().filter(|entry| entry.pinned) {
            drop(self.lease(entry, None).await?);
        }
        ready();
        loop {
            tokio::time::sleep(LOOK).await;
            for entry in &self.entries() {
                let Ok(model) = entry.app.model() else { continue };
                if self.view(entry).phase == Phase::Loaded {
                    entry.app.mend(&mut entry.mending(), &model);
                }
                if let Some(why) = model.fatal() {
                    self.step(Event::Failed(entry.id, why));
                }
            }
            if self.common.check_running().is_ok() {
                self.step(Event::Look);
            }
        }
    }
}

/// Runs what takes long on a thread of its own: those for requests' work are few.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (done, result) = oneshot::channel();
    thread(move || drop(done.send(caught(work))))?;
    result.await.unwrap_or_else(|_| Err("its thread has ended".to_owned()))
}

fn thread(work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let spawned = thread::Builder::new().name("models".to_owned()).spawn(work);
    spawned.map(drop).map_err(|e| format!("no thread for it: {e}"))
}

/// A panic as an error: the end of the work is reported in any case.
fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("the thread for it has panicked".to_owned()))
}

fn cannot_load(name: &str, why: &str) -> Fault {
    let message = format!("{name:?} cannot be loaded: {why}");
    Fault::new(StatusCode::SERVICE_UNAVAILABLE, message).code("load_failed")
}

pub(super) fn removed(name: &str) -> Fault {
    let message = format!("the model {name:?} was deleted");
    Fault {
        status: StatusCode::NOT_FOUND,
        ..Fault::field("model", message).code("model_not_found")
    }
}
