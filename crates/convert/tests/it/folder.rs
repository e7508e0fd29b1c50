//! A folder of the Hub for one test.

use arclight_convert::{Conversion, Error, Options};
use gguf::Gguf;
use serde_json::Value;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use tempfile::TempDir;
use testkit::Checkpoint;

pub(crate) const HIDDEN: usize = Checkpoint::HIDDEN;
pub(crate) const VOCAB: usize = Checkpoint::VOCAB;

/// A checkpoint, and where it is written.
pub(crate) struct Folder {
    dir: TempDir,
    checkpoint: Checkpoint,
}

impl Deref for Folder {
    type Target = Checkpoint;

    fn deref(&self) -> &Checkpoint {
        &self.checkpoint
    }
}

impl DerefMut for Folder {
    fn deref_mut(&mut self) -> &mut Checkpoint {
        &mut self.checkpoint
    }
}

impl Folder {
    pub(crate) fn llama() -> Folder {
        Folder::of(Checkpoint::llama())
    }

    pub(crate) fn of(checkpoint: Checkpoint) -> Folder {
        Folder { dir: TempDir::new().unwrap(), checkpoint }
    }

    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Folder {
        self.config[key] = value.into();
        self
    }

    /// Writes another file.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn finish(&self) {
        self.checkpoint.write(self.path());
    }

    pub(crate) fn open(&self) -> Result<Conversion, Error> {
        self.open_with(&Options::default())
    }

    pub(crate) fn open_with(&self, options: &Options) -> Result<Conversion, Error> {
        self.finish();
        Conversion::open(self.path(), options)
    }

    /// What opening complains of.
    #[track_caller]
    pub(crate) fn fault(&self) -> String {
        self.open().expect_err("the folder is at fault").to_string()
    }
}

/// The file as a reader sees it, written out.
pub(crate) fn written(conversion: &Conversion) -> Vec<u8> {
    let (mut file, bytes) = conversion.head().unwrap();
    for tensor in conversion.tensors() {
        // By rows in several pieces, which must not matter.
        for row in 0..tensor.rows() {
            tensor.bytes(row..row + 1, &mut file).unwrap();
        }
        file.resize(file.len().next_multiple_of(32), 0);
    }
    assert_eq!(file.len() as u64, bytes);
    Gguf::parse(&file).unwrap();
    file
}

/// The values of a tensor of the file.
pub(crate) fn made(conversion: &Conversion, name: &str) -> Vec<f32> {
    let tensor = conversion.tensors().iter().find(|tensor| tensor.name() == name);
    let tensor = tensor.unwrap_or_else(|| panic!("no tensor {name}"));
    let mut values = vec![0.0; tensor.rows() * tensor.cols()];
    tensor.values(0..tensor.rows(), &mut values).unwrap();
    values
}
