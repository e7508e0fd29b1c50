//! Images of the command line: the encoder beside a model, pictures from files, prompts with them.

use crate::error::Error;
use crate::hub::{self, Missing};
use crate::model_file;
use crate::term::note;
use arclight_engine::{Encoder, ModelFile, Prompt};
use chat::{Needs, normalize_with_images};
use clap::{Args, ValueHint};
use convert::Options;
use serde_json::{Value as Json, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tokenizer::{ChatTemplate, EncodeOptions, Message, Tokenizer};
use vision::{Bounds, Picture, Piece};

/// What encodes images.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Images")]
pub(crate) struct ImageArgs {
    /// Image encoder: a GGUF file, or OWNER/REPO[:FILE] [default: the one named mmproj that is beside the model]
    #[arg(long, value_name = "MMPROJ", value_hint = ValueHint::FilePath, conflicts_with = "no_mmproj")]
    mmproj: Option<PathBuf>,
    /// Leave the image encoder that is beside the model alone
    #[arg(long)]
    no_mmproj: bool,
}

impl ImageArgs {
    /// The encoder's file, if there is one.
    ///
    /// # Errors
    /// When it is no file of an image encoder of a supported family, or several are beside the model.
    pub(crate) fn file(
        &self,
        model: &ModelFile,
        offline: bool,
    ) -> Result<Option<ModelFile>, Error> {
        let missing = if offline { Missing::Offline } else { Missing::Fetch };
        let file = match &self.mmproj {
            Some(folder) if model_file::is_of_hub(folder) => {
                model_file::encoder(folder, &Options::default())?
                    .ok_or_else(|| Error::in_file(folder, "it has no image encoder"))?
            }
            Some(path) => ModelFile::open(hub::encoder(path, missing)?)?,
            None if self.no_mmproj => return Ok(None),
            None if model_file::is_of_hub(model.path()) => return Ok(of_folder(model.path())),
            None => match beside(model.path())? {
                Some(path) => ModelFile::open(path)?,
                None => return Ok(None),
            },
        };
        let path = file.path();
        arclight_engine::processor(&file)
            .map_err(|e| Error::in_file(path, format!("{e}; --no-mmproj goes without images")))?;
        if self.mmproj.is_none() {
            note!("image encoder: {}", path.display());
        }
        Ok(Some(file))
    }
}

/// The image encoder of a folder of the Hub. One of a kind that does not run is told, and the model goes without.
fn of_folder(folder: &Path) -> Option<ModelFile> {
    let usable = || -> Result<Option<ModelFile>, Error> {
        let Some(file) = model_file::encoder(folder, &Options::default())? else { return Ok(None) };
        arclight_engine::processor(&file)?;
        Ok(Some(file))
    };
    usable().unwrap_or_else(|why| {
        tracing::warn!("the model goes without images: {}", why.line());
        None
    })
}

/// The name of the image encoder of a model's file, in the same folder.
pub(crate) fn name_beside(model: &Path) -> OsString {
    let mut name = OsString::from("mmproj-");
    name.push(model.file_name().unwrap_or_default());
    name
}

/// The one file in a model's folder whose name says that it is an image encoder; of several the one with the model's own
/// name. In a cache of repositories it is the one that would have been fetched with the model.
fn beside(model: &Path) -> Result<Option<PathBuf>, Error> {
    if let Some((snapshot, file)) = in_snapshot(model) {
        return Ok(::hub::encoder_beside(snapshot, file).map(|file| snapshot.join(file)));
    }
    let folder = match model.parent() {
        Some(folder) if model.is_file() && folder == Path::new("") => Path::new("."),
        Some(folder) if model.is_file() => folder,
        _ => return Ok(None),
    };
    let Ok(entries) = folder.read_dir() else { return Ok(None) };
    let is_encoder = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        name.contains("mmproj") && name.ends_with(".gguf") && path.as_path() != model
    };
    let mut found: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_encoder).collect();
    if let Some(own) = found.iter().position(|path| path.file_name() == Some(&name_beside(model))) {
        return Ok(Some(found.swap_remove(own)));
    }
    if found.len() > 1 {
        found.sort();
        let names: Vec<String> = found.iter().map(|path| path.display().to_string()).collect();
        let names = names.join(" and ");
        let text = format!("{names} are image encoders: choose one with --mmproj, or --no-mmproj");
        return Err(Error::Usage(text));
    }
    Ok(found.pop())
}

