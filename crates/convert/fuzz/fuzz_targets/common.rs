//! A folder in memory that is written over for each input, and what is done with it.

use arclight_convert::{Conversion, Options};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// Elements of a tensor that is read.
const SMALL: usize = 1 << 16;

thread_local! {
    static DIR: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// An empty folder.
pub fn folder() -> PathBuf {
    DIR.with_borrow_mut(|dir| {
        let memory = PathBuf::from("/dev/shm");
        let make = || if memory.is_dir() { TempDir::new_in(&memory) } else { TempDir::new() };
        let path = dir.get_or_insert_with(|| make().unwrap()).path().to_owned();
        for entry in fs::read_dir(&path).unwrap() {
            let _ = fs::remove_file(entry.unwrap().path());
        }
        path
    })
}

/// Opens what was written there, and reads what it gives: an error that is short, or a file.
pub fn open(folder: &PathBuf) {
    let conversion = match Conversion::open(folder, &Options::default()) {
        Ok(conversion) => conversion,
        Err(error) => return assert!(error.to_string().len() < 8192, "{error}"),
    };
    if conversion.head().is_err() {
        return;
    }
    for tensor in conversion.tensors() {
        if tensor.rows().saturating_mul(tensor.cols()) <= SMALL {
            let mut bytes = Vec::new();
            let _ = tensor.bytes(0..tensor.rows(), &mut bytes);
        }
    }
}

/// A configuration of a small model of a class.
#[allow(dead_code)]
pub fn config(class: &str) -> Value {
    json!({
        "architectures": [class], "vocab_size": 12, "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5,
        "layer_norm_eps": 1e-5, "max_position_embeddings": 64, "rope_theta": 1e4, "type_vocab_size": 2,
    })
}

/// A file of tensors without data.
#[allow(dead_code)]
pub fn empty() -> Vec<u8> {
    let mut file = 2u64.to_le_bytes().to_vec();
    file.extend(b"{}");
    file
}
