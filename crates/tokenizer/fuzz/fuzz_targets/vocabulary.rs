//! Builds a tokenizer and a chat template from the metadata of a file and uses both: an error or a
//! value, no panic. Start from the fixtures: `cargo fuzz run vocabulary corpus ../tests/data`.
#![no_main]

use arclight_tokenizer::{ChatTemplate, EncodeOptions, Message, RenderOptions, Tokenizer};
use gguf::Gguf;
use libfuzzer_sys::fuzz_target;

const TEXT: &[u8] = b"a b  \n\xFF<s></s><|im_end|> 123 \xE2\x96\x81 caf\xC3\xA9 \xE6\x97\xA5\xF0\x9F";

fuzz_target!(|bytes: &[u8]| {
    let Ok(gguf) = Gguf::parse(bytes) else { return };
    match Tokenizer::from_gguf(gguf.metadata()) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(tokenizer) => {
            for parse_special in [false, true] {
                let opts = EncodeOptions { add_special: true, parse_special };
                let ids = tokenizer.encode(TEXT, opts).unwrap();
                assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
                tokenizer.decode(&ids, parse_special);
            }
        }
    }
    if let Ok(Some(template)) = ChatTemplate::from_gguf(gguf.metadata()) {
        let _ = template.render(&[Message::new("user", "hi")], &RenderOptions::default());
    }
});
