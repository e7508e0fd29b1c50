//! `POST /v1/completions`.

use super::chunks::StreamOptions;
use super::completions_stream::TextStream;
use super::sampling::Sampling;
use super::shapes;
use super::wire::{Choice, Head, Legacy, Object, Usage};
use crate::fault::Fault;
use crate::http::{Body, Client, Framing, respond};
use crate::lenient::{limit, whole};
use crate::normal::{self, Answer, Reason, TextPrompt, TextRequest, Whole};
use crate::stamp;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// Tokens of an answer where a request does not say, as OpenAI has it.
const LIMIT: usize = 16;

/// Texts to continue.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "TextRequest")]
pub(crate) struct TextBody {
    /// One of the model's names, or an adapter's.
    pub(crate) model: Option<String>,
    /// A text, several, tokens, or several lists of them.
    #[schemars(with = "shapes::Texts")]
    pub(crate) prompt: Option<Json>,
    /// What follows the gap that the answer fills.
    pub(crate) suffix: Option<String>,
    /// Give the prompt before the answer.
    echo: Option<bool>,
    /// Give the log-probabilities of tokens, and of so many likeliest ones.
    #[schemars(range(max = 20))]
    #[serde(default, deserialize_with = "whole")]
    logprobs: Option<usize>,
    /// Most tokens of the answer; -1 for no limit.
    #[schemars(range(min = -1))]
    #[serde(default, deserialize_with = "whole")]
    max_tokens: Option<i64>,
    /// The same as `max_tokens`, and behind it.
    #[schemars(range(min = -1))]
    #[serde(default, deserialize_with = "whole")]
    n_predict: Option<i64>,
    /// Send the answer as it is made.
    stream: Option<bool>,
    /// Only with `stream`.
    stream_options: Option<StreamOptions>,
}

/// The endpoint.
pub(crate) async fn completions(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Fault> {
    let (fields, sampling): (TextBody, Sampling) = body.pair().await?;
    app.check_name(fields.model.as_deref())?;
    let prompts = texts(fields.prompt, "prompt")?;
    let stream = fields.stream.unwrap_or(false);
    let usage = StreamOptions::include_usage(fields.stream_options, stream)?;
    let echo = fields.echo.unwrap_or(false);
    let suffix = fields.suffix.filter(|suffix| !suffix.is_empty());
    if echo && suffix.is_some() {
        let message = "echo and suffix exclude each other: an answer stands between them";
        return Err(Fault::field("suffix", message));
    }
    let limit = match (fields.max_tokens, fields.n_predict) {
        (None, None) => Some(LIMIT),
        (None, given) => limit("n_predict", given)?,
        (given, _) => limit("max_tokens", given)?,
    };
    let logprobs = fields.logprobs;
    let mut generation = sampling.generation(&app, client, prompts.len(), limit, logprobs)?;
    // Who scores a text so takes the last of the tokens for the answer, which must be there to be taken: lm-eval does.
    generation.room = body.into_room();
    generation.ignore_eos |= echo && logprobs.is_some() && limit == Some(1);
    let request = TextRequest { prompts, suffix, echo, generation };
    let model = app.shown(fields.model.as_deref());
    let head = Head { id: stamp::id("cmpl-"), created: stamp::now(), model };
    let mut answer = normal::complete(&app, request).await?;
    if stream {
        let translate = TextStream::new(head, echo, logprobs.is_some(), usage);
        return Ok(respond(answer, translate, Framing::Events, app.options.ping));
    }
    let whole = answer.collect().await?;
    Ok(JsonBody(completion(&head, &answer, whole, echo, logprobs.is_some())).into_response())
}

/// What stands in `field`: a text, several, a list of tokens, or several lists.
pub(crate) fn texts(value: Option<Json>, field: &str) -> Result<Vec<TextPrompt>, Fault> {
    let wrong = || {
        let message = format!(
            "{field} must be a string, a list of strings, a list of token ids, or a list of such \
             lists"
        );
        Fault::field(field, message)
    };
    let token = |value: &Json| value.as_u64().and_then(|t| u32::try_from(t).ok()).ok_or_else(wrong);
    let tokens = |list: &[Json]| list.iter().map(token).collect::<Result<Vec<u32>, Fault>>();
    match value {
        Some(Json::String(text)) => Ok(vec![TextPrompt::Text(text)]),
        Some(Json::Array(list)) if list.is_empty() => {
            Err(Fault::field(field, format!("{field} must not be an empty list")))
        }
        Some(Json::Array(list)) if list[0].is_number() => {
            Ok(vec![TextPrompt::Tokens(tokens(&list)?)])
        }
        Some(Json::Array(list)) => list
            .into_iter()
            .map(|item| match item {
                Json::String(text) => Ok(TextPrompt::Text(text)),
                Json::Array(list) => Ok(TextPrompt::Tokens(tokens(&list)?)),
                _ => Err(wrong()),
            })
            .collect(),
        None | Some(Json::Null) => Err(Fault::field(field, format!("{field} is missing"))),
        Some(_) => Err(wrong()),
    }
}

/// A choice of a completion.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Completion", inline)]
pub(crate) struct TextChoice {
    pub(super) text: String,
    pub(super) index: usize,
    #[schemars(with = "Option<Map<String, Json>>")]
    pub(super) logprobs: Option<Json>,
    pub(super) finish_reason: Option<Reason>,
}

impl Choice for TextChoice {
    const OBJECT: &'static str = "text_completion";
}

fn completion(
    head: &Head,
    answer: &Answer,
    whole: Vec<Whole>,
    echo: bool,
    logprobs: bool,
) -> Object<TextChoice> {
    let mut usage = Usage::default();
    let choice = |(index, choice): (usize, Whole)| {
        let prompt = answer.prompt_of(index);
        usage.add(prompt, &choice.finish);
        let before = if echo { answer.prompts()[prompt].text.as_str() } else { "" };
        let logprobs = logprobs.then(|| {
            let mut tokens = if echo { answer.prompt_logprobs(index) } else { Vec::new() };
            tokens.extend(choice.logprobs);
            Legacy::default().json(&tokens)
        });
        let (text, finish_reason) =
            (format!("{before}{}", choice.text), Some(choice.finish.reason));
        TextChoice { text, index, logprobs, finish_reason }
    };
    let choices = whole.into_iter().enumerate().map(choice).collect();
    head.object(choices, Some(Some(usage.counts())))
}
