//! When models are loaded and unloaded.
//!
//! A request takes a [`Lease`], which loads its model if need be and keeps it loaded until the answer has been sent.
//! One model is loaded at a time. Where there is no room for it, models without requests are unloaded, the one that
//! was asked for longest ago first. If all have requests, that one takes no more of them until those that it has have
//! ended: so no model keeps another waiting for ever. Pinned ones stay.

use super::{ModelEntry, ModelSource, Models};
use crate::fault::Fault;
use crate::http::routes;
use crate::options::Options;
use crate::recover::{self, Backoff, Mending};
use crate::state::{Abilities, App, Info};
use axum::Router;
use axum::http::StatusCode;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// How often it is looked whether a model has been idle for long enough.
const LOOK: Duration = Duration::from_millis(250);

/// How far a model is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not in memory; why the last attempt to load it has failed, if it has.
    Unloaded(Option<String>),
    /// It is being loaded, or waits for room.
    Loading,
    Loaded,
    /// Its last requests end, then it is unloaded.
    Leaving,
    /// It is being taken out of memory.
    Unloading,
}

impl Phase {
    /// As clients see it, with the words of llama-server.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Phase::Unloaded(None) => "unloaded",
            Phase::Unloaded(Some(_)) => "failed",
            Phase::Loading => "loading",
            Phase::Loaded => "loaded",
            Phase::Leaving | Phase::Unloading => "unloading",
        }
    }
}

/// A model of a server.
pub(super) struct Entry {
    pub(super) app: Arc<App>,
    pub(super) router: Router,
    source: Arc<dyn ModelSource>,
    pub(super) pinned: bool,
    info: OnceLock<Result<Info, String>>,
    abilities: OnceLock<Result<Abilities, String>>,
    status: Mutex<Status>,
    changed: Notify,
}

struct Status {
    phase: Phase,
    /// How often loading has failed.
    failures: u64,
    /// Requests that have it.
    leases: usize,
    /// When it was asked for last.
    asked: Instant,
    /// When its last request ended.
    left: Instant,
    /// Bytes while it is loaded.
    bytes: u64,
    /// Time without requests after which it is unloaded.
    idle: Option<Duration>,
    /// The same by the configuration; a request may have changed it.
    configured: Option<Duration>,
    backoff: Backoff,
    mending: Mending,
    /// When it was loaded last.
    loaded: Instant,
    /// Why it has failed, until it has been loaded again.
    failed: Option<String>,
    /// When that will be.
    again: Option<Instant>,
}

impl Entry {
    pub(super) fn new(common: &App, entry: ModelEntry) -> Entry {
        let ModelEntry { options, source, pinned, idle } = entry;
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
        let now = Instant::now();
        Entry {
            router: routes().with_state(app.clone()),
            app,
            source,
            pinned,
            info: OnceLock::new(),
            abilities: OnceLock::new(),
            status: Mutex::new(Status {
                phase: Phase::Unloaded(None),
                failures: 0,
                leases: 0,
                asked: now,
                left: now,
                bytes: 0,
                idle,
                configured: idle,
                backoff: Backoff::new(common.options.reload_wait),
                mending: Mending::new(common.options.reload_wait),
                loaded: now,
                failed: None,
                again: None,
            }),
            changed: Notify::new(),
        }
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn phase(&self) -> Phase {
        self.status().phase.clone()
    }

    /// When it will be unloaded if nobody asks for it; `None` if it will not.
    pub(super) fn expires(&self) -> Option<Instant> {
        let status = self.status();
        let idle = status.idle.filter(|_| !self.pinned)?;
        let from = if status.leases > 0 { Instant::now() } else { status.left };
        from.checked_add(idle)
    }

    /// Bytes that it has in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.status().bytes
    }

    /// For how long it has had no request.
    pub(super) fn idle(&self) -> Duration {
        let status = self.status();
        if status.leases > 0 { Duration::ZERO } else { status.left.elapsed() }
    }

    /// Sets for how long it stays without requests; `None`: for ever.
    pub(super) fn stay(&self, idle: Option<Duration>) {
        self.status().idle = idle;
    }

    /// Sets the same if the configuration has changed.
    pub(super) fn configure(&self, idle: Option<Duration>) {
        let mut status = self.status();
        if status.configured != idle {
            (status.configured, status.idle) = (idle, idle);
        }
    }

    /// What its file says; read once.
    pub(super) fn info(&self) -> Result<&Info, &str> {
        self.info.get_or_init(|| self.source.info()).as_ref().map_err(String::as_str)
    }

    /// What its file says that it can do; read once.
    pub(super) fn abilities(&self) -> Result<Abilities, &str> {
        let abilities = self.abilities.get_or_init(|| self.source.abilities());
        abilities.as_ref().copied().map_err(String::as_str)
    }

    fn set(&self, phase: Phase) {
        self.status().phase = phase;
        self.changed.notify_waiters();
    }
}

/// A request's hold on a model: it stays loaded.
pub(super) struct Lease {
    models: Arc<Models>,
    entry: Arc<Entry>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut status = self.entry.status();
        status.leases -= 1;
        status.left = Instant::now();
        let last = status.leases == 0;
        drop(status);
        if last {
            self.models.freed.notify_waiters();
        }
    }
}

