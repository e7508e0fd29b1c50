//! `POST /api/embed`: texts as vectors; and the older `/api/embeddings`, of one text.

use super::options::check_model;
use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::normal::{self, EmbedRequest, TextPrompt};
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// Texts to give as vectors.
// `options` and `keep_alive` are about loading, which is done.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaEmbed")]
pub(crate) struct EmbedBody {
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// A text, or several.
    #[schemars(required)]
    input: Option<Input>,
    /// Cut texts that are longer than the context.
    #[schemars(extend("default" = true))]
    truncate: Option<bool>,
    /// Keep the first values of each vector.
    #[schemars(range(min = 1))]
    dimensions: Option<usize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Input {
    One(String),
    Several(#[schemars(inner(length(min = 1)))] Vec<String>),
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OllamaVectors")]
pub(crate) struct Embedded {
    model: String,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64, // ns
    load_duration: u64,  // ns
    prompt_eval_count: usize,
}

/// A text to give as a vector, as older clients ask.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaEmbeddings")]
pub(crate) struct OneBody {
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// The text.
    #[schemars(required)]
    prompt: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OllamaVector")]
pub(crate) struct One {
    embedding: Vec<f32>,
}

/// `POST /api/embeddings`.
pub(crate) async fn embeddings(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<One>, Fault> {
    let fields: OneBody = body.json().await?;
    let name = fields.model.as_deref().filter(|name| !name.is_empty());
    check_model(&app, name)?;
    let prompt = fields.prompt.ok_or_else(|| Fault::field("prompt", "prompt is missing"))?;
    if prompt.is_empty() {
        // As one does to have a model loaded.
        return Ok(JsonBody(One { embedding: Vec::new() }));
    }
    let adapters = app.adapters(name, None)?;
    let texts = vec![TextPrompt::Text(prompt)];
    let room = body.into_room();
    let request = EmbedRequest { texts, dimensions: None, adapters, truncate: true, room };
    let mut found = normal::embed(&app, client, request).await?;
    Ok(JsonBody(One { embedding: found.vectors.pop().unwrap_or_default() }))
}

/// `POST /api/embed`.
pub(crate) async fn embed(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<Embedded>, Fault> {
    let start = Instant::now();
    let fields: EmbedBody = body.json().await?;
    let name = fields.model.as_deref().filter(|name| !name.is_empty());
    check_model(&app, name)?;
    let texts = match fields.input {
        None => return Err(Fault::field("input", "input is missing")),
        // As one does to have a model loaded.
        Some(Input::One(text)) if text.is_empty() => Vec::new(),
        Some(Input::One(text)) => vec![TextPrompt::Text(text)],
        Some(Input::Several(texts)) => texts.into_iter().map(TextPrompt::Text).collect(),
    };
    let truncate = fields.truncate.unwrap_or(true);
    let adapters = app.adapters(name, None)?;
    let (dimensions, room) = (fields.dimensions, body.into_room());
    let request = EmbedRequest { texts, dimensions, adapters, truncate, room };
    let found = normal::embed(&app, client, request).await?;
    Ok(JsonBody(Embedded {
        model: name.unwrap_or(app.name()).to_owned(),
        embeddings: found.vectors,
        total_duration: start.elapsed().as_nanos() as u64,
        load_duration: 0,
        prompt_eval_count: found.tokens,
    }))
}
