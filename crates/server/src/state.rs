//! What all requests share: options, figures and, once it is loaded, the model.

use crate::fault::Fault;
use crate::hold::{Hold, Owner};
use crate::http::{Bodies, Statuses};
use crate::metrics::Metrics;
use crate::model::Model;
use crate::options::Options;
use crate::page::Token;
use crate::responses::Store;
use crate::stamp;
use crate::status::Watcher;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;
use tokio::sync::Notify;

/// How far the server is.
enum Phase {
    Loading,
    Ready(Owner<Model>),
    /// It has failed, why, and when it is loaded again.
    Failed(String, Instant),
    /// What runs still needs the model, if it was there already.
    Stopping {
        model: Option<Owner<Model>>,
    },
}

/// What can change while the server runs.
struct Now {
    options: Arc<Options>,
    /// Requests that may wait, if it was changed.
    queue: Option<Option<usize>>,
}

impl Now {
    fn new(options: &Options) -> RwLock<Now> {
        let options = Arc::new(options.clone());
        RwLock::new(Now { options, queue: None })
    }
}

/// What all requests share.
pub struct App {
    /// As the server was started.
    pub(crate) options: Options,
    now: RwLock<Now>,
    pub(crate) metrics: Arc<Metrics>,
    /// Statuses of all requests; of several models, those of the server alone.
    pub(crate) statuses: Statuses,
    /// When the server was started, in seconds since 1970.
    pub(crate) started: u64,
    /// Responses that can be gone on from.
    pub(crate) responses: Arc<Store>,
    /// What is remembered for `/status.json`.
    pub(crate) status: Watcher,
    /// Is notified when answers have ended or left a queue, and when models have been loaded or unloaded; one for all
    /// models.
    pub(crate) released: Arc<Notify>,
    /// Room for bodies, of all models.
    pub(crate) bodies: Arc<Bodies>,
    /// What the page has that other pages have not.
    pub(crate) token: Token,
    phase: RwLock<Phase>,
}

impl App {
    /// A server's state before its model is there.
    pub fn new(options: Options) -> App {
        App {
            bodies: Arc::new(Bodies::new(Bodies::units(options.body_limit, options.memory))),
            now: Now::new(&options),
            options,
            metrics: Arc::new(Metrics::default()),
            statuses: Statuses::default(),
            started: stamp::now(),
            responses: Arc::default(),
            released: Arc::default(),
            token: Token::random(),
            status: Watcher::default(),
            phase: RwLock::new(Phase::Loading),
        }
    }

    /// The state of another model of the same server.
    pub(crate) fn beside(&self, options: Options) -> App {
        App {
            now: Now::new(&options),
            options,
            metrics: Arc::new(Metrics::default()),
            statuses: Statuses::default(),
            started: self.started,
            responses: self.responses.clone(),
            released: self.released.clone(),
            bodies: self.bodies.clone(),
            token: self.token.clone(),
            status: Watcher::default(),
            phase: RwLock::new(Phase::Loading),
        }
    }

