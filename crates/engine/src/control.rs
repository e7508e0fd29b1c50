//! The means by which others end or delay the loading of a model.

use crate::cores::Cores;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What others have to say while a model is loaded.
#[derive(Clone, Default)]
pub(crate) struct Control {
    /// Loading fails soon after this is set.
    pub stop: Arc<AtomicBool>,
    /// The cores, if other models compute on them.
    pub cores: Option<Cores>,
}
