//! What ends a server, or keeps it from starting.

use std::io;
use std::path::PathBuf;

/// Errors of starting a server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address or a socket cannot be listened on.
    #[error("cannot listen on {at}: {source}")]
    Listen {
        /// Which.
        at: String,
        /// Why.
        source: io::Error,
    },
    /// A certificate or its key cannot be used.
    #[error("{}: {why}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// An origin that no browser sends.
    #[error("{origin:?} is no origin: use the form https://example.com, or * for all")]
    BadOrigin {
        /// As given.
        origin: String,
    },
    /// A host that no request names.
    #[error(
        "{host:?} is no host name: use the form chat.example, without scheme and port, or * for all"
    )]
    BadHost {
        /// As given.
        host: String,
    },
    /// A server of several models has none.
    #[error("there is no model to serve")]
    NoModels,
    /// Two models have one name.
    #[error("two models are called {name:?}: give one of them another alias")]
    TwoModels {
        /// The name.
        name: String,
    },
    /// The folder of files and batches cannot be used.
    #[error("{}: {why}", folder.display())]
    Files {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: String,
    },
    /// The model cannot be loaded.
    #[error(transparent)]
    Engine(#[from] arclight_engine::Error),
    /// The model's vocabulary or chat template cannot be used.
    #[error("{}: {source}", path.display())]
    Tokenizer {
        /// The model file.
        path: PathBuf,
        /// What is wrong with it.
        source: tokenizer::Error,
    },
}
