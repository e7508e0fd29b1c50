//! Batches as clients ask for them: `POST` and `GET /v1/batches`, `GET /v1/batches/{id}`,
//! `POST /v1/batches/{id}/cancel`.

use super::access::{disk, owner, store};
use super::files::{self, ListQuery, page};
use super::object::{BatchError, Counts, KeptBatch, Status, Times, Usage};
use super::upload::kept;
use crate::fault::Fault;
use crate::http::{Body, Client, Named};
use crate::owned::owned;
use crate::stamp;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// What lines can ask for.
const ENDPOINTS: [&str; 4] =
    ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"];

/// Batches in one list, and where a request does not say.
const MOST: usize = 100;
const SOME: usize = 20;

/// Batches that have not ended, of all clients.
const UNFINISHED: usize = 100;

/// The longest time for a batch.
const LONGEST: u64 = 30 * 24 * 3600;

/// Requests to answer when there is time.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "BatchRequest")]
pub(crate) struct BatchBody {
    /// A file of lines, each with `custom_id`, `method`, `url` and `body`.
    input_file_id: String,
    /// The path that all lines ask.
    #[schemars(extend("enum" = ENDPOINTS))]
    endpoint: String,
    /// The time for all of them: `24h`; also other numbers with s, m, h or d.
    completion_window: String,
    /// Up to 16 texts by their names.
    metadata: Option<Map<String, Json>>,
    /// When the files of answers are deleted; they stay if it is not there.
    output_expires_after: Option<ExpiresAfter>,
}

/// A time from when a file was made.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct ExpiresAfter {
    /// From what on.
    #[schemars(extend("const" = "created_at"))]
    anchor: String,
    /// How long.
    #[schemars(range(min = 3600, max = 2_592_000))]
    seconds: u64,
}

/// A batch.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Batch")]
pub(crate) struct BatchObject {
    id: String,
    #[schemars(extend("const" = "batch"))]
    object: &'static str,
    endpoint: String,
    model: Option<String>,
    errors: Option<Errors>,
    input_file_id: String,
    completion_window: String,
    status: Status,
    output_file_id: Option<String>,
    error_file_id: Option<String>,
    created_at: u64,
    in_progress_at: Option<u64>,
    expires_at: u64,
    finalizing_at: Option<u64>,
    completed_at: Option<u64>,
    failed_at: Option<u64>,
    expired_at: Option<u64>,
    cancelling_at: Option<u64>,
    cancelled_at: Option<u64>,
    request_counts: Counts,
    usage: Usage,
    metadata: Option<Map<String, Json>>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Errors {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<BatchError>,
}

impl From<KeptBatch> for BatchObject {
    fn from(batch: KeptBatch) -> BatchObject {
        let errors =
            (!batch.errors.is_empty()).then_some(Errors { object: "list", data: batch.errors });
        let times = batch.times;
        BatchObject {
            id: batch.id,
            object: "batch",
            endpoint: batch.endpoint,
            model: batch.model,
            errors,
            input_file_id: batch.input_file_id,
            completion_window: batch.completion_window,
            status: batch.status,
            output_file_id: batch.output_file_id,
            error_file_id: batch.error_file_id,
            created_at: times.created_at,
            in_progress_at: times.in_progress_at,
            expires_at: times.expires_at,
            finalizing_at: times.finalizing_at,
            completed_at: times.completed_at,
            failed_at: times.failed_at,
            expired_at: times.expired_at,
            cancelling_at: times.cancelling_at,
            cancelled_at: times.cancelled_at,
            request_counts: batch.counts,
            usage: batch.usage,
            metadata: batch.metadata,
        }
    }
}

/// Batches, the newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Batches {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<BatchObject>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

/// `POST /v1/batches`: it begins as soon as its lines are checked.
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<JsonBody<BatchObject>, Fault> {
    let store = store(&app)?;
    let fields: BatchBody = body.json().await?;
    if !ENDPOINTS.contains(&&*fields.endpoint) {
        let message = format!("endpoint must be one of {}", ENDPOINTS.join(", "));
        return Err(Fault::field("endpoint", message));
    }
    let window = window(&fields.completion_window)?;
    check_metadata(fields.metadata.as_ref())?;
    let output_expires_after = match &fields.output_expires_after {
        None => None,
        Some(after) if after.anchor == "created_at" => {
            Some(kept("output_expires_after.seconds", Some(after.seconds))?)
        }
        Some(_) => {
            let message = "anchor must be created_at";
            return Err(Fault::field("output_expires_after.anchor", message));
        }
    };
    let owner = owner(&app, client);
    let file = files::find(store, &owner, &fields.input_file_id)
        .map_err(|fault| fault.at("input_file_id"))?;
    if file.purpose != "batch" {
        let message = format!("the purpose of {} is {}: it must be batch", file.id, file.purpose);
        return Err(Fault::field("input_file_id", message));
    }
    let room = store.make_room_for_a_batch().map_err(|e| disk(&e))?;
    if !room || store.unfinished().len() >= UNFINISHED {
        let message = format!("{UNFINISHED} batches have not ended yet: try again later");
        let fault = Fault::new(StatusCode::TOO_MANY_REQUESTS, message).code("too_many_batches");
        return Err(Fault { retry_after: Some(60), ..fault });
    }
    let created_at = stamp::now();
    let batch = KeptBatch {
        id: stamp::id("batch_"),
        owner,
        endpoint: fields.endpoint,
        model: None,
        input_file_id: file.id,
        completion_window: fields.completion_window,
        status: Status::Validating,
        errors: Vec::new(),
        output: stamp::id("file-"),
        error: stamp::id("file-"),
        output_file_id: None,
        error_file_id: None,
        output_expires_after,
        times: Times { created_at, expires_at: created_at + window, ..Times::default() },
        counts: Counts::default(),
        usage: Usage::default(),
        metadata: fields.metadata,
    };
    let store = store.clone();
    owned(async move {
        store.add_batch(batch.clone());
        if let Err(error) = store.save(&batch.id).await {
            store.drop_batch(&batch.id);
            return Err(disk(&error));
        }
        tracing::info!(batch = batch.id, "a batch was asked for");
        store.0.added.notify_one();
        Ok(JsonBody(batch.into()))
    })
    .await
}

/// A time in seconds: a number with a unit.
fn window(text: &str) -> Result<u64, Fault> {
    let wrong = || {
        let message =
            "completion_window must be 24h, or another number with s, m, h or d, up to 30d";
        Fault::field("completion_window", message)
    };
    let (at, unit) = text.char_indices().next_back().ok_or_else(wrong)?;
    let unit = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        _ => return Err(wrong()),
    };
    let seconds = text[..at].parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    seconds.filter(|seconds| (1..=LONGEST).contains(seconds)).ok_or_else(wrong)
}

