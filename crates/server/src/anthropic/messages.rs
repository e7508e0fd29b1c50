//! `POST /v1/messages` and `POST /v1/messages/count_tokens`.

use super::blocks::{self, Conversation};
use super::shapes;
use super::stream::MessageStream;
use super::tools::{self, Tools};
use super::wire::{self, Head};
use crate::fault::Fault;
use crate::http::{Body, Client, Framing, respond};
use crate::lenient::whole;
use crate::normal::{self, ChatRequest, Constraint, Generation, Whole};
use crate::openai::tools::told_left_out;
use crate::stamp;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use grammar::Spec;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;
use std::sync::Arc;

/// The one version of the API that is not spoken here: its events have no names, and each repeats the
/// text so far. What has been added, or taken away for Anthropic's own models, since then changes
/// nothing here.
const OLD: &str = "2023-01-01";

/// A conversation to answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "AnthropicRequest")]
pub(crate) struct MessagesBody {
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// The conversation.
    #[schemars(with = "Vec<shapes::Turn>", length(min = 1))]
    messages: Vec<Box<RawValue>>,
    /// Most tokens of the answer.
    #[schemars(required)]
    #[serde(default, deserialize_with = "whole")]
    max_tokens: Option<usize>,
    /// The message of the system.
    #[schemars(with = "Option<shapes::Texts>")]
    system: Option<Json>,
    /// Send the answer as it is made.
    stream: Option<bool>,
    /// Texts that end the answer.
    #[schemars(inner(length(min = 1)))]
    stop_sequences: Option<Vec<String>>,
    /// Divisor of the logits; 0 takes the likeliest token.
    #[schemars(range(min = 0))]
    temperature: Option<f32>,
    /// Number of likeliest tokens to draw from; 0 means all.
    #[serde(default, deserialize_with = "whole")]
    top_k: Option<usize>,
    /// Share of the probability from which tokens are drawn.
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    top_p: Option<f32>,
    /// Functions that the model may call.
    #[schemars(with = "Option<Vec<shapes::Tool>>")]
    tools: Option<Vec<Json>>,
    /// Which of the tools the model must call.
    #[schemars(with = "Option<shapes::ToolChoice>")]
    tool_choice: Option<Json>,
    /// Whether to think.
    thinking: Option<Thinking>,
    /// The form of the answer, and how much to think.
    output_config: Option<OutputConfig>,
    /// The form of the answer.
    #[schemars(with = "Option<shapes::Format>")]
    output_format: Option<Json>,
    /// Nothing is taken out of a conversation: the answer tells of no edits.
    #[schemars(with = "Option<Map<String, Json>>")]
    context_management: Option<Json>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    container: Option<Json>,
    /// Not supported.
    #[schemars(with = "Option<Vec<Json>>", length(max = 0))]
    mcp_servers: Option<Json>,
}

/// The body of `count_tokens`: that of `messages`, whose limit may be left out.
pub(crate) struct CountBody;

impl JsonSchema for CountBody {
    fn schema_name() -> Cow<'static, str> {
        "AnthropicCountRequest".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = MessagesBody::json_schema(generator);
        schema.insert("required".into(), json!(["messages"]));
        schema
    }
}

/// Tokens of a conversation's prompt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AnthropicCount")]
pub(crate) struct Count {
    input_tokens: usize,
}

/// Whether to think. A budget of tokens is not read: templates have no variable for it.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Thinking {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["enabled", "adaptive", "disabled"]))]
    kind: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct OutputConfig {
    /// How much to think.
    effort: Option<String>,
    /// The form of the answer.
    #[schemars(with = "Option<shapes::Format>")]
    format: Option<Json>,
}

/// `POST /v1/messages`.
pub(crate) async fn messages(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    check_version(&headers)?;
    let fields: MessagesBody = body.json().await?;
    let stream = fields.stream.unwrap_or(false);
    let limit = fields.max_tokens.ok_or_else(|| {
        Fault::field("max_tokens", "max_tokens is missing: it must say how long an answer may be")
    })?;
    let model = app.shown(fields.model.as_deref());
    let edits = fields.context_management.as_ref().is_some_and(|edits| !edits.is_null());
    let (mut request, left_out) = request(&app, client, fields)?;
    request.generation.room = body.into_room();
    let head = Head { id: stamp::id("msg_"), model, limit, edits };
    let answer = answer(&app, request, head, stream).await?;
    Ok(told_left_out(answer, &left_out))
}

async fn answer(
    app: &Arc<App>,
    request: ChatRequest,
    head: Head,
    stream: bool,
) -> Result<Response, Fault> {
    let mut answer = normal::chat(app, request).await?;
    if stream {
        let translate = MessageStream::new(head);
        return Ok(respond(answer, translate, Framing::Events, app.options.ping));
    }
    let whole = answer.collect().await?.pop();
    let whole = whole.ok_or_else(|| Fault::internal("an answer has no choice"))?;
    let usage = wire::usage(&whole.finish);
    let finish = whole.finish.clone();
    Ok(JsonBody(head.message(content(whole), Some(&finish), usage)).into_response())
}

/// `POST /v1/messages/count_tokens`: the tokens of the prompt that a request becomes.
pub(crate) async fn count_tokens(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    body: Body,
) -> Result<JsonBody<Count>, Fault> {
    check_version(&headers)?;
    let (mut request, _) = request(&app, client, body.json().await?)?;
    request.generation.room = body.into_room();
    let tokens = normal::count(&app, request).await?;
    Ok(JsonBody(Count { input_tokens: tokens.len() }))
}

