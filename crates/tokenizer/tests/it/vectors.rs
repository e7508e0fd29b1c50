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

/// Compares every case of `json_path` and returns how many there were, or what was wrong.
fn check(gguf_path: &Path, json_path: &Path) -> Result<usize, String> {
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
    let (bad, all) = (wrong.len(), cases.len());
    if wrong.is_empty() {
        return Ok(all);
    }
    wrong.truncate(10);
    Err(format!("{}: {bad} wrong of {all}\n{}", gguf_path.display(), wrong.join("\n\n")))
}

fn check_fixture(name: &str, at_least: usize) {
    let count = check(&data(&format!("{name}.gguf")), &data(&format!("{name}.json"))).unwrap();
    assert!(count >= at_least, "{name}: only {count} cases");
}

macro_rules! vocabularies {
    ($($test:ident: $name:literal, $at_least:literal;)*) => {$(
        #[test]
        fn $test() {
            check_fixture($name, $at_least);
        }
    )*};
}

vocabularies! {
    qwen2: "qwen3", 90;
    qwen2_5: "qwen2_5", 90;
    llama_bpe: "llama-bpe", 90;
    deepseek_v3: "deepseek_v3", 90;
    tekken: "mistral_nemo", 90;
    gpt_4o: "gpt4o", 90;
    gpt_2: "gpt2", 90;
    sentence_piece: "spm", 90;
    yi: "yi", 80;
    internlm2: "internlm2", 80;
    internlm2_merges: "internlm2-merges", 80;
    word_piece: "bert", 80;
    word_piece_cased: "bert-cased", 80;
    xlm_roberta: "xlm-roberta", 80;
    unigram: "unigram", 80;
}

/// Whole vocabularies, as `tools/tokenizer-vectors/README.md` tells how to make them.
#[test]
#[ignore = "needs ARCLIGHT_TOKENIZER_VECTORS, a directory of NAME.gguf and NAME.json"]
fn whole_vocabularies() {
    let dir = std::env::var("ARCLIGHT_TOKENIZER_VECTORS").expect("ARCLIGHT_TOKENIZER_VECTORS");
    let (mut checked, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(dir).unwrap() {
        let gguf = entry.unwrap().path();
        if gguf.extension().is_some_and(|e| e == "gguf") {
            match check(&gguf, &gguf.with_extension("json")) {
                Ok(count) => println!("{}: {count} of {count}", gguf.display()),
                Err(report) => wrong.push(report),
            }
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(checked > 0);
}
