//! Any bytes as a file of tensors: no panic.
#![no_main]

mod common;

use libfuzzer_sys::fuzz_target;
use std::fs;

fuzz_target!(|input: (bool, Vec<u8>)| {
    let (framed, bytes) = input;
    let folder = common::folder();
    let config = serde_json::to_vec(&common::config("LlamaForCausalLM")).unwrap();
    fs::write(folder.join("config.json"), config).unwrap();
    // With the length of the head in front, so that what follows is read as one.
    let mut file = if framed { (bytes.len() as u64).to_le_bytes().to_vec() } else { Vec::new() };
    file.extend_from_slice(&bytes);
    file.resize(file.len() + 64, 0);
    fs::write(folder.join("model.safetensors"), file).unwrap();
    common::open(&folder);
});
