//! Files of models that are not always loaded.

use crate::error::Error;
use crate::model_file;
use arclight_engine::{Adapter, ModelFile};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A model's file, which is open while it is used: a model that is not loaded has no file descriptor.
pub(super) struct Stored {
    path: PathBuf,
    /// A file that is not on the disk.
    kept: Option<Arc<ModelFile>>,
    open: Mutex<Weak<ModelFile>>,
}

impl Stored {
    pub(super) fn new(file: ModelFile) -> Arc<Stored> {
        let path = file.path().to_owned();
        let kept = (!path.exists()).then(|| Arc::new(file));
        Arc::new(Stored { path, kept, open: Mutex::default() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, which is opened unless it is open already.
    pub(super) fn open(&self) -> Result<Arc<ModelFile>, Error> {
        if let Some(file) = &self.kept {
            return Ok(file.clone());
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.upgrade() {
            return Ok(file);
        }
        let file = Arc::new(model_file::open(&self.path)?);
        *open = Arc::downgrade(&file);
        Ok(file)
    }
}

/// Whether it is neither an adapter nor an image encoder.
pub(super) fn is_model(file: &ModelFile) -> Result<bool, Error> {
    let gguf = file.gguf()?;
    let is_encoder = gguf.metadata().opt_str("general.architecture").ok().flatten() == Some("clip");
    Ok(!Adapter::is_adapter(&gguf) && !is_encoder)
}
