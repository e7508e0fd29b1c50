//! The one error type of the crate. Messages name files of the folder; whoever tells them names the folder.

use std::io;
use std::path::{Path, PathBuf};

/// Why a folder is not converted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing is there.
    #[error("there is no such file or folder")]
    NotFound {
        /// As named.
        path: PathBuf,
    },
    /// A folder without a configuration, or a file beside none.
    #[error(
        "it is a directory without config.json, which folders of models have, as on the Hugging Face Hub"
    )]
    NoConfig {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder without tensors in a form that is read.
    #[error("there are no .safetensors files{}", of_pytorch(*pickled))]
    NoTensors {
        /// The folder.
        folder: PathBuf,
        /// Whether there are files in PyTorch's own form.
        pickled: bool,
    },
    /// A file of the folder that cannot be read.
    #[error("cannot read {}", name_of(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of tensors that cannot be mapped.
    #[error(transparent)]
    Map(#[from] memory::Error),
    /// A file that should be JSON.
    #[error("{}: it is not the JSON that it should be", name_of(path))]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A damaged file of tensors.
    #[error("{}: {what}", name_of(path))]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A shard that the index names and that is not here.
    #[error(
        "{}: it is not here, though {index} names it: {missing} of {shards} files are missing",
        name_of(path)
    )]
    MissingShard {
        /// The first that is missing.
        path: PathBuf,
        /// The index.
        index: &'static str,
        /// How many are missing.
        missing: usize,
        /// How many there should be.
        shards: usize,
    },
    /// A tensor that the index puts into a file that has none of the name.
    #[error(
        "{}: it has no tensor `{name}`, though the index puts it there: the file is not whole, or of another version",
        name_of(path)
    )]
    NotInShard {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// The same tensor twice.
    #[error("{}: tensor `{name}` is in another file as well", name_of(path))]
    Twice {
        /// The second file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A model that nobody here knows.
    #[error(
        "config.json: no converter for {name:?}{}; {known} are known: {}",
        hint(near),
        "arclight convert --families lists them"
    )]
    UnknownArchitecture {
        /// As in `architectures`.
        name: String,
        /// Names that are written alike.
        near: Vec<String>,
        /// How many names are known.
        known: usize,
    },
    /// Something of the configuration.
    #[error("{file}: {what}")]
    Config {
        /// `config.json`, or another.
        file: &'static str,
        /// The key, and what is wrong with it.
        what: String,
    },
    /// A tensor that the family needs.
    #[error("tensor `{name}` is missing, of which `{wanted}` would be made")]
    MissingTensor {
        /// In the folder.
        name: String,
        /// In the file.
        wanted: String,
    },
    /// A tensor that the family has no place for.
    #[error(
        "tensor `{name}` has no place in {arch:?} files: the folder is of a variant that is not converted here"
    )]
    UnknownTensor {
        /// The tensor.
        name: String,
        /// `general.architecture`.
        arch: &'static str,
    },
    /// A tensor of a shape that cannot be.
    #[error("tensor `{name}` is {shape:?}, {want}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape, as in the folder.
        shape: Vec<usize>,
        /// What is wrong with it.
        want: String,
    },
    /// Weights in a form that is not read.
    #[error(
        "config.json: weights are quantised by {method:?}{detail}, which is not read; {known} are"
    )]
    Quantisation {
        /// `quant_method`.
        method: String,
        /// More about it.
        detail: String,
        /// What is read.
        known: &'static str,
    },
    /// A vocabulary that cannot be taken over.
    #[error("{file}: {what}")]
    Vocabulary {
        /// The file.
        file: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// The way a vocabulary cuts text is none that is known.
    #[error(
        "tokenizer.json: it cuts text in a way that no known family does{}: say --pre with the name of the one \
         whose rules it has, if you know it",
        shown(found)
    )]
    UnknownPreTokenizer {
        /// What the file says.
        found: String,
    },
    /// A name that `--pre` does not know.
    #[error("--pre {name}: no such way to cut text; there are {known}")]
    UnknownPre {
        /// As given.
        name: String,
        /// All names.
        known: String,
    },
    /// The file's head.
    #[error(transparent)]
    Gguf(#[from] gguf::Error),
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn of_pytorch(there: bool) -> &'static str {
    if there { "; those of PyTorch (.bin) are not read, as they may run code" } else { "" }
}

fn hint(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; did you mean {}?", near.join(" or ")),
    }
}

fn shown(found: &str) -> String {
    match found.len() {
        0 => String::new(),
        1..=400 => format!(" ({found})"),
        _ => format!(" ({}…)", found.chars().take(400).collect::<String>()),
    }
}

impl Error {
    /// Something of config.json.
    pub(crate) fn config(what: impl Into<String>) -> Error {
        Error::Config { file: "config.json", what: what.into() }
    }

    /// Something of a file of the vocabulary.
    pub(crate) fn vocabulary(file: &'static str, what: impl Into<String>) -> Error {
        Error::Vocabulary { file, what: what.into() }
    }
}
