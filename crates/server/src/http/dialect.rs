//! Faults in the words of the protocol that was asked in, wherever they were found.
//!
//! Keys, bodies and unknown paths are checked before the protocol's handler runs. The code that refuses a request does
//! it with a [`Fault`], which goes along with its response; here the body is written anew where the
//! path belongs to a protocol with a form of its own.

use crate::fault::Fault;
use crate::{anthropic, ollama};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use serde_json::Value as Json;

/// How a protocol writes a fault; `None` for OpenAI's way, in which it is written already.
fn words(path: &str) -> Option<fn(&Fault) -> Json> {
    let below = |prefix: &str| {
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if below("/v1/messages") {
        Some(anthropic::fault)
    } else if below("/api") {
        Some(ollama::fault)
    } else {
        None
    }
}

/// Writes faults as the path's protocol does.
pub(super) async fn translate(request: Request, next: Next) -> Response {
    let words = words(request.uri().path());
    let mut response = next.run(request).await;
    let Some(words) = words else { return response };
    let Some(fault) = response.extensions_mut().remove::<Fault>() else { return response };
    let mut translated = fault.response(&words(&fault));
    // What layers in between have added stays.
    for (name, value) in response.headers() {
        if !translated.headers().contains_key(name) && name != axum::http::header::CONTENT_LENGTH {
            translated.headers_mut().append(name, value.clone());
        }
    }
    translated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_tell_the_protocol() {
        let says = |path| words(path).map(|words| words(&Fault::invalid("no")).to_string());
        assert_eq!(says("/api/chat").unwrap(), r#"{"error":"no"}"#);
        assert!(says("/v1/messages/count_tokens").unwrap().contains(r#""type":"error""#));
        assert_eq!(says("/v1/messagesish"), None);
        assert_eq!(says("/apiary"), None);
        assert_eq!(says("/v1/chat/completions"), None);
    }
}
