//! The parts of requests that are read by hand, and the answers that are put together as JSON: types from which
//! `/openapi.json` is derived. There are no values of them.
#![allow(dead_code, reason = "only the schemas of these types are used")]

use crate::openai::shapes::{Name, ToolWord};
use schemars::JsonSchema;
use serde_json::{Map, Value as Json};

type Object = Map<String, Json>;

/// A text of the user's, or items.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum Input {
    Text(String),
    Items(#[schemars(length(min = 1))] Vec<Item>),
}

/// An item of a conversation.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "ResponseItem")]
pub(crate) enum Item {
    Message(Message),
    Other(TypedItem),
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct Message {
    #[schemars(rename = "type", extend("enum" = ["message", null]))]
    kind: Option<String>,
    role: Role,
    content: Content,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase", inline)]
enum Role {
    User,
    Assistant,
    System,
    Developer,
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", inline)]
pub(crate) enum TypedItem {
    FunctionCall {
        call_id: String,
        name: String,
        /// JSON.
        arguments: String,
    },
    FunctionCallOutput {
        call_id: String,
        output: Content,
    },
    /// A call of a custom tool.
    CustomToolCall {
        call_id: String,
        name: String,
        input: String,
    },
    CustomToolCallOutput {
        call_id: String,
        output: Content,
    },
    Reasoning {
        content: Option<Vec<Json>>,
    },
    /// An item of a response that is kept.
    ItemReference {
        id: String,
    },
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", inline)]
pub(crate) enum Part {
    InputText {
        text: String,
    },
    OutputText {
        text: String,
    },
    /// Of messages that are not the assistant's, and of results.
    InputImage {
        /// A data URL in base64, or `file://PATH` below the server's folder.
        image_url: String,
    },
}

/// A function that the model may call.
#[derive(JsonSchema)]
#[schemars(rename = "ResponseTool", tag = "type", rename_all = "snake_case")]
pub(crate) enum Tool {
    Function {
        #[schemars(length(min = 1))]
        name: String,
        description: Option<String>,
        /// A JSON schema of the arguments.
        parameters: Option<Object>,
        strict: Option<bool>,
    },
    /// A tool that takes a text.
    Custom {
        #[schemars(length(min = 1))]
        name: String,
        description: Option<String>,
    },
    /// Functions under names that begin with the namespace's.
    Namespace {
        #[schemars(length(min = 1))]
        name: String,
        tools: Vec<Object>,
    },
    /// Programs that the client runs.
    LocalShell {},
    /// Command lines that the client runs.
    Shell {},
    /// Changes of files that the client makes.
    ApplyPatch {},
    /// Left out, like all tools that OpenAI runs itself.
    WebSearch {},
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum ToolChoice {
    Word(ToolWord),
    Named(NamedTool),
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", inline)]
pub(crate) enum NamedTool {
    Function(Name),
    AllowedTools {
        #[schemars(extend("enum" = ["auto", "required"]))]
        mode: String,
        tools: Vec<Object>,
    },
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", inline)]
pub(crate) enum Format {
    Text {},
    JsonObject {},
    JsonSchema { schema: Object, name: Option<String> },
}

/// An answer of items.
#[derive(JsonSchema)]
pub(crate) struct Response {
    id: String,
    #[schemars(extend("const" = "response"))]
    object: String,
    /// Seconds since 1970.
    created_at: u64,
    completed_at: Option<u64>,
    status: Status,
    model: String,
    output: Vec<Object>,
    error: Option<Object>,
    incomplete_details: Option<Object>,
    usage: Option<Object>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case", inline)]
enum Status {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}
