//! Hugging Face model directories as model files, whose tensors are made on request.

use crate::error::Error;
use arclight_engine::{ModelFile, Produce};
use convert::{Conversion, Options};
use std::ops::Range;
use std::path::Path;

/// Whether a path is one that is converted: a folder with a configuration, or a file of tensors.
pub(crate) fn is_of_hub(path: &Path) -> bool {
    path.is_dir() || path.extension().is_some_and(|end| end.eq_ignore_ascii_case("safetensors"))
}

/// A folder as a file whose data are made when they are wanted, and what a person should know of it.
pub(crate) fn converted(path: &Path, options: &Options) -> Result<(ModelFile, Vec<String>), Error> {
    let fault = |source| Error::Convert { path: path.to_owned(), source: Box::new(source) };
    let conversion = Conversion::open(path, options).map_err(fault)?;
    let notes = conversion.notes().to_vec();
    Ok((made(path, conversion)?, notes))
}

/// The image encoder of a folder, likewise, with what a person should know told; `None` if the folder has none.
pub(crate) fn encoder(path: &Path, options: &Options) -> Result<Option<ModelFile>, Error> {
    let fault = |source| Error::Convert { path: path.to_owned(), source: Box::new(source) };
    let conversion = Conversion::images(path, options).map_err(fault)?;
    for note in conversion.iter().flat_map(Conversion::notes) {
        tracing::warn!("{note}");
    }
    conversion.map(|conversion| made(path, conversion)).transpose()
}

fn made(path: &Path, conversion: Conversion) -> Result<ModelFile, Error> {
    let fault = |source| Error::Convert { path: path.to_owned(), source: Box::new(source) };
    let (head, bytes) = conversion.head().map_err(fault)?;
    Ok(ModelFile::made(path, &head, bytes, Box::new(Folder(conversion)))?)
}

struct Folder(Conversion);

impl Produce for Folder {
    fn rows(
        &self,
        tensor: usize,
        rows: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<(), gguf::Error> {
        self.0.tensors()[tensor].bytes(rows, out)
    }

    fn values(
        &self,
        tensor: usize,
        rows: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), gguf::Error> {
        self.0.tensors()[tensor].values(rows, out)
    }
}
