//! What is told of all models together, and loading by hand.

use super::lifecycle::Entry;
use super::machine::Phase;
use super::shapes::{Changed, Named};
use super::{Models, machine};
use crate::blocking::blocking;
use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::metrics;
use crate::ollama;
use crate::openai::models::{Model, Models as ModelList, Status};
use crate::operate::{self, Health, Slow};
use crate::status::{ModelView, Views};
use axum::Json as JsonBody;
use axum::extract::{FromRequest, State};
use axum::response::Response;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

fn described(models: &Models, entry: &Entry, name: &str) -> Model {
    let view = models.view(entry);
    let (value, error) = match (&view.phase, view.failure) {
        (Phase::Loaded, Some(why)) => ("failed", Some(why)),
        (Phase::Unloaded(why), _) => (view.phase.word(), why.clone()),
        (_, failure) => (view.phase.word(), failure),
    };
    Model::of(&entry.app, name).with(Status { value, error })
}

/// `GET /v1/models`: every name of every model, and how far it is.
pub(super) fn models(models: &Models) -> ModelList {
    let each = |entry: &Arc<Entry>| {
        entry.app.all_names().map(|name| described(models, entry, name)).collect::<Vec<_>>()
    };
    ModelList::new(models.entries().iter().flat_map(each).collect())
}

/// `GET /v1/models/{name}`.
pub(super) fn one(models: &Models, name: &str) -> Result<Model, Fault> {
    let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
    Ok(described(models, &*models.meant(Some(&name))?, &name))
}

/// `GET /api/tags`. Files that cannot be read are left out.
pub(super) async fn tags(models: Arc<Models>) -> ollama::Models {
    // Files are opened.
    let read = blocking("the models could not be looked at", move || {
        let each = |entry: &Arc<Entry>| {
            let info = entry.info().ok()?;
            let tags = entry.app.options.names.iter();
            Some(tags.map(|name| ollama::Tag::of_file(name, info)).collect::<Vec<_>>())
        };
        models.entries().iter().filter_map(each).flatten().collect()
    });
    ollama::Models::new(read.await.unwrap_or_default())
}

/// `POST /api/show`: what the file says of itself, whether the model is loaded or not.
pub(super) async fn show(
    models: Arc<Models>,
    request: axum::extract::Request,
) -> Result<JsonBody<ollama::Shown>, Fault> {
    let client = request.extensions().get::<Client>().copied().unwrap_or_default();
    let body = Body::from_request(request, models.common()).await?;
    let name = body.json::<ollama::ShowBody>().await?.name()?;
    let entry = models.meant(Some(&name))?;
    if let Some(key) = models.common().options.keys.of(client.0) {
        key.check([&*name, entry.app.name()].into_iter())?;
    }
    // Files are opened, and a vocabulary is read.
    let read = blocking("the model could not be looked at", move || {
        let (info, abilities) = (entry.info()?, entry.abilities()?);
        Ok(ollama::Shown::of(&entry.app, &name, info, abilities))
    });
    read.await?.map(JsonBody).map_err(|why: String| Fault::unavailable(why).code("load_failed"))
}

/// `GET /api/ps`.
pub(super) fn loaded(models: &Models) -> ollama::Models {
    let each = |entry: &Arc<Entry>| {
        let view = models.view(entry);
        let model = entry.app.model().ok().filter(|_| view.phase.is_loaded())?;
        let expires = view.expires.and_then(|at| {
            SystemTime::now().checked_add(at.saturating_duration_since(Instant::now()))
        });
        Some(ollama::Tag::of_loaded(entry.app.name(), &model, expires))
    };
    ollama::Models::new(models.entries().iter().filter_map(each).collect())
}

/// `GET /health`: 503 until the pinned models are loaded, and when one of them has no replica that works. Of others
/// those that have failed are named.
pub(super) fn health(models: &Models) -> Result<Health, Fault> {
    models.common().check_running()?;
    let mut all = Health::default();
    for entry in &models.entries() {
        match (models.view(entry).failure, entry.app.model()) {
            (Some(why), _) if entry.pinned => {
                return Err(Fault::unavailable(why).code("replica_failed"));
            }
            (Some(_), _) => all.lacks(entry.app.name()),
            (None, Ok(model)) => all.add(&operate::of(&model)?),
            (None, Err(fault)) if entry.pinned => return Err(fault),
            (None, Err(_)) => {}
        }
    }
    all.slow = models.slow(Instant::now());
    Ok(all)
}

/// Every model, for `/status.json`.
pub(super) fn views(models: &Models) -> Views {
    let slow = models.slow(Instant::now());
    let each = |entry: &Arc<Entry>| {
        let view = models.view(entry);
        let load = entry.app.model().ok().and_then(|model| operate::of(&model).ok());
        let failed = view.failure.is_some() && view.phase == Phase::Loaded;
        ModelView {
            name: entry.app.name().to_owned(),
            state: if failed { "failed" } else { view.phase.word() },
            idle_seconds: view.phase.is_loaded().then_some(view.idle.as_secs()),
            error: match view.phase {
                Phase::Unloaded(why) => why,
                _ => view.failure,
            },
            pinned: entry.pinned,
            running: load.as_ref().map_or(0, Health::running),
            waiting: load.as_ref().map_or(0, Health::waiting),
            bytes: view.bytes,
            slow: slow.iter().find(|slow| slow.model == entry.app.name()).cloned(),
        }
    };
    Views(models.entries().iter().map(each).collect())
}

/// `GET /metrics`.
pub(super) fn metrics(models: &Models) -> Response {
    let entries = models.entries();
    let each = entries.iter().map(|entry| {
        let app = &entry.app;
        app.metrics.families(
            app.name(),
            app.model().ok().as_deref(),
            models.view(entry).failure.is_some(),
        )
    });
    let common = models.common();
    let server = common.options.keys.families().into_iter().chain(common.statuses.families());
    metrics::respond(each.flatten().chain(server).collect())
}

/// `POST /models/load`: returns when it is loaded. The load goes on if the client does not wait.
pub(super) async fn load(
    State(models): State<Arc<Models>>,
    request: axum::extract::Request,
) -> Result<JsonBody<Changed>, Fault> {
    let entry = named(&models, request).await?;
    let time = models.common().now().request_timeout;
    drop(models.lease(&entry, time.map(|time| Instant::now() + time)).await?);
    Ok(JsonBody(Changed { success: true }))
}

/// `POST /models/unload`: returns when its requests have ended and it is out of memory, where it goes also if the client
/// does not wait.
pub(super) async fn unload(
    State(models): State<Arc<Models>>,
    request: axum::extract::Request,
) -> Result<JsonBody<Changed>, Fault> {
    let entry = named(&models, request).await?;
    models.release(&entry).await?;
    Ok(JsonBody(Changed { success: true }))
}

async fn named(models: &Models, request: axum::extract::Request) -> Result<Arc<Entry>, Fault> {
    let body = Body::from_request(request, models.common()).await?;
    let Named { model } = body.json().await?;
    models.meant(Some(&model))
}

impl Models {
    /// Models whose loading or leaving takes long.
    fn slow(&self, now: Instant) -> Vec<Slow> {
        let shared = self.shared();
        let each = |slow: machine::Slow| {
            Some(Slow {
                model: shared.machine.get(slow.id)?.name.clone(),
                state: slow.what.word(),
                seconds: slow.time.as_secs(),
                requests: slow.requests,
            })
        };
        shared.machine.slow(now).into_iter().filter_map(each).collect()
    }
}
