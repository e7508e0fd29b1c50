//! What goes wrong with a server.

use std::io;
use std::path::PathBuf;

/// Errors of MCP servers. Each names the server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command line that is none.
    #[error("{command:?} is no command: its quotes do not match, or it is empty")]
    BadCommand {
        /// As given.
        command: String,
    },
    /// A configuration that cannot be read.
    #[error("{}: {why}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A program that cannot be started.
    #[error("{server}: {command} cannot be started: {source}")]
    Start {
        /// The server's name.
        server: String,
        /// Its program.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// A server that has ended, or is not there.
    #[error("{server}: {why}")]
    Gone {
        /// Its name.
        server: String,
        /// What was seen of it.
        why: String,
    },
    /// A server that does not answer.
    #[error("{server}: no answer to {method} within {seconds} s")]
    Late {
        /// Its name.
        server: String,
        /// What it was asked.
        method: String,
        /// How long was waited.
        seconds: u64,
    },
    /// An answer that is none.
    #[error("{server}: its answer to {method} is not MCP: {why}")]
    Malformed {
        /// Its name.
        server: String,
        /// What it was asked.
        method: String,
        /// What is wrong with it.
        why: String,
    },
    /// A request that the server refuses.
    #[error("{server}: {message} ({code})")]
    Refused {
        /// Its name.
        server: String,
        /// What it says.
        message: String,
        /// Its number.
        code: i64,
    },
}
