//! Text and tokens without an answer: `/tokenize`, `/detokenize`, `/apply-template`.
//!
//! Names of fields are vLLM's; llama.cpp's (`content`, `add_special`, `with_pieces`) are known too.

use crate::fault::Fault;
use crate::hold::Hold;
use crate::http::{Body, Client};
use crate::model::Model;
use crate::normal::{self, beside};
use crate::openai::chat;
use crate::openai::sampling::Sampling;
use crate::openai::shapes;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value as Json;
use std::sync::Arc;
use tokenizer::EncodeOptions;

/// A text or a conversation to give as tokens.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "TokenizeRequest", extend("oneOf" = [
    {"required": ["prompt"]}, {"required": ["content"]}, {"required": ["messages"]},
]))]
pub(crate) struct TokenizeBody {
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// The text.
    #[schemars(extend("type" = "string"))]
    prompt: Option<String>,
    /// The same as `prompt`.
    #[schemars(extend("type" = "string"))]
    content: Option<String>,
    /// The conversation.
    #[schemars(with = "Option<Vec<shapes::Message>>", length(min = 1), extend("type" = "array"))]
    messages: Option<IgnoredAny>,
    /// Add what the model expects at the ends of texts.
    #[schemars(extend("default" = true))]
    add_special_tokens: Option<bool>,
    /// The same as `add_special_tokens`.
    add_special: Option<bool>,
    /// Read names of control tokens as these tokens.
    #[schemars(extend("default" = true))]
    parse_special: Option<bool>,
    /// Give the texts of tokens too.
    return_token_strs: Option<bool>,
    /// The same as `return_token_strs`.
    with_pieces: Option<bool>,
}

/// Tokens of a text.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tokens {
    count: usize,
    /// Tokens of the context.
    max_model_len: usize,
    /// Their texts; bytes, where a token is a part of a character.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Json>>")]
    token_strs: Option<Pieces>,
    tokens: Vec<u32>,
}

/// `POST /tokenize`: the tokens of a text, or of a conversation's prompt.
pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<Tokens>, Fault> {
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
            let mut request = chat::request(&app, client, body.json().await?, Sampling::default())?;
            request.generation.room = body.into_room();
            normal::count(&app, request).await?
        }
        (Some(_), Some(_)) => {
            return Err(Fault::field("messages", "prompt and messages exclude each other"));
        }
        (None, None) => return Err(Fault::field("prompt", "prompt or messages is missing")),
    };
    let strs = fields.return_token_strs.or(fields.with_pieces).unwrap_or(false);
    Ok(JsonBody(Tokens {
        count: tokens.len(),
        max_model_len: model.replicas.context(),
        token_strs: strs.then(|| tokens.clone()).map(|tokens| Pieces { tokens, model }),
        tokens,
    }))
}

/// The texts of tokens, which are looked up when they are written.
struct Pieces {
    tokens: Vec<u32>,
    model: Hold<Model>,
}

impl Serialize for Pieces {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.tokens
                .iter()
                .map(|&token| Piece(self.model.tokenizer.token_bytes(token).unwrap_or_default())),
        )
    }
}

struct Piece<'a>(&'a [u8]);

impl Serialize for Piece<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            // A part of a character.
            Err(_) => serializer.collect_seq(self.0),
        }
    }
}

/// Tokens to give as text.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "DetokenizeRequest")]
pub(crate) struct DetokenizeBody {
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// The tokens.
    tokens: Vec<u32>,
}

/// The text of tokens, under two names.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Text {
    prompt: String,
    content: String,
}

/// The prompt that a conversation becomes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Prompt {
    prompt: String,
}

/// `POST /detokenize`: the text of tokens.
pub(crate) async fn detokenize(
    State(app): State<Arc<App>>,
    body: Body,
) -> Result<JsonBody<Text>, Fault> {
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
    Ok(JsonBody(Text { prompt: text.clone(), content: text }))
}

/// What a client needs to know of the tokenizer.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TokenizerInfo {
    tokenizer_class: &'static str,
    vocab_size: usize,
    model_max_length: usize,
    bos_token: Option<String>,
    bos_token_id: Option<u32>,
    eos_token: Option<String>,
    eos_token_id: Option<u32>,
    pad_token: Option<String>,
    pad_token_id: Option<u32>,
    add_bos_token: bool,
    chat_template: Option<String>,
}

/// `GET /tokenizer_info`: the tokenizer's roles and the chat template, as vLLM gives them.
pub(crate) async fn tokenizer_info(
    State(app): State<Arc<App>>,
) -> Result<JsonBody<TokenizerInfo>, Fault> {
    let model = app.model()?;
    let tokenizer = &model.tokenizer;
    let text = |id: Option<u32>| {
        let bytes = id.and_then(|id| tokenizer.token_bytes(id));
        bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    let begin = EncodeOptions { add_special: true, parse_special: false };
    let first = tokenizer.encode("", begin)?.first().copied();
    Ok(JsonBody(TokenizerInfo {
        tokenizer_class: "PreTrainedTokenizerFast",
        vocab_size: tokenizer.vocab_size(),
        model_max_length: model.replicas.context(),
        bos_token: text(tokenizer.bos()),
        bos_token_id: tokenizer.bos(),
        eos_token: text(tokenizer.eos()),
        eos_token_id: tokenizer.eos(),
        pad_token: text(tokenizer.pad()),
        pad_token_id: tokenizer.pad(),
        add_bos_token: first.is_some() && first == tokenizer.bos(),
        chat_template: model.info.template.clone(),
    }))
}

/// `POST /apply-template`: the prompt that a conversation becomes.
pub(crate) async fn apply_template(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<Prompt>, Fault> {
    let mut request = chat::request(&app, client, body.json().await?, Sampling::default())?;
    request.generation.room = body.into_room();
    Ok(JsonBody(Prompt { prompt: normal::prompt_text(&app, request).await? }))
}
