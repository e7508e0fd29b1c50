//! Opening a model: a GGUF file, or a folder of the Hugging Face Hub, which is converted as it is read.

use crate::error::Error;
use crate::folder::{self, is_of_hub};
use crate::kept;
use arclight_engine::ModelFile;
use convert::Options;
use std::path::Path;

/// Opens either.
pub(crate) fn open(path: impl AsRef<Path>) -> Result<ModelFile, Error> {
    let path = path.as_ref();
    if convert::is_adapter(path) && !path.join("config.json").is_file() {
        return Err(Error::Refused(format!(
            "{} is an adapter: name its model, and give the folder to --lora",
            path.display()
        )));
    }
    match is_of_hub(path) {
        true => match kept::find(path) {
            Some(file) => Ok(file),
            None => folder::converted(path, &Options::default()).map(|(file, _)| file),
        },
        false => Ok(ModelFile::open(path)?),
    }
}

/// The same; what a folder is converted to is kept.
pub(crate) fn open_and_keep(path: impl AsRef<Path>) -> Result<ModelFile, Error> {
    let path = path.as_ref();
    match is_of_hub(path) && !convert::is_adapter(path) {
        true => kept::open(path),
        false => open(path),
    }
}
