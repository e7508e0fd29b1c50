//! What Anthropic's answers have in common: heads, usage, reasons, errors.

use crate::fault::Fault;
use crate::normal::{Finish, Reason};
use axum::http::StatusCode;
use serde_json::{Value as Json, json};

/// What every message of an answer begins with.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) model: String,
    /// Most tokens of the answer, as asked for.
    pub(super) limit: usize,
    /// The request speaks of edits of its conversation, of which there are none.
    pub(super) edits: bool,
}

impl Head {
    /// The message: whole if it has ended, without blocks if it is about to begin.
    pub(super) fn message(&self, content: Vec<Json>, ended: Option<&Finish>, usage: Json) -> Json {
        let mut message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": ended.map(|finish| self.stop_reason(finish)),
            "stop_sequence": ended.and_then(|finish| finish.stop.as_deref()),
            "usage": usage,
        });
        if ended.is_some() {
            self.tell_edits(&mut message);
        }
        message
    }

    /// Tells that nothing was taken out of the conversation, to a client that has asked for such edits.
    pub(super) fn tell_edits(&self, object: &mut Json) {
        if self.edits {
            object["context_management"] = json!({"applied_edits": []});
        }
    }

    pub(super) fn stop_reason(&self, finish: &Finish) -> &'static str {
        match finish.reason {
            Reason::Stop if finish.stop.is_some() => "stop_sequence",
            Reason::Stop => "end_turn",
            Reason::Length if finish.tokens >= self.limit => "max_tokens",
            Reason::Length => "model_context_window_exceeded",
            Reason::ToolCalls => "tool_use",
        }
    }
}

/// Usage at the end. `input_tokens` are those that were not in the cache: the parts add up to the
/// prompt. Nothing is written to the cache at a price of its own.
pub(super) fn usage(finish: &Finish) -> Json {
    json!({
        "input_tokens": finish.prompt_tokens - finish.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": finish.cached_tokens,
        "output_tokens": finish.tokens,
        "output_tokens_details": {"thinking_tokens": finish.reasoning_tokens},
    })
}

/// Usage before anything is computed.
pub(super) fn usage_before(prompt_tokens: usize) -> Json {
    json!({
        "input_tokens": prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
    })
}

/// A fault in Anthropic's form.
pub(crate) fn fault(fault: &Fault) -> Json {
    let kind = match fault.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    let message = match fault.too_long {
        // By these words clients know that they have to shorten the conversation.
        Some((tokens, context)) => {
            format!("prompt is too long: {tokens} tokens > {context} maximum")
        }
        None => fault.message.clone(),
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}
