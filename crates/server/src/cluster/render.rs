//! `POST /v1/chat/completions/render` and `/v1/completions/render`: the tokens that a request becomes, and nothing
//! is computed.

use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::normal;
use crate::openai::chat::{self, ChatBody};
use crate::openai::completions::{TextBody, texts};
use crate::openai::sampling::Sampling;
use crate::stamp;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// A request as tokens.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RenderedPrompt")]
pub(crate) struct Rendered {
    request_id: String,
    /// The model's name, or the adapter's.
    model: String,
    token_ids: Vec<u32>,
}

/// A conversation's.
pub(crate) async fn chat(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<Rendered>, Fault> {
    let (fields, sampling): (ChatBody, Sampling) = body.pair().await?;
    let model = app.shown(fields.model.as_deref());
    let request = chat::request(&app, client, fields, sampling)?;
    let token_ids = normal::count(&app, request).await?;
    Ok(JsonBody(Rendered { request_id: stamp::id("chatcmpl-"), model, token_ids }))
}

/// Those of texts, one by one.
pub(crate) async fn completions(
    State(app): State<Arc<App>>,
    body: Body,
) -> Result<JsonBody<Vec<Rendered>>, Fault> {
    let fields: TextBody = body.json().await?;
    app.check_name(fields.model.as_deref())?;
    let model = app.shown(fields.model.as_deref());
    let prompts = texts(fields.prompt, "prompt")?;
    let suffix = fields.suffix.filter(|suffix| !suffix.is_empty());
    let rendered =
        |token_ids| Rendered { request_id: stamp::id("cmpl-"), model: model.clone(), token_ids };
    let all = normal::prompt_tokens(&app, prompts, suffix).await?;
    Ok(JsonBody(all.into_iter().map(rendered).collect()))
}
