//! Model files: mapped from disk (one file or a split series), bytes in memory, or made as they are read.

use crate::error::Error;
use crate::made::{Made, Produce};
use gguf::{Gguf, Tensor};
use memory::MappedFile;
use models::Vision;
use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

/// The bytes of a model.
pub struct ModelFile {
    path: PathBuf,
    source: Source,
    /// Whether the log has what is odd about the metadata.
    told: Once,
}

enum Source {
    Mapped(Vec<MappedFile>),
    Memory(Cow<'static, [u8]>),
    Made(Made),
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
        Ok(ModelFile { path, source: Source::Mapped(files), told: Once::new() })
    }

    /// The same of a file that stands for something else, which messages are to name.
    ///
    /// # Errors
    /// As [`ModelFile::open`].
    pub fn open_as(path: &Path, name: &Path) -> Result<ModelFile, Error> {
        Ok(ModelFile { path: name.to_owned(), ..ModelFile::open(path)? })
    }

    /// A model that is in memory already; `name` stands in error messages.
    pub fn from_bytes(name: &str, bytes: impl Into<Cow<'static, [u8]>>) -> ModelFile {
        let source = Source::Memory(bytes.into());
        ModelFile { path: PathBuf::from(name), source, told: Once::new() }
    }

    /// A model whose data are made when they are wanted: `head` is all of a file before the data of its tensors,
    /// and `bytes` would be the length of the whole. `path` stands in messages.
    ///
    /// # Errors
    /// When the head is none, or data of small tensors, which are made at once, cannot be.
    pub fn made(
        path: impl AsRef<Path>,
        head: &[u8],
        bytes: u64,
        by: Box<dyn Produce>,
    ) -> Result<ModelFile, Error> {
        let path = path.as_ref().to_owned();
        let made = Made::new(&path, head, bytes, by)?;
        Ok(ModelFile { path, source: Source::Made(made), told: Once::new() })
    }

    /// Whether data are made as they are read.
    pub fn is_made(&self) -> bool {
        matches!(self.source, Source::Made(_))
    }

    /// Rows of a tensor of this file, in its type.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn rows<'a>(
        &self,
        tensor: &Tensor<'a>,
        rows: Range<usize>,
    ) -> Result<Cow<'a, [u8]>, gguf::Error> {
        let row = tensor.row_bytes();
        let part = &tensor.data[rows.start * row..rows.end * row];
        match &self.source {
            Source::Made(made) => made.rows(part).map(Cow::Owned),
            _ => Ok(Cow::Borrowed(part)),
        }
    }

    /// The same as numbers, not rounded to the type where they are made.
    ///
    /// # Errors
    /// When they cannot be made, or `out` is not as long as they are.
    pub fn values(
        &self,
        tensor: &Tensor<'_>,
        rows: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), gguf::Error> {
        match &self.source {
            Source::Made(made) => {
                let row = tensor.row_bytes();
                made.values(&tensor.data[rows.start * row..rows.end * row], out)
            }
            _ => tensor.ty.dequantize(&self.rows(tensor, rows)?, out),
        }
    }

    /// The same bytes for another loader: a mapping of its own, since whoever loads
    /// [releases](MappedFile::release) what it has read.
    ///
    /// # Errors
    /// When the file cannot be mapped again.
    pub fn for_another(self: &Arc<ModelFile>) -> Result<Arc<ModelFile>, Error> {
        let Source::Mapped(files) = &self.source else { return Ok(self.clone()) };
        let files = files.iter().map(MappedFile::again).collect::<Result<_, _>>()?;
        let told = Once::new();
        told.call_once(|| {});
        Ok(Arc::new(ModelFile { path: self.path.clone(), source: Source::Mapped(files), told }))
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
            Source::Made(made) => made.bytes().len(),
        }
    }

    /// Validates the file and gives access to its metadata and tensors.
    ///
    /// # Errors
    /// When the file is malformed; the error names key or tensor, offset and reason.
    pub fn gguf(&self) -> Result<Gguf<'_>, Error> {
        Ok(flat(self.stored()?))
    }

    /// The same, also of a file with tensors of types that are not supported: [`Gguf::others`] has these.
    ///
    /// # Errors
    /// As [`ModelFile::gguf`], but for such types.
    pub fn survey(&self) -> Result<Gguf<'_>, Error> {
        self.parsed(Gguf::survey(&self.parts())).map(flat)
    }

    /// The same with the shapes that the file states, for another file that is made of it.
    ///
    /// # Errors
    /// As [`ModelFile::gguf`].
    pub fn stored(&self) -> Result<Gguf<'_>, Error> {
        self.parsed(match &*self.parts() {
            [one] => Gguf::parse(one),
            all => Gguf::parse_split(all),
        })
    }

    fn parts(&self) -> Vec<&[u8]> {
        match &self.source {
            Source::Memory(bytes) => vec![bytes],
            Source::Made(made) => vec![made.bytes()],
            Source::Mapped(files) => files.iter().map(|file| &**file).collect(),
        }
    }

    fn parsed<'a>(&self, parsed: Result<Gguf<'a>, gguf::Error>) -> Result<Gguf<'a>, Error> {
        let path = &self.path;
        let gguf = parsed.map_err(|source| Error::Gguf { path: path.clone(), source })?;
        self.told.call_once(|| {
            for (key, byte) in gguf.metadata().odd_bools() {
                let path = path.display();
                tracing::warn!(
                    "{path}: metadata key {key:?} is a boolean with byte {byte}: it is read as true"
                );
            }
        });
        Ok(gguf)
    }

    /// Its files; none, if it is in memory, or made.
    pub(crate) fn mapped(&self) -> &[MappedFile] {
        match &self.source {
            Source::Mapped(files) => files,
            Source::Memory(_) | Source::Made(_) => &[],
        }
    }

    /// What makes its data, if they are made.
    pub(crate) fn maker(&self) -> Option<&Made> {
        match &self.source {
            Source::Made(made) => Some(made),
            _ => None,
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

/// Patches of an image encoder are multiplied by what is a convolution in the file.
fn flat(mut gguf: Gguf<'_>) -> Gguf<'_> {
    if Vision::is_encoder(gguf.metadata()) {
        gguf.flatten();
    }
    gguf
}
