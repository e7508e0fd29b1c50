//! The parts of requests that are read by hand, and the answers that are put together as JSON: types from which
//! `/openapi.json` is derived. There are no values of them.
#![allow(dead_code, reason = "only the schemas of these types are used")]

use crate::openai::shapes::Function;
use schemars::JsonSchema;
use serde_json::{Map, Value as Json};

type Object = Map<String, Json>;

/// A function that the model may call.
#[derive(JsonSchema)]
#[schemars(rename = "OllamaTool")]
pub(crate) struct Tool {
    #[schemars(rename = "type", extend("enum" = ["function", null]))]
    kind: Option<String>,
    function: Function,
}

/// A call of a function.
#[derive(JsonSchema)]
#[schemars(rename = "OllamaCall")]
pub(crate) struct ToolCall {
    function: Call,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Call {
    name: String,
    arguments: Option<Object>,
}

/// A request that cannot be served.
#[derive(JsonSchema)]
#[schemars(rename = "OllamaError")]
pub(crate) struct Error {
    error: String,
}

/// The end of an answer to a conversation.
#[derive(JsonSchema)]
#[schemars(rename = "OllamaChatAnswer")]
pub(crate) struct ChatAnswer {
    message: Object,
    #[schemars(flatten)]
    end: End,
}

/// The end of an answer to a prompt.
#[derive(JsonSchema)]
#[schemars(rename = "OllamaText")]
pub(crate) struct TextAnswer {
    response: String,
    /// Tokens of the exchange, for the next request.
    #[schemars(skip_serializing_if = "Option::is_none")]
    context: Option<Vec<u32>>,
    #[schemars(flatten)]
    end: End,
}

/// Durations are nanoseconds.
#[derive(JsonSchema)]
#[schemars(inline)]
struct End {
    model: String,
    #[schemars(extend("format" = "date-time"))]
    created_at: String,
    #[schemars(extend("const" = true))]
    done: bool,
    done_reason: Reason,
    #[schemars(skip_serializing_if = "Option::is_none")]
    total_duration: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    load_duration: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    prompt_eval_count: Option<usize>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    prompt_eval_duration: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    eval_count: Option<usize>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    eval_duration: Option<u64>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<Object>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case", inline)]
enum Reason {
    Stop,
    Length,
    Load,
}
