//! What every request passes: keys, an id, a line in the log.

use super::held::Held;
use super::statuses::Route;
use crate::fault::Fault;
use crate::keys;
use crate::page;
use crate::spans::RequestSpan;
use crate::state::App;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use opentelemetry::trace::FutureExt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::Instrument;

/// The client of a request: requests of different clients take turns. A key is a client; without keys an address is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Client(pub(crate) u64, pub(crate) Rank);

/// Whether somebody waits for the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rank {
    #[default]
    Live,
    /// A line of a batch: behind all that is live, and with a limit of time of its own.
    Later,
}

impl Client {
    /// The priority of a request of this client's that asks for one; higher ones are served first.
    pub(crate) fn priority(self, asked: i8) -> i8 {
        match self.1 {
            Rank::Live => asked.max(-i8::MAX),
            Rank::Later => i8::MIN,
        }
    }

    /// When an answer for this client is of no use any more.
    pub(crate) fn deadline(self, time: Option<Duration>) -> Option<Instant> {
        time.filter(|_| self.1 == Rank::Live).map(|time| Instant::now() + time)
    }
}

/// The address that a connection came from; none on this machine's own sockets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(super) Option<IpAddr>);

/// Paths of monitoring, which need no key.
const OPEN: [&str; 6] = ["/", "/health", "/ping", "/metrics", "/openapi.json", "/docs"];

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Passes requests that have a key.
pub(super) async fn admit(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let given = key(request.headers());
    let keys = &app.options.keys;
    let open = keys.is_empty() || OPEN.contains(&request.uri().path());
    let key = if open { None } else { given.and_then(|given| keys.find(given)) };
    if !open && key.is_none() {
        let message = match given {
            Some(_) => "the API key is not one of this server's",
            None => "an API key is needed, in the header: Authorization: Bearer KEY",
        };
        let fault = Fault::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key");
        return fault.into_response();
    }
    let client = match given {
        Some(given) if !keys.is_empty() => keys::client(given),
        _ => {
            let mut hasher = DefaultHasher::new();
            request.extensions().get::<Peer>().map(|peer| peer.0).hash(&mut hasher);
            hasher.finish()
        }
    };
    request.extensions_mut().insert(Client(client, Rank::Live));
    // What is asked of a model counts; looking at something does not.
    let Some(key) = key.filter(|_| request.method() == Method::POST) else {
        return next.run(request).await;
    };
    // Where there are several models, the name in the request tells.
    let names: Vec<&str> = app.all_names().collect();
    let may = if names.is_empty() { Ok(()) } else { key.check(names.into_iter()) };
    let lease = match may.and_then(|()| key.begin()) {
        Ok(lease) => lease,
        Err(fault) => return fault.into_response(),
    };
    next.run(request).await.map(|body| Held::body(body, lease))
}

/// The key that a request brings, as OpenAI's or as Anthropic's clients do.
fn key(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        return scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii());
    }
    headers.get("x-api-key").map(HeaderValue::as_bytes)
}

/// Gives every request an id, the client's if it has one, and logs the result.
pub(super) async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let id = request.headers().get(&REQUEST_ID).filter(|id| {
        let id = id.as_bytes();
        (1..=128).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
    });
    let id = id.cloned().unwrap_or_else(|| {
        // Letters and digits always are a header's value.
        HeaderValue::from_str(&crate::stamp::id("req-")).unwrap_or(HeaderValue::from_static("req"))
    });
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let is_page = page::has(&path);
    let route = Route::of(&request, is_page);
    let name = id.to_str().unwrap_or_default().to_owned();
    let span = tracing::info_span!("request", id = name);
    // Probes come every few seconds, and are of no interest while they succeed.
    // So do those of a page that is looked at.
    let quiet = OPEN.contains(&path.as_str()) || path == "/status.json" || is_page;
    let probe = method == Method::GET && quiet;
    let traced =
        (!probe).then(|| RequestSpan::begin(&method, route.path(), request.headers(), &name));
    let context = traced.as_ref().map(RequestSpan::context).unwrap_or_default();
    let mut response = next.run(request).instrument(span).with_context(context).await;
    app.statuses.count(&route, response.status());
    let (status, ms) = (response.status().as_u16(), start.elapsed().as_millis() as u64);
    if let Some(traced) = traced.filter(RequestSpan::is_recorded) {
        traced.answered(response.status());
        // It ends when all is sent.
        response = response.map(|body| Held::body(body, traced));
    }
    if probe && status < 400 {
        tracing::debug!(id = name, %method, path, status, ms, "request");
    } else {
        tracing::info!(id = name, %method, path, status, ms, "request");
    }
    // Anthropic's clients look for the one, all others for the other.
    response.headers_mut().insert("request-id", id.clone());
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_two_headers() {
        let headers = |name: &'static str, value: &'static str| {
            HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))])
        };
        assert_eq!(key(&headers("authorization", "bearer abc ")), Some(&b"abc"[..]));
        assert_eq!(key(&headers("x-api-key", "abc")), Some(&b"abc"[..]));
        assert_eq!(key(&headers("authorization", "Basic abc")), None);
        assert_eq!(key(&headers("authorization", "Bear")), None);
    }
}
