//! Ids against the reference implementations.

use std::path::Path;

use arclight_tokenizer::{EncodeOptions, Tokenizer};
use gguf::Gguf;
use serde_json::Value;

use crate::{data, json, read};

fn ids(case: &Value, key: &str) -> Option<Vec<u32>> {
    let list = case.get(key)?.as_array().unwrap();
    Some(list.iter().map(|v| v.as_u64().unwrap() as u32).collect())
}

/// Compares every case of `json_path` and returns how many there were.
fn check(gguf_path: &Path, json_path: &Path) -> usize {
    let file = read(gguf_path);
    let gguf = Gguf::parse(&file).unwrap();
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
    let vectors = json(json_path);
    let cases = vectors["cases"].as_array().unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let plain = ids(case, "plain").unwrap();
        let parsed = ids(case, "parsed").unwrap_or_else(|| plain.clone());
        for (parse_special, expected) in [(false, &plain), (true, &parsed)] {
            let opts = EncodeOptions { add_special: false, parse_special };
            let got = tokenizer.encode(text, opts).unwrap();
            if got != *expected {
                wrong.push(format!("encode {opts:?}\n{text:?}\n got {got:?}\nwant {expected:?}"));
            }
        }
        // Null where the reference is no help.
        let expected = case.get("decoded").map_or(Some(text), Value::as_str);
        let got = tokenizer.decode(&parsed, true);
        if expected.is_some_and(|expected| got != expected) {
            wrong.push(format!("decode {parsed:?}\n got {got:?}\nwant {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong of {}\n{}", wrong.len(), cases.len(), wrong.join("\n\n"));
    cases.len()
}

fn check_fixture(name: &str, at_least: usize) {
    let count = check(&data(&format!("{name}.gguf")), &data(&format!("{name}.json")));
    assert!(count >= at_least, "{name}: only {count} cases");
}

#[test]
fn qwen2() {
    check_fixture("qwen3", 90);
}

#[test]
fn llama_bpe() {
    check_fixture("llama-bpe", 90);
}

#[test]
fn sentence_piece() {
    check_fixture("spm", 90);
}

/// Whole vocabularies, as `tools/tokenizer-vectors/README.md` tells how to make them.
#[test]
#[ignore = "needs ARCLIGHT_TOKENIZER_VECTORS, a directory of NAME.gguf and NAME.json"]
fn whole_vocabularies() {
    let dir = std::env::var("ARCLIGHT_TOKENIZER_VECTORS").expect("ARCLIGHT_TOKENIZER_VECTORS");
    let mut checked = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let gguf = entry.unwrap().path();
        if gguf.extension().is_some_and(|e| e == "gguf") {
            let count = check(&gguf, &gguf.with_extension("json"));
            println!("{}: {count} of {count}", gguf.display());
            checked += 1;
        }
    }
    assert!(checked > 0);
}
