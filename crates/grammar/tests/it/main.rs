//! Tests of the crate as its users see it, with the demo model's vocabulary and a tiny one.

mod costs;
mod faults;
mod validate;
mod walks;
mod within;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use arclight_grammar::{Error, Matcher, Spec, Vocabulary};
use gguf::Gguf;
use tokenizer::{Tokenizer, VocabModel, VocabSpec};

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
const TURN: u32 = 3;
const MARK: u32 = 4;

fn tiny(with_end: bool) -> Tokenizer {
    let mut tokens: Vec<Vec<u8>> =
        ["<unk>", "<s>", "</s>", "<|im_end|>", "<|mark|>", "<unused>"].map(Into::into).to_vec();
    let mut types = vec![2, 3, 3, 3, 3, 5];
    for byte in 0..=255_u8 {
        tokens.push(format!("<0x{byte:02X}>").into_bytes());
        types.push(6);
    }
    for word in ["true", "false", "{\"", "\":", "\"}", "null", "ab", "é", "日"] {
        tokens.push(word.into());
        types.push(1);
    }
    let mut spec = VocabSpec::new(VocabModel::SentencePiece, tokens);
    spec.scores = Some((0..spec.tokens.len()).map(|i| -(i as f32)).collect());
    if !with_end {
        for t in &mut types[2..4] {
            *t = 1;
        }
    }
    spec.types = Some(types);
    spec.bos = Some(1);
    spec.eos = with_end.then_some(END);
    spec.unk = Some(0);
    spec.add_space_prefix = Some(false);
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
