//! What a host says over HTTP that has a part of a model and takes no requests: whether it is there, and what it does.

use crate::error::Error;
use crate::http::{Background, Site, closed};
use crate::metrics::{self, count, gauge};
use crate::options::Options;
use arclight_engine::{StageState, StageStatus};
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::Arc;

/// The routes of such a host: `/health` and `/metrics`. No key is asked for.
pub struct StageSite {
    options: Arc<Options>,
    status: Arc<StageStatus>,
}

impl StageSite {
    /// For a stage; of the options, limits on connections and times, hosts and origins count.
    pub fn new(options: Options, status: Arc<StageStatus>) -> StageSite {
        StageSite { options: Arc::new(options), status }
    }
}

impl Site for StageSite {
    fn options(&self) -> Arc<Options> {
        self.options.clone()
    }

    fn router(self: Arc<Self>) -> Result<Router, Error> {
        let routes = Router::new().route("/health", get(health)).route("/metrics", get(figures));
        Ok(closed(routes, &self.options).with_state(self.status.clone()))
    }

    fn stop(&self) {}

    fn background(self: Arc<Self>) -> Option<Background> {
        None
    }
}

/// `GET /health`: 200 as long as the stage can take a front.
async fn health(State(status): State<Arc<StageStatus>>) -> Json<Value> {
    Json(json!({
        "status": "ok",
        "stage": status.stage,
        "stages": status.of,
        "layers": [status.layers.start, status.layers.end],
        "state": status.state().word(),
    }))
}

/// `GET /metrics`.
async fn figures(State(status): State<Arc<StageStatus>>) -> Response {
    let counts = status.counts();
    let serving = f64::from(status.state() == StageState::Serving);
    metrics::respond(vec![
        gauge("stage_serving", "Whether a front has this stage take steps", serving),
        gauge("stage_number", "Which stage this host is, from 1 on", status.stage as f64),
        count("stage_steps_total", "Steps", counts.steps as f64),
        count("stage_tokens_total", "Tokens in steps", counts.tokens as f64),
        count("stage_busy_seconds_total", "Time in steps", counts.busy.as_secs_f64()),
        count("stage_sent_bytes_total", "Rows sent to the stage behind", counts.sent as f64),
        count("stage_received_bytes_total", "Rows of the stage before", counts.received as f64),
        gauge("stage_kept_bytes", "Orders and rows that wait for their step", counts.kept as f64),
        gauge("stage_kept_bytes_most", "The most that these have been", counts.most_kept as f64),
        count("stage_refused_total", "Connections that were refused", counts.refused as f64),
    ])
}
