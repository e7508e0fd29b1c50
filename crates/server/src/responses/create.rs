//! `POST /v1/responses` and `POST /v1/responses/input_tokens`.

use super::object::Head;
use super::output::Output;
use super::store::{Item, Stored};
use super::stream::{Keep, ResponseStream};
use super::tools::Toolset;
use super::turns::Reader;
use super::{input, shapes};
use crate::fault::Fault;
use crate::http::{Body, Client, Frame, Framing, Room, compact, respond, value};
use crate::lenient::{limit, whole};
use crate::normal::{self, ChatRequest, Constraint};
use crate::openai::{sampling::Sampling, tools};
use crate::stamp;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use grammar::Spec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// Items to answer.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "ResponseRequest")]
pub(crate) struct ResponseBody {
    /// One of the model's names, or an adapter's.
    model: Option<String>,
    /// Only 1: a response is one answer.
    #[schemars(extend("enum" = [1, null]))]
    #[serde(default, deserialize_with = "whole")]
    n: Option<usize>,
    /// A text of the user's, or items.
    #[schemars(with = "Option<shapes::Input>")]
    input: Option<Box<RawValue>>,
    /// The message of the system.
    instructions: Option<String>,
    /// The response that the input follows.
    previous_response_id: Option<String>,
    /// Keep the response.
    #[schemars(extend("default" = true))]
    store: Option<bool>,
    /// Send the answer as it is made.
    stream: Option<bool>,
    /// Functions that the model may call.
    #[schemars(with = "Option<Vec<shapes::Tool>>")]
    tools: Option<Vec<Box<RawValue>>>,
    /// Which of the tools the model must call.
    #[schemars(with = "Option<shapes::ToolChoice>")]
    tool_choice: Option<Box<RawValue>>,
    /// Whether an answer may have several calls.
    parallel_tool_calls: Option<bool>,
    /// The form of the answer.
    text: Option<Text>,
    /// How the model thinks.
    reasoning: Option<Reasoning>,
    /// Most tokens of the answer; -1 for no limit.
    #[schemars(range(min = -1))]
    #[serde(default, deserialize_with = "whole")]
    max_output_tokens: Option<i64>,
    /// What to give besides: `message.output_text.logprobs`.
    include: Option<Vec<String>>,
    /// Likeliest tokens to give with each token.
    #[schemars(range(max = 20))]
    #[serde(default, deserialize_with = "whole")]
    top_logprobs: Option<usize>,
    /// Divisor of the logits; 0 takes the likeliest token.
    #[schemars(with = "Option<f32>", range(min = 0))]
    temperature: Option<Box<RawValue>>,
    /// Share of the probability from which tokens are drawn.
    #[schemars(with = "Option<f32>", range(max = 1), extend("exclusiveMinimum" = 0))]
    top_p: Option<Box<RawValue>>,
    /// Given back with the response.
    #[schemars(with = "Option<Map<String, Json>>")]
    metadata: Option<Box<RawValue>>,
    /// Given back with the response.
    user: Option<String>,
    /// Given back with the response.
    safety_identifier: Option<String>,
    /// Requests of one key go to the same replica.
    prompt_cache_key: Option<String>,
    /// `auto` leaves out the oldest items of a conversation that is too long.
    #[schemars(extend("enum" = ["auto", "disabled", null]))]
    truncation: Option<String>,
    /// Responses are made while the client waits.
    #[schemars(extend("enum" = [false, null]))]
    background: Option<bool>,
    /// Not supported: use `previous_response_id`.
    #[schemars(with = "Option<()>")]
    conversation: Option<Box<RawValue>>,
    /// Not supported: use `instructions` and `input`.
    #[schemars(with = "Option<()>")]
    prompt: Option<Box<RawValue>>,
    /// Not supported: use `truncation`, or `/v1/responses/compact`.
    #[schemars(with = "Option<Vec<Json>>", length(max = 0))]
    context_management: Option<Box<RawValue>>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    moderation: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Text {
    #[schemars(with = "Option<shapes::Format>")]
    format: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Reasoning {
    /// `none` asks for no thoughts.
    effort: Option<String>,
}

/// Tokens of a prompt.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InputTokens {
    #[schemars(extend("const" = "response.input_tokens"))]
    object: &'static str,
    input_tokens: usize,
}

/// What a request has become.
pub(super) struct Read {
    pub(super) request: ChatRequest,
    /// The conversation with what is new.
    items: Vec<Item>,
    pub(super) head: Head,
    tools: Toolset,
    owner: u64,
    store: bool,
    stream: bool,
    /// Thoughts are wanted in a form that clients send back.
    sealed: bool,
    /// The claim on memory of the texts that stay.
    room: Room,
}

/// `POST /v1/responses`.
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Fault> {
    let read = read(&app, client, body).await?;
    let left_out = read.tools.left_out.clone();
    let response = answer(app, read).await;
    Ok(tools::told_left_out(response?, &left_out))
}

async fn answer(app: Arc<App>, read: Read) -> Result<Response, Fault> {
    let Read { request, items, head, tools, owner, store, stream, sealed, room } = read;
    let logprobs = request.generation.logprobs.is_some();
    let answer = normal::chat(&app, request).await;
    let mut output = Output::new(head, tools, logprobs, sealed);
    let mut answer = match answer {
        Err(fault) if fault.too_long.is_some() => {
            // In the words by which clients know that they have to shorten the conversation; in a stream they look
            // for it in the response.
            let message = "Your input exceeds the context window of this model. Please adjust your \
                           input and try again.";
            let fault = Fault { message: message.into(), ..fault.at("input") };
            return if stream { Ok(failed(&mut output, &fault)) } else { Err(fault) };
        }
        answer => answer?,
    };
    let keep = store.then(|| Keep { app: app.clone(), owner, _room: room, items });
    if stream {
        let translate = ResponseStream::new(output, keep);
        return Ok(respond(answer, translate, Framing::Events, app.options.ping));
    }
    while let Some((_, delta)) = answer.next().await {
        if let normal::Event::Failed(fault) = delta.event {
            return Err(fault);
        }
        if let Some(response) = output.delta(delta, &mut Vec::new()) {
            if let Some(keep) = keep {
                keep.put(&output, &response);
            }
            return Ok(JsonBody(response).into_response());
        }
    }
    Err(Fault::internal("an answer ended without a reason"))
}

/// The stream of a response that cannot begin.
fn failed(output: &mut Output, fault: &Fault) -> Response {
    let mut frames = Vec::new();
    output.begin(&mut frames);
    output.fail(fault, &mut frames);
    let event = |frame: Frame| {
        format!("event: {}\ndata: {}\n\n", frame.event.unwrap_or_default(), frame.data)
    };
    let text: String = frames.into_iter().map(event).collect();
    ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], text).into_response()
}

