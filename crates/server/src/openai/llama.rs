//! llama-server's own endpoints: `/completion`, `/infill`, and `GET /props`, `/slots`.
//!
//! Sampling has the same fields as OpenAI's completions, and the same defaults: the server's options. An answer is as
//! long as the context allows unless `n_predict` says otherwise.

use super::sampling::Sampling;
use super::shapes;
use crate::fault::Fault;
use crate::http::{Body, Client, Frame, Framing, Room, Translate, respond};
use crate::lenient::{limit, whole};
use crate::normal::{
    self, Answer, Delta, Event, Finish, Generation, Reason, TextPrompt, TextRequest,
};
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use chat::Segment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;

/// A text to continue.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "CompletionRequest")]
pub(crate) struct CompletionBody {
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// A text, or its tokens.
    #[schemars(with = "shapes::Texts")]
    prompt: Option<Json>,
    /// Most tokens of the answer; -1 for no limit.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(range(min = -1))]
    n_predict: Option<i64>,
    /// The same as `n_predict`, and behind it.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(range(min = -1))]
    max_tokens: Option<i64>,
    /// Likeliest tokens to give with each token.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(range(max = 20))]
    n_probs: Option<usize>,
    /// Send the answer as it is made.
    stream: Option<bool>,
}

/// A gap to fill.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "InfillRequest")]
pub(crate) struct InfillBody {
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// What stands before the gap.
    input_prefix: String,
    /// What stands behind the gap.
    input_suffix: String,
    /// What the filling begins with.
    prompt: Option<String>,
    /// Most tokens of the answer; -1 for no limit.
    #[serde(default, deserialize_with = "whole")]
    #[schemars(range(min = -1))]
    n_predict: Option<i64>,
    /// Not supported.
    #[schemars(with = "Option<Vec<Json>>", length(max = 0))]
    input_extra: Option<Vec<Json>>,
    /// Send the answer as it is made.
    stream: Option<bool>,
}

