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
    /// Tokens of the context; null while the model is not loaded.
    max_model_len: Option<usize>,
    /// Where the server has several models: how far this one is. Of a single one, if it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

/// How far a model is.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ModelStatus")]
pub(crate) struct Status {
    #[schemars(extend("enum" = ["unloaded", "loading", "loaded", "unloading", "failed"]))]
    pub(crate) value: &'static str,
    /// Why it could not be loaded, or does not work any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Models {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<Model>,
}

impl Models {
    pub(crate) fn new(data: Vec<Model>) -> Models {
        Models { object: "list", data }
    }
}

/// All names of the model, and its adapters.
pub(crate) async fn list(State(app): State<Arc<App>>) -> JsonBody<Models> {
    JsonBody(Models::new(app.all_names().map(|name| Model::of(&app, name)).collect()))
}

/// One of them. Names may have slashes.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Named(name): Named,
) -> Result<JsonBody<Model>, Fault> {
    app.check_name(Some(&name))?;
    Ok(JsonBody(Model::of(&app, &name)))
}

impl Model {
    /// A model, or an adapter, that an app has under a name.
    pub(crate) fn of(app: &App, name: &str) -> Model {
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
            status: app.failure().map(|why| Status { value: "failed", error: Some(why) }),
        }
    }

    pub(crate) fn with(self, status: Status) -> Model {
        Model { status: Some(status), ..self }
    }
}
