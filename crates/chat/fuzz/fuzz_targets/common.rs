//! What both targets need.

use std::sync::{Arc, LazyLock};

use arclight_chat::Family;
use tokenizer::{Tokenizer, VocabModel, VocabSpec};

/// Every byte and an end: all marks of a family are text.
pub static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let mut tokens: Vec<Vec<u8>> = ["<unk>", "<s>", "</s>"].map(Into::into).to_vec();
    let mut types = vec![2, 3, 3];
    for byte in 0..=255_u8 {
        tokens.push(format!("<0x{byte:02X}>").into_bytes());
        types.push(6);
    }
    let mut spec = VocabSpec::new(VocabModel::SentencePiece, tokens);
    spec.scores = Some((0..spec.tokens.len()).map(|i| -(i as f32)).collect());
    spec.types = Some(types);
    spec.eos = Some(2);
    spec.unk = Some(0);
    spec.add_space_prefix = Some(false);
    Arc::new(Tokenizer::from_spec(spec).unwrap())
});

/// One of all families.
pub fn family(choice: u8) -> Family {
    let families: Vec<Family> = Family::all().collect();
    families[usize::from(choice) % families.len()]
}
