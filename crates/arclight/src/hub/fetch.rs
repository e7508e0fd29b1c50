//! The download of a model, with its progress.

use super::progress::{Progress, size};
use crate::error::Error;
use crate::term::{self, note};
use hub::{Hub, Model, Name};

/// Brings a model, with its image encoder if that is wanted, after a line about it that begins with `before`.
pub(super) fn fetch(hub: &Hub, name: &Name, before: &str, encoder: bool) -> Result<Model, Error> {
    let mut progress = Progress::new();
    let mut remote = hub.look(name, &mut |event| progress.tell(&event))?;
    if !encoder {
        remote.without_encoder();
    }
    if !term::is_quiet() {
        let quant =
            if remote.quant.is_empty() { String::new() } else { format!(" {}", remote.quant) };
        let from = hub.settings().host(remote.repo().site);
        let what = match remote.missing {
            0 => format!("{}, which are here", size(remote.bytes())),
            missing if missing < remote.bytes() => {
                format!("{} of {} to fetch", size(missing), size(remote.bytes()))
            }
            missing => format!("{} to fetch; Ctrl-C keeps what has come", size(missing)),
        };
        let licence = remote.licence.as_ref().map(|l| format!(", licence {l}")).unwrap_or_default();
        let with = remote.encoder().map(|(file, _)| format!(", with the image encoder {file}"));
        let with = with.unwrap_or_default();
        note!("{before}{}{quant}{with} from {from}{licence}: {what}", remote.repo().id());
    }
    Ok(hub.fetch(&remote, &mut |event| progress.tell(&event))?)
}