/// Up to 16 texts, as OpenAI has it.
fn check_metadata(metadata: Option<&Map<String, Json>>) -> Result<(), Fault> {
    let Some(metadata) = metadata else { return Ok(()) };
    let short = |text: &str, most: usize| text.chars().count() <= most;
    let fits = |(name, value): (&String, &Json)| {
        short(name, 64) && value.as_str().is_some_and(|value| short(value, 512))
    };
    if metadata.len() > 16 || !metadata.iter().all(fits) {
        let message = "metadata has at most 16 texts of 512 characters, with names of 64";
        return Err(Fault::field("metadata", message));
    }
    Ok(())
}

/// `GET /v1/batches`.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<JsonBody<Batches>, Fault> {
    let store = store(&app)?;
    let Query(query) = query.map_err(|e| Fault::invalid(e.body_text()))?;
    let limit = files::limit(query.limit.as_deref(), SOME, MOST)?;
    let mut all = store.batches(&owner(&app, client));
    all.sort_by(|a, b| (b.times.created_at, &b.id).cmp(&(a.times.created_at, &a.id)));
    let (some, has_more) = page(all, |batch| &batch.id, query.after.as_deref(), limit)?;
    Ok(JsonBody(Batches {
        object: "list",
        first_id: some.first().map(|batch| batch.id.clone()),
        last_id: some.last().map(|batch| batch.id.clone()),
        data: some.into_iter().map(BatchObject::from).collect(),
        has_more,
    }))
}

/// `GET /v1/batches/{id}`.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Named(id): Named,
) -> Result<JsonBody<BatchObject>, Fault> {
    let store = store(&app)?;
    let batch = store.batch(&owner(&app, client), &id).ok_or_else(|| unknown(&id))?;
    Ok(JsonBody(batch.into()))
}

/// `POST /v1/batches/{id}/cancel`: what is answered by then stays.
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Named(id): Named,
) -> Result<JsonBody<BatchObject>, Fault> {
    let store = store(&app)?;
    store.batch(&owner(&app, client), &id).ok_or_else(|| unknown(&id))?;
    let changed = store.update(&id, |batch| {
        match batch.status {
            Status::Validating | Status::InProgress => {
                batch.status = Status::Cancelling;
                batch.times.cancelling_at = Some(stamp::now());
            }
            Status::Cancelling => {}
            status => return Err(status),
        }
        Ok(batch.clone())
    });
    match changed {
        Some(Ok(batch)) => {
            store.0.changed.notify_waiters();
            let store = store.clone();
            owned(async move { store.save(&id).await.map_err(|e| disk(&e)) }).await?;
            Ok(JsonBody(batch.into()))
        }
        Some(Err(status)) => {
            let status = serde_json::to_value(status).unwrap_or_default();
            let message = format!("a batch that is {status} cannot be cancelled");
            Err(Fault::invalid(message).code("batch_not_cancellable"))
        }
        None => Err(unknown(&id)),
    }
}

fn unknown(id: &str) -> Fault {
    let message = format!("there is no batch {id:?}");
    Fault { status: StatusCode::NOT_FOUND, ..Fault::field("id", message).code("batch_not_found") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn windows_have_a_unit() {
        for (text, seconds) in [("24h", 86_400), ("1s", 1), ("90m", 5400), ("30d", 2_592_000)] {
            assert_eq!(window(text).unwrap(), seconds);
        }
        for wrong in
            ["", "24", "h", "0h", "31d", "-1h", "1.5h", "24 h", "99999999999999999999d", "3€"]
        {
            assert_eq!(window(wrong).unwrap_err().param.as_deref(), Some("completion_window"));
        }
    }

    #[test]
    fn metadata_is_bounded() {
        let fits = |value: Json| check_metadata(value.as_object()).is_ok();
        assert!(fits(json!({"a": "b"})) && fits(json!({"a": "x".repeat(512)})));
        assert!(!fits(json!({"a": 1})) && !fits(json!({"a": "x".repeat(513)})));
        assert!(!fits((0..17).map(|n| (n.to_string(), json!(""))).collect()));
    }
}