/// `POST /v1/responses/input_tokens`: the tokens of the prompt that a request becomes.
pub(crate) async fn input_tokens(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<InputTokens>, Fault> {
    let read = read(&app, client, body).await?;
    let tokens = normal::count(&app, read.request).await?;
    Ok(JsonBody(InputTokens { object: "response.input_tokens", input_tokens: tokens.len() }))
}

/// The owner of a client's responses: its key. Without keys all clients are one owner.
pub(super) fn owner(app: &App, client: Client) -> u64 {
    if app.options.keys.is_empty() { 0 } else { client.0 }
}

pub(super) async fn read(app: &App, client: Client, body: Body) -> Result<Read, Fault> {
    let (mut fields, sampling): (ResponseBody, Sampling) = body.pair().await?;
    let room = body.into_room();
    app.check_name(fields.model.as_deref())?;
    refuse(&fields)?;
    let owner = owner(app, client);
    let key = stamp::id("");
    let mut items = match &fields.previous_response_id {
        None => Vec::new(),
        Some(id) => previous(app, owner, id)?.items,
    };
    let options = app.now();
    let mut reader = Reader::new(fields.instructions.as_deref(), &options.media);
    for item in &items {
        reader.item(&value(&item.text, "previous_response_id")?, "previous_response_id")?;
    }
    items.extend(input::items((app, owner), &key, fields.input.take(), &mut reader)?);
    if items.is_empty() {
        return Err(Fault::field("input", "input is missing: there must be one item at least"));
    }
    let said = reader.end();
    let given = fields.tools.iter().flatten().enumerate();
    let given = given.map(|(at, tool)| value(tool, &format!("tools[{at}]")));
    let mut tools = Toolset::read(given.collect::<Result<_, Fault>>()?, said.found)?;
    let tool_choice: Option<Json> =
        fields.tool_choice.as_ref().map(|choice| value(choice, "tool_choice")).transpose()?;
    let tool_choice = tools.choose(tool_choice.as_ref())?;
    if fields.metadata.as_ref().is_some_and(|metadata| !metadata.get().starts_with('{')) {
        let message = "metadata must be an object";
        return Err(Fault::field("metadata", message).code("invalid_type"));
    }
    let wants = |what: &str| fields.include.iter().flatten().any(|included| included == what);
    let logprobs = match fields.top_logprobs {
        None | Some(0) => wants("message.output_text.logprobs").then_some(0),
        some => some,
    };
    let limit = limit("max_output_tokens", fields.max_output_tokens)?;
    if limit == Some(0) {
        let message = "max_output_tokens must be at least 1, or -1 for no limit";
        return Err(Fault::field("max_output_tokens", message));
    }
    let mut generation = sampling.generation(app, client, 1, limit, logprobs)?;
    generation.room = room.clone();
    let format = fields.text.as_ref().and_then(|text| text.format.as_ref());
    let format = format.map(|format| value(format, "text.format")).transpose()?;
    if let Some(spec) = format.map(spec).transpose()?.flatten() {
        if let Some(other) = &generation.constraint {
            let message = format!("{} and text.format exclude each other: use one", other.field);
            return Err(Fault::field("text.format", message));
        }
        generation.constraint = Some(Constraint { field: "text.format".into(), spec });
    }
    let mut variables = Map::new();
    let effort = fields.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref());
    if let Some(effort) = effort {
        // Templates have one of these two variables to switch thoughts off.
        if effort == "none" {
            variables.insert("enable_thinking".into(), false.into());
        }
        variables.insert("reasoning_effort".into(), effort.into());
    }
    let (store, stream) = (fields.store.unwrap_or(true), fields.stream.unwrap_or(false));
    let parallel_tools = fields.parallel_tool_calls.unwrap_or(true);
    let sealed = wants("reasoning.encrypted_content");
    let shorten = fields.truncation.as_deref() == Some("auto");
    let model = app.shown(fields.model.as_deref());
    let echo = echo(app, fields)?;
    let head = Head { key, created: stamp::now(), model, echo };
    let request = ChatRequest {
        images: said.images,
        messages: said.messages,
        tools: std::mem::take(&mut tools.functions),
        tool_choice,
        parallel_tools,
        variables,
        open_turn: true,
        continue_last: false,
        before: Vec::new(),
        shorten,
        generation,
    };
    Ok(Read { request, items, head, tools, owner, store, stream, sealed, room: room.of_text() })
}

