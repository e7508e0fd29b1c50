//! Images of the command line: the encoder beside a model, pictures from files, prompts with them.

use crate::error::Error;
use crate::folder;
use crate::hub::named::{self, Missing};
use crate::term::note;
use arclight_engine::{Encoder, ModelFile, Prompt};
use chat::{Needs, normalize_with_images};
use clap::{Args, ValueHint};
use convert::Options;
use serde_json::{Value as Json, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tokenizer::{ChatTemplate, Message, Rendered, Tokenizer};
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
            Some(folder) if folder::is_of_hub(folder) => {
                folder::encoder(folder, &Options::default())?
                    .ok_or_else(|| Error::in_file(folder, "it has no image encoder"))?
            }
            Some(path) => ModelFile::open(named::encoder(path, missing)?)?,
            None if self.no_mmproj => return Ok(None),
            None if folder::is_of_hub(model.path()) => return Ok(of_folder(model.path())),
            None => match beside(model)? {
                Some(file) => file,
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
        let Some(file) = folder::encoder(folder, &Options::default())? else { return Ok(None) };
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

/// The image encoder in a model's folder, by its name: the one with the model's own name, or the only one that fits. In a
/// cache of repositories it is the one that would have been fetched with the model.
fn beside(model: &ModelFile) -> Result<Option<ModelFile>, Error> {
    let path = model.path();
    if let Some((snapshot, file)) = in_snapshot(path) {
        let encoder = ::hub::encoder_beside(snapshot, file).map(|file| snapshot.join(file));
        return Ok(encoder.map(ModelFile::open).transpose()?);
    }
    let own = path.with_file_name(name_beside(path));
    if own.is_file() {
        return Ok(Some(ModelFile::open(own)?));
    }
    let (mut fits, others) = encoders_around(path)
        .into_iter()
        .map(|path| (fitting(&path, model), path))
        .partition::<Vec<_>, _>(|(file, _)| file.is_ok());
    if fits.len() > 1 {
        let names: Vec<String> = fits.iter().map(|(_, path)| path.display().to_string()).collect();
        let names = names.join(" and ");
        let text = format!("{names} are image encoders: choose one with --mmproj, or --no-mmproj");
        return Err(Error::Usage(text));
    }
    let found = fits.pop().and_then(|(file, _)| file.ok());
    if found.is_none() {
        for (why, path) in others {
            let why = why.err().map(|why| why.line()).unwrap_or_default();
            note!("{} is not used: {why}", path.display());
        }
    }
    Ok(found)
}

fn fitting(encoder: &Path, model: &ModelFile) -> Result<ModelFile, Error> {
    let file = ModelFile::open(encoder)?;
    arclight_engine::encoder_fits(&file, model)?;
    Ok(file)
}

/// Files in a model's folder that have names of image encoders, sorted.
fn encoders_around(model: &Path) -> Vec<PathBuf> {
    let folder = match model.parent() {
        Some(folder) if model.is_file() && folder == Path::new("") => Path::new("."),
        Some(folder) if model.is_file() => folder,
        _ => return Vec::new(),
    };
    let is_encoder = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        name.contains("mmproj") && name.ends_with(".gguf") && path.as_path() != model
    };
    let entries = folder.read_dir().into_iter().flatten();
    let mut found: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_encoder).collect();
    found.sort();
    found
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
    prompt: &Rendered,
    encoder: &Encoder,
    pictures: &[Vec<Piece>],
) -> Result<Prompt, Error> {
    let pieces = encoder.processor().compose(&prompt.text, pictures).map_err(Error::refused)?;
    Prompt::of(&pieces, |text, first| Ok(tokenizer.encode_rendered(text, prompt.escape, first)?))
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
    fn the_encoder_beside_a_model_is_its_own_or_the_only_one_that_fits() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, bytes: &[u8]| std::fs::write(path(name), bytes).unwrap();
        let width = 256;
        std::fs::copy(testkit::repository("demo/arclight-demo.gguf"), path("model.gguf")).unwrap();
        let model = ModelFile::open(path("model.gguf")).unwrap();
        let found = || beside(&model).unwrap().map(|file| file.path().to_owned());
        assert_eq!(found(), None);
        // Of another model, and of none.
        write("mmproj-another.gguf", &testkit::encoder(width / 2));
        write("mmproj-broken.gguf", b"x");
        assert_eq!(found(), None);
        write("model.mmproj.GGUF", &testkit::encoder(width));
        assert_eq!(found(), Some(path("model.mmproj.GGUF")));
        write("mmproj-model-f16.gguf", &testkit::encoder(width));
        let error = beside(&model).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("choose one") && !error.contains("another"), "{error}");
        write("mmproj-model.gguf", &testkit::encoder(width));
        assert_eq!(found(), Some(path("mmproj-model.gguf")));
    }
}
