//! `GET /v1/models` and `GET /v1/models/{id}`.

use crate::fault::Fault;
use crate::http::Named;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::State;
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// All names of the model.
pub(crate) async fn list(State(app): State<Arc<App>>) -> JsonBody<Json> {
    let data: Vec<Json> = app.options.names.iter().map(|name| model(&app, name)).collect();
    JsonBody(json!({"object": "list", "data": data}))
}

/// One of them. Names may have slashes.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Named(name): Named,
) -> Result<JsonBody<Json>, Fault> {
    app.check_name(Some(&name))?;
    Ok(JsonBody(model(&app, &name)))
}

fn model(app: &App, name: &str) -> Json {
    let loaded = app.model().ok();
    json!({
        "id": name,
        "object": "model",
        "created": app.started,
        "owned_by": "arclight",
        "max_model_len": loaded.as_ref().map(|model| model.replicas.context()),
    })
}
