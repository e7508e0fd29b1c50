//! `POST /v1/files`: a form with a file, written to the disk as it arrives.

use super::access::{disk, owner, store};
use super::disk::{apart, sync_folder};
use super::files::FileObject;
use super::object::KeptFile;
use super::store::{FileStore, MOST};
use crate::fault::Fault;
use crate::http::Client;
use crate::stamp;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{Extension, FromRequest, Multipart, Request, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

/// Bytes of a field that is no file.
const FIELD: usize = 4 << 10;

/// Characters of a file's name.
const LONGEST_NAME: usize = 512;

/// Seconds that a file may be kept, where it is said.
pub(super) const KEPT: std::ops::RangeInclusive<u64> = 3600..=2_592_000;

/// A file to keep.
#[derive(JsonSchema)]
#[schemars(rename = "FileUpload")]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct UploadForm {
    /// Lines of JSON, each a request.
    #[schemars(extend("format" = "binary"))]
    file: String,
    /// What it is for.
    #[schemars(extend("const" = "batch"))]
    purpose: String,
}

/// What a form has beside the file.
#[derive(Default)]
struct Form {
    purpose: Option<String>,
    anchor: Option<String>,
    seconds: Option<String>,
}

/// The endpoint.
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Result<JsonBody<FileObject>, Fault> {
    let store = store(&app)?;
    let owner = owner(&app, client);
    let _turn = store.0.transfers.try_acquire().map_err(|_| {
        Fault { retry_after: Some(5), ..Fault::unavailable("too many files arrive at once") }
            .code("too_many_files")
    })?;
    if !store.has_room_for_a_file() {
        return Err(full(format!("there are {MOST} files already: delete some")));
    }
    let time = app.options.read_timeout;
    let mut parts = Multipart::from_request(request, &())
        .await
        .map_err(|e| Fault::invalid(format!("the body must be a form: {}", e.body_text())))?;
    let (mut form, mut file) = (Form::default(), None);
    while let Some(mut field) = soon(time, parts.next_field()).await? {
        let name = field.name().unwrap_or_default().to_owned();
        let text = match name.as_str() {
            "file" if file.is_some() => {
                return Err(Fault::field("file", "a form has one file"));
            }
            "file" => {
                let name = field.file_name().unwrap_or("file");
                let name: String = name.chars().take(LONGEST_NAME).collect();
                let mut part = Part::create(store).await?;
                part.fill(&mut field, time).await?;
                file = Some((part, name));
                continue;
            }
            "purpose" => &mut form.purpose,
            "expires_after[anchor]" => &mut form.anchor,
            "expires_after[seconds]" => &mut form.seconds,
            // Its bytes are read over with the next field.
            _ => continue,
        };
        *text = Some(short(&name, &mut field, time).await?);
    }
    let (part, filename) = file.ok_or_else(|| Fault::field("file", "file is missing"))?;
    match form.purpose.as_deref() {
        Some("batch") => {}
        None => return Err(Fault::field("purpose", "purpose is missing: it must be batch")),
        Some(other) => {
            let message = format!("purpose {other:?} is not supported: files are for batch here");
            return Err(Fault::unsupported("purpose", message));
        }
    }
    let created_at = stamp::now();
    let expires_at = match (&form.anchor, &form.seconds) {
        (None, None) => None,
        (anchor, Some(seconds)) if anchor.as_deref().is_none_or(|a| a == "created_at") => {
            Some(created_at + kept("expires_after.seconds", seconds.parse().ok())?)
        }
        (_, Some(_)) => {
            return Err(Fault::field("expires_after.anchor", "anchor must be created_at"));
        }
        (_, None) => {
            return Err(Fault::field("expires_after.seconds", "expires_after.seconds is missing"));
        }
    };
    let file = KeptFile {
        id: part.id.clone(),
        owner,
        bytes: part.bytes,
        created_at,
        expires_at,
        filename,
        purpose: "batch".to_owned(),
    };
    part.keep(file.clone()).await?;
    tracing::info!(file = file.id, bytes = file.bytes, "a file was sent");
    Ok(JsonBody(file.into()))
}

