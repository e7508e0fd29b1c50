//! Vocabularies under GGUF's keys.

use crate::folder::{Folder, VOCAB, written};
use arclight_convert::Options;
use gguf::Gguf;
use serde_json::{Value, json};

fn with<R>(folder: &Folder, see: impl FnOnce(&gguf::Metadata<'_>) -> R) -> R {
    let file = written(&folder.open().unwrap());
    see(Gguf::parse(&file).unwrap().metadata())
}

#[test]
fn byte_level_tokens_merges_and_types() {
    let mut folder = Folder::llama();
    folder.tokenizer["model"]["merges"] = json!(["t h", ["h", " e"]]);
    folder.file("tokenizer_config.json", r#"{"bos_token": "(", "eos_token": {"content": "<|end|>"}, "add_bos_token": true, "chat_template": "{{ x }}"}"#);
    with(&folder, |m| {
        assert_eq!(m.str("tokenizer.ggml.model").unwrap(), "gpt2");
        assert_eq!(m.str("tokenizer.ggml.pre").unwrap(), "llama-bpe");
        let tokens: Vec<&[u8]> = m.strings("tokenizer.ggml.tokens").unwrap().collect();
        assert_eq!(tokens.len(), VOCAB);
        assert_eq!(tokens[VOCAB - 4..], [&b"<|end|>"[..], b"<think>", b"[PAD262]", b"[PAD263]"]);
        let types = m.i32s("tokenizer.ggml.token_type").unwrap();
        // A token that the folder calls the first of a text is one of structure.
        assert_eq!((tokens[7], [types[6], types[7]]), (&b"("[..], [1, 3]));
        assert_eq!(types[VOCAB - 4..], [3, 4, 5, 5]);
        let merges: Vec<&[u8]> = m.strings("tokenizer.ggml.merges").unwrap().collect();
        assert_eq!(merges, [&b"t h"[..], "h \u{120}e".as_bytes()]);
        // By name where a token is an added one, by number in config.json where not.
        assert_eq!(m.u32("tokenizer.ggml.eos_token_id").unwrap(), VOCAB as u32 - 4);
        assert_eq!(m.u32("tokenizer.ggml.bos_token_id").unwrap(), 1);
        assert!(m.get("tokenizer.ggml.add_bos_token").is_some());
        assert_eq!(m.str("tokenizer.chat_template").unwrap(), "{{ x }}");
    });
}

#[test]
fn a_way_of_cutting_that_nobody_knows_is_refused_unless_it_is_named() {
    let mut folder = Folder::llama();
    folder.tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
        json!(r"\p{L}{1,4}|\S");
    let fault = folder.fault();
    assert!(fault.contains("--pre") && fault.contains(r"\p{L}{1,4}|\S"), "{fault}");
    let pre = |name: &str| Options { pre: Some(name.to_owned()), ..Options::default() };
    let file = written(&folder.open_with(&pre("qwen2")).unwrap());
    assert_eq!(Gguf::parse(&file).unwrap().metadata().str("tokenizer.ggml.pre").unwrap(), "qwen2");
    let fault = folder.open_with(&pre("novel")).unwrap_err().to_string();
    assert!(fault.contains("--pre novel") && fault.contains("llama-bpe"), "{fault}");
}

#[test]
fn what_differs_from_the_rules_besides_cutting_is_noted() {
    let mut folder = Folder::llama();
    folder.tokenizer["normalizer"] = json!({"type": "NFC"});
    let conversion = folder.open().unwrap();
    assert!(conversion.notes()[0].contains("NFC"), "{:?}", conversion.notes());
}

/// A protocol buffer of pieces.
fn sentencepiece(pieces: &[(&str, f32, u8)]) -> Vec<u8> {
    let mut file = Vec::new();
    for (text, score, kind) in pieces {
        let mut piece = vec![0x0A, text.len() as u8];
        piece.extend(text.as_bytes());
        piece.push(0x15);
        piece.extend(score.to_le_bytes());
        piece.extend([0x18, *kind]);
        file.extend([0x0A, piece.len() as u8]);
        file.extend(piece);
    }
    file
}

#[test]
fn sentencepiece_with_tokens_that_other_files_add() {
    let folder = Folder::llama();
    let pieces = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("<0x0A>", 0.0, 6),
        ("▁a", -1.5, 1),
        ("<mask>", -2.0, 4),
        ("old", -3.0, 1),
    ];
    folder.file("tokenizer.model", sentencepiece(&pieces));
    folder.file("added_tokens.json", r#"{"<extra>": 6, "<beyond>": 9999}"#);
    folder.file(
        "tokenizer_config.json",
        r#"{"added_tokens_decoder": {"5": {"content": "a▁b", "special": false}, "7": {"content": "<|x|>", "special": false}}}"#,
    );
    with(&folder, |m| {
        assert_eq!(m.str("tokenizer.ggml.model").unwrap(), "llama");
        let tokens: Vec<&[u8]> = m.strings("tokenizer.ggml.tokens").unwrap().collect();
        let types = m.i32s("tokenizer.ggml.token_type").unwrap();
        let scores = m.f32s("tokenizer.ggml.scores").unwrap();
        assert_eq!(types[..9], [2, 3, 6, 1, 1, 4, 4, 3, 5]);
        assert_eq!(scores[..9], [0.0, 0.0, 0.0, -1.5, -2.0, -1000.0, -1000.0, -1000.0, -10000.0]);
        assert_eq!(tokens[5..9], [&b"a b"[..], b"<extra>", b"<|x|>", b"[PAD8]"]);
        assert_eq!(tokens.len(), VOCAB);
    });
}

#[test]
fn vocabularies_that_do_not_fit_are_refused() {
    let mut folder = Folder::llama();
    folder.set("vocab_size", 100);
    assert!(folder.fault().contains("vocab_size is 100"));
    let mut folder = Folder::llama();
    let whole = folder.tokenizer.clone();
    folder.tokenizer = json!({"model": {"type": "Unigram", "vocab": []}});
    assert!(folder.fault().contains("Unigram"));
    folder.tokenizer = whole;
    folder.tokenizer["model"]["vocab"]["th"] = Value::from(-1);
    assert!(folder.fault().contains("\"th\""));
    folder.tokenizer = Value::Null;
    std::fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    assert!(folder.fault().contains("neither tokenizer.json nor tokenizer.model"));
    folder.file("tekken.json", "{}");
    assert!(folder.fault().contains("tekken.json is not read"));
    folder.file("tokenizer.model", b"no model");
    assert!(folder.fault().contains("no SentencePiece model"));
}

#[test]
fn merges_of_sentencepiece_become_scores() {
    let mut folder = Folder::llama();
    let texts = ["<unk>", "<0x41>", "a", "b", "c", "ab", "abc"];
    let vocab: serde_json::Map<String, Value> =
        texts.iter().enumerate().map(|(id, text)| ((*text).to_owned(), id.into())).collect();
    folder.tokenizer = json!({
        "added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
        "decoder": {"type": "Sequence", "decoders": []},
        "model": {"type": "BPE", "byte_fallback": true, "vocab": vocab, "merges": ["a b", "ab c"]},
    });
    folder.set("vocab_size", 7);
    for name in ["model.embed_tokens.weight", "lm_head.weight"] {
        folder.add(name, &[7, 16]);
    }
    folder.file("tokenizer_config.json", r#"{"unk_token": "<unk>"}"#);
    with(&folder, |m| {
        assert_eq!(m.str("tokenizer.ggml.model").unwrap(), "llama");
        assert_eq!(m.i32s("tokenizer.ggml.token_type").unwrap(), [3, 6, 1, 1, 1, 1, 1]);
        let scores = m.f32s("tokenizer.ggml.scores").unwrap();
        assert_eq!(scores, [-2.0, -2.0, -2.0, -2.0, -2.0, 0.0, -1.0]);
    });
    folder.tokenizer["model"]["merges"] = json!(["a c"]);
    assert!(folder.fault().contains("makes no token"));
}
