//! `POST /v1/chat/completions`.

use super::chat_stream::ChatStream;
use super::chunks::StreamOptions;
use super::sampling::Sampling;
use super::wire::{self, Choice, Head, Object, Usage};
use super::{custom, messages, shapes, tools};
use crate::fault::Fault;
use crate::http::{Body, Client, Framing, respond};
use crate::lenient::{limit, whole};
use crate::normal::{self, Answer, ChatRequest, Reason, Whole};
use crate::stamp;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};
use std::collections::HashSet;
use std::sync::Arc;

/// A conversation to answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ChatRequest")]
pub(crate) struct ChatBody {
    /// One of the model's names, or an adapter's.
    pub(crate) model: Option<String>,
    /// The conversation.
    #[schemars(with = "Vec<shapes::Message>", length(min = 1))]
    messages: Vec<Box<RawValue>>,
    /// Functions and custom tools that the model may call.
    #[schemars(with = "Option<Vec<shapes::Tool>>")]
    tools: Option<Vec<Json>>,
    /// Which of the tools the model must call.
    #[schemars(with = "Option<shapes::ToolChoice>")]
    tool_choice: Option<Json>,
    /// Whether an answer may have several calls.
    parallel_tool_calls: Option<bool>,
    /// Not supported: use `tools`.
    #[schemars(with = "Option<()>")]
    functions: Option<Json>,
    /// Not supported: use `tool_choice`.
    #[schemars(with = "Option<()>")]
    function_call: Option<Json>,
    /// Give the log-probabilities of the answer's tokens.
    logprobs: Option<bool>,
    /// Likeliest tokens to give with each token; with `logprobs`.
    #[schemars(range(max = 20))]
    #[serde(default, deserialize_with = "whole")]
    top_logprobs: Option<usize>,
    /// Most tokens of the answer; -1 for no limit.
    #[schemars(range(min = -1))]
    #[serde(default, deserialize_with = "whole")]
    max_tokens: Option<i64>,
    /// The same as `max_tokens`, and before it.
    #[schemars(range(min = -1))]
    #[serde(default, deserialize_with = "whole")]
    max_completion_tokens: Option<i64>,
    /// The same as `max_tokens`, and behind it.
    #[schemars(range(min = -1))]
    #[serde(default, deserialize_with = "whole")]
    n_predict: Option<i64>,
    /// Send the answer as it is made.
    stream: Option<bool>,
    /// Only with `stream`.
    stream_options: Option<StreamOptions>,
    /// How much to think; `none` asks for no thoughts.
    reasoning_effort: Option<String>,
    /// Variables of the model's template.
    chat_template_kwargs: Option<Map<String, Json>>,
    /// Open the assistant's turn at the end of the prompt.
    add_generation_prompt: Option<bool>,
    /// Go on with the last message.
    continue_final_message: Option<bool>,
    /// Only text.
    #[schemars(extend("items" = {"const": "text"}))]
    modalities: Option<Vec<String>>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    audio: Option<Json>,
    /// Not supported.
    #[schemars(with = "Option<()>")]
    web_search_options: Option<Json>,
}