/// A time for which files are kept.
///
/// # Errors
/// When it is no number, or out of range.
pub(super) fn kept(field: &str, seconds: Option<u64>) -> Result<u64, Fault> {
    seconds.filter(|seconds| KEPT.contains(seconds)).ok_or_else(|| {
        let message = format!("{field} must be from {} to {}", KEPT.start(), KEPT.end());
        Fault::field(field, message)
    })
}

/// What is to come within a time.
async fn soon<T>(
    time: Duration,
    what: impl Future<Output = Result<T, MultipartError>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(time, what).await {
        Ok(result) => result
            .map_err(|e| Fault::invalid(format!("the form cannot be read: {}", e.body_text()))),
        Err(_) => {
            let message = format!("nothing of the form came for {} s", time.as_secs_f64());
            Err(Fault::new(StatusCode::REQUEST_TIMEOUT, message).code("request_timeout"))
        }
    }
}

/// The text of a field.
async fn short(name: &str, field: &mut Field<'_>, time: Duration) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    while let Some(some) = soon(time, field.chunk()).await? {
        bytes.extend_from_slice(&some);
        if bytes.len() > FIELD {
            return Err(Fault::field(name, format!("{name} may have {FIELD} bytes")));
        }
    }
    String::from_utf8(bytes).map_err(|_| Fault::field(name, format!("{name} is no text")))
}

fn full(message: String) -> Fault {
    Fault::new(StatusCode::PAYLOAD_TOO_LARGE, message).code("storage_full")
}

/// A file that is being sent. It is gone if not all of it comes.
struct Part {
    store: FileStore,
    id: String,
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
    kept: bool,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_file(&self.path);
            self.store.0.budget.release(self.bytes);
        }
    }
}

impl Part {
    async fn create(store: &FileStore) -> Result<Part, Fault> {
        let (store, id) = (store.clone(), stamp::id("file-"));
        // The thread has the part until its file is there: a client that hangs up leaves no file.
        let work = move || -> io::Result<Part> {
            let path = store.part(&id);
            let mut part = Part { store, id, path, file: None, bytes: 0, kept: false };
            part.file = Some(File::create_new(&part.path)?);
            Ok(part)
        };
        apart(work).await.and_then(|part| part).map_err(|e| disk(&e))
    }

    async fn fill(&mut self, field: &mut Field<'_>, time: Duration) -> Result<(), Fault> {
        let mut piece = Vec::new();
        while let Some(some) = soon(time, field.chunk()).await? {
            piece.extend_from_slice(&some);
            if piece.len() >= PIECE {
                self.write(std::mem::take(&mut piece)).await?;
            }
        }
        self.write(piece).await
    }

    async fn write(&mut self, piece: Vec<u8>) -> Result<(), Fault> {
        let bytes = piece.len() as u64;
        let most = self.store.0.options.file_bytes;
        if self.bytes + bytes > most {
            let message = format!("the file is larger than the {most} bytes that are allowed");
            return Err(Fault::new(StatusCode::PAYLOAD_TOO_LARGE, message).code("file_too_large"));
        }
        self.store.0.budget.claim(bytes).map_err(|e| full(e.to_string()))?;
        self.bytes += bytes;
        let Some(mut file) = self.file.take() else { return Ok(()) };
        let written = apart(move || file.write_all(&piece).map(|()| file)).await;
        self.file = Some(written.and_then(|file| file).map_err(|e| disk(&e))?);
        Ok(())
    }

    async fn keep(self, file: KeptFile) -> Result<(), Fault> {
        // The thread has the part, so that it is kept or not as a whole.
        let work = move || -> io::Result<()> {
            let mut part = self;
            let data = part.store.data(&part.id);
            part.file.take().map_or(Ok(()), |file| file.sync_all())?;
            std::fs::rename(&part.path, &data)?;
            let listed = sync_folder(&data).and_then(|()| part.store.put_file(file));
            listed.inspect_err(|_| {
                let _ = std::fs::remove_file(&data);
            })?;
            part.kept = true;
            Ok(())
        };
        apart(work).await.and_then(|kept| kept).map_err(|e| disk(&e))
    }
}
