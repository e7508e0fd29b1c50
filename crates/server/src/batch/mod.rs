//! OpenAI's files and batches: many requests in one file, answered when nothing else is to be done.
//!
//! A client sends a file of lines, each a request (`upload`, `files`), and asks for a batch of it (`batches`). The
//! lines are checked (`check`) and then go through the same handlers as live requests (`work`), behind all of those in
//! the queue and only while a slot is left for them. Answers are appended to two files and synced (`lines`), so that a
//! batch goes on where it was when the server is started again. Files are never in memory as a whole.
//!
//! All is kept in one folder (`store`): `files/ID.json` with `files/ID.data`, and `batches/ID.json`.

mod access;
mod batches;
mod check;
mod disk;
mod files;
mod lines;
mod object;
mod store;
mod upload;
mod work;

pub(crate) use batches::{BatchBody, BatchObject, Batches};
pub(crate) use disk::{apart, sync_folder};
pub(crate) use files::{DeletedFile, FileObject, FileObjects};
pub use store::{FileOptions, FileStore};
pub(crate) use upload::UploadForm;
pub(crate) use work::{Gate, Worker, has_room};

use crate::state::App;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use std::sync::Arc;

/// Paths of files and batches; they concern no single model.
pub(crate) fn routes() -> Router<Arc<App>> {
    // A file has a limit of its own.
    let upload = post(upload::create).layer(DefaultBodyLimit::disable());
    Router::new()
        .route("/v1/files", get(files::list).merge(upload))
        .route("/v1/files/{id}", get(files::one).delete(files::delete))
        .route("/v1/files/{id}/content", get(files::content))
        .route("/v1/batches", post(batches::create).get(batches::list))
        .route("/v1/batches/{id}", get(batches::one))
        .route("/v1/batches/{id}/cancel", post(batches::cancel))
}
