//! Tests of the crate as its users see it, with the demo model's vocabulary and a tiny one.

mod costs;
mod faults;
mod gbnf;
mod validate;
mod walks;
mod within;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use arclight_grammar::{Error, Matcher, Spec, Vocabulary};
use gguf::Gguf;
use tokenizer::{Tokenizer, VocabSpec};

/// The demo model's: some 4,000 tokens.
static DEMO: LazyLock<Vocabulary> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/arclight-demo.gguf");
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let gguf = Gguf::parse(&file).unwrap();
    Vocabulary::new(Arc::new(Tokenizer::from_gguf(gguf.metadata()).unwrap()))
});

/// Every byte, a few words, two tokens that end, one that is structure and one that is unused.
static TINY: LazyLock<Vocabulary> = LazyLock::new(|| Vocabulary::new(Arc::new(tiny(true))));

const END: u32 = 2;
const TURN: u32 = 259;
const MARK: u32 = 260;
const UNUSED: u32 = 261;

fn tiny(with_end: bool) -> Tokenizer {
    let turn = if with_end { 3 } else { 1 };
    let marks = [("<|im_end|>", turn), ("<|mark|>", 3), ("<unused>", 5)];
    let words = ["true", "false", "{\"", "\":", "\"}", "null", "ab", "é", "日"];
    let mut spec = VocabSpec::of_bytes(marks.into_iter().chain(words.map(|word| (word, 1))));
    if !with_end {
        spec.types.as_mut().unwrap()[END as usize] = 1;
        spec.eos = None;
    }
    Tokenizer::from_spec(spec).unwrap()
}

/// The tokens that a matcher allows.
fn allowed(matcher: &mut Matcher, vocabulary: &Vocabulary) -> Result<Vec<u32>, Error> {
    let mut mask = vec![!0; vocabulary.mask_words()];
    matcher.allow(&mut mask)?;
    let bit = |t: &u32| mask[*t as usize / 32] >> (t % 32) & 1 == 1;
    Ok((0..mask.len() as u32 * 32).filter(bit).collect())
}

/// Feeds a text byte by byte; the number of bytes that went in.
fn feed(matcher: &mut Matcher, vocabulary: &Vocabulary, text: &str) -> usize {
    let tokenizer = vocabulary.tokenizer();
    let byte = |b: u8| tokenizer.token_to_id(&[b]).expect("a token for every byte of these tests");
    text.bytes().take_while(|&b| matcher.accept(byte(b)).is_ok()).count()
}

/// Whether the grammar takes a text as a whole.
fn takes(spec: &Spec, text: &str) -> bool {
    let mut matcher = TINY.compile(spec).unwrap();
    feed(&mut matcher, &TINY, text) == text.len() && matcher.can_end()
}