/// How a text went on.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LlamaCompletion")]
pub(crate) struct Completed {
    content: String,
    model: String,
    /// Always true: there is no more.
    stop: bool,
    /// `eos`, `word` or `limit`.
    stop_type: &'static str,
    stopping_word: String,
    tokens_predicted: usize,
    tokens_evaluated: usize,
    tokens_cached: usize,
    /// Prompts are not cut here.
    truncated: bool,
    timings: Timings,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Map<String, Json>>>")]
    completion_probabilities: Option<Json>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Timings {
    prompt_n: usize,
    prompt_ms: f64,
    predicted_n: usize,
    predicted_ms: f64,
}

/// `POST /completion`.
pub(crate) async fn completion(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Fault> {
    let (fields, sampling): (CompletionBody, Sampling) = body.pair().await?;
    app.check_name(fields.model.as_deref())?;
    let mut prompts = super::completions::texts(fields.prompt, "prompt")?;
    if prompts.len() > 1 {
        return Err(Fault::unsupported("prompt", "there can be one prompt: use /v1/completions"));
    }
    let prompt = prompts.pop().unwrap_or(TextPrompt::Text(String::new()));
    let model = app.shown(fields.model.as_deref());
    let limits = match fields.n_predict {
        Some(_) => limit("n_predict", fields.n_predict)?,
        None => limit("max_tokens", fields.max_tokens)?,
    };
    let logprobs = fields.n_probs.filter(|&n| n > 0);
    let room = body.into_room();
    let asked = Asked { prompt, suffix: None, model, limit: limits, logprobs, room };
    answer(&app, client, sampling, asked, fields.stream).await
}

/// `POST /infill`.
pub(crate) async fn infill(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Fault> {
    let (fields, sampling): (InfillBody, Sampling) = body.pair().await?;
    app.check_name(fields.model.as_deref())?;
    if fields.input_extra.iter().flatten().next().is_some() {
        let message = "input_extra is not supported: other files go into input_prefix";
        return Err(Fault::unsupported("input_extra", message));
    }
    if fields.prompt.as_ref().is_some_and(|prompt| !prompt.is_empty()) {
        let message =
            "prompt is not supported: what the filling begins with goes into input_prefix";
        return Err(Fault::unsupported("prompt", message));
    }
    let asked = Asked {
        prompt: TextPrompt::Text(fields.input_prefix),
        suffix: Some(fields.input_suffix),
        model: app.shown(fields.model.as_deref()),
        limit: limit("n_predict", fields.n_predict)?,
        logprobs: None,
        room: body.into_room(),
    };
    answer(&app, client, sampling, asked, fields.stream).await
}

struct Asked {
    prompt: TextPrompt,
    suffix: Option<String>,
    model: String,
    limit: Option<usize>,
    logprobs: Option<usize>,
    room: Room,
}

async fn answer(
    app: &Arc<App>,
    client: Client,
    sampling: Sampling,
    asked: Asked,
    stream: Option<bool>,
) -> Result<Response, Fault> {
    let Asked { prompt, suffix, model, limit, logprobs, room } = asked;
    let generation = sampling.generation(app, client, 1, limit, logprobs)?;
    let generation = Generation { room, ..generation };
    if generation.n > 1 {
        return Err(Fault::unsupported("n", "there is one answer here: use /v1/completions"));
    }
    let prompts = vec![prompt];
    let request = TextRequest { prompts, suffix, echo: false, generation };
    let mut answer = normal::complete(app, request).await?;
    if stream.unwrap_or(false) {
        let lines = Pieces { model, count: 0 };
        return Ok(respond(answer, lines, Framing::Events, app.options.ping));
    }
    let whole = answer.collect().await?.pop();
    let whole = whole.ok_or_else(|| Fault::internal("an answer has no choice"))?;
    let mut completed = ended(model, whole.text, &whole.finish);
    completed.completion_probabilities =
        logprobs.map(|_| super::wire::chat_logprobs(&whole.logprobs)["content"].take());
    Ok(JsonBody(completed).into_response())
}

fn ended(model: String, content: String, finish: &Finish) -> Completed {
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let stop_type = match finish.reason {
        _ if finish.stop.is_some() => "word",
        Reason::Stop | Reason::ToolCalls => "eos",
        Reason::Length => "limit",
    };
    Completed {
        content,
        model,
        stop: true,
        stop_type,
        stopping_word: finish.stop.clone().unwrap_or_default(),
        tokens_predicted: finish.tokens,
        tokens_evaluated: finish.prompt_tokens,
        tokens_cached: finish.cached_tokens,
        truncated: false,
        timings: Timings {
            prompt_n: finish.prompt_tokens - finish.cached_tokens,
            prompt_ms: ms(finish.first),
            predicted_n: finish.tokens,
            predicted_ms: ms(finish.rest),
        },
        completion_probabilities: None,
    }
}

/// The pieces of a streamed answer; there is no `[DONE]`.
struct Pieces {
    model: String,
    count: usize,
}

impl Translate for Pieces {
    fn begin(&mut self, _: &Answer, _: &mut Vec<Frame>) {}

    fn delta(&mut self, _: usize, delta: Delta, _: &Answer, out: &mut Vec<Frame>) {
        match delta.event {
            Event::Segment(Segment::Text(text)) if !text.is_empty() => {
                self.count += 1;
                out.push(Frame::json(&json!({"content": text, "stop": false, "index": 0})));
            }
            Event::Finished(finish) => {
                let model = std::mem::take(&mut self.model);
                out.push(Frame::json(&ended(model, String::new(), &finish)));
            }
            _ => {}
        }
    }

    fn end(&mut self, _: &mut Vec<Frame>) {}

    fn fault(&mut self, fault: &Fault, out: &mut Vec<Frame>) {
        out.push(Frame::json(&fault.json()));
    }
}

/// What the server has and does.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerProps")]
pub(crate) struct Props {
    #[schemars(with = "Map<String, Json>")]
    default_generation_settings: Json,
    total_slots: usize,
    model_alias: String,
    chat_template: String,
    bos_token: String,
    eos_token: String,
    #[schemars(with = "Map<String, Json>")]
    modalities: Json,
    build_info: &'static str,
}

/// `GET /props`.
pub(crate) async fn props(State(app): State<Arc<App>>) -> Result<JsonBody<Props>, Fault> {
    let model = app.model()?;
    let options = app.now();
    let sampler = &options.sampler;
    let text = |id: Option<u32>| {
        let bytes = id.and_then(|id| model.tokenizer.token_bytes(id)).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    Ok(JsonBody(Props {
        default_generation_settings: json!({
            "n_ctx": model.replicas.context(),
            "params": {
                "temperature": sampler.temperature,
                "top_k": sampler.top_k,
                "top_p": sampler.top_p,
                "min_p": sampler.min_p,
                "repeat_penalty": sampler.repetition_penalty,
                "presence_penalty": sampler.presence_penalty,
                "frequency_penalty": sampler.frequency_penalty,
            },
        }),
        total_slots: model.replicas.replicas().iter().map(|replica| replica.sequences).sum(),
        model_alias: app.name().to_owned(),
        chat_template: model.info.template.clone().unwrap_or_default(),
        bos_token: text(model.tokenizer.bos()),
        eos_token: text(model.tokenizer.eos()),
        modalities: json!({"vision": model.processor.is_some(), "audio": false}),
        build_info: concat!("arclight ", env!("CARGO_PKG_VERSION")),
    }))
}

/// A slot.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SlotState")]
pub(crate) struct SlotState {
    id: usize,
    n_ctx: usize,
    /// Slots are filled from the first: so many are as answers are being given.
    is_processing: bool,
}

/// `GET /slots`: as many of a replica's slots are taken as it gives answers.
pub(crate) async fn slots(State(app): State<Arc<App>>) -> Result<JsonBody<Vec<SlotState>>, Fault> {
    let model = app.model()?;
    let n_ctx = model.replicas.context();
    let mut slots = Vec::new();
    for (replica, status) in model.replicas.replicas().iter().zip(model.replicas.status()) {
        for at in 0..replica.sequences {
            slots.push(SlotState { id: slots.len(), n_ctx, is_processing: at < status.running });
        }
    }
    Ok(JsonBody(slots))
}
