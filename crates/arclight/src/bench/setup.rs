//! The configuration of a loaded model under test.

use serde::{Serialize, Serializer};
use std::fmt;

/// How a model was loaded.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setup {
    /// `None` for an engine that is alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replica: Option<Replica>,
    pub(crate) nodes: usize,
    pub(crate) threads: usize,
    pub(crate) isa: &'static str,
    /// Those that were written elsewhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) kernels: Vec<&'static str>,
}

/// Which of several copies of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replica {
    One(usize),
    All,
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Replica::One(number) => f.pad(&number.to_string()),
            Replica::All => f.pad("all"),
        }
    }
}

impl Serialize for Replica {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
