//! Whatever is in a folder, opening it ends in an error or in a file.

use crate::folder::Folder;
use arclight_convert::{Conversion, Options};
use std::fs;

/// Numbers in an order that is the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

#[test]
fn damaged_files_give_an_error_or_a_file() {
    let folder = Folder::llama();
    folder.finish();
    folder.file("tokenizer_config.json", r#"{"bos_token": "a", "chat_template": "x", "added_tokens_decoder": {"5": {"content": "y"}}}"#);
    folder.file("README.md", "---\nlicense: mit\ntags: [a, b]\nbase_model:\n- a/b\n---\n");
    folder.file("generation_config.json", r#"{"top_k": 3}"#);
    let names = [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "README.md",
        "generation_config.json",
    ];
    let whole: Vec<Vec<u8>> =
        names.iter().map(|name| fs::read(folder.path().join(name)).unwrap()).collect();
    let mut random = Random(7);
    let mut opened = 0;
    for round in 0..250 {
        let which = random.below(names.len());
        let mut bytes = whole[which].clone();
        // The head of tensors is where faults are.
        let reach = if which == 1 { 1500 } else { bytes.len() };
        for _ in 0..1 + random.below(3) {
            let at = random.below(reach.min(bytes.len()));
            match random.below(4) {
                0 => bytes[at] = random.below(256) as u8,
                1 => bytes[at] = b"0123456789[]{}\",:-"[random.below(18)],
                2 => bytes.truncate(at),
                _ => drop(bytes.splice(at..at, *b"99")),
            }
            if bytes.is_empty() {
                break;
            }
        }
        folder.file(names[which], &bytes);
        if let Ok(conversion) = Conversion::open(folder.path(), &Options::default())
            && let Ok((_, length)) = conversion.head()
        {
            opened += 1;
            assert!(length < 1 << 40, "{round}");
            for tensor in conversion.tensors().iter().filter(|t| t.rows() * t.cols() < 1 << 20) {
                let mut data = Vec::new();
                let _ = tensor.bytes(0..tensor.rows(), &mut data);
            }
        }
        folder.file(names[which], &whole[which]);
    }
    assert!(opened > 50, "only {opened} could be opened: the test would see little");
}
