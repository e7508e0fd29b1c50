//! A small vocabulary, and a walk along a grammar.

use std::sync::{Arc, LazyLock};

use arclight_grammar::{Error, Spec, Vocabulary};
use tokenizer::{Tokenizer, VocabSpec};

/// Every byte, a few words, an end, and a token that is structure.
pub static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| {
    let words = ["true", "{\"", "\": ", "\"}", "null", "ab", "12", "é", "日本"];
    let mark = std::iter::once(("<|mark|>", 3));
    let spec = VocabSpec::of_bytes(mark.chain(words.map(|word| (word, 1))));
    Vocabulary::new(Arc::new(Tokenizer::from_spec(spec).unwrap()))
});

/// Compiles, and goes where `choices` lead: every token that a mask allows is accepted, and there is
/// one as long as the grammar has not ended.
pub fn walk(spec: &Spec, choices: &[u8]) {
    let vocabulary = &*VOCABULARY;
    let mut matcher = match vocabulary.compile(spec) {
        Ok(matcher) => matcher,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for &choice in choices {
        let mut mask = vec![!0; vocabulary.mask_words()];
        match matcher.allow(&mut mask) {
            Ok(()) => {}
            Err(Error::TooCostly(_) | Error::Stuck) => return,
            Err(error) => panic!("{error}"),
        }
        let allowed: Vec<u32> = (0..32 * mask.len() as u32)
            .filter(|t| mask[*t as usize / 32] >> (t % 32) & 1 == 1)
            .collect();
        let token = allowed[usize::from(choice) % allowed.len()];
        assert!((token as usize) < vocabulary.tokenizer().vocab_size());
        match matcher.accept(token) {
            Ok(()) if matcher.ended() => return,
            Ok(()) => {}
            Err(Error::TooCostly(_)) => return,
            Err(error) => panic!("token {token} was allowed: {error}"),
        }
    }
}

/// The last bytes decide where a walk goes.
pub fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.len() - (bytes.len() / 4).min(32))
}
