//! Which side of the server a connection came to: what is for operators can have addresses of its own.

use super::path::no_route;
use crate::page;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The side of a connection. Without addresses for operators there is one side, which has everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// What clients need.
    Clients,
    /// What operators need.
    Operators,
}

/// What operators look at or change.
fn is_for_operators(method: &Method, path: &str) -> bool {
    match path {
        "/metrics" | "/status" | "/status.json" | "/models/load" | "/models/unload" | "/slots" => {
            true
        }
        // Which adapters there are, clients may know.
        "/lora-adapters" => method == Method::POST,
        _ => path.starts_with("/slots/"),
    }
}

/// What both sides have: whether the server is there, and which models it has.
fn is_for_both(path: &str) -> bool {
    matches!(path, "/health" | "/ping" | "/version" | "/load" | "/v1/models" | "/lora-adapters")
        // The dashboard's own files.
        || (path != "/" && page::has(path))
}

/// Passes a request that came to the right side; to others there is no such path.
pub(super) async fn keep(request: Request, next: Next) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let here = match request.extensions().get::<Side>() {
        None => true,
        Some(Side::Clients) => !is_for_operators(method, path),
        Some(Side::Operators) => is_for_operators(method, path) || is_for_both(path),
    };
    if here {
        next.run(request).await
    } else {
        no_route(request.uri().clone()).await.into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changing_adapters_is_for_operators_and_looking_at_them_is_not() {
        assert!(is_for_operators(&Method::POST, "/lora-adapters"));
        assert!(!is_for_operators(&Method::GET, "/lora-adapters"));
        assert!(
            is_for_operators(&Method::POST, "/slots/0") && is_for_operators(&Method::GET, "/slots")
        );
        assert!(!is_for_operators(&Method::GET, "/slotsish"));
        assert!(
            is_for_both("/health") && !is_for_both("/") && !is_for_both("/v1/chat/completions")
        );
    }
}
