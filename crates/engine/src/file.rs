//! Model files: mapped from disk (one file or a split series), or bytes in memory.

use crate::error::Error;
use gguf::Gguf;
use memory::MappedFile;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The bytes of a model.
pub struct ModelFile {
    path: PathBuf,
    source: Source,
}

enum Source {
    Mapped(Vec<MappedFile>),
    Memory(Cow<'static, [u8]>),
}

impl std::fmt::Debug for ModelFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ModelFile").field(&self.path()).finish()
    }
}

impl ModelFile {
    /// Maps a file, or all parts of a series when `path` names its first
    /// (`…-00001-of-0000N.gguf`).
    ///
    /// # Errors
    /// When a file is missing, a directory, empty or unreadable.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile, Error> {
        let path = path.as_ref().to_owned();
        let paths = gguf::split_paths(&path).unwrap_or_else(|| vec![path.clone()]);
        let files = paths.iter().map(|p| MappedFile::open(p)).collect::<Result<_, _>>()?;
        Ok(ModelFile { path, source: Source::Mapped(files) })
    }

    /// A model that is in memory already; `name` stands in error messages.
    pub fn from_bytes(name: &str, bytes: impl Into<Cow<'static, [u8]>>) -> ModelFile {
        ModelFile { path: PathBuf::from(name), source: Source::Memory(bytes.into()) }
    }

    /// The same bytes for another loader: a mapping of its own, since whoever loads
    /// [releases](MappedFile::release) what it has read.
    pub(crate) fn for_another(self: &Arc<ModelFile>) -> Result<Arc<ModelFile>, Error> {
        let Source::Mapped(files) = &self.source else { return Ok(self.clone()) };
        let files = files.iter().map(MappedFile::again).collect::<Result<_, _>>()?;
        Ok(Arc::new(ModelFile { path: self.path.clone(), source: Source::Mapped(files) }))
    }

    /// Path or name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size of all parts in bytes.
    pub fn bytes(&self) -> usize {
        match &self.source {
            Source::Mapped(files) => files.iter().map(|f| f.len()).sum(),
            Source::Memory(bytes) => bytes.len(),
        }
    }

    /// Validates the file and gives access to its metadata and tensors.
    ///
    /// # Errors
    /// When the file is malformed; the error names key or tensor, offset and reason.
    pub fn gguf(&self) -> Result<Gguf<'_>, Error> {
        let parsed = match &self.source {
            Source::Memory(bytes) => Gguf::parse(bytes),
            Source::Mapped(files) => match files.as_slice() {
                [one] => Gguf::parse(one),
                all => Gguf::parse_split(&all.iter().map(|f| &**f).collect::<Vec<_>>()),
            },
        };
        parsed.map_err(|source| Error::Gguf { path: self.path.clone(), source })
    }

    /// Its files; none, if it is in memory.
    pub(crate) fn mapped(&self) -> &[MappedFile] {
        match &self.source {
            Source::Mapped(files) => files,
            Source::Memory(_) => &[],
        }
    }

    /// Bytes that the page cache has of all parts, in whole pages.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn cached_bytes(&self) -> Result<usize, Error> {
        let files = self.mapped().iter();
        Ok(files.map(MappedFile::cached_bytes).sum::<Result<usize, _>>()?)
    }
}
