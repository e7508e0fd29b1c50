//! Responses that are kept: `GET` and `DELETE /v1/responses/{id}`, `GET /v1/responses/{id}/input_items`.

use super::create::owner;
use super::store::{Item, Stored};
use crate::fault::Fault;
use crate::http::{Client, Named};
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::sync::Arc;

/// Items of one answer, at most and where a request does not say.
const MOST: usize = 100;
const SOME: usize = 20;

/// A response was deleted.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeletedResponse {
    id: String,
    #[schemars(extend("const" = "response"))]
    object: &'static str,
    #[schemars(extend("const" = true))]
    deleted: bool,
}

/// The newest items first, unless `order` is `asc`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ResponseItems {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    #[schemars(with = "Vec<serde_json::Map<String, Json>>")]
    data: Vec<Box<RawValue>>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

/// `GET /v1/responses/{id}`: a response as it was.
pub(crate) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Named(id): Named,
) -> Result<JsonBody<Box<RawValue>>, Fault> {
    Ok(JsonBody((*find(&app, client, &id)?.response).to_owned()))
}

/// `DELETE /v1/responses/{id}`: forgets it. Those that went on from it stay.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Named(id): Named,
) -> Result<JsonBody<DeletedResponse>, Fault> {
    if !app.responses.delete(&id, owner(&app, client)) {
        return Err(unknown(&id));
    }
    Ok(JsonBody(DeletedResponse { id, object: "response", deleted: true }))
}

#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    after: Option<String>,
    limit: Option<String>,
    order: Option<String>,
}

/// `GET /v1/responses/{id}/input_items`: the conversation that it answered, the newest item first
/// unless `order` is `asc`.
pub(crate) async fn input_items(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Named(id): Named,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<JsonBody<ResponseItems>, Fault> {
    let Query(query) = query.map_err(|e| Fault::invalid(e.body_text()))?;
    let limit = match query.limit.as_deref() {
        None => SOME,
        Some(text) => {
            let limit = text.parse().ok().filter(|limit| (1..=MOST).contains(limit));
            let message = format!("limit must be from 1 to {MOST}");
            limit.ok_or_else(|| Fault::field("limit", message))?
        }
    };
    let stored = find(&app, client, &id)?;
    let mut items: Vec<&Item> = stored.items[..stored.output].iter().collect();
    match query.order.as_deref() {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(_) => return Err(Fault::field("order", "order must be asc or desc")),
    }
    if let Some(after) = &query.after {
        let at = items.iter().position(|item| *item.id == **after);
        let at = at.ok_or_else(|| Fault::field("after", format!("there is no item {after:?}")))?;
        items.drain(..=at);
    }
    let more = items.len() > limit;
    items.truncate(limit);
    let end = |item: Option<&&Item>| item.map(|item| item.id.to_string());
    Ok(JsonBody(ResponseItems {
        object: "list",
        first_id: end(items.first()),
        last_id: end(items.last()),
        data: items.into_iter().map(|item| (*item.text).to_owned()).collect(),
        has_more: more,
    }))
}

fn find(app: &App, client: Client, id: &str) -> Result<Stored, Fault> {
    app.responses.get(id, owner(app, client)).ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> Fault {
    let message = format!("there is no response {id:?}, or no more");
    Fault { status: StatusCode::NOT_FOUND, ..Fault::invalid(message).code("response_not_found") }
}
