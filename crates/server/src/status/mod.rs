//! `GET /status.json`: what the server and its machine do at this moment, and why they are not faster.
//!
//! Figures are the engine's counts. Rates are differences between two looks, so there are none at the first; the
//! server takes no looks of its own. What cannot be known is absent, and `unknown` says why.

mod causes;
mod health;
mod limits;
mod rates;
mod readiness;
mod recent;
mod shape;

pub(crate) use recent::{Recent, Served};
pub(crate) use shape::{ModelView, Status, Views};

use crate::fault::Fault;
use crate::state::{App, Model};
use arclight_engine::Engine;
use axum::Json as JsonBody;
use axum::extract::State;
use axum::http::Extensions;
use health::Health;
use limits::Limits;
use rates::Looks;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use topology::Machine;
use why::server::Readiness;

/// Measures what the memory beside each group of an engine's threads can deliver, in bytes per second; the text says
/// why that cannot be measured.
pub type MeasureReads = fn(&mut Engine) -> Result<Vec<f64>, String>;

/// What is remembered between two requests for the status.
#[derive(Default)]
pub(crate) struct Watcher {
    machine: OnceLock<Result<Machine, String>>,
    looks: Mutex<Looks>,
    health: Mutex<Health>,
    limits: Arc<Limits>,
}

impl Watcher {
    /// The machine, which is described once.
    fn machine(&self) -> Result<&Machine, &str> {
        let machine = self.machine.get_or_init(|| Machine::read().map_err(|e| e.to_string()));
        machine.as_ref().map_err(String::as_str)
    }
}

/// The endpoint.
pub(crate) async fn status(
    State(app): State<Arc<App>>,
    told: Extensions,
) -> Result<JsonBody<Status>, Fault> {
    let models = told.get::<Views>().cloned();
    // It reads files of the kernel.
    let status = tokio::task::spawn_blocking(move || of(&app, models)).await;
    status.map(JsonBody).map_err(|_| Fault::internal("the status could not be found out"))
}

fn of(app: &App, models: Option<Views>) -> Status {
    let own = models.as_ref().and_then(|Views(all)| all.iter().find(|one| one.name == app.name()));
    let (model, phase) = match app.model() {
        Ok(model) => (Some(model), Readiness::Ready),
        Err(fault) => (None, readiness::of(&fault, own)),
    };
    let watcher = &app.status;
    if let (Some(model), Some(measure)) = (&model, app.options.measure_reads) {
        watcher.limits.ask(&model.replicas, measure);
    }
    let checks = match watcher.machine() {
        Ok(machine) => lock(&watcher.health).checks(machine),
        Err(_) => Vec::new(),
    };
    let loaded = model.as_deref().map(|model: &Model| {
        let now = rates::Look::take(&model.replicas);
        let before = lock(&watcher.looks).before(&now);
        (model, now, before)
    });
    shape::status(app, phase, loaded, checks, models)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
