//! Encodes any bytes with a vocabulary of each kind. Those that lose nothing give the bytes back.
#![no_main]

use std::sync::LazyLock;

use arclight_tokenizer::{EncodeOptions, Tokenizer};
use gguf::Gguf;
use libfuzzer_sys::fuzz_target;

macro_rules! tokenizers {
    ($($name:literal)*) => {
        [$(include_bytes!(concat!("../../tests/data/", $name, ".gguf")).as_slice()),*].map(|file| {
            Tokenizer::from_gguf(Gguf::parse(file).unwrap().metadata()).unwrap()
        })
    };
}

static LOSSLESS: LazyLock<[Tokenizer; 4]> =
    LazyLock::new(|| tokenizers!("llama-bpe" "deepseek_v3" "mistral_nemo" "gpt4o"));
static OTHERS: LazyLock<[Tokenizer; 4]> =
    LazyLock::new(|| tokenizers!("qwen3" "spm" "bert" "unigram"));

fuzz_target!(|bytes: &[u8]| {
    for tokenizer in &*LOSSLESS {
        for parse_special in [false, true] {
            let opts = EncodeOptions { add_special: false, parse_special };
            let ids = tokenizer.encode(bytes, opts).unwrap();
            assert_eq!(tokenizer.decode_bytes(&ids, false), bytes);
        }
    }
    for tokenizer in &*OTHERS {
        let opts = EncodeOptions { add_special: true, parse_special: true };
        let ids = tokenizer.encode(bytes, opts).unwrap();
        assert_eq!(
            tokenizer.decode(&ids, true),
            String::from_utf8_lossy(&tokenizer.decode_bytes(&ids, true)),
        );
    }
});
