//! `GET /v1/models` and `GET /v1/models/{id}`.

use crate::fault::Fault;
use crate::http::Named;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::State;
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// All names of the model, and its adapters.
pub(crate) async fn list(State(app): State<Arc<App>>) -> JsonBody<Json> {
    let adapters = app.options.adapters.iter().map(|one| &one.name);
    let names = app.options.names.iter().chain(adapters);
    let data: Vec<Json> = names.map(|name| model(&app, name)).collect();
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
    // As vLLM has it, an adapter's parent is its model.
    let parent = app.adapter(Some(name)).map(|_| app.name());
    json!({
        "id": name,
        "object": "model",
        "created": app.started,
        "owned_by": "arclight",
        "parent": parent,
        "max_model_len": loaded.as_ref().map(|model| model.replicas.context()),
    })
}
