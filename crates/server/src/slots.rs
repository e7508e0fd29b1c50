//! `POST /slots/{id}?action=save|restore|erase`, with the fields of llama-server: what the last request of a slot has
//! left in the prefix cache, in a file and back.

use crate::fault::Fault;
use crate::http::{Body, Named};
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    action: Action,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Action {
    Save,
    Restore,
    Erase,
}

/// The file that a slot is saved to or restored from.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "SlotRequest")]
pub(crate) struct SlotBody {
    /// A name without a folder.
    filename: String,
}

/// What was done with a slot: tokens, and bytes of the file.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Slot {
    Saved {
        id_slot: usize,
        filename: String,
        n_saved: usize,
        n_written: usize,
        timings: SaveTime,
    },
    Restored {
        id_slot: usize,
        filename: String,
        n_restored: usize,
        n_read: usize,
        timings: RestoreTime,
    },
    Erased {
        id_slot: usize,
        n_erased: usize,
    },
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct SaveTime {
    save_ms: f64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct RestoreTime {
    restore_ms: f64,
}

/// The endpoint.
pub(crate) async fn act(
    State(app): State<Arc<App>>,
    Named(id): Named,
    asked: Result<Query<Asked>, QueryRejection>,
    body: Body,
) -> Result<JsonBody<Slot>, Fault> {
    let asked = asked.map_err(|_| Fault::field("action", "action must be save, restore or erase"));
    let Query(Asked { action }) = asked?;
    let id_slot: usize = id.parse().map_err(|_| Fault::field("id", "a slot's id is a number"))?;
    let Some(folder) = app.options.slot_saves.clone() else {
        let message = "slots are saved where the server was started with --slot-save-path";
        return Err(Fault::new(StatusCode::NOT_IMPLEMENTED, message).code("not_supported"));
    };
    let file = match action {
        Action::Erase => None,
        Action::Save | Action::Restore => {
            Some(file_in(&folder, body.json::<SlotBody>().await?.filename)?)
        }
    };
    let model = app.model()?;
    // It waits for a step of the engine, and for the disk.
    let done = tokio::task::spawn_blocking(move || -> Result<Slot, Fault> {
        let begin = Instant::now();
        let ms = |begin: Instant| begin.elapsed().as_secs_f64() * 1e3;
        let Some((filename, path)) = file else {
            return Ok(Slot::Erased { id_slot, n_erased: model.replicas.erase_slot(id_slot)? });
        };
        if let Action::Save = action {
            let (bytes, n_saved) = model.replicas.save_slot(id_slot)?;
            write(&path, &bytes).map_err(|e| Fault::internal(format!("{filename}: {e}")))?;
            let (n_written, timings) = (bytes.len(), SaveTime { save_ms: ms(begin) });
            return Ok(Slot::Saved { id_slot, filename, n_saved, n_written, timings });
        }
        let bytes = std::fs::read(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Fault::field("filename", format!("there is no {filename}"))
            }
            _ => Fault::internal(format!("{filename}: {e}")),
        })?;
        let n_read = bytes.len();
        let n_restored = model.replicas.restore_slot(id_slot, bytes)?;
        let timings = RestoreTime { restore_ms: ms(begin) };
        Ok(Slot::Restored { id_slot, filename, n_restored, n_read, timings })
    });
    let done = done.await.map_err(|_| Fault::internal("the slot could not be served"))?;
    done.map(JsonBody)
}

/// A file of the folder itself, whatever a client calls it.
fn file_in(folder: &Path, name: String) -> Result<(String, PathBuf), Fault> {
    let mut parts = Path::new(&name).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    let fine = plain
        && !name.ends_with('/')
        && !name.starts_with('.')
        && !name.contains(['\\', '\0', ':']);
    if !fine || name.len() > 200 {
        return Err(Fault::field(
            "filename",
            "filename must be the name of a file, without a folder",
        ));
    }
    let path = folder.join(&name);
    Ok((name, path))
}

/// Writes a file that is there whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let unfinished = path.with_added_extension("tmp");
    let written = std::fs::write(&unfinished, bytes);
    written.and_then(|()| std::fs::rename(&unfinished, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&unfinished);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_folder() {
        let folder = Path::new("/saves");
        let file = |name: &str| file_in(folder, name.to_owned()).map(|(_, path)| path);
        assert_eq!(file("a chat.bin").unwrap(), Path::new("/saves/a chat.bin"));
        for name in ["", ".", "..", "../a", "/a", "a/b", "a/", ".hidden", "a\\b", "c:d", "a\0"] {
            assert!(file(name).is_err(), "{name:?}");
        }
    }
}
