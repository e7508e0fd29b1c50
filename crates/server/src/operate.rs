//! Monitoring: health and figures.

use crate::fault::Fault;
use crate::metrics;
use crate::model::Model;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Requests are served.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    #[schemars(extend("const" = "ok"))]
    status: &'static str,
    /// Answers that are being given.
    running: usize,
    /// Answers that wait in the queue.
    waiting: usize,
    /// Models that have failed and are to be loaded again, where others go on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<String>,
    /// Where the server has several models: those that have been loading or leaving for longer than 120 s.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) slow: Vec<Slow>,
}

/// A model that takes long to load or to leave.
#[derive(Clone, Serialize, JsonSchema)]
#[schemars(rename = "SlowModel")]
pub(crate) struct Slow {
    pub(crate) model: String,
    /// `ending_requests`: it is to be unloaded, and its requests have not ended. `unloading`: its memory is being given
    /// back.
    #[schemars(extend("enum" = ["loading", "waiting_for_room", "ending_requests", "unloading"]))]
    pub(crate) state: &'static str,
    /// For how long it has been in this state.
    pub(crate) seconds: u64,
    /// Requests that wait for the load, or that have not ended.
    pub(crate) requests: usize,
}

impl Default for Health {
    fn default() -> Health {
        Health { status: "ok", running: 0, waiting: 0, failed: Vec::new(), slow: Vec::new() }
    }
}

impl Health {
    /// In one number.
    pub(crate) fn load(&self) -> Load {
        Load { server_load: self.running + self.waiting }
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// A model has failed.
    pub(crate) fn lacks(&mut self, name: &str) {
        self.failed.push(name.to_owned());
    }

    /// Counts what another model does.
    pub(crate) fn add(&mut self, other: &Health) {
        self.running += other.running;
        self.waiting += other.waiting;
    }
}

/// `GET /health`: 200 when requests are served; 503 while the model is being loaded, when the server is
/// about to end, and when every replica has failed.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Result<JsonBody<Health>, Fault> {
    of(&*app.model()?).map(JsonBody)
}

/// What a model does.
///
/// # Errors
/// When every replica has failed.
pub(crate) fn of(model: &Model) -> Result<Health, Fault> {
    if let Some(failure) = model.failure() {
        let code = if model.comes_back() { "stage_lost" } else { "replica_failed" };
        return Err(Fault::unavailable(failure).code(code));
    }
    let status = model.replicas.status();
    let sum =
        |of: fn(&arclight_engine::ReplicaStatus) -> usize| status.iter().map(of).sum::<usize>();
    Ok(Health { running: sum(|s| s.running), waiting: sum(|s| s.waiting), ..Health::default() })
}

/// `GET` and `HEAD /`, by which Ollama's clients and others find out whether a server is there.
pub(crate) async fn root() -> &'static str {
    "Ollama is running"
}

/// The server's own version.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerVersion")]
pub(crate) struct Version {
    version: &'static str,
}

/// `GET /version`.
pub(crate) async fn version() -> JsonBody<Version> {
    JsonBody(Version { version: env!("CARGO_PKG_VERSION") })
}

/// `GET /ping`: the same as `/health`, without words.
pub(crate) async fn ping(app: State<Arc<App>>) -> Result<(), Fault> {
    health(app).await.map(|_| ())
}

/// Requests that run and wait.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerLoad")]
pub(crate) struct Load {
    server_load: usize,
}

/// `GET /load`.
pub(crate) async fn load(app: State<Arc<App>>) -> Result<JsonBody<Load>, Fault> {
    let JsonBody(health) = health(app).await?;
    Ok(JsonBody(health.load()))
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let model = app.model().ok();
    let mut all = app.metrics.families(app.name(), model.as_deref(), app.failure().is_some());
    all.extend(app.options.keys.families());
    all.extend(app.statuses.families());
    metrics::respond(all)
}
