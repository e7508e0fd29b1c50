//! `POST /v1/embeddings`.

use super::completions::texts;
use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::normal::{self, EmbedRequest};
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::sync::Arc;

/// Texts of one request, as OpenAI has it.
const MOST: usize = 2048;

/// The fields of a request.
#[derive(Debug, Deserialize)]
pub(crate) struct EmbedBody {
    model: Option<String>,
    input: Option<Json>,
    encoding_format: Option<Encoding>,
    dimensions: Option<usize>,
}

/// How a vector is written.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    /// A list of numbers.
    #[default]
    Float,
    /// Its values as f32, little-endian, in base64: what OpenAI's clients ask for unless told otherwise.
    Base64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
struct Item {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Item>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// The endpoint.
pub(crate) async fn embeddings(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Fault> {
    let fields: EmbedBody = body.json().await?;
    app.check_name(fields.model.as_deref())?;
    let texts = texts(fields.input, "input")?;
    if texts.len() > MOST {
        let message = format!("input has {} texts, and {MOST} are allowed", texts.len());
        return Err(Fault::field("input", message));
    }
    let (model, dimensions) = (app.shown(fields.model.as_deref()), fields.dimensions);
    let adapters = app.adapters(fields.model.as_deref(), None)?;
    let request = EmbedRequest { texts, dimensions, adapters, truncate: false };
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
    let usage = Usage { prompt_tokens: found.tokens, total_tokens: found.tokens };
    let list = List { object: "list", data: data.collect(), model: &model, usage };
    Ok(JsonBody(list).into_response())
}