/// The folder of a repository's commit, and the model's path in it.
fn in_snapshot(model: &Path) -> Option<(&Path, &Path)> {
    let snapshot = model.ancestors().skip(1).find(|folder| {
        let above = folder.parent();
        let repo = above.and_then(Path::parent).and_then(Path::file_name);
        above.is_some_and(|above| above.ends_with("snapshots"))
            && repo.is_some_and(|name| name.to_string_lossy().starts_with("models--"))
    })?;
    Some((snapshot, model.strip_prefix(snapshot).ok()?))
}

/// Reads a picture from a file.
///
/// # Errors
/// When it cannot be read, or is no image.
pub(crate) fn picture(path: &Path) -> Result<Picture, Error> {
    let bytes = std::fs::read(path).map_err(|e| Error::read(path, e))?;
    Picture::decode(&bytes, Bounds::default()).map_err(|e| Error::in_file(path, e))
}

/// A message of the user's with so many images before its text.
pub(crate) fn message(text: &str, images: usize) -> Message {
    if images == 0 {
        return Message::new("user", text);
    }
    let mut parts = vec![json!({"type": "image"}); images];
    parts.push(json!({"type": "text", "text": text}));
    Message { content: Json::Array(parts), ..Message::new("user", "") }
}

/// Messages with images as a template wants them.
///
/// # Errors
/// When a part of a message is of another kind.
pub(crate) fn normalize(
    template: Option<&ChatTemplate>,
    messages: &mut Vec<Message>,
    encoder: &Encoder,
) -> Result<(), Error> {
    let Some(template) = template else { return Ok(()) };
    let mark = encoder.processor().mark_in_text();
    normalize_with_images(messages, &Needs::probe(template), mark).map_err(Error::refused)
}

/// The prompt that a text with marks and its pictures become.
///
/// # Errors
/// When there are not as many of both, or the text cannot be encoded.
pub(crate) fn prompt(
    tokenizer: &Tokenizer,
    text: &str,
    (encoder, pictures): (&Encoder, &[Vec<Piece>]),
) -> Result<Prompt, Error> {
    let pieces = encoder.processor().compose(text, pictures).map_err(Error::refused)?;
    Prompt::of(&pieces, |text, first| {
        let options = EncodeOptions { add_special: first, parse_special: true };
        Ok(tokenizer.encode(text, options)?)
    })
}

/// The fault of images for a model without an encoder.
pub(crate) fn sees_nothing() -> Error {
    let text = "the model sees no images: name the GGUF file of its image encoder with --mmproj";
    Error::Usage(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoder_is_found_beside_its_model_if_it_is_the_only_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str| std::fs::write(path(name), b"x").unwrap();
        write("model.gguf");
        assert_eq!(beside(&path("model.gguf")).unwrap(), None);
        write("mmproj-model-f16.gguf");
        assert_eq!(beside(&path("model.gguf")).unwrap(), Some(path("mmproj-model-f16.gguf")));
        assert_eq!(beside(&path("none.gguf")).unwrap(), None);
        write("model.mmproj.GGUF");
        let error = beside(&path("model.gguf")).unwrap_err().to_string();
        assert!(error.contains("choose one"), "{error}");
        write("mmproj-model.gguf");
        assert_eq!(beside(&path("model.gguf")).unwrap(), Some(path("mmproj-model.gguf")));
    }
}