fn previous(app: &App, owner: u64, id: &str) -> Result<Stored, Fault> {
    app.responses.get(id, owner).ok_or_else(|| {
        let message = format!("there is no previous response {id:?}, or no more");
        Fault::field("previous_response_id", message).code("previous_response_not_found")
    })
}

/// Fields that are known and cannot be honoured here.
fn refuse(fields: &ResponseBody) -> Result<(), Fault> {
    let empty = |text: &str| text.bytes().filter(|b| !b.is_ascii_whitespace()).eq(*b"[]");
    let given = |value: &Option<Box<RawValue>>| value.as_ref().is_some_and(|v| !empty(v.get()));
    let refused = [
        ("n", fields.n.is_some_and(|n| n != 1), "a response is one answer"),
        ("background", fields.background == Some(true), "responses are made while you wait"),
        ("conversation", given(&fields.conversation), "use previous_response_id"),
        ("prompt", given(&fields.prompt), "use instructions and input"),
        (
            "context_management",
            given(&fields.context_management),
            "use truncation, or /v1/responses/compact",
        ),
        ("moderation", given(&fields.moderation), "answers are not judged here"),
        (
            "truncation",
            fields.truncation.as_deref().is_some_and(|t| t != "disabled" && t != "auto"),
            "use auto or disabled",
        ),
    ];
    match refused.iter().find(|(_, refused, _)| *refused) {
        Some((field, _, why)) => {
            Err(Fault::unsupported(*field, format!("{field} is not supported: {why}")))
        }
        None => Ok(()),
    }
}