/// The endpoint.
pub(crate) async fn chat(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Fault> {
    let (fields, sampling): (ChatBody, Sampling) = body.pair().await?;
    let stream = fields.stream.unwrap_or(false);
    let usage = StreamOptions::include_usage(fields.stream_options, stream)?;
    let model = app.shown(fields.model.as_deref());
    let custom = custom::names(fields.tools.as_deref());
    let mut request = request(&app, client, fields, sampling)?;
    request.generation.room = body.into_room();
    let logprobs = request.generation.logprobs.is_some();
    let head = Head { id: stamp::id("chatcmpl-"), created: stamp::now(), model };
    let mut answer = normal::chat(&app, request).await?;
    if stream {
        let translate = ChatStream::new(head, logprobs, usage, custom);
        return Ok(respond(answer, translate, Framing::Events, app.options.ping));
    }
    let whole = answer.collect().await?;
    Ok(JsonBody(completion(&head, &answer, whole, (logprobs, &custom))).into_response())
}

/// The normal form of a request; also for endpoints that only look at its prompt.
pub(crate) fn request(
    app: &App,
    client: Client,
    fields: ChatBody,
    sampling: Sampling,
) -> Result<ChatRequest, Fault> {
    app.check_name(fields.model.as_deref())?;
    refuse(&fields)?;
    let (messages, images) = messages::read(fields.messages, &app.now().media)?;
    let tools = custom::offered(fields.tools.unwrap_or_default())?;
    tools::check(&tools)?;
    let tool_choice = tools::choice(fields.tool_choice.as_ref(), &tools)?;
    let logprobs = match (fields.logprobs.unwrap_or(false), fields.top_logprobs) {
        (true, top) => Some(top.unwrap_or(0)),
        (false, None | Some(0)) => None,
        (false, Some(_)) => {
            let message = "top_logprobs goes with logprobs: true";
            return Err(Fault::field("top_logprobs", message));
        }
    };
    let limits = [
        ("max_completion_tokens", fields.max_completion_tokens),
        ("max_tokens", fields.max_tokens),
        ("n_predict", fields.n_predict),
    ];
    let given = limits.into_iter().find(|(_, value)| value.is_some());
    let limit = given.map(|(field, value)| limit(field, value)).transpose()?.flatten();
    if let Some((field, Some(0))) = given {
        return Err(Fault::field(field, format!("{field} must be at least 1, or -1 for no limit")));
    }
    let mut variables = fields.chat_template_kwargs.unwrap_or_default();
    if let Some(effort) = fields.reasoning_effort {
        // Templates have one of these two variables to switch thoughts off.
        if effort == "none" {
            variables.entry("enable_thinking").or_insert(false.into());
        }
        variables.entry("reasoning_effort").or_insert(effort.into());
    }
    Ok(ChatRequest {
        messages,
        images,
        tools,
        tool_choice,
        parallel_tools: fields.parallel_tool_calls.unwrap_or(true),
        variables,
        open_turn: fields.add_generation_prompt.unwrap_or(true),
        continue_last: fields.continue_final_message.unwrap_or(false),
        before: Vec::new(),
        shorten: false,
        generation: sampling.generation(app, client, 1, limit, logprobs)?,
    })
}

/// Fields that are known and have no effect here.
fn refuse(fields: &ChatBody) -> Result<(), Fault> {
    let given = |value: &Option<Json>| value.as_ref().is_some_and(|v| !v.is_null());
    let unsupported = |field: &str, use_: &str| {
        Err(Fault::unsupported(field, format!("{field} is not supported: {use_}")))
    };
    if given(&fields.functions) {
        return unsupported("functions", "use tools");
    }
    if given(&fields.function_call) {
        return unsupported("function_call", "use tool_choice");
    }
    if given(&fields.audio) {
        return unsupported("audio", "this model writes text only");
    }
    if given(&fields.web_search_options) {
        return unsupported("web_search_options", "this server does not search the web");
    }
    if fields.modalities.iter().flatten().any(|m| m != "text") {
        return unsupported("modalities", "this model writes text only");
    }
    Ok(())
}

/// A choice of a chat completion.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ChatCompletion", inline)]
pub(crate) struct ChatChoice {
    index: usize,
    message: AnswerMessage,
    #[schemars(with = "Option<Map<String, Json>>")]
    logprobs: Option<Json>,
    finish_reason: Reason,
}

impl Choice for ChatChoice {
    const OBJECT: &'static str = "chat.completion";
}

/// The message that answers a conversation.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct AnswerMessage {
    #[schemars(extend("const" = "assistant"))]
    role: &'static str,
    /// Null beside calls without a text.
    content: Option<String>,
    /// What the model thought.
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    refusal: (),
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<shapes::ToolCall>")]
    tool_calls: Vec<Json>,
}

fn completion(
    head: &Head,
    answer: &Answer,
    whole: Vec<Whole>,
    (logprobs, custom): (bool, &HashSet<String>),
) -> Object<ChatChoice> {
    let mut usage = Usage::default();
    let choice = |(index, choice): (usize, Whole)| {
        usage.add(answer.prompt_of(index), &choice.finish);
        let silent = choice.text.is_empty() && !choice.calls.is_empty();
        let calls = choice.calls.into_iter().map(|call| {
            if custom.contains(&call.name) {
                let input = custom::input(&call.arguments);
                return json!({
                    "id": stamp::id("call_"),
                    "type": "custom",
                    "custom": {"name": call.name, "input": input},
                });
            }
            json!({
                "id": stamp::id("call_"),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        });
        ChatChoice {
            index,
            message: AnswerMessage {
                role: "assistant",
                content: (!silent).then_some(choice.text),
                reasoning_content: choice.reasoning,
                refusal: (),
                tool_calls: calls.collect(),
            },
            logprobs: logprobs.then(|| wire::chat_logprobs(&choice.logprobs)),
            finish_reason: choice.finish.reason,
        }
    };
    let choices = whole.into_iter().enumerate().map(choice).collect();
    head.object(choices, Some(Some(usage.counts())))
}
