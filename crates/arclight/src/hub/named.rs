//! The meaning of MODEL on a command line.
//!
//! An existing path is a path. Anything else that is not written like a path is a name; what it stands for
//! is looked for on this machine, and fetched if it is not here.

use super::fetch::fetch;
use crate::error::Error;
use crate::term::note;
use arclight_engine::ModelFile;
use hub::{Hub, Model, Name, Pick, Place, Settings};
use std::path::{Path, PathBuf};

/// What may be done for a model that is not on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is fetched.
    Fetch,
    /// The network is not to be used.
    Offline,
    /// It is an error that names `arclight pull`.
    Refuse,
}

/// The file of what a command line calls a model.
///
/// # Errors
/// When a name is wrong, or its model neither here nor to be had. A path that leads nowhere is given back:
/// whoever opens it says so.
pub(crate) fn file(text: &Path, missing: Missing) -> Result<PathBuf, Error> {
    let Some(name) = name(text)? else { return Ok(text.to_owned()) };
    file_of(&name, missing)
}

/// The file that a name stands for.
fn file_of(name: &Name, missing: Missing) -> Result<PathBuf, Error> {
    let mut settings = Settings::from_env()?;
    settings.offline |= missing == Missing::Offline;
    let hub = Hub::new(settings);
    if let Some(model) = here(&hub, name) {
        if !model.is_ours() {
            note!("{name}: the file of {}, {}", model.place, model.path().display());
        }
        return Ok(model.path().to_owned());
    }
    if missing == Missing::Refuse {
        return Err(not_here(&hub, name));
    }
    let before = format!("{name} is not on this machine; ");
    Ok(fetch(&hub, name, &before, true)?.path().to_owned())
}

/// The file of what a command line calls an image encoder: a path, or a name of a repository that has one.
///
/// # Errors
/// As [`file`].
pub(crate) fn encoder(text: &Path, missing: Missing) -> Result<PathBuf, Error> {
    let Some(name) = name(text)? else { return Ok(text.to_owned()) };
    let hub = Hub::new(Settings::from_env()?);
    file_of(&hub.encoder_name(&name)?, missing)
}

/// The name that an argument is; `None` if it is a path.
fn name(text: &Path) -> Result<Option<Name>, Error> {
    if text.exists() {
        return Ok(None);
    }
    let Some(text) = text.to_str() else { return Ok(None) };
    let is_file = text.to_ascii_lowercase().ends_with(".gguf");
    let is_path = ["/", "./", "../", "~"].iter().any(|start| text.starts_with(start));
    match Name::parse(text) {
        _ if is_path => Ok(None),
        // `model.gguf` and `models/model.gguf` are files that somebody has misspelt.
        Ok(Name::Short { .. } | Name::Repo { pick: Pick::Default, .. }) | Err(_) if is_file => {
            Ok(None)
        }
        Ok(name) => Ok(Some(name)),
        Err(e) => Err(e.into()),
    }
}

/// The model on this machine that a name stands for. Of what Ollama has, only files that can be run count:
/// some are in forms of its own.
pub(super) fn here(hub: &Hub, name: &Name) -> Option<Model> {
    hub.find(name).into_iter().find(|model| model.place != Place::Ollama || can_run(model.path()))
}

fn can_run(path: &Path) -> bool {
    let file = ModelFile::open(path).ok();
    file.is_some_and(|file| file.gguf().is_ok_and(|gguf| models::Hparams::read(&gguf).is_ok()))
}

/// That a name stands for nothing here, and how to get it.
pub(super) fn not_here(hub: &Hub, name: &Name) -> Error {
    let error = hub.not_here(name);
    match &error {
        hub::Error::NotHere { near, .. } if near.is_empty() => {
            Error::refused(format_args!("{error}: arclight pull {name} fetches it"))
        }
        _ => error.into(),
    }
}

/// A name that must be one, for commands that are about names.
pub(super) fn parse(text: &str) -> Result<Name, Error> {
    Ok(Name::parse(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_names() {
        let is_name = |text: &str| name(Path::new(text)).unwrap().is_some();
        for path in [
            "model.gguf",
            "models/model.GGUF",
            "/x/y",
            "./a",
            "../a/b",
            "~/a",
            "a/b/c.gguf",
            "Cargo.toml",
        ] {
            assert!(!is_name(path), "{path}");
        }
        for text in
            ["qwen3:4b", "qwen3", "Qwen/Qwen3-4B-GGUF", "a/b:Q4_0", "a/b:x.gguf", "hf.co/a/b"]
        {
            assert!(is_name(text), "{text}");
        }
        assert!(is_name("https://huggingface.co/a/b/resolve/main/c.gguf"));
        assert!(name(Path::new("a/b/c")).is_err());
    }
}
