//! The answer to a request that cannot be served.
//!
//! One type for all protocols: status, OpenAI's `type` and `code`, the field at fault. OpenAI's form
//! is the [`IntoResponse`] of it; other protocols write their own from the same parts.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};

/// A request that cannot be served, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The HTTP status.
    pub status: StatusCode,
    /// What went wrong, for people.
    pub message: String,
    /// The field at fault, as a path: `messages[0].role`.
    pub param: Option<String>,
    /// What went wrong, for programs.
    pub code: Option<&'static str>,
    /// Seconds after which it may be tried again.
    pub retry_after: Option<u32>,
    /// Of a prompt that is too long: its tokens, and those of the context. Clients know the words that each protocol
    /// has for it.
    pub too_long: Option<(usize, usize)>,
}

impl Fault {
    /// A fault with nothing but a status and a message.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Fault {
        Fault {
            status,
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
            too_long: None,
        }
    }

    /// 400: a prompt of more tokens than the context holds, in OpenAI's words.
    pub fn too_long(tokens: usize, context: usize) -> Fault {
        let message = format!(
            "This model's maximum context length is {context} tokens. However, your messages resulted \
             in {tokens} tokens. Please reduce the length of the messages."
        );
        Fault {
            too_long: Some((tokens, context)),
            ..Fault::invalid(message).code("context_length_exceeded")
        }
    }

    /// 400: the request says something that cannot be.
    pub fn invalid(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::BAD_REQUEST, message)
    }

    /// 400: a field has a value that cannot be.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault::invalid(message).at(param)
    }

    /// 400: a field that is known, and cannot be honoured here.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault::field(param, message).code("unsupported_parameter")
    }

    /// 500: a fault of the server's own.
    pub fn internal(message: impl Into<String>) -> Fault {
        Fault::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// 503: not now.
    pub fn unavailable(message: impl Into<String>) -> Fault {
        Fault { retry_after: Some(1), ..Fault::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// Names the field.
    pub fn at(self, param: impl Into<String>) -> Fault {
        Fault { param: Some(param.into()), ..self }
    }

    /// Names the kind for programs.
    pub fn code(self, code: &'static str) -> Fault {
        Fault { code: Some(code), ..self }
    }

    /// OpenAI's word for the class of errors.
    pub fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => "timeout_error",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// OpenAI's form.
    pub fn json(&self) -> Json {
        json!({"error": {
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.code,
        }})
    }

    /// A response with this fault's status and headers and a body of the caller's form.
    pub fn response(&self, body: &Json) -> Response {
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = self.response(&self.json());
        // For protocols with a form of their own: see `http::dialect`.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<arclight_engine::Error> for Fault {
    fn from(error: arclight_engine::Error) -> Fault {
        use arclight_engine::Error as E;
        let message = error.to_string();
        match error {
            E::PromptTooLong { tokens, context } => Fault::too_long(tokens, context),
            E::WritesNothing => Fault::invalid(message).code("writes_nothing"),
            E::EmptyPrompt => Fault::invalid("the prompt is empty").code("empty_prompt"),
            E::BadSampler { name, .. } => Fault::field(name, message),
            E::QueueFull { .. } => Fault {
                retry_after: Some(1),
                ..Fault::new(StatusCode::TOO_MANY_REQUESTS, message).code("queue_full")
            },
            E::Deadline => Fault::new(
                StatusCode::GATEWAY_TIMEOUT,
                "the request waited in the queue for as long as a request may take",
            )
            .code("timeout"),
            E::NoAdapter { .. } | E::RepeatedAdapter(_) | E::BadScale { .. } => {
                Fault::field("lora", message)
            }
            E::NoSlot { .. } => Fault::new(StatusCode::NOT_FOUND, message).code("no_slot"),
            E::BadSave | E::ForeignSave => Fault::field("filename", message),
            E::NoPages { .. } | E::TooManySequences { .. } => Fault::unavailable(message),
            E::NoEncoder
            | E::Image(_)
            | E::ImageStep { .. }
            | E::ImageOutputs { .. }
            | E::ImageLogprobs => Fault::field("messages", message),
            E::NeverRuns { .. } => Fault::unavailable(message).code("never_runs"),
            E::Constraint(_) => Fault::invalid(message).code("constraint_failed"),
            E::ReplicasClosed => Fault::unavailable("the server is shutting down"),
            E::StageLost { .. } => Fault::unavailable(message).code("stage_lost"),
            E::ReplicaFailed { .. } => Fault::unavailable(message).code("replica_failed"),
            _ => Fault::internal(message),
        }
    }
}

impl From<tokenizer::Error> for Fault {
    fn from(error: tokenizer::Error) -> Fault {
        use tokenizer::Error as E;
        let message = error.to_string();
        match error {
            E::Refused { .. }
            | E::NoEscape
            | E::Template { .. }
            | E::TemplateTooLong { .. }
            | E::TemplateTooSlow { .. }
            | E::TemplateTooLarge { .. } => Fault::field("messages", message),
            E::MissingByte { .. } => Fault::invalid(message),
            _ => Fault::internal(message),
        }
    }
}
