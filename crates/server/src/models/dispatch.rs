//! Which model a request is for: the name in its body, or in its query where it has no body.

use super::lifecycle::Entry;
use super::{Models, change, list};
use crate::batch::{self, Gate, Worker};
use crate::error::Error;
use crate::fault::Fault;
use crate::http::{Body, Client, Held, Peer, routes, surround};
use crate::page;
use axum::body::Body as HttpBody;
use axum::extract::{FromRequest, FromRequestParts, Query, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, post};
use axum::{Json as JsonBody, Router};
use serde::Deserialize;
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tower::ServiceExt;

/// Paths of one model whose requests may have no body.
const BY_QUERY: [&str; 4] = ["/lora-adapters", "/slots", "/props", "/tokenizer_info"];

/// The service of several models.
pub(crate) fn router(models: Arc<Models>) -> Result<Router, Error> {
    let common = models.common().clone();
    let own = Router::new()
        .route("/models/load", post(list::load))
        .route("/models/unload", post(list::unload))
        .route("/api/pull", post(change::pull))
        .route("/api/create", post(change::create))
        .route("/api/copy", post(change::copy))
        .route("/api/delete", delete(change::delete))
        .with_state(models.clone());
    // Only for paths that there are.
    let routes = routes().route_layer(middleware::from_fn_with_state(models, dispatch));
    let routes = routes.merge(own).merge(batch::routes()).merge(page::routes());
    Ok(surround(routes, &common)?.with_state(common))
}

/// Works on batches, if there are any.
pub(crate) fn worker(models: &Arc<Models>) -> Option<Worker> {
    let common = models.common();
    let store = common.options.files.clone()?;
    let lines = routes().route_layer(middleware::from_fn_with_state(models.clone(), dispatch));
    let all = models.clone();
    let gate = Gate::new(common.released.clone(), move |running| {
        let entries = all.entries();
        let loaded = entries.iter().filter(|entry| all.is_loaded(entry));
        let loaded: Vec<_> = loaded.filter_map(|entry| entry.app.model().ok()).collect();
        all.common().check_running().is_ok()
            && batch::has_room(loaded.iter().map(|model| &**model), running)
    });
    let (keys, most) = (common.options.keys.clone(), common.options.body_limit);
    Some(Worker::new(store, lines.with_state(common.clone()), keys, most, gate))
}

/// Answers for all models, or hands a request to one of them.
async fn dispatch(State(models): State<Arc<Models>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let by_query = BY_QUERY.iter().any(|one| path.starts_with(one));
    match path {
        "/v1/models" => JsonBody(list::models(&models)).into_response(),
        "/api/tags" => JsonBody(list::tags(models).await).into_response(),
        "/api/show" if request.method() == Method::POST => {
            list::show(models, request).await.into_response()
        }
        "/api/ps" => JsonBody(list::loaded(&models)).into_response(),
        // Whatever the method.
        "/ping" => next.run(request).await,
        "/load" => list::health(&models).map(|health| JsonBody(health.load())).into_response(),
        "/health" => list::health(&models).map(JsonBody).into_response(),
        "/metrics" => list::metrics(&models),
        "/status.json" => match models.looked_at(request.uri()) {
            Ok(entry) => {
                let views = list::views(&models);
                request.extensions_mut().insert(views);
                inner(&entry.router, request).await
            }
            Err(fault) => fault.into_response(),
        },
        _ => match path.strip_prefix("/v1/models/") {
            Some(name) => list::one(&models, name).map(JsonBody).into_response(),
            None if by_query || request.method() == Method::POST => {
                models.hand_on(request, by_query).await.into_response()
            }
            // What is kept, and what concerns no model.
            None => next.run(request).await,
        },
    }
}

/// What a request says of the model that it is for.
#[derive(Debug, Default, Deserialize)]
struct Wanted {
    model: Option<String>,
    /// Ollama's older name of it.
    name: Option<String>,
    /// For how long it stays loaded, by Ollama's API.
    keep_alive: Option<Json>,
}

