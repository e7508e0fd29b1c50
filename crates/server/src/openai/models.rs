//! `GET /v1/models` and `GET /v1/models/{id}`.

use crate::fault::Fault;
use crate::http::Named;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

#[derive(Serialize, JsonSchema)]
pub(crate) struct Model {
    id: String,
    #[schemars(extend("const" = "model"))]
    object: &'static str,
    /// When the server was started, in seconds since 1970.
    created: u64,
    owned_by: &'static str,
    /// An adapter's model.
    parent: Option<String>,
    /// Tokens of the context; null while the model is being loaded.
    max_model_len: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Models {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<Model>,
}

/// All names of the model, and its adapters.
pub(crate) async fn list(State(app): State<Arc<App>>) -> JsonBody<Models> {
    let adapters = app.options.adapters.iter().map(|one| &one.name);
    let names = app.options.names.iter().chain(adapters);
    let data = names.map(|name| model(&app, name)).collect();
    JsonBody(Models { object: "list", data })
}

/// One of them. Names may have slashes.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Named(name): Named,
) -> Result<JsonBody<Model>, Fault> {
    app.check_name(Some(&name))?;
    Ok(JsonBody(model(&app, &name)))
}

fn model(app: &App, name: &str) -> Model {
    let loaded = app.model().ok();
    // As vLLM has it, an adapter's parent is its model.
    let parent = app.adapter(Some(name)).map(|_| app.name().to_owned());
    Model {
        id: name.to_owned(),
        object: "model",
        created: app.started,
        owned_by: "arclight",
        parent,
        max_model_len: loaded.as_ref().map(|model| model.replicas.context()),
    }
}
