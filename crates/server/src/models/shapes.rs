//! Bodies of requests that load, make and remove models, and of their answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// A model to bring.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaPull")]
pub(crate) struct PullBody {
    /// OWNER/REPO, OWNER/REPO:QUANT, OWNER/REPO:FILE or a short name.
    #[schemars(required, length(min = 1))]
    pub(super) model: Option<String>,
    /// The older name of `model`.
    pub(super) name: Option<String>,
    /// Tell how far it is.
    #[schemars(extend("default" = true))]
    pub(super) stream: Option<bool>,
}

/// A model to make of another.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaCreate")]
pub(crate) struct CreateBody {
    /// What it is called.
    #[schemars(required, length(min = 1))]
    pub(super) model: Option<String>,
    /// The older name of `model`.
    pub(super) name: Option<String>,
    /// The model that it is made from: one that the server has.
    #[schemars(required, length(min = 1))]
    pub(super) from: Option<String>,
    /// What the model is told before a conversation.
    pub(super) system: Option<String>,
    /// Its chat template, in Jinja.
    pub(super) template: Option<String>,
    /// How tokens are chosen where a request does not say.
    #[schemars(with = "Option<Map<String, Json>>")]
    pub(super) parameters: Option<Map<String, Json>>,
    /// A text, or several.
    pub(super) license: Option<Json>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    pub(super) files: Option<Json>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    pub(super) adapters: Option<Json>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    pub(super) messages: Option<Json>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    pub(super) quantize: Option<Json>,
    /// Not supported: use the other fields.
    #[schemars(with = "Option<()>")]
    pub(super) modelfile: Option<Json>,
    /// Tell how far it is.
    #[schemars(extend("default" = true))]
    pub(super) stream: Option<bool>,
}

/// A model, and the name that it gets.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaCopy")]
pub(crate) struct CopyBody {
    /// The model's name.
    pub(super) source: String,
    /// Its other name.
    pub(super) destination: String,
}

/// The model to remove.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaDelete")]
pub(crate) struct DeleteBody {
    /// One of its names.
    #[schemars(required, length(min = 1))]
    pub(super) model: Option<String>,
    /// The older name of `model`.
    pub(super) name: Option<String>,
}

/// The end of a pull, or of making a model.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaProgress")]
pub(crate) struct Progress {
    /// What happens now; `success` at the end.
    pub(super) status: String,
}

/// The model to load or to unload.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ModelName")]
pub(crate) struct Named {
    /// One of its names.
    pub(super) model: String,
}

/// It was done.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelChanged")]
pub(crate) struct Changed {
    #[schemars(extend("const" = true))]
    pub(super) success: bool,
}
