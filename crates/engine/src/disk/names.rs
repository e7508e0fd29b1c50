//! Names of pages: hashes of everything that their contents depend on.

use crate::error::Error;
use crate::file::ModelFile;
use graph::Executor;
use std::fmt;

/// The name of a page: it tells of the model and of all tokens up to the page's end.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(pub(super) [u8; 16]);

impl Name {
    fn of(hasher: &blake3::Hasher) -> Name {
        let hash = hasher.finalize();
        Name(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
    }

    #[cfg(test)]
    pub(crate) fn of_test() -> Name {
        Name([1; 16])
    }

    /// Of the page with `tokens` behind this one.
    pub(crate) fn then(self, tokens: &[u32]) -> Name {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        for token in tokens {
            hasher.update(&token.to_le_bytes());
        }
        Name::of(&hasher)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Counts changes of what pages hold, of models and machines alike: to be raised with each.
const FORM: u32 = 1;

/// Bytes of a tensor that are looked at, at its beginning and in its middle: files of one architecture differ in
/// all of them.
const LOOK: usize = 256;

/// The name of the beginning: of a model as it is loaded. Whatever bits of keys, values and states depend on beside
/// tokens is part of it.
///
/// # Errors
/// When the file is malformed.
pub(crate) fn fingerprint(
    file: &ModelFile,
    executor: &Executor,
    context: usize,
) -> Result<Name, Error> {
    let gguf = file.gguf()?;
    let kv = executor.limits().kv;
    let mut hasher = blake3::Hasher::new();
    let mut say = |text: &str| {
        hasher.update(text.as_bytes());
        hasher.update(&[0]);
    };
    say(&format!("{} {FORM}", env!("CARGO_PKG_VERSION")));
    let graph = executor.graph();
    // Angles may depend on the context. Instruction sets give the same bits.
    say(&format!("{kv} {:?} {context}", executor.plan().mode));
    for (class, keep) in graph.classes().iter().enumerate() {
        let nodes = 0..graph.nodes();
        let bytes: Vec<usize> = nodes.map(|node| graph.page_bytes(node, kv, class)).collect();
        say(&format!("{keep:?} {bytes:?}"));
    }
    hash_file(&mut hasher, file, &gguf)?;
    Ok(Name::of(&hasher))
}

/// The digest of a model's file: metadata, and some bytes of every tensor. Hosts that share a model compare it.
///
/// # Errors
/// When the file is malformed.
pub(crate) fn digest(file: &ModelFile) -> Result<[u8; 32], Error> {
    let mut hasher = blake3::Hasher::new();
    hash_file(&mut hasher, file, &file.gguf()?)?;
    Ok(*hasher.finalize().as_bytes())
}

fn hash_file(
    hasher: &mut blake3::Hasher,
    file: &ModelFile,
    gguf: &gguf::Gguf<'_>,
) -> Result<(), Error> {
    for (key, value) in gguf.metadata().iter().filter(|(key, _)| !key.starts_with("tokenizer.")) {
        hasher.update(format!("{key} {value}\0").as_bytes());
    }
    let fault = |source| Error::Gguf { path: file.path().to_owned(), source };
    for tensor in gguf.tensors() {
        hasher.update(tensor.name().as_bytes());
        if file.is_made() {
            let middle = tensor.rows() / 2;
            for row in [0, middle] {
                let row = file.rows(tensor, row..row + 1).map_err(fault)?;
                hasher.update(&row[..row.len().min(LOOK)]);
            }
            continue;
        }
        hasher.update(&tensor.data[..tensor.data.len().min(LOOK)]);
        hasher.update(&tensor.data[tensor.data.len() / 2..][..LOOK.min(tensor.data.len() / 2)]);
    }
    Ok(())
}
