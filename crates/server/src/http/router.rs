//! Which path leads where, and what stands before all of them.

use super::path::no_route;
use super::{connections, dialect, gate, origin, sides};
use crate::cluster::render;
use crate::error::Error;
use crate::fault::Fault;
use crate::openai::tools::LEFT_OUT;
use crate::openai::{chat, completions, embeddings, llama, models};
use crate::options::Options;
use crate::state::App;
use crate::{
    adapters, anthropic, batch, ollama, openapi, operate, page, rerank, responses, score, slots,
    status, text,
};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use std::any::Any;
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};

/// The server as a service: for tests, and for programs that have a listener of their own.
///
/// # Errors
/// When an origin in the options cannot be.
pub fn router(app: Arc<App>) -> Result<Router, Error> {
    Ok(surround(routes().merge(batch::routes()).merge(page::routes()), &app)?.with_state(app))
}

/// What a model answers.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/chat/completions/render", post(render::chat))
        .route("/v1/completions/render", post(render::completions))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/rerank", post(rerank::rerank))
        .route("/v2/rerank", post(rerank::rerank))
        .route("/rerank", post(rerank::rerank))
        .route("/v1/score", post(score::score))
        .route("/completion", post(llama::completion))
        .route("/infill", post(llama::infill))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*name}", get(models::one))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/input_tokens", post(responses::input_tokens))
        .route("/v1/responses/compact", post(responses::compact))
        .route("/v1/responses/{id}", get(responses::retrieve).delete(responses::delete))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/embed", post(ollama::embed))
        .route("/api/embeddings", post(ollama::embeddings))
        .route("/api/tags", get(ollama::tags))
        .route("/api/show", post(ollama::show))
        .route("/api/ps", get(ollama::ps))
        .route("/api/version", get(ollama::version))
        .route("/tokenize", post(text::tokenize))
        .route("/detokenize", post(text::detokenize))
        .route("/apply-template", post(text::apply_template))
        .route("/lora-adapters", get(adapters::list).post(adapters::change))
        .route("/slots", get(llama::slots))
        .route("/slots/{id}", post(slots::act))
        .route("/props", get(llama::props))
        .route("/tokenizer_info", get(text::tokenizer_info))
        .route("/", get(operate::root))
        .route("/version", get(operate::version))
        .route("/ping", get(operate::ping).post(operate::ping))
        .route("/load", get(operate::load))
        .route("/health", get(operate::health))
        .route("/metrics", get(operate::metrics))
        .route("/status.json", get(status::status))
        .route("/openapi.json", get(openapi::serve))
        .route("/docs", get(openapi::page))
}

/// The same for programs in this process, who need no keys.
pub(crate) fn unguarded(app: Arc<App>) -> Router {
    let routes = routes().fallback(no_route).method_not_allowed_fallback(no_method);
    let routes = routes.layer(CatchPanicLayer::custom(panicked));
    routes.layer(middleware::from_fn(dialect::translate)).with_state(app)
}

/// The layers before all paths: room for the request, hosts and origins, preflights, sides, types of bodies and the
/// page's token, keys; an id and a line in the log, and faults in the words of the path's protocol.
///
/// # Errors
/// When an origin or a host in the options cannot be.
pub(crate) fn surround(
    routes: Router<Arc<App>>,
    app: &Arc<App>,
) -> Result<Router<Arc<App>>, Error> {
    origin::check_hosts(&app.options)?;
    // Without origins there are no headers for them either.
    let cors = match app.options.origins.as_slice() {
        [] => None,
        origins => Some(cors(origins)?),
    };
    let routes = routes
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(app.clone(), gate::admit))
        .layer(middleware::from_fn_with_state(app.clone(), page::serve))
        .layer(middleware::from_fn_with_state(app.clone(), origin::guard))
        .layer(middleware::from_fn(sides::keep))
        .layer(tower::util::option_layer(cors));
    // Preflights of pages that may not use the server are refused before they are answered.
    let routes = closed(routes, &app.options)
        .layer(middleware::from_fn(dialect::translate))
        .layer(middleware::from_fn_with_state(app.clone(), gate::observe));
    Ok(routes)
}

/// Routes for which other sites' pages, and requests without room, are refused.
pub(crate) fn closed<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    options: &Options,
) -> Router<S> {
    routes
        .layer(middleware::from_fn_with_state(Arc::new(options.clone()), origin::admit))
        .layer(middleware::from_fn(connections::refuse))
}

fn cors(origins: &[String]) -> Result<CorsLayer, Error> {
    let bad = |origin: &String| Error::BadOrigin { origin: origin.clone() };
    let allowed = if origins.iter().any(|o| o == "*") {
        AllowOrigin::any()
    } else {
        let origin = |o: &String| {
            let fine = o.split_once("://").is_some_and(|(scheme, host)| {
                !scheme.is_empty() && !host.is_empty() && !host.contains(['/', ' '])
            });
            let value = HeaderValue::from_str(o).ok().filter(|_| fine);
            value.ok_or_else(|| bad(o))
        };
        AllowOrigin::list(origins.iter().map(origin).collect::<Result<Vec<_>, _>>()?)
    };
    Ok(CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::DELETE, Method::OPTIONS])
        .allow_headers(tower_http::cors::AllowHeaders::mirror_request())
        .expose_headers([HeaderName::from_static("x-request-id"), LEFT_OUT, header::RETRY_AFTER]))
}

async fn no_method(method: Method, uri: Uri) -> Fault {
    let message = format!("{} does not take {method}", uri.path());
    Fault::new(StatusCode::METHOD_NOT_ALLOWED, message).code("method_not_allowed")
}

/// A panic in a handler: the request fails with 500, the server goes on.
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    tracing::error!(panic = text.as_deref().unwrap_or("unknown"), "a handler panicked");
    Fault::internal("the server has a fault; its log tells more").into_response()
}