impl Models {
    /// Has a model loaded for a request, which waits for that at most until `deadline`.
    ///
    /// # Errors
    /// When it cannot be loaded, is not in time, or the server is about to end.
    pub(super) async fn lease(
        self: &Arc<Models>,
        entry: &Arc<Entry>,
        deadline: Option<Instant>,
    ) -> Result<Lease, Fault> {
        let failures = entry.status().failures;
        loop {
            let changed = entry.changed.notified();
            tokio::pin!(changed);
            // From here on it hears of changes.
            changed.as_mut().enable();
            self.common.check_running()?;
            let begin = {
                let mut status = entry.status();
                match &status.phase {
                    Phase::Loaded => {
                        status.leases += 1;
                        status.asked = Instant::now();
                        drop(status);
                        return Ok(Lease { models: self.clone(), entry: entry.clone() });
                    }
                    Phase::Unloaded(Some(why)) if status.failures > failures => {
                        return Err(cannot_load(entry.app.name(), why));
                    }
                    Phase::Unloaded(Some(why))
                        if let Some(again) = status.again
                            && again > Instant::now() =>
                    {
                        return Err(recover::refused(why, again));
                    }
                    Phase::Unloaded(_) => {
                        status.phase = Phase::Loading;
                        status.asked = Instant::now();
                        true
                    }
                    Phase::Loading | Phase::Leaving | Phase::Unloading => false,
                }
            };
            if begin {
                tokio::spawn(self.clone().load(entry.clone()));
            }
            let late = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = late => {
                    let message = format!("{:?} was not loaded in time", entry.app.name());
                    return Err(Fault::unavailable(message).code("loading"));
                }
            }
        }
    }

    /// Loads a model whose phase says that it is being loaded.
    async fn load(self: Arc<Models>, entry: Arc<Entry>) {
        let loaded = {
            let _alone = self.loading.lock().await;
            self.load_alone(&entry).await
        };
        match loaded {
            Ok(()) => {
                tracing::info!(model = entry.app.name(), "loaded");
                entry.set(Phase::Loaded);
            }
            Err(why) => {
                tracing::error!(model = entry.app.name(), "not loaded: {why}");
                entry.status().failures += 1;
                entry.set(Phase::Unloaded(Some(why)));
            }
        }
    }

    async fn load_alone(&self, entry: &Arc<Entry>) -> Result<(), String> {
        let source = entry.source.clone();
        let bytes = apart(move || source.bytes()).await?;
        self.make_room(bytes).await?;
        if self.common.check_running().is_err() {
            return Err("the server is shutting down".to_owned());
        }
        let (source, begin) = (entry.source.clone(), Instant::now());
        let model = apart(move || source.load()).await?;
        tracing::debug!(model = entry.app.name(), seconds = begin.elapsed().as_secs_f64(), "load");
        let mut status = entry.status();
        let now = Instant::now();
        (status.bytes, status.asked, status.left, status.loaded) = (bytes, now, now, now);
        status.mending = Mending::new(self.common.options.reload_wait);
        drop(status);
        entry.app.ready(model);
        Ok(())
    }

    /// Unloads models until there is room for one of so many bytes.
    async fn make_room(&self, bytes: u64) -> Result<(), String> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let limits = self.limits();
            let entries = self.entries();
            let loaded: Vec<&Arc<Entry>> = entries.iter().filter(|e| e.is_loaded()).collect();
            let held: u64 = loaded.iter().map(|entry| entry.status().bytes).sum();
            let fits = held.saturating_add(bytes) <= limits.bytes;
            if loaded.len() < limits.models && fits {
                return Ok(());
            }
            if loaded.is_empty() {
                return Err(format!(
                    "it needs {} of memory, and all models together may have {}",
                    gib(bytes),
                    gib(limits.bytes)
                ));
            }
            let can_go = loaded.iter().filter(|entry| !entry.pinned);
            let Some(least) = can_go.min_by_key(|entry| {
                let status = entry.status();
                // Those that go already, then those without requests; of these the one that was asked for longest ago.
                (status.phase == Phase::Loaded, status.leases > 0, status.asked)
            }) else {
                let names: Vec<&str> = loaded.iter().map(|entry| entry.app.name()).collect();
                return Err(format!(
                    "there is no room for it beside models that are pinned: {}",
                    names.join(", ")
                ));
            };
            least.leave();
            if least.begin_unloading() {
                self.unload(least).await;
            } else {
                freed.await;
            }
        }
    }

    /// Takes a model out of memory whose phase says so.
    async fn unload(&self, entry: &Arc<Entry>) {
        let model = entry.app.unload();
        // Threads are joined and memory is given back.
        let _ = apart(move || {
            model.into_iter().for_each(recover::end);
            Ok(())
        })
        .await;
        tracing::info!(model = entry.app.name(), "unloaded");
        entry.status().bytes = 0;
        entry.set(Phase::Unloaded(None));
        self.freed.notify_waiters();
    }

    /// Unloads a model when its requests have ended.
    ///
    /// # Errors
    /// When it is pinned.
    pub(super) async fn release(&self, entry: &Arc<Entry>) -> Result<(), Fault> {
        if entry.pinned {
            let message = format!("{:?} is pinned: it stays loaded", entry.app.name());
            return Err(Fault::field("model", message).code("pinned"));
        }
        entry.leave();
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            // Who makes room may do it instead.
            if entry.begin_unloading() {
                self.unload(entry).await;
            }
            if !matches!(entry.phase(), Phase::Leaving | Phase::Unloading) {
                return Ok(());
            }
            freed.await;
        }
    }

    /// Loads what is pinned and calls `ready`, then unloads what has been idle for long enough, until it is dropped.
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
                entry.mend();
                if let Some(why) = entry.has_failed() {
                    tokio::spawn(self.clone().recover(entry.clone(), why));
                    continue;
                }
                let idle = {
                    let status = entry.status();
                    let idle = status.idle.filter(|_| !entry.pinned);
                    status.phase == Phase::Loaded
                        && status.leases == 0
                        && idle.is_some_and(|idle| status.left.elapsed() >= idle)
                };
                if idle {
                    let _ = self.release(entry).await;
                }
            }
        }
    }
}

