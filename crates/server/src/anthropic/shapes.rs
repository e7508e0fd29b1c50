//! The parts of requests that are read by hand, and the answers that are put together as JSON: types from which
//! `/openapi.json` is derived. There are no values of them.
#![allow(dead_code, reason = "only the schemas of these types are used")]

use schemars::JsonSchema;
use serde_json::{Map, Value as Json};

type Object = Map<String, Json>;

/// A block of text.
#[derive(JsonSchema)]
#[schemars(rename = "AnthropicText", tag = "type", rename_all = "snake_case")]
pub(crate) enum Text {
    Text { text: String },
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum Texts {
    Text(String),
    Blocks(Vec<Text>),
}

/// A message of a conversation.
#[derive(JsonSchema)]
#[schemars(rename = "AnthropicTurn", tag = "role", rename_all = "snake_case")]
pub(crate) enum Turn {
    User { content: Content<UserBlock> },
    Assistant { content: Content<Block> },
    System { content: Texts },
}

#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub(crate) enum Content<B> {
    Text(String),
    Blocks(Vec<B>),
}

#[derive(JsonSchema)]
#[schemars(rename = "AnthropicUserBlock", tag = "type", rename_all = "snake_case")]
pub(crate) enum UserBlock {
    Text {
        text: String,
    },
    Image {
        source: Source,
    },
    /// What a tool gave.
    ToolResult {
        tool_use_id: String,
        content: Option<Texts>,
        is_error: Option<bool>,
    },
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", inline)]
pub(crate) enum Source {
    Base64 { data: String },
    Url { url: String },
}

/// A part of an answer.
#[derive(JsonSchema)]
#[schemars(rename = "AnthropicBlock", tag = "type", rename_all = "snake_case")]
pub(crate) enum Block {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
    },
    /// A call of a tool.
    ToolUse {
        id: String,
        name: String,
        input: Object,
    },
}

/// A function that the model may call.
#[derive(JsonSchema)]
#[schemars(rename = "AnthropicTool")]
pub(crate) struct Tool {
    #[schemars(rename = "type", extend("enum" = ["custom", null]))]
    kind: Option<String>,
    #[schemars(length(min = 1))]
    name: String,
    description: Option<String>,
    /// A JSON schema of the arguments.
    input_schema: Object,
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", inline)]
pub(crate) enum ToolChoice {
    Auto { disable_parallel_tool_use: Option<bool> },
    Any { disable_parallel_tool_use: Option<bool> },
    None { disable_parallel_tool_use: Option<bool> },
    Tool { name: String, disable_parallel_tool_use: Option<bool> },
}

#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case", inline)]
pub(crate) enum Format {
    JsonSchema { schema: Object },
}

/// A request that cannot be served.
#[derive(JsonSchema)]
#[schemars(rename = "AnthropicError", tag = "type", rename_all = "snake_case")]
pub(crate) enum Error {
    Error { error: ErrorDetails },
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct ErrorDetails {
    #[schemars(rename = "type")]
    kind: String,
    message: String,
}

/// An answer.
#[derive(JsonSchema)]
#[schemars(rename = "AnthropicMessage", tag = "type", rename_all = "snake_case")]
pub(crate) enum Message {
    Message {
        id: String,
        #[schemars(extend("const" = "assistant"))]
        role: String,
        model: String,
        content: Vec<Block>,
        stop_reason: StopReason,
        stop_sequence: Option<String>,
        usage: Usage,
    },
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case", inline)]
pub(crate) enum StopReason {
    EndTurn,
    MaxTokens,
    StopSequence,
    ToolUse,
    ModelContextWindowExceeded,
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct Usage {
    /// Tokens of the prompt that were not in the cache.
    input_tokens: usize,
    output_tokens: usize,
    cache_read_input_tokens: usize,
    cache_creation_input_tokens: usize,
}