    /// Hands over the model: requests are served from now on, unless the server is about to end.
    pub fn ready(&self, model: Model) {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*phase, Phase::Loading | Phase::Failed(..)) {
            if let Some(queue) = self.changing().queue {
                model.replicas.set_queue(queue);
            }
            let released = self.released.clone();
            model.replicas.on_release(move || released.notify_waiters());
            *phase = Phase::Ready(Owner::new(model));
        }
        drop(phase);
        self.released.notify_waiters();
    }

    fn changing(&self) -> std::sync::RwLockReadGuard<'_, Now> {
        self.now.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The options as they are at this moment.
    pub(crate) fn now(&self) -> Arc<Options> {
        self.changing().options.clone()
    }

    /// Takes other limits, times and defaults of sampling for requests to come, and lets so many wait. Names, adapters,
    /// keys, origins, hosts and the folder of slots stay as they are.
    pub fn change(&self, options: Options, queue: Option<usize>) {
        let own = self.options.clone();
        let options = Options {
            names: own.names,
            adapters: own.adapters,
            keys: own.keys,
            origins: own.origins,
            hosts: own.hosts,
            slot_saves: own.slot_saves,
            measure_reads: own.measure_reads,
            ping: own.ping,
            memory: own.memory,
            ..options
        };
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        self.bodies.grow(Bodies::units(options.body_limit, options.memory));
        (now.options, now.queue) = (Arc::new(options), Some(queue));
        drop(now);
        if let Ok(model) = self.model() {
            model.replicas.set_queue(queue);
        }
    }

    /// Its adapters' names, by their numbers.
    pub fn adapter_names(&self) -> Vec<String> {
        self.options.adapters.iter().map(|one| one.name.clone()).collect()
    }

    /// Connections that it has at once.
    pub fn connections(&self) -> usize {
        self.options.connections
    }

    /// Takes no more requests. The model stays until the last of them has ended.
    pub(crate) fn stop(&self) {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        let model = match std::mem::replace(&mut *phase, Phase::Stopping { model: None }) {
            Phase::Ready(model) => Some(model),
            Phase::Stopping { model } => model,
            Phase::Loading | Phase::Failed(..) => None,
        };
        *phase = Phase::Stopping { model };
    }

    /// The model of a server that was stopped.
    pub(crate) fn take_stopped(&self) -> Option<Owner<Model>> {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        match &mut *phase {
            Phase::Stopping { model } => model.take(),
            Phase::Loading | Phase::Ready(_) | Phase::Failed(..) => None,
        }
    }

    /// Takes the model away, which can be handed over again.
    pub(crate) fn unload(&self) -> Option<Owner<Model>> {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *phase, Phase::Loading) {
            Phase::Ready(model) => Some(model),
            Phase::Loading | Phase::Failed(..) => None,
            stopping @ Phase::Stopping { .. } => {
                *phase = stopping;
                None
            }
        }
    }

    /// Takes no more requests, and does not keep the model.
    pub(crate) fn forget(&self) {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *phase, Phase::Stopping { model: None });
        drop(phase);
        // The end of a model takes long.
        drop(before);
    }

    /// Tells clients from now on that the model has failed, and when it is loaded again. The model, if it was there.
    pub(crate) fn fail(&self, why: &str, again: Instant) -> Option<Owner<Model>> {
        let model = self.unload();
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*phase, Phase::Loading | Phase::Failed(..)) {
            *phase = Phase::Failed(why.to_owned(), again);
        }
        model
    }

    /// Why the model does not work, if it has failed.
    pub(crate) fn failure(&self) -> Option<String> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Ready(model) => model.failure(),
            Phase::Failed(why, _) => Some(why.clone()),
            Phase::Loading | Phase::Stopping { .. } => None,
        }
    }

    /// Whether requests are still taken.
    ///
    /// # Errors
    /// When the server is about to end.
    pub(crate) fn check_running(&self) -> Result<(), Fault> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Stopping { .. } => Err(stopping()),
            Phase::Loading | Phase::Ready(_) | Phase::Failed(..) => Ok(()),
        }
    }

    /// The model.
    ///
    /// # Errors
    /// While it is being loaded, and when the server is about to end.
    pub(crate) fn model(&self) -> Result<Hold<Model>, Fault> {
        match &*self.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Loading => Err(Fault::unavailable("the model is being loaded").code("loading")),
            Phase::Ready(model) => Ok(model.hold()),
            Phase::Failed(why, again) => Err(refused(why, *again)),
            Phase::Stopping { .. } => Err(stopping()),
        }
    }

    /// What the model and its adapters are called.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = &str> {
        let adapters = self.options.adapters.iter().map(|one| one.name.as_str());
        self.options.names.iter().map(String::as_str).chain(adapters)
    }

    /// The model's id on the wire.
    pub fn name(&self) -> &str {
        self.options.names.first().map_or("default", String::as_str)
    }

    /// Whether a request means this model, or one of its adapters; one that names none does.
    ///
    /// # Errors
    /// 404 for another name.
    pub(crate) fn check_name(&self, name: Option<&str>) -> Result<(), Fault> {
        match name {
            Some(_) if self.adapter(name).is_some() => Ok(()),
            Some(name) if !self.options.names.iter().any(|n| n == name) => Err(Fault {
                status: axum::http::StatusCode::NOT_FOUND,
                ..Fault::field(
                    "model",
                    format!("the model {name:?} does not exist: this server has {:?}", self.name()),
                )
                .code("model_not_found")
            }),
            _ => Ok(()),
        }
    }
}

/// 503: a model has failed, and is loaded again at a time.
pub(crate) fn refused(why: &str, again: Instant) -> Fault {
    let wait = again.saturating_duration_since(Instant::now()).as_secs_f64().ceil() as u32;
    let message = format!("{why}; the model is loaded again in {wait} s");
    Fault { retry_after: Some(wait.max(1)), ..Fault::unavailable(message).code("replica_failed") }
}

fn stopping() -> Fault {
    Fault::unavailable("the server is shutting down").code("stopping")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_more_when_more_is_allowed() {
        let app = App::new(Options { body_limit: 1 << 20, ..Options::default() });
        // Of several models each is told.
        let beside = app.beside(Options { body_limit: 1 << 20, ..Options::default() });
        let free = app.bodies.free();
        let change = |body_limit| {
            for app in [&app, &beside] {
                app.change(Options { body_limit, ..Options::default() }, None);
            }
        };
        change(2 << 20);
        let more = app.bodies.free();
        assert!(more > free);
        // What arrives at this moment has room already, so none is taken away.
        change(1 << 20);
        change(2 << 20);
        assert_eq!(app.bodies.free(), more);
        assert_eq!(app.now().body_limit, 2 << 20);
    }
}