impl Models {
    /// Loads a model again whose replicas have failed, until it can be loaded, is taken away, or the server is about to
    /// end.
    async fn recover(self: Arc<Models>, entry: Arc<Entry>, mut why: String) {
        let name = entry.app.name();
        let mut worked = entry.status().loaded.elapsed();
        // Its requests have failed, too; who reads an answer slowly has it a little longer.
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if entry.begin_unloading() {
                self.unload(&entry).await;
                break;
            }
            if !matches!(entry.phase(), Phase::Leaving | Phase::Unloading) {
                break;
            }
            freed.await;
        }
        while self.common.check_running().is_ok() && self.has(&entry) {
            let again = {
                let mut status = entry.status();
                let wait = status.backoff.failed(worked);
                tracing::error!(model = name, "{why}; it is loaded again in {wait:.1?}");
                let again = Instant::now() + wait;
                status.again = Some(again);
                status.failed = Some(why.clone());
                again
            };
            entry.set(Phase::Unloaded(Some(why)));
            tokio::time::sleep_until(again.into()).await;
            if !self.has(&entry) {
                return;
            }
            match self.lease(&entry, None).await {
                Ok(_) => {
                    let mut status = entry.status();
                    (status.failed, status.again) = (None, None);
                    drop(status);
                    entry.app.metrics.reloaded();
                    return;
                }
                Err(fault) => (why, worked) = (fault.message, Duration::ZERO),
            }
        }
    }

    /// The loaded model that was asked for last; the first if none is loaded.
    pub(super) fn last_asked(&self) -> Option<Arc<Entry>> {
        let entries = self.entries();
        let loaded = entries.iter().filter(|entry| entry.is_loaded());
        loaded.max_by_key(|entry| entry.status().asked).or(entries.first()).cloned()
    }
}

impl Entry {
    /// Whether it is in memory.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(self.status().phase, Phase::Loaded | Phase::Leaving | Phase::Unloading)
    }

    /// Has replicas loaded again that have failed while others go on.
    fn mend(&self) {
        let Ok(model) = self.app.model() else { return };
        let mut status = self.status();
        if status.phase == Phase::Loaded {
            self.app.mend(&mut status.mending, &model);
        }
    }

    /// Why it has failed, if it has. Whoever hears it has to load it again.
    fn has_failed(&self) -> Option<String> {
        let why = self.app.model().ok()?.fatal()?;
        let mut status = self.status();
        if status.phase != Phase::Loaded {
            return None;
        }
        status.phase = Phase::Leaving;
        status.failed = Some(why.clone());
        Some(why)
    }

    /// Why it does not work, from its failure until it is loaded again.
    pub(super) fn failure(&self) -> Option<String> {
        let failed = self.status().failed.clone();
        failed.or_else(|| self.app.failure())
    }

    /// Takes no more requests, if it is loaded.
    fn leave(&self) {
        let mut status = self.status();
        if status.phase == Phase::Loaded {
            status.phase = Phase::Leaving;
        }
    }

    /// Whether the caller has to unload it: its last request has ended.
    fn begin_unloading(&self) -> bool {
        let mut status = self.status();
        let ends = status.phase == Phase::Leaving && status.leases == 0;
        if ends {
            status.phase = Phase::Unloading;
        }
        ends
    }
}

/// Runs on a thread of its own what takes long: those for requests' work are few.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (done, result) = oneshot::channel();
    let spawned = thread::Builder::new().name("models".to_owned()).spawn(move || {
        let _ = done.send(work());
    });
    spawned.map_err(|e| format!("no thread for it: {e}"))?;
    result.await.unwrap_or_else(|_| Err("the thread for it has panicked".to_owned()))
}

fn cannot_load(name: &str, why: &str) -> Fault {
    let message = format!("{name:?} cannot be loaded: {why}");
    Fault::new(StatusCode::SERVICE_UNAVAILABLE, message).code("load_failed")
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}
