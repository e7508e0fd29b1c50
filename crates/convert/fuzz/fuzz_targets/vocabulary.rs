//! Any bytes as a file of a vocabulary: no panic.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;
use std::fs;

/// A file, and a class that reads it.
const FILES: [(&str, &str); 9] = [
    ("tokenizer.model", "BaichuanForCausalLM"),
    ("tokenizer.model", "InternLM2ForCausalLM"),
    ("tokenizer.model", "ChatGLMModel"),
    ("sentencepiece.bpe.model", "XLMRobertaModel"),
    ("tokenizer.json", "LlamaForCausalLM"),
    ("tokenizer.json", "BertModel"),
    ("tokenizer.json", "XLMRobertaModel"),
    ("tokenizer.json", "Qwen3ForCausalLM"),
    ("vocab.txt", "BertModel"),
];
const BESIDE: [&str; 3] = ["tokenizer_config.json", "added_tokens.json", "generation_config.json"];

fuzz_target!(|input: (u8, Vec<u8>, u8, Vec<u8>)| {
    let (which, bytes, beside, more) = input;
    let folder = common::folder();
    let (name, class) = FILES[usize::from(which) % FILES.len()];
    let config = serde_json::to_vec(&common::config(class)).unwrap();
    fs::write(folder.join("config.json"), config).unwrap();
    fs::write(folder.join("model.safetensors"), common::empty()).unwrap();
    fs::write(folder.join(name), bytes).unwrap();
    if !more.is_empty() {
        fs::write(folder.join(BESIDE[usize::from(beside) % BESIDE.len()]), more).unwrap();
    }
    common::open(&folder);
});
