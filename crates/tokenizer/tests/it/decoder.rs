//! Incremental decoding, and the way there and back for any text.

use std::sync::{Arc, LazyLock};

use arclight_tokenizer::{DecodeOptions, Decoder, EncodeOptions, Tokenizer};
use proptest::prelude::*;

use crate::tokenizer;

static QWEN: LazyLock<Tokenizer> = LazyLock::new(|| tokenizer("qwen3"));
static LLAMA: LazyLock<Tokenizer> = LazyLock::new(|| tokenizer("llama-bpe"));
static SPM: LazyLock<Tokenizer> = LazyLock::new(|| tokenizer("spm"));
static BERT: LazyLock<Tokenizer> = LazyLock::new(|| tokenizer("bert"));
static UNIGRAM: LazyLock<Tokenizer> = LazyLock::new(|| tokenizer("xlm-roberta"));
/// Those that give every text back.
static LOSSLESS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    ["llama-bpe", "deepseek_v3", "mistral_nemo", "gpt4o", "gpt2"].map(tokenizer).into()
});

fn plain(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, EncodeOptions::default()).unwrap()
}

/// The pieces a decoder hands out, the last one from `flush`.
fn pieces(tokenizer: &Tokenizer, ids: &[u32], opts: DecodeOptions) -> Vec<String> {
    let mut decoder = tokenizer.decoder(opts);
    let mut pieces: Vec<_> = ids.iter().map(|&id| decoder.push(id).to_owned()).collect();
    pieces.push(decoder.flush().to_owned());
    pieces
}

#[test]
fn characters_come_whole() {
    for tokenizer in [&*QWEN, &*LLAMA, &*SPM] {
        let byte = |b: u8| tokenizer.token_to_id(&[b]).unwrap();
        let ids: Vec<u32> = "\u{1}🙂\u{2}".bytes().map(byte).collect();
        let got = pieces(tokenizer, &ids, DecodeOptions::default());
        assert_eq!(got, ["\u{1}", "", "", "", "🙂", "\u{2}", ""]);
        let got = pieces(tokenizer, &ids[..3], DecodeOptions::default());
        assert_eq!(got, ["\u{1}", "", "", "\u{FFFD}"]);
        let got = pieces(tokenizer, &[ids[1], ids[5], ids[2]], DecodeOptions::default());
        assert_eq!(got, ["", "\u{FFFD}\u{2}", "\u{FFFD}", ""]);
    }
}

#[test]
fn sentence_piece_drops_the_space_it_added() {
    let t = &*SPM;
    let ids = plain(t, "the memory");
    assert_eq!(t.decode(&ids, true), "the memory");
    let continues = DecodeOptions { continues: true, ..DecodeOptions::default() };
    assert_eq!(pieces(t, &ids, continues).concat(), " the memory");
    // One space only, and only from the first token that shows.
    assert_eq!(t.decode(&plain(t, "  the"), true), "  the");
    let with_bos = [&[t.bos().unwrap()][..], &ids].concat();
    assert_eq!(t.decode(&with_bos, true), "the memory");
    assert_eq!(t.decode(&with_bos, false), "<s> the memory");
}

#[test]
fn special_tokens_show_or_not() {
    let opts = EncodeOptions { add_special: false, parse_special: true };
    let ids = QWEN.encode("<|im_start|>a<think>b<|im_end|>", opts).unwrap();
    assert_eq!(QWEN.decode(&ids, true), "a<think>b");
    assert_eq!(QWEN.decode(&ids, false), "<|im_start|>a<think>b<|im_end|>");
}

#[test]
fn ids_outside_the_vocabulary_show() {
    assert_eq!(QWEN.decode(&[u32::MAX], true), "\u{FFFD}");
}

#[test]
fn a_decoder_can_own_its_tokenizer() {
    let tokenizer = Arc::new(tokenizer("spm"));
    let ids = plain(&tokenizer, "hello");
    let mut decoder = Decoder::new(tokenizer, DecodeOptions::default());
    let text: String = ids.iter().map(|&id| decoder.push(id).to_owned()).collect();
    assert_eq!(text, "hello");
}

/// Long texts that give merging much to do; quadratic time would take minutes here.
#[test]
fn long_texts() {
    for tokenizer in [&*QWEN, &*LLAMA, &*SPM] {
        for unit in ["a", " ", "\n", "ab", "日", "🙂", "a b  c\t", "-", "1"] {
            let text = unit.repeat(300_000 / unit.len());
            let ids = plain(tokenizer, &text);
            assert_eq!(tokenizer.decode(&ids, true), text);
        }
    }
    for tokenizer in [&*BERT, &*UNIGRAM] {
        for unit in ["a", " ", "ab", "日", "🙂", "a b  c\t", "-", "e\u{301}"] {
            assert!(
                !plain(tokenizer, &format!("x{}", unit.repeat(300_000 / unit.len()))).is_empty()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_text_comes_back(text in "(\\PC|\\s|.|[a-z ]{1,9}|[\u{0}-\u{20}]){0,40}") {
        // Llama 3's rules do not normalise, so the very bytes come back.
        prop_assert_eq!(LLAMA.decode(&plain(&LLAMA, &text), false), text.clone());
        if !text.contains('▁') {
            prop_assert_eq!(SPM.decode(&plain(&SPM, &text), false), text.clone());
        }
        // Qwen's do, once.
        let once = QWEN.decode(&plain(&QWEN, &text), false);
        prop_assert_eq!(QWEN.decode(&plain(&QWEN, &once), false), once);
    }

    #[test]
    fn any_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..40), text in "\\PC{0,20}") {
        let bytes = [text.as_bytes(), &bytes, text.as_bytes()].concat();
        for tokenizer in LOSSLESS.iter() {
            for parse_special in [false, true] {
                let opts = EncodeOptions { add_special: false, parse_special };
                let ids = tokenizer.encode(&bytes, opts).unwrap();
                prop_assert_eq!(tokenizer.decode_bytes(&ids, false), &bytes[..]);
            }
        }
    }

    #[test]
    fn pushes_add_up_to_the_whole(ids in prop::collection::vec(0u32..2300, 0..60), skip: bool) {
        let opts = DecodeOptions { skip_special: skip, ..DecodeOptions::default() };
        for tokenizer in [&*QWEN, &*LLAMA, &*SPM] {
            let mut bytes = Vec::new();
            let mut first = true;
            for &id in &ids {
                if skip && tokenizer.is_special(id) {
                    continue;
                }
                let token = tokenizer.token_bytes(id).unwrap_or("\u{FFFD}".as_bytes());
                let drop = first && std::ptr::eq(tokenizer, &*SPM) && token.starts_with(b" ");
                bytes.extend(&token[drop as usize..]);
                first = false;
            }
            let whole = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(pieces(tokenizer, &ids, opts).concat(), whole.clone());
            prop_assert_eq!(tokenizer.decode(&ids, skip), whole);
        }
    }
}
