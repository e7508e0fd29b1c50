//! The one error type: what stands after `FAILED:`.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;

/// Everything that makes a check fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Loading or a step.
    #[error(transparent)]
    Engine(#[from] arclight_engine::Error),
    /// A file that cannot be read or written.
    #[error("cannot {verb} {}", path.display())]
    Io { verb: &'static str, path: PathBuf, source: io::Error },
    /// The system refuses what the check itself needs.
    #[error("cannot {what}")]
    System { what: String, source: io::Error },
    /// A reference of another model or script.
    #[error("{} has {got} bytes, but the script makes {want}: write it anew", path.display())]
    Reference { path: PathBuf, got: usize, want: usize },
    /// A line of `numa_maps` that is not as documented.
    #[error("cannot understand a line of /proc/self/numa_maps: {0:?}")]
    Maps(String),
    /// What was checked is not so. The details have been printed.
    #[error("{0}")]
    Unmet(String),
}

impl Error {
    /// The error and what led to it, on one line.
    pub(crate) fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(c) = cause {
            text.push_str(&format!(": {c}"));
            cause = c.source();
        }
        text
    }
}
