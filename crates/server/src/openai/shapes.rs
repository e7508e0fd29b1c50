//! The parts of requests that are read by hand, and the answers that are put together as JSON: types from which
//! `/openapi.json` is derived. There are no values of them.
#![allow(dead_code, reason = "only the schemas of these types are used")]

use schemars::JsonSchema;
use serde_json::{Map, Value as Json};

type Object = Map<String, Json>;

/// A text or several.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum Stop {
    One(String),
    Several(#[schemars(length(max = 64))] Vec<String>),
}

/// A text, several, tokens, or several lists of them.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Texts {
    Text(String),
    Tokens(Vec<u32>),
    Several(#[schemars(length(min = 1))] Vec<String>),
    Lists(#[schemars(length(min = 1))] Vec<Vec<u32>>),
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case")]
pub(crate) enum ResponseFormat {
    Text {},
    JsonObject {},
    JsonSchema { json_schema: NamedSchema },
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct NamedSchema {
    name: Option<String>,
    schema: Object,
    strict: Option<bool>,
}

/// One of these.
#[derive(JsonSchema)]
#[schemars(inline, deny_unknown_fields, extend("maxProperties" = 1))]
pub(crate) struct StructuredOutputs {
    /// A JSON schema, or its text.
    #[schemars(extend("type" = ["object", "string"]))]
    json: Option<Json>,
    /// A regular expression.
    regex: Option<String>,
    /// The answers to choose from.
    #[schemars(length(min = 1))]
    choice: Option<Vec<String>>,
    /// A grammar in Lark.
    grammar: Option<String>,
    /// Any JSON object.
    #[schemars(extend("const" = true))]
    json_object: Option<bool>,
}

/// A message of a conversation.
#[derive(JsonSchema)]
pub(crate) struct Message {
    role: Role,
    /// Text, or parts.
    content: Option<Content>,
    /// What the assistant thought.
    reasoning_content: Option<String>,
    /// The same as `reasoning_content`.
    reasoning: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<ToolCall>>,
    /// Of the speaker, or of the tool that answers.
    name: Option<String>,
    /// The call that a tool answers.
    tool_call_id: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
    Function,
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum Content {
    Text(String),
    Parts(Vec<MessagePart>),
}

/// A part of a message.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case")]
enum MessagePart {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
}

/// A data URL in base64, or file://PATH.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
enum ImageUrl {
    Url(String),
    Object { url: String },
}

/// A call of a function, or of a custom tool.
#[derive(JsonSchema)]
pub(crate) struct ToolCall {
    id: Option<String>,
    #[schemars(rename = "type", extend("enum" = ["function", "custom", null]))]
    kind: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    function: Option<Call>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    custom: Option<CustomCall>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct CustomCall {
    name: String,
    input: String,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Call {
    name: String,
    /// JSON.
    arguments: String,
}

/// A function that the model may call.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case")]
pub(crate) enum Tool {
    Function { function: Function },
    Custom { custom: CustomTool },
}

/// A tool that takes a text.
#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct CustomTool {
    #[schemars(length(min = 1))]
    name: String,
    description: Option<String>,
    format: Option<CustomFormat>,
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", inline)]
enum CustomFormat {
    Text {},
    Grammar { grammar: CustomGrammar },
}

/// A pattern holds where the call is forced; a grammar in Lark is told to the model.
#[derive(JsonSchema)]
#[schemars(inline)]
struct CustomGrammar {
    #[schemars(extend("enum" = ["lark", "regex"]))]
    syntax: String,
    definition: String,
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct Function {
    #[schemars(length(min = 1))]
    name: String,
    description: Option<String>,
    /// A JSON schema of the arguments.
    parameters: Option<Object>,
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum ToolChoice {
    Word(ToolWord),
    Named(NamedTool),
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
pub(crate) enum ToolWord {
    Auto,
    None,
    Required,
    Any,
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", inline)]
pub(crate) enum NamedTool {
    Function { function: Name },
    Custom { custom: Name },
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct Name {
    name: String,
}

/// A request that cannot be served.
#[derive(JsonSchema)]
pub(crate) struct Error {
    error: ErrorDetails,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ErrorDetails {
    message: String,
    #[schemars(rename = "type")]
    kind: String,
    /// The field at fault.
    param: Option<String>,
    code: Option<String>,
}
