//! Adapters: which a request has, and `GET` and `POST /lora-adapters` with the fields of llama-server.
//!
//! A request has the adapters of its field `lora`, or the one that its `model` names, or else those that the
//! server gives to all.

mod in_use;

pub use in_use::ServedAdapter;
pub(crate) use in_use::{AdaptersHeld, AdaptersInUse};

use crate::fault::Fault;
use crate::http::Body;
use crate::state::App;
use arclight_engine::Adapted;
use axum::Json as JsonBody;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::sync::Arc;

/// An adapter of a list, and its factor.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct AdapterScale {
    id: u32,
    scale: f32,
}

/// An adapter that the model was loaded with.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Adapter {
    id: usize,
    name: String,
    path: String,
    /// Its factor in requests that name no adapter.
    scale: f32,
}

/// A change was made.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Success {
    #[schemars(extend("const" = true))]
    success: bool,
}

impl App {
    /// The number of the adapter that a request's `model` names.
    pub(crate) fn adapter(&self, model: Option<&str>) -> Option<usize> {
        let model = model?;
        let known = |name: &str| self.options.adapters.iter().position(|one| one.name == name);
        // Ollama's clients give every name a tag.
        known(model).or_else(|| known(model.strip_suffix(":latest")?))
    }

    /// What the model of an answer is called: as the request does, if that is an adapter.
    pub(crate) fn shown(&self, model: Option<&str>) -> String {
        self.adapter(model).map_or(self.name(), |at| &self.options.adapters[at].name).to_owned()
    }

    /// The adapters of a request; `None`: those of all requests.
    ///
    /// # Errors
    /// When `lora` is no list of adapters that are there.
    pub(crate) fn adapters(
        &self,
        model: Option<&str>,
        lora: Option<&Json>,
    ) -> Result<Option<Vec<Adapted>>, Fault> {
        if let Some(lora) = lora.filter(|lora| !lora.is_null()) {
            return set(self, lora, "lora").map(Some);
        }
        Ok(self.adapter(model).map(|at| {
            let scale = self.options.adapters[at].scale;
            vec![Adapted { adapter: at as u32, scale }]
        }))
    }
}

/// A list of adapters, which stands in `field`.
fn set(app: &App, list: &Json, field: &str) -> Result<Vec<Adapted>, Fault> {
    let at = |index: usize, part: &str| format!("{field}[{index}]{part}");
    let wrong = || {
        let message = format!("{field} must be a list of objects with id and scale");
        Fault::field(field, message)
    };
    let mut set: Vec<Adapted> = Vec::new();
    for (index, entry) in list.as_array().ok_or_else(wrong)?.iter().enumerate() {
        let Ok(AdapterScale { id, scale }) = AdapterScale::deserialize(entry) else {
            let message = "an adapter is an object with id, a whole number, and scale, a number";
            return Err(Fault::field(at(index, ""), message));
        };
        let count = app.options.adapters.len();
        if id as usize >= count {
            let message = format!("there is no adapter {id}: this server has {count}");
            return Err(Fault::field(at(index, ".id"), message));
        }
        if set.iter().any(|one| one.adapter == id) {
            return Err(Fault::field(at(index, ".id"), format!("adapter {id} is named twice")));
        }
        if !scale.is_finite() {
            return Err(Fault::field(at(index, ".scale"), "a scale must be a finite number"));
        }
        set.push(Adapted { adapter: id, scale });
    }
    Ok(set)
}

/// `GET /lora-adapters`.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Result<JsonBody<Vec<Adapter>>, Fault> {
    let all = app.model()?.replicas.adapters();
    let one = |(id, one): (usize, &arclight_engine::AdapterUse)| Adapter {
        id,
        name: one.name.clone(),
        path: one.adapter.path().to_string_lossy().into_owned(),
        scale: one.scale,
    };
    Ok(JsonBody(all.iter().enumerate().map(one).collect()))
}

/// `POST /lora-adapters`: the factors that adapters have from now on in requests which say nothing. Those that are not
/// listed are off.
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    body: Body,
) -> Result<JsonBody<Success>, Fault> {
    let list = body.any()?;
    let model = app.model()?;
    let set = set(&app, &list, "adapters")?;
    model.replicas.set_adapter_scales(&set)?;
    Ok(JsonBody(Success { success: true }))
}