/// Has a model's own routes answer.
async fn inner(routes: &Router, request: Request) -> Response {
    match routes.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

impl Models {
    /// The model whose state is told: the one in the query, or the loaded one that was asked for last.
    fn looked_at(&self, uri: &Uri) -> Result<Arc<Entry>, Fault> {
        let asked = Query::<Wanted>::try_from_uri(uri).ok().and_then(|Query(wanted)| wanted.model);
        match asked {
            Some(name) => self.meant(Some(&name)),
            None => self.last_asked().ok_or_else(|| {
                let message = "there is no model yet: POST /api/pull brings one";
                Fault::new(StatusCode::NOT_FOUND, message).code("model_not_found")
            }),
        }
    }

    async fn hand_on(
        self: &Arc<Models>,
        request: Request,
        by_query: bool,
    ) -> Result<Response, Fault> {
        let (mut parts, body) = request.into_parts();
        let (wanted, body) = if by_query {
            let query = Query::<Wanted>::from_request_parts(&mut parts, &()).await;
            (query.map(|Query(wanted)| wanted).unwrap_or_default(), body)
        } else {
            let mut whole = Request::new(body);
            *whole.headers_mut() = parts.headers.clone();
            let body = Body::from_request(whole, self.common()).await?;
            let wanted: Wanted = body.json().await?;
            parts.extensions.insert(body);
            (wanted, HttpBody::empty())
        };
        let name = wanted.model.or(wanted.name).filter(|name| !name.is_empty());
        let entry = self.meant(name.as_deref())?;
        let client = parts.extensions.get::<Client>().copied().unwrap_or_default();
        if let Some(key) = self.common().options.keys.of(client.0) {
            // By the name that was asked for, which may be an adapter's, or by the model's.
            key.check(name.as_deref().into_iter().chain([entry.app.name()]))?;
        }
        let stays = wanted.keep_alive.as_ref().map(keep_alive).transpose()?;
        let time = entry.app.now().request_timeout;
        let lease = self.lease(&entry, time.map(|time| Instant::now() + time)).await?;
        if let Some(idle) = stays.filter(|_| parts.uri.path().starts_with("/api/")) {
            self.stay(&entry, idle);
        }
        // Without what the first routing has left: the model's own routes have the same parts.
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = parts.uri;
        *request.headers_mut() = parts.headers;
        let to = request.extensions_mut();
        parts.extensions.remove::<Client>().map(|client| to.insert(client));
        parts.extensions.remove::<Peer>().map(|peer| to.insert(peer));
        parts.extensions.remove::<Body>().map(|body| to.insert(body));
        let response = inner(&entry.router, request).await;
        Ok(response.map(|body| Held::body(body, lease)))
    }

    /// The model of a name; without a name the only one.
    ///
    /// # Errors
    /// 404 for a name that none has, 400 where none is given and there are several.
    pub(super) fn meant(&self, name: Option<&str>) -> Result<Arc<Entry>, Fault> {
        let names = || self.names().join(", ");
        match (name, self.entries().as_slice()) {
            (Some(name), _) => self.find(name).ok_or_else(|| Fault {
                status: StatusCode::NOT_FOUND,
                ..Fault::field(
                    "model",
                    format!("the model {name:?} does not exist: this server has {}", names()),
                )
                .code("model_not_found")
            }),
            (None, [only]) => Ok(only.clone()),
            (None, _) => {
                let message = format!("model is missing: this server has {}", names());
                Err(Fault::field("model", message))
            }
        }
    }

    /// Takes no more requests; those that run go on.
    pub(crate) fn stop(&self) {
        self.common().stop();
        self.entries().iter().for_each(|entry| entry.app.stop());
    }
}

/// How long a model is to stay without requests, as Ollama's clients say it: seconds, or a text such as `10m`;
/// below 0 for ever.
fn keep_alive(value: &Json) -> Result<Option<Duration>, Fault> {
    let wrong = || {
        let message =
            "keep_alive must be a number of seconds or a time such as \"10m\" or \"1h30m\"";
        Fault::field("keep_alive", message)
    };
    let seconds = match value {
        Json::Number(number) => number.as_f64().ok_or_else(wrong)?,
        Json::String(text) => seconds(text).ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    if seconds < 0.0 {
        return Ok(None);
    }
    Duration::try_from_secs_f64(seconds).map(Some).map_err(|_| wrong())
}

/// A time in Go's notation, or a bare number of seconds.
fn seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds.is_finite().then_some(seconds);
    }
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    let mut all = 0.0;
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(unit);
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let factor = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        all += number.parse::<f64>().ok()? * factor;
        rest = next;
    }
    Some(sign * all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_written_as_in_go() {
        let stays = |value: Json| keep_alive(&value).map_err(|fault| fault.param.unwrap());
        let seconds = |s: f64| Ok(Some(Duration::from_secs_f64(s)));
        assert_eq!(stays(json!(0)), seconds(0.0));
        assert_eq!(stays(json!(1.5)), seconds(1.5));
        assert_eq!(stays(json!("10m")), seconds(600.0));
        assert_eq!(stays(json!("1h30m0.5s")), seconds(5400.5));
        assert_eq!(stays(json!("250ms")), seconds(0.25));
        assert_eq!(stays(json!("30")), seconds(30.0));
        assert_eq!(stays(json!(-1)), Ok(None));
        assert_eq!(stays(json!("-1m")), Ok(None));
        for wrong in [json!("m"), json!("5 parsecs"), json!(true), json!("1h-3m"), json!("nan")] {
            assert_eq!(stays(wrong), Err("keep_alive".to_owned()));
        }
    }
}
