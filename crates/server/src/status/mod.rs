//! `GET /status.json`: what the server and its machine do at this moment, and why they are not faster.
//!
//! Figures are the engine's counts. Rates are differences between two looks, so there are none at the first; the
//! server takes no looks of its own. What cannot be known is absent, and `unknown` says why.

mod causes;
mod health;
mod limits;
mod lock;
mod rates;
mod readiness;
mod recent;
mod shape;
mod watcher;

pub use limits::MeasureReads;
pub(crate) use recent::{Recent, Served};
pub(crate) use shape::{ModelView, Status, Views};
pub(crate) use watcher::Watcher;

use crate::blocking::blocking;
use crate::fault::Fault;
use crate::model::Model;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::State;
use axum::http::Extensions;
use lock::lock;
use std::sync::Arc;
use why::server::Readiness;

/// The endpoint.
pub(crate) async fn status(
    State(app): State<Arc<App>>,
    told: Extensions,
) -> Result<JsonBody<Status>, Fault> {
    let models = told.get::<Views>().cloned();
    // It reads files of the kernel.
    blocking("the status could not be found out", move || of(&app, models)).await.map(JsonBody)
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
