//! Text and tokens without an answer: `/tokenize`, `/detokenize`, `/apply-template`.
//!
//! Names of fields are vLLM's; llama.cpp's (`content`, `add_special`, `with_pieces`) are known too.

use crate::fault::Fault;
use crate::http::{Body, Client};
use crate::normal::{self, beside};
use crate::openai::chat::{self, ChatBody};
use crate::openai::sampling::Sampling;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;
use tokenizer::EncodeOptions;

#[derive(Debug, Deserialize)]
struct TokenizeBody {
    model: Option<String>,
    prompt: Option<String>,
    content: Option<String>,
    messages: Option<Json>,
    add_special_tokens: Option<bool>,
    add_special: Option<bool>,
    parse_special: Option<bool>,
    return_token_strs: Option<bool>,
    with_pieces: Option<bool>,
}

/// `POST /tokenize`: the tokens of a text, or of a conversation's prompt.
pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<Json>, Fault> {
    let fields: TokenizeBody = body.json().await?;
    app.check_name(fields.model.as_deref())?;
    let model = app.model()?;
    let tokens = match (fields.prompt.or(fields.content), fields.messages) {
        (Some(text), None) => {
            let options = EncodeOptions {
                add_special: fields.add_special_tokens.or(fields.add_special).unwrap_or(true),
                parse_special: fields.parse_special.unwrap_or(true),
            };
            beside(model.clone(), move |model| Ok(model.tokenizer.encode(&text, options)?)).await?
        }
        (None, Some(_)) => {
            let request = conversation(&app, client, &body).await?;
            normal::count(&app, request).await?
        }
        (Some(_), Some(_)) => {
            return Err(Fault::field("messages", "prompt and messages exclude each other"));
        }
        (None, None) => return Err(Fault::field("prompt", "prompt or messages is missing")),
    };
    let piece = |&token: &u32| {
        let bytes = model.tokenizer.token_bytes(token).unwrap_or_default();
        match str::from_utf8(bytes) {
            Ok(text) => Json::from(text),
            // A part of a character.
            Err(_) => Json::from(bytes),
        }
    };
    let mut answer = Map::new();
    answer.insert("count".into(), tokens.len().into());
    answer.insert("max_model_len".into(), model.replicas.context().into());
    if fields.return_token_strs.or(fields.with_pieces).unwrap_or(false) {
        answer.insert("token_strs".into(), tokens.iter().map(piece).collect());
    }
    answer.insert("tokens".into(), tokens.into());
    Ok(JsonBody(Json::Object(answer)))
}

#[derive(Debug, Deserialize)]
struct DetokenizeBody {
    model: Option<String>,
    tokens: Vec<u32>,
}

/// `POST /detokenize`: the text of tokens.
pub(crate) async fn detokenize(
    State(app): State<Arc<App>>,
    body: Body,
) -> Result<JsonBody<Json>, Fault> {
    let fields: DetokenizeBody = body.json().await?;
    app.check_name(fields.model.as_deref())?;
    let text = beside(app.model()?, move |model| {
        let vocab = model.tokenizer.vocab_size();
        if let Some(at) = fields.tokens.iter().position(|&t| t as usize >= vocab) {
            let message = format!("token {} does not exist: there are {vocab}", fields.tokens[at]);
            return Err(Fault::field(format!("tokens[{at}]"), message));
        }
        Ok(model.tokenizer.decode(&fields.tokens, false))
    });
    let text = text.await?;
    Ok(JsonBody(json!({"prompt": text, "content": text})))
}

/// `POST /apply-template`: the prompt that a conversation becomes.
pub(crate) async fn apply_template(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<Json>, Fault> {
    let request = conversation(&app, client, &body).await?;
    Ok(JsonBody(json!({"prompt": normal::prompt_text(&app, request).await?})))
}

async fn conversation(
    app: &App,
    client: Client,
    body: &Body,
) -> Result<normal::ChatRequest, Fault> {
    let fields: ChatBody = body.json().await?;
    chat::request(app, client, fields, Sampling::default())
}
