//! `POST /api/chat`.

use super::options::Shared;
use super::shapes;
use super::stream::{Kind, Lines};
use super::wire::{self, Head};
use crate::fault::Fault;
use crate::http::{Body, Client, Framing, respond};
use crate::normal::{self, ChatRequest, Image, ToolChoice, Whole};
use crate::openai::tools;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;
use tokenizer::Message;

/// A conversation to answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaChat")]
pub(crate) struct ChatBody {
    /// The conversation; without it the answer says that the model is loaded.
    messages: Option<Vec<MessageBody>>,
    /// Functions that the model may call.
    #[schemars(with = "Option<Vec<shapes::Tool>>")]
    tools: Option<Vec<Json>>,
    /// Leave out the oldest messages of a conversation that is too long.
    #[schemars(extend("default" = true))]
    truncate: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct MessageBody {
    #[schemars(extend("enum" = ["system", "user", "assistant", "tool"]))]
    role: String,
    content: Option<String>,
    /// What the assistant thought.
    thinking: Option<String>,
    /// Images in base64.
    #[schemars(with = "Option<Vec<String>>")]
    images: Option<Vec<Json>>,
    #[schemars(with = "Option<Vec<shapes::ToolCall>>")]
    tool_calls: Option<Vec<Json>>,
    /// The tool whose result the message is.
    tool_name: Option<String>,
    /// The same as `tool_name`.
    name: Option<String>,
    tool_call_id: Option<String>,
}

/// The endpoint.
pub(crate) async fn chat(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Fault> {
    let (fields, mut shared): (ChatBody, Shared) = body.pair().await?;
    let mut head = Head::new(shared.check_model(&app)?);
    let messages = fields.messages.unwrap_or_default();
    if messages.is_empty() {
        app.model()?;
        let mut object = head.loaded();
        object.insert("message".into(), json!({"role": "assistant", "content": ""}));
        return Ok(JsonBody(Json::Object(object)).into_response());
    }
    let mut images = Vec::new();
    let mut read = |(at, m)| message(m, at, &mut images);
    let messages = messages.into_iter().enumerate().map(&mut read).collect::<Result<_, _>>()?;
    let tools: Vec<Json> = fields.tools.unwrap_or_default().into_iter().map(typed).collect();
    tools::check(&tools)?;
    let mut generation = shared.generation(&app, client)?;
    generation.room = body.into_room();
    let logprobs = generation.logprobs.is_some();
    let request = ChatRequest {
        messages,
        images,
        tools,
        tool_choice: ToolChoice::Auto,
        parallel_tools: true,
        variables: shared.variables(&app)?,
        open_turn: true,
        continue_last: false,
        before: Vec::new(),
        shorten: fields.truncate.unwrap_or(true),
        generation,
    };
    let mut answer = normal::chat(&app, request).await?;
    head.submitted(answer.submitted());
    if shared.stream.unwrap_or(true) {
        let lines = Lines::new(head, Kind::Chat, logprobs);
        return Ok(respond(answer, lines, Framing::Lines, app.options.ping));
    }
    let whole = answer.collect().await?.pop();
    let whole = whole.ok_or_else(|| Fault::internal("an answer has no choice"))?;
    Ok(JsonBody(completion(&head, whole, logprobs)).into_response())
}

fn message(message: MessageBody, at: usize, images: &mut Vec<Image>) -> Result<Message, Fault> {
    let field = |name: &str| format!("messages[{at}].{name}");
    if !["system", "user", "assistant", "tool"].contains(&message.role.as_str()) {
        let fault = format!("{:?} is no role: use system, user, assistant or tool", message.role);
        return Err(Fault::field(field("role"), fault));
    }
    let text = message.content.unwrap_or_default();
    let content = with_images(text, message.images, (&field("images"), images))?;
    let calls = message.tool_calls.filter(|calls| !calls.is_empty());
    let calls = calls.map(|calls| {
        let calls = calls.into_iter().enumerate();
        calls.map(|(i, c)| call(c, &field(&format!("tool_calls[{i}]")))).collect()
    });
    Ok(Message {
        role: message.role,
        content,
        reasoning_content: message.thinking.filter(|thought| !thought.is_empty()),
        tool_calls: calls.transpose()?.map(Json::Array),
        name: message.tool_name.or(message.name),
        tool_call_id: message.tool_call_id,
    })
}

/// Content with images before the text.
pub(super) fn with_images(
    text: String,
    given: Option<Vec<Json>>,
    (at, images): (&str, &mut Vec<Image>),
) -> Result<Json, Fault> {
    let given = given.unwrap_or_default();
    if given.is_empty() {
        return Ok(text.into());
    }
    let mut parts = Vec::with_capacity(given.len() + 1);
    for (i, image) in given.iter().enumerate() {
        let at = format!("{at}[{i}]");
        let data = image
            .as_str()
            .ok_or_else(|| Fault::field(at.as_str(), format!("{at} must be an image in base64")))?;
        images.push(Image::base64(data, at));
        parts.push(json!({"type": "image"}));
    }
    parts.push(json!({"type": "text", "text": text}));
    Ok(parts.into())
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
        value => value.to_string(),
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