fn check_version(headers: &HeaderMap) -> Result<(), Fault> {
    match headers.get("anthropic-version") {
        Some(version) if version == OLD => {
            let message = format!("anthropic-version {OLD} is not spoken here: use 2023-06-01");
            Err(Fault::field("anthropic-version", message))
        }
        _ => Ok(()),
    }
}

/// The normal form of a request, and the types of tools that are left out.
fn request(
    app: &App,
    client: Client,
    fields: MessagesBody,
) -> Result<(ChatRequest, Vec<String>), Fault> {
    app.check_name(fields.model.as_deref())?;
    let given =
        |value: &Option<Json>| value.as_ref().is_some_and(|v| !v.is_null() && v != &json!([]));
    if given(&fields.container) {
        return Err(Fault::unsupported("container", "this server has no containers"));
    }
    if given(&fields.mcp_servers) {
        return Err(Fault::unsupported("mcp_servers", "this server calls no other servers"));
    }
    let Conversation { messages, images, referred } =
        blocks::read(fields.system, fields.messages, &app.now().media)?;
    let Tools { offered: tools, left_out } =
        tools::read(fields.tools.unwrap_or_default(), &referred)?;
    let (tool_choice, parallel_tools) = tools::choice(fields.tool_choice.as_ref(), &tools)?;
    // An assistant's turn at the end is the beginning of the answer.
    let last = messages.last().filter(|last| last.role == "assistant");
    if last.is_some_and(|last| last.tool_calls.is_some()) {
        let message = "a tool_use must be followed by the user's tool_result";
        return Err(Fault::field("messages", message));
    }
    let continue_last = last.is_some();
    let mut generation = Generation::new(app, client);
    generation.adapters = app.adapters(fields.model.as_deref(), None)?;
    let sampler = &mut generation.sampler;
    sampler.temperature = fields.temperature.unwrap_or(sampler.temperature);
    sampler.top_k = fields.top_k.unwrap_or(sampler.top_k);
    sampler.top_p = fields.top_p.unwrap_or(sampler.top_p);
    sampler.check()?;
    generation.limit = fields.max_tokens;
    generation.stop = fields.stop_sequences.unwrap_or_default();
    if generation.stop.iter().any(String::is_empty) {
        return Err(Fault::field("stop_sequences", "a stop sequence must not be empty"));
    }
    let (effort, format) = match fields.output_config {
        Some(OutputConfig { effort, format }) => (effort, format),
        None => (None, None),
    };
    let formats = [("output_config.format", format), ("output_format", fields.output_format)];
    for (field, format) in formats {
        if let Some(format) = format.filter(|format| !format.is_null()) {
            generation.constraint =
                Some(Constraint { field: field.into(), spec: spec(field, format)? });
        }
    }
    let request = ChatRequest {
        images,
        messages,
        tools,
        tool_choice,
        parallel_tools,
        variables: variables(fields.thinking, effort)?,
        open_turn: true,
        continue_last,
        before: Vec::new(),
        shorten: false,
        generation,
    };
    Ok((request, left_out))
}

fn spec(field: &str, mut format: Json) -> Result<Spec, Fault> {
    let schema = format.get_mut("schema").map(Json::take).unwrap_or_default();
    match (format["type"].as_str(), schema) {
        (Some("json_schema"), schema @ Json::Object(_)) => Ok(Spec::JsonSchema(schema)),
        _ => {
            let message = format!("{field} must be of type json_schema and have a schema");
            Err(Fault::field(field, message))
        }
    }
}

/// Template variables that say how much to think. Without them the template decides.
fn variables(
    thinking: Option<Thinking>,
    effort: Option<String>,
) -> Result<Map<String, Json>, Fault> {
    let mut variables = Map::new();
    match thinking.as_ref().map(|thinking| thinking.kind.as_str()) {
        None => {}
        Some("enabled" | "adaptive") => {
            variables.insert("enable_thinking".into(), true.into());
        }
        Some("disabled") => {
            variables.insert("enable_thinking".into(), false.into());
        }
        Some(kind) => {
            let message =
                format!("thinking of type {kind:?} is not supported: use enabled or disabled");
            return Err(Fault::unsupported("thinking.type", message));
        }
    }
    if let Some(effort) = effort {
        // Templates have three levels.
        let effort =
            if matches!(effort.as_str(), "xhigh" | "max") { "high".into() } else { effort };
        variables.insert("reasoning_effort".into(), effort.into());
    }
    Ok(variables)
}

/// The blocks of an answer.
fn content(whole: Whole) -> Vec<Json> {
    let mut blocks = Vec::new();
    if !whole.reasoning.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": whole.reasoning, "signature": ""}));
    }
    if !whole.text.is_empty() {
        blocks.push(json!({"type": "text", "text": whole.text}));
    }
    for call in whole.calls {
        // A call that the limit has cut off has no valid input; `stop_reason` says so.
        let input = serde_json::from_str::<Json>(&call.arguments).ok().filter(Json::is_object);
        blocks.push(json!({
            "type": "tool_use",
            "id": stamp::id("toolu_"),
            "name": call.name,
            "input": input.unwrap_or_else(|| json!({})),
        }));
    }
    blocks
}
