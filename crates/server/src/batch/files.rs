//! Files that were sent, and those of answers: `GET /v1/files`, `GET` and `DELETE /v1/files/{id}`,
//! `GET /v1/files/{id}/content`.

use super::access::{disk, owner, store};
use super::disk::apart;
use super::object::KeptFile;
use super::store::FileStore;
use crate::fault::Fault;
use crate::http::{Client, Named};
use crate::state::App;
use axum::Json as JsonBody;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;

/// Files in one list.
const MOST: usize = 10_000;

/// A file.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "File")]
pub(crate) struct FileObject {
    id: String,
    #[schemars(extend("const" = "file"))]
    object: &'static str,
    bytes: u64,
    /// Seconds since 1970.
    created_at: u64,
    expires_at: Option<u64>,
    filename: String,
    /// `batch`, or `batch_output`.
    purpose: String,
    #[schemars(extend("const" = "processed"))]
    status: &'static str,
}

impl From<KeptFile> for FileObject {
    fn from(file: KeptFile) -> FileObject {
        let KeptFile { id, bytes, created_at, expires_at, filename, purpose, owner: _ } = file;
        FileObject {
            id,
            object: "file",
            bytes,
            created_at,
            expires_at,
            filename,
            purpose,
            status: "processed",
        }
    }
}

/// Files, the newest first unless `order` is `asc`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Files")]
pub(crate) struct FileObjects {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<FileObject>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

/// A file was deleted.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeletedFile {
    id: String,
    #[schemars(extend("const" = "file"))]
    object: &'static str,
    #[schemars(extend("const" = true))]
    deleted: bool,
}

/// Which part of a list is wanted.
#[derive(Debug, Deserialize)]
pub(crate) struct ListQuery {
    pub(super) after: Option<String>,
    pub(super) limit: Option<String>,
    order: Option<String>,
    purpose: Option<String>,
}

/// How many are wanted.
///
/// # Errors
/// When it is no number, or too many.
pub(super) fn limit(text: Option<&str>, usual: usize, most: usize) -> Result<usize, Fault> {
    let Some(text) = text else { return Ok(usual) };
    let limit = text.parse().ok().filter(|limit| (1..=most).contains(limit));
    limit.ok_or_else(|| Fault::field("limit", format!("limit must be from 1 to {most}")))
}

/// The part of a list behind an id, and whether there is more.
///
/// # Errors
/// When there is no such id.
pub(super) fn page<T>(
    mut all: Vec<T>,
    id: impl Fn(&T) -> &str,
    after: Option<&str>,
    limit: usize,
) -> Result<(Vec<T>, bool), Fault> {
    if let Some(after) = after {
        let at = all.iter().position(|one| id(one) == after);
        let at = at.ok_or_else(|| Fault::field("after", format!("there is no {after:?}")))?;
        all.drain(..=at);
    }
    let more = all.len() > limit;
    all.truncate(limit);
    Ok((all, more))
}

/// `GET /v1/files`.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<JsonBody<FileObjects>, Fault> {
    let store = store(&app)?;
    let Query(query) = query.map_err(|e| Fault::invalid(e.body_text()))?;
    let limit = limit(query.limit.as_deref(), MOST, MOST)?;
    let mut all = store.files(&owner(&app, client));
    all.retain(|file| query.purpose.as_ref().is_none_or(|purpose| *purpose == file.purpose));
    all.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    match query.order.as_deref() {
        None | Some("desc") => all.reverse(),
        Some("asc") => {}
        Some(_) => return Err(Fault::field("order", "order must be asc or desc")),
    }
    let (some, has_more) = page(all, |file| &file.id, query.after.as_deref(), limit)?;
    Ok(JsonBody(FileObjects {
        object: "list",
        first_id: some.first().map(|file| file.id.clone()),
        last_id: some.last().map(|file| file.id.clone()),
        data: some.into_iter().map(FileObject::from).collect(),
        has_more,
    }))
}

/// `GET /v1/files/{id}`.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Named(id): Named,
) -> Result<JsonBody<FileObject>, Fault> {
    let store = store(&app)?;
    find(store, &owner(&app, client), &id).map(|file| JsonBody(file.into()))
}

/// `DELETE /v1/files/{id}`.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Named(id): Named,
) -> Result<JsonBody<DeletedFile>, Fault> {
    let store = store(&app)?;
    let file = find(store, &owner(&app, client), &id)?;
    if let Some(batch) = store.user_of(&file.id) {
        let message = format!("the file is read by {batch}: cancel that first");
        return Err(Fault::field("file_id", message).code("file_in_use"));
    }
    let store = store.clone();
    let removed = apart(move || store.remove_file(&file.id)).await.and_then(|removed| removed);
    match removed {
        Ok(true) => Ok(JsonBody(DeletedFile { id, object: "file", deleted: true })),
        Ok(false) => Err(unknown(&id)),
        Err(error) => Err(disk(&error)),
    }
}

/// `GET /v1/files/{id}/content`: its bytes, as they are read from the disk.
pub(crate) async fn content(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Named(id): Named,
) -> Result<Response, Fault> {
    let store = store(&app)?;
    let file = find(store, &owner(&app, client), &id)?;
    let turn = store.0.transfers.clone().try_acquire_owned().map_err(|_| {
        Fault { retry_after: Some(5), ..Fault::unavailable("too many files are read at once") }
            .code("too_many_files")
    })?;
    let path = store.data(&file.id);
    let opened = apart(move || File::open(path)).await.and_then(|file| file);
    let opened = opened.map_err(|e| disk(&e))?;
    let pieces = stream::unfold(Some((opened, turn)), |state| async move {
        let (file, turn) = state?;
        match apart(move || read(file)).await.and_then(|read| read) {
            Ok((_, bytes)) if bytes.is_empty() => None,
            Ok((file, bytes)) => Some((Ok(bytes), Some((file, turn)))),
            Err(error) => Some((Err(error), None)),
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, file.bytes.into());
    Ok(response)
}

fn read(mut file: File) -> io::Result<(File, Bytes)> {
    let mut bytes = Vec::with_capacity(PIECE);
    (&mut file).take(PIECE as u64).read_to_end(&mut bytes)?;
    Ok((file, bytes.into()))
}

/// A client's file.
///
/// # Errors
/// 404 if there is none.
pub(super) fn find(store: &FileStore, owner: &str, id: &str) -> Result<KeptFile, Fault> {
    store.file(owner, id).ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> Fault {
    let message = format!("there is no file {id:?}");
    Fault { status: StatusCode::NOT_FOUND, ..Fault::field("id", message).code("file_not_found") }
}
