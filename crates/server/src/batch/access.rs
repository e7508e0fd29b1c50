//! The folder of files and batches as requests see it.

use super::store::FileStore;
use crate::disk::refused;
use crate::fault::Fault;
use crate::http::Client;
use crate::state::App;
use axum::http::StatusCode;
use std::io;

/// The folder of files and batches.
///
/// # Errors
/// 501 for a server without one.
pub(super) fn store(app: &App) -> Result<&FileStore, Fault> {
    app.options.files.as_ref().ok_or_else(|| {
        let message = "this server keeps no files and runs no batches: start it with --files-dir";
        Fault::new(StatusCode::NOT_IMPLEMENTED, message).code("not_supported")
    })
}

/// Owner of a client's files and batches. Without keys all clients are one owner.
pub(super) fn owner(app: &App, client: Client) -> String {
    app.options.keys.of(client.0).map(|key| key.owner().to_owned()).unwrap_or_default()
}

/// The fault where the folder refuses something.
pub(super) fn disk(error: &io::Error) -> Fault {
    refused("the folder of --files-dir", error)
}
