//! The one error type of the program: what is printed after `error:`, and the exit code.

use crate::interrupt;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// Everything that ends a command early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A value on the command line that cannot be.
    #[error("{0}")]
    Usage(String),
    /// Something that the files or the machine do not allow.
    #[error("{0}")]
    Refused(String),
    /// Loading or running a model.
    #[error(transparent)]
    Engine(#[from] arclight_engine::Error),
    /// Starting to serve.
    #[error(transparent)]
    Server(#[from] arclight_server::Error),
    /// A model file that does not say what is needed, or says it wrongly.
    #[error("{}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: models::Error,
    },
    /// A folder of the Hub that cannot be converted.
    #[error("{}", path.display())]
    Convert {
        /// The folder, or a file in it.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<convert::Error>,
    },
    /// A model file's vocabulary or chat template.
    #[error("{}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: tokenizer::Error,
    },
    /// Encoding a text or rendering a conversation.
    #[error(transparent)]
    Text(#[from] tokenizer::Error),
    /// Writing a model file.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: gguf::Error,
    },
    /// Measuring a server.
    #[error(transparent)]
    Load(#[from] loadgen::Error),
    /// Finding or fetching a model by its name.
    #[error(transparent)]
    Hub(#[from] hub::Error),
    /// The description of the machine.
    #[error(transparent)]
    Topology(#[from] topology::Error),
    /// A file that cannot be read or written.
    #[error("{what}")]
    Io {
        /// What was tried, with the file's name.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Terminal input.
    #[error("cannot read from the terminal")]
    Terminal(#[from] rustyline::error::ReadlineError),
    /// Standard output, other than by its reader going away.
    #[error("cannot write to standard output")]
    Stdout(#[source] io::Error),
    /// Ctrl-C, when all that can be told has been told.
    #[error("interrupted")]
    Interrupted,
    /// Whoever read standard output has gone: nothing is wrong, and there is nobody to tell.
    #[error("standard output is closed")]
    ReaderGone,
}

impl Error {
    /// What the command line cannot say.
    pub(crate) fn usage(why: impl Display) -> Error {
        Error::Usage(why.to_string())
    }

    /// What the machine does not allow.
    pub(crate) fn refused(why: impl Display) -> Error {
        Error::Refused(why.to_string())
    }

    /// What is wrong with a file.
    pub(crate) fn in_file(path: &Path, why: impl Display) -> Error {
        Error::Refused(format!("{}: {why}", path.display()))
    }

    /// A file that cannot be read.
    pub(crate) fn read(path: &Path, source: io::Error) -> Error {
        Error::Io { what: format!("cannot read {}", path.display()), source }
    }

    /// A file that cannot be written.
    pub(crate) fn write(path: &Path, source: io::Error) -> Error {
        Error::Io { what: format!("cannot write {}", path.display()), source }
    }

    /// Whether it goes without saying.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self, Error::ReaderGone | Error::Interrupted)
    }

    /// 0 when there is nothing to complain of, 2 for what the command line says, 1 for the rest.
    pub(crate) fn exit_code(&self) -> u8 {
        use arclight_engine::Error as Engine;
        match self {
            Error::ReaderGone => 0,
            Error::Interrupted => interrupt::EXIT_CODE,
            Error::Usage(_) => 2,
            Error::Engine(
                Engine::ContextTooLong { .. }
                | Engine::Zero(_)
                | Engine::Isolated(_)
                | Engine::Graph(graph::Error::Pool(threads::Error::Stack { .. }))
                | Engine::BadSampler { .. }
                | Engine::Isa(_),
            ) => 2,
            Error::Load(e) if e.is_usage() => 2,
            Error::Hub(e) if e.is_usage() => 2,
            Error::Engine(Engine::Topology(e)) | Error::Topology(e) => topology_code(e),
            Error::Server(
                arclight_server::Error::BadOrigin { .. } | arclight_server::Error::BadHost { .. },
            ) => 2,
            _ => 1,
        }
    }

    /// The error and its causes on one line. A cause that its effect has already told of is left
    /// out.
    pub(crate) fn line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let text = error.to_string();
            if !line.contains(&text) {
                line.push_str(": ");
                line.push_str(&text);
            }
            cause = error.source();
        }
        // File names may hold anything.
        line.replace(['\n', '\r'], " ")
    }
}

fn topology_code(error: &topology::Error) -> u8 {
    use topology::Error as E;
    match error {
        E::ZeroThreads | E::ZeroGroups | E::TooFewThreads { .. } | E::TooMany { .. } => 2,
        E::BadList { .. } | E::Missing { .. } | E::Offline { .. } | E::NotAllowed { .. } => 2,
        E::Elsewhere { .. } | E::MemoryOnly { .. } | E::BadParts { .. } => 2,
        _ => 1,
    }
}

/// Writes to standard output tell a reader that went away from other faults.
impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Error::ReaderGone,
            _ => Error::Stdout(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once_and_on_one_line() {
        let source = io::Error::new(io::ErrorKind::NotFound, "no such\nfile");
        let e = Error::Io { what: "cannot read a".into(), source };
        assert_eq!(e.line(), "cannot read a: no such file");
        let inner = gguf::Gguf::parse(b"nope").unwrap_err();
        let e = Error::Engine(arclight_engine::Error::Gguf { path: "m".into(), source: inner });
        assert_eq!(e.line().matches("m: ").count(), 1, "{}", e.line());
    }

    #[test]
    fn the_command_line_is_2_and_the_world_is_1() {
        let engine = arclight_engine::Error::ContextTooLong { context: 2, trained: 1 };
        assert_eq!(Error::from(engine).exit_code(), 2);
        assert_eq!(Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit_code(), 0);
        assert_eq!(Error::from(io::Error::from(io::ErrorKind::StorageFull)).exit_code(), 1);
    }
}
