//! `POST /v1/embeddings`.

use super::completions::texts;
use super::shapes;
use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::normal::{self, EmbedRequest};
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::sync::Arc;

/// Texts of one request, as OpenAI has it.
const MOST: usize = 2048;

/// Texts to give as vectors.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "EmbeddingRequest")]
pub(crate) struct EmbedBody {
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// A text, several, tokens, or several lists of them.
    #[schemars(with = "shapes::Texts")]
    input: Option<Json>,
    /// Numbers, or the same as f32, little-endian, in base64.
    #[schemars(extend("default" = "float"))]
    encoding_format: Option<Encoding>,
    /// Keep the first values of each vector.
    #[schemars(range(min = 1))]
    dimensions: Option<usize>,
}

/// How a vector is written.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Encoding {
    /// A list of numbers.
    #[default]
    Float,
    /// Its values as f32, little-endian, in base64: the default of OpenAI's clients.
    Base64,
}

#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Item {
    #[schemars(extend("const" = "embedding"))]
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Embeddings")]
pub(crate) struct List {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<Item>,
    model: String,
    usage: PromptUsage,
}

/// Tokens of a request that no tokens answer.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct PromptUsage {
    pub(crate) prompt_tokens: usize,
    pub(crate) total_tokens: usize,
}

/// The endpoint.
pub(crate) async fn embeddings(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<List>, Fault> {
    let fields: EmbedBody = body.json().await?;
    app.check_name(fields.model.as_deref())?;
    let texts = texts(fields.input, "input")?;
    if texts.len() > MOST {
        let message = format!("input has {} texts, and {MOST} are allowed", texts.len());
        return Err(Fault::field("input", message));
    }
    let (model, dimensions) = (app.shown(fields.model.as_deref()), fields.dimensions);
    let adapters = app.adapters(fields.model.as_deref(), None)?;
    let request =
        EmbedRequest { texts, dimensions, adapters, truncate: false, room: body.into_room() };
    let found = normal::embed(&app, client, request).await?;
    let encoding = fields.encoding_format.unwrap_or_default();
    let data = found.vectors.into_iter().enumerate().map(|(index, vector)| {
        let embedding = match encoding {
            Encoding::Float => Vector::Float(vector),
            Encoding::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                Vector::Base64(STANDARD.encode(bytes))
            }
        };
        Item { object: "embedding", index, embedding }
    });
    let usage = PromptUsage { prompt_tokens: found.tokens, total_tokens: found.tokens };
    Ok(JsonBody(List { object: "list", data: data.collect(), model, usage }))
}
