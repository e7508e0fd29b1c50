//! For those who run the server: is it well, and how busy is it.

use crate::fault::Fault;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;

/// `GET /health`: 200 when requests are served; 503 while the model is being loaded, when the server is
/// about to end, and when every replica has failed.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Result<Response, Fault> {
    let model = app.model()?;
    let status = model.replicas.status();
    if let Some(failure) = status.iter().find_map(|s| s.failure.as_deref())
        && status.iter().all(|s| s.failure.is_some())
    {
        return Err(Fault::unavailable(failure).code("replica_failed"));
    }
    let sum =
        |of: fn(&arclight_engine::ReplicaStatus) -> usize| status.iter().map(of).sum::<usize>();
    Ok(JsonBody(json!({
        "status": "ok",
        "running": sum(|s| s.running),
        "waiting": sum(|s| s.waiting),
    }))
    .into_response())
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let model = app.model().ok();
    let text = app.metrics.text(app.name(), model.as_deref());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
