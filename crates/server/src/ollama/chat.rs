//! `POST /api/chat`.

use super::options::Shared;
use super::stream::{Kind, Lines};
use super::wire::{self, Head};
use crate::fault::Fault;
use crate::http::{Body, Client, Framing, respond};
use crate::normal::{self, ChatRequest, ToolChoice, Whole};
use crate::openai::tools;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;
use tokenizer::Message;

/// The fields that are the endpoint's own.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatBody {
    messages: Option<Vec<MessageBody>>,
    tools: Option<Vec<Json>>,
}

#[derive(Debug, Deserialize)]
struct MessageBody {
    role: String,
    content: Option<String>,
    thinking: Option<String>,
    images: Option<Vec<Json>>,
    tool_calls: Option<Vec<Json>>,
    tool_name: Option<String>,
    name: Option<String>,
    tool_call_id: Option<String>,
}

/// The endpoint.
pub(crate) async fn chat(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Fault> {
    let (fields, shared): (ChatBody, Shared) = (body.json().await?, body.json().await?);
    let mut head = Head::new(shared.check_model(&app)?);
    let messages = fields.messages.unwrap_or_default();
    if messages.is_empty() {
        app.model()?;
        let mut object = head.loaded();
        object.insert("message".into(), json!({"role": "assistant", "content": ""}));
        return Ok(JsonBody(Json::Object(object)).into_response());
    }
    let messages =
        messages.into_iter().enumerate().map(|(at, m)| message(m, at)).collect::<Result<_, _>>()?;
    let tools: Vec<Json> = fields.tools.unwrap_or_default().into_iter().map(typed).collect();
    tools::check(&tools)?;
    let generation = shared.generation(&app, client)?;
    let logprobs = generation.logprobs.is_some();
    let request = ChatRequest {
        messages,
        tools,
        tool_choice: ToolChoice::Auto,
        parallel_tools: true,
        variables: shared.variables(&app)?,
        open_turn: true,
        continue_last: false,
        before: Vec::new(),
        generation,
    };
    let mut answer = normal::chat(&app, request).await?;
    head.submitted();
    if shared.stream.unwrap_or(true) {
        let lines = Lines::new(head, Kind::Chat, logprobs);
        return Ok(respond(answer, lines, Framing::Lines, app.options.ping));
    }
    let whole = answer.collect().await?.pop();
    let whole = whole.ok_or_else(|| Fault::internal("an answer has no choice"))?;
    Ok(JsonBody(completion(&head, whole, logprobs)).into_response())
}

fn message(message: MessageBody, at: usize) -> Result<Message, Fault> {
    let field = |name: &str| format!("messages[{at}].{name}");
    if !["system", "user", "assistant", "tool"].contains(&message.role.as_str()) {
        let fault = format!("{:?} is no role: use system, user, assistant or tool", message.role);
        return Err(Fault::field(field("role"), fault));
    }
    if message.images.is_some_and(|images| !images.is_empty()) {
        return Err(Fault::unsupported(field("images"), "this model reads text only"));
    }
    let calls = message.tool_calls.filter(|calls| !calls.is_empty());
    let calls = calls.map(|calls| {
        let calls = calls.into_iter().enumerate();
        calls.map(|(i, c)| call(c, &field(&format!("tool_calls[{i}]")))).collect()
    });
    Ok(Message {
        role: message.role,
        content: message.content.unwrap_or_default().into(),
        reasoning_content: message.thinking.filter(|thought| !thought.is_empty()),
        tool_calls: calls.transpose()?.map(Json::Array),
        name: message.tool_name.or(message.name),
        tool_call_id: message.tool_call_id,
    })
}

/// A call in the normal form, whose arguments are text.
fn call(call: Json, at: &str) -> Result<Json, Fault> {
    let function = &call["function"];
    let name = function["name"].as_str().ok_or_else(|| {
        let at = format!("{at}.function.name");
        Fault::field(at.as_str(), format!("{at} must be a string"))
    })?;
    let arguments = match &function["arguments"] {
        Json::Null => "{}".to_owned(),
        Json::String(text) => text.clone(),
        object @ Json::Object(_) => object.to_string(),
        _ => {
            let at = format!("{at}.function.arguments");
            return Err(Fault::field(at.as_str(), format!("{at} must be an object")));
        }
    };
    let mut read = json!({"type": "function", "function": {"name": name, "arguments": arguments}});
    if let Some(id) = call["id"].as_str() {
        read["id"] = id.into();
    }
    Ok(read)
}

/// A tool's type may be left out.
fn typed(mut tool: Json) -> Json {
    if let Json::Object(tool) = &mut tool
        && tool.get("type").is_none_or(Json::is_null)
    {
        tool.insert("type".into(), "function".into());
    }
    tool
}

fn completion(head: &Head, whole: Whole, logprobs: bool) -> Json {
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    message.insert("content".into(), whole.text.into());
    if !whole.reasoning.is_empty() {
        message.insert("thinking".into(), whole.reasoning.into());
    }
    let calls = whole.calls.iter().enumerate();
    let calls: Vec<Json> =
        calls.filter_map(|(at, call)| wire::call(at, &call.name, &call.arguments)).collect();
    if !calls.is_empty() {
        message.insert("tool_calls".into(), calls.into());
    }
    let mut object = head.done(&whole.finish);
    object.insert("message".into(), message.into());
    if logprobs {
        object.insert("logprobs".into(), wire::logprobs(&whole.logprobs));
    }
    Json::Object(object)
}
