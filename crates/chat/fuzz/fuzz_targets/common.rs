//! What both targets need.

use std::sync::{Arc, LazyLock};

use arclight_chat::Family;
use tokenizer::{Tokenizer, VocabSpec};

/// Every byte and an end: all marks of a family are text.
pub static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let spec = VocabSpec::of_bytes([]);
    Arc::new(Tokenizer::from_spec(spec).unwrap())
});

/// One of all families.
pub fn family(choice: u8) -> Family {
    let families: Vec<Family> = Family::all().collect();
    families[usize::from(choice) % families.len()]
}
