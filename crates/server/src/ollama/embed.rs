//! `POST /api/embed`: texts as vectors.

use super::options::check_model;
use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::normal::{self, EmbedRequest, TextPrompt};
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// The fields of a request. `options` and `keep_alive` are about loading, which is done.
#[derive(Debug, Deserialize)]
pub(crate) struct EmbedBody {
    model: Option<String>,
    input: Option<Input>,
    truncate: Option<bool>,
    dimensions: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    One(String),
    Several(Vec<String>),
}

#[derive(Serialize)]
struct Embedded<'a> {
    model: &'a str,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64, // ns
    load_duration: u64,  // ns
    prompt_eval_count: usize,
}

/// The endpoint.
pub(crate) async fn embed(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Fault> {
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
    let request = EmbedRequest { texts, dimensions: fields.dimensions, adapters, truncate };
    let found = normal::embed(&app, client, request).await?;
    let embedded = Embedded {
        model: name.unwrap_or(app.name()),
        embeddings: found.vectors,
        total_duration: start.elapsed().as_nanos() as u64,
        load_duration: 0,
        prompt_eval_count: found.tokens,
    };
    Ok(JsonBody(embedded).into_response())
}
