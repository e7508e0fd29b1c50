//! `POST /slots/{id}?action=save|restore|erase`, with the fields of llama-server: what the last request of a slot has
//! left in the prefix cache, in a file and back.

use crate::batch::apart;
use crate::disk::{self, Unread};
use crate::fault::Fault;
use crate::http::{Body, Named};
use crate::model::Model;
use crate::saves;
use crate::state::App;
use axum::Json as JsonBody;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;

/// One slot is saved or restored at a time: the whole file is in memory meanwhile.
static TURN: Semaphore = Semaphore::const_new(1);

/// Bytes of a file beside its pages: more than the tokens and names of pages of any context take.
const BESIDE_PAGES: u64 = 256 << 20;

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
            Some(plain_name(body.json::<SlotBody>().await?.filename)?)
        }
    };
    let (model, most) = (app.model()?, app.now().slot_save_bytes);
    let turn = TURN.acquire().await.map_err(|_| Fault::internal("slots are closed"))?;
    // It waits for a step of the engine, and for the disk. A client that goes away does not stop it.
    let done = apart(move || -> Result<Slot, Fault> {
        let _turn = turn;
        let begin = Instant::now();
        let ms = |begin: Instant| begin.elapsed().as_secs_f64() * 1e3;
        let Some(filename) = file else {
            return Ok(Slot::Erased { id_slot, n_erased: model.replicas.erase_slot(id_slot)? });
        };
        if let Action::Save = action {
            let (bytes, n_saved) = model.replicas.save_slot(id_slot)?;
            saves::save(&folder, &filename, &bytes, most)?;
            let (n_written, timings) = (bytes.len(), SaveTime { save_ms: ms(begin) });
            return Ok(Slot::Saved { id_slot, filename, n_saved, n_written, timings });
        }
        let bytes = read(&folder, &filename, most.min(largest(&model)))?;
        let n_read = bytes.len();
        let n_restored = model.replicas.restore_slot(id_slot, bytes)?;
        let timings = RestoreTime { restore_ms: ms(begin) };
        Ok(Slot::Restored { id_slot, filename, n_restored, n_read, timings })
    });
    let done = done.await.map_err(|e| disk::refused("the slot could not be served", &e))?;
    done.map(JsonBody)
}

/// Bytes of the largest file that can be restored: the KV cache has no room for more pages.
fn largest(model: &Model) -> u64 {
    let nodes = model.replicas.replicas().iter().flat_map(|replica| &replica.report.nodes);
    nodes.map(|node| node.kv as u64).sum::<u64>() + BESIDE_PAGES
}

fn read(folder: &Path, name: &str, most: u64) -> Result<Vec<u8>, Fault> {
    let fault = |why: String| Fault::field("filename", why);
    disk::read_plain(&folder.join(name), most).map_err(|unread| match unread {
        Unread::Missing => fault(format!("there is no {name}")),
        Unread::NotPlain => fault(format!("{name} is not a regular file")),
        Unread::TooLarge(bytes) => fault(format!(
            "{name} has {bytes} bytes: at most {most} can be restored here (--slot-save-bytes, and the KV cache's size)"
        )),
        Unread::Io(error) => disk::refused(&format!("{name} cannot be read"), &error),
    })
}

/// The name of a file of the folder itself.
fn plain_name(name: String) -> Result<String, Fault> {
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
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_folder() {
        assert_eq!(plain_name("a chat.bin".to_owned()).unwrap(), "a chat.bin");
        for name in ["", ".", "..", "../a", "/a", "a/b", "a/", ".hidden", "a\\b", "c:d", "a\0"] {
            assert!(plain_name(name.to_owned()).is_err(), "{name:?}");
        }
    }
}
