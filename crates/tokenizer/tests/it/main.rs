//! Tests of the crate as its users see it; fixtures come from `tools/tokenizer-vectors`.

mod bad_input;
mod decoder;
mod escape;
mod rules;
mod templates;
mod vectors;

use std::path::{Path, PathBuf};

use arclight_tokenizer::{Tokenizer, VocabSpec};
use gguf::Gguf;

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file)
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&read(path)).unwrap()
}

/// The specification in one of the fixtures.
fn spec(name: &str) -> VocabSpec {
    let file = read(&data(&format!("{name}.gguf")));
    VocabSpec::from_gguf(Gguf::parse(&file).unwrap().metadata()).unwrap()
}

fn tokenizer(name: &str) -> Tokenizer {
    Tokenizer::from_spec(spec(name)).unwrap()
}