/// `text.format`; `None` for plain text.
fn spec(mut format: Json) -> Result<Option<Spec>, Fault> {
    let schema = format.get_mut("schema").map(Json::take).unwrap_or_default();
    match (format["type"].as_str(), schema) {
        _ if format.is_null() => Ok(None),
        (Some("text"), _) => Ok(None),
        (Some("json_object"), _) => Ok(Some(Spec::JsonObject)),
        (Some("json_schema"), schema @ (Json::Object(_) | Json::Bool(_))) => {
            Ok(Some(Spec::JsonSchema(schema)))
        }
        (Some("json_schema"), _) => {
            let message = "text.format.schema is missing: it must be a JSON schema";
            Err(Fault::field("text.format.schema", message))
        }
        _ => {
            let message = "text.format.type must be text, json_object or json_schema";
            Err(Fault::field("text.format.type", message))
        }
    }
}

/// The fields that a response repeats.
#[derive(Serialize)]
struct Echo {
    instructions: Option<String>,
    max_output_tokens: Option<i64>,
    max_tool_calls: (),
    metadata: Box<RawValue>,
    parallel_tool_calls: bool,
    previous_response_id: Option<String>,
    prompt_cache_key: Option<String>,
    reasoning: EchoedReasoning,
    safety_identifier: Option<String>,
    store: bool,
    temperature: Box<RawValue>,
    text: EchoedText,
    tool_choice: Box<RawValue>,
    tools: Vec<Box<RawValue>>,
    top_logprobs: usize,
    truncation: String,
    top_p: Box<RawValue>,
    user: Option<String>,
}

#[derive(Serialize)]
struct EchoedReasoning {
    effort: Option<String>,
    summary: (),
}

#[derive(Serialize)]
struct EchoedText {
    format: Box<RawValue>,
}

/// The text of the fields that a response repeats, with the defaults of those that the request does not have.
fn echo(app: &App, fields: ResponseBody) -> Result<Arc<str>, Fault> {
    let options = app.now();
    let sampler = &options.sampler;
    let written = |_| Fault::internal("a response cannot be written");
    let default = |text: &str| RawValue::from_string(text.to_owned()).map_err(written);
    // As it was sent, on one line: events have no others.
    let given = |value: Option<Box<RawValue>>, or: &str| match value {
        Some(value) => Ok(compact(&value)),
        None => default(or),
    };
    // The shortest digits that give the same number.
    let number = |x: f32| x.to_string();
    let echo = Echo {
        instructions: fields.instructions,
        max_output_tokens: fields.max_output_tokens,
        max_tool_calls: (),
        metadata: given(fields.metadata, "{}")?,
        parallel_tool_calls: fields.parallel_tool_calls.unwrap_or(true),
        previous_response_id: fields.previous_response_id,
        prompt_cache_key: fields.prompt_cache_key,
        reasoning: EchoedReasoning { effort: fields.reasoning.and_then(|r| r.effort), summary: () },
        safety_identifier: fields.safety_identifier,
        store: fields.store.unwrap_or(true),
        temperature: given(fields.temperature, &number(sampler.temperature))?,
        text: EchoedText {
            format: given(fields.text.and_then(|text| text.format), r#"{"type":"text"}"#)?,
        },
        tool_choice: given(fields.tool_choice, "\"auto\"")?,
        tools: fields.tools.unwrap_or_default().iter().map(|tool| compact(tool)).collect(),
        top_logprobs: fields.top_logprobs.unwrap_or(0),
        truncation: fields.truncation.unwrap_or_else(|| "disabled".to_owned()),
        top_p: given(fields.top_p, &number(sampler.top_p))?,
        user: fields.user,
    };
    serde_json::to_string(&echo).map(Arc::from).map_err(written)
}
