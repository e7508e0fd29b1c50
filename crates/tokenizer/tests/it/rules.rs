//! Which tokens are added, parsed, skipped, or end an answer.

use arclight_tokenizer::{EncodeOptions, FimTokens, TokenKind, Tokenizer};

use crate::{spec, tokenizer};

const WHOLE: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

fn id(tokenizer: &Tokenizer, text: &str) -> u32 {
    tokenizer.token_to_id(text.as_bytes()).unwrap_or_else(|| panic!("no token {text:?}"))
}

#[test]
fn bos_by_default_of_the_model() {
    for (name, begins) in [("llama-bpe", true), ("spm", true), ("qwen3", false)] {
        let mut spec = spec(name);
        spec.add_bos = None;
        let t = Tokenizer::from_spec(spec).unwrap();
        let ids = t.encode("hello", WHOLE).unwrap();
        assert_eq!(ids.first() == t.bos().as_ref(), begins, "{name}");
        assert_eq!(t.encode("hello", EncodeOptions::default()).unwrap(), ids[begins as usize..]);
    }
}

#[test]
fn the_file_overrides_the_default() {
    let mut with = spec("qwen3");
    (with.add_bos, with.add_eos) = (Some(true), Some(true));
    let t = Tokenizer::from_spec(with).unwrap();
    let ids = t.encode("hello", WHOLE).unwrap();
    assert_eq!((ids.first(), ids.last()), (t.bos().as_ref(), t.eos().as_ref()));
    assert_eq!(t.encode("", WHOLE).unwrap(), [t.bos().unwrap(), t.eos().unwrap()]);

    let mut without = spec("llama-bpe");
    without.add_bos = Some(false);
    let t = Tokenizer::from_spec(without).unwrap();
    assert!(!t.encode("hello", WHOLE).unwrap().contains(&t.bos().unwrap()));
}

#[test]
fn bos_and_eos_are_not_doubled() {
    let mut spec = spec("spm");
    spec.add_eos = Some(true);
    let t = Tokenizer::from_spec(spec).unwrap();
    let ids = t.encode("<s>hello</s>", WHOLE).unwrap();
    assert_eq!(ids, t.encode("hello", WHOLE).unwrap());
    assert_eq!(ids.iter().filter(|&&i| Some(i) == t.bos() || Some(i) == t.eos()).count(), 2);
    // Text that only looks like BOS is text, and gets a BOS of its own.
    let opts = EncodeOptions { add_special: true, parse_special: false };
    let ids = t.encode("<s>hello", opts).unwrap();
    assert_eq!(ids.first(), t.bos().as_ref());
    assert_eq!(t.decode(&ids, true), "<s>hello");
}

#[test]
fn sentence_piece_knows_its_first_ids() {
    let mut spec = spec("spm");
    (spec.bos, spec.eos, spec.unk) = (None, None, None);
    let t = Tokenizer::from_spec(spec).unwrap();
    assert_eq!((t.bos(), t.eos()), (Some(1), Some(2)));
}

#[test]
fn control_tokens_only_when_asked() {
    let t = tokenizer("qwen3");
    let end = id(&t, "<|im_end|>");
    assert!(!t.encode("<|im_end|>", EncodeOptions::default()).unwrap().contains(&end));
    assert_eq!(t.encode("<|im_end|>", WHOLE).unwrap(), [end]);
    let think = id(&t, "<think>");
    assert_eq!(t.encode("<think>", EncodeOptions::default()).unwrap(), [think]);
    assert_eq!(t.token_kind(end), Some(TokenKind::Control));
    assert_eq!(t.token_kind(think), Some(TokenKind::UserDefined));
    assert!(t.is_special(end) && !t.is_special(think));
}

/// Even where the file's merges spell a control token, text does not become one.
#[test]
fn merges_do_not_reach_control_tokens() {
    let mut spec = spec("qwen3");
    let ab = spec.tokens.len() as u32;
    spec.tokens.push(b"~@".to_vec());
    spec.types.as_mut().unwrap().push(3);
    spec.merges.as_mut().unwrap().insert(0, b"~ @".to_vec());
    let t = Tokenizer::from_spec(spec).unwrap();
    assert_eq!(t.encode("~@", EncodeOptions::default()).unwrap().len(), 2);
    assert_eq!(t.encode("~@", WHOLE).unwrap(), [ab]);
}

#[test]
fn what_ends_an_answer() {
    let t = tokenizer("qwen3");
    let expected = ["<|endoftext|>", "<|im_end|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"]
        .map(|text| id(&t, text));
    assert_eq!(t.eog_ids(), expected);
    assert!(t.is_eog(expected[0]) && !t.is_eog(id(&t, "<|im_start|>")) && !t.is_eog(u32::MAX));

    let t = tokenizer("llama-bpe");
    for text in ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"] {
        assert!(t.is_eog(id(&t, text)), "{text}");
    }
    assert_eq!(t.eog_ids().len(), 3);

    let mut spec = spec("spm");
    (spec.eot, spec.eom) = (Some(300), Some(301));
    assert_eq!(Tokenizer::from_spec(spec).unwrap().eog_ids(), [2, 300, 301]);
}

#[test]
fn fill_in_the_middle() {
    let t = tokenizer("qwen3");
    let named = |text| Some(id(&t, text));
    let fim = *t.fim();
    assert_eq!(fim.prefix, named("<|fim_prefix|>"));
    assert_eq!(fim.suffix, named("<|fim_suffix|>"));
    assert_eq!(fim.middle, named("<|fim_middle|>"));
    assert_eq!(fim.pad, named("<|fim_pad|>"));
    assert_eq!(fim.repo, named("<|repo_name|>"));
    assert_eq!(fim.file, named("<|file_sep|>"));
    // What the file says goes before what tokens are called.
    let mut spec = spec("qwen3");
    spec.fim.middle = Some(7);
    assert_eq!(Tokenizer::from_spec(spec).unwrap().fim().middle, Some(7));
    assert_eq!(*tokenizer("llama-bpe").fim(), FimTokens::default());
}

/// An end of turn that a file has as text is a control token all the same.
#[test]
fn ends_are_not_text() {
    let mut spec = spec("spm");
    spec.tokens[1000] = b"<end_of_turn>".to_vec();
    spec.types.as_mut().unwrap()[1000] = 4;
    let t = Tokenizer::from_spec(spec).unwrap();
    assert!(t.is_eog(1000) && t.is_special(1000));
    assert!(!t.encode("<end_of_turn>", EncodeOptions::default()).unwrap().contains(&1000));
}

/// Bytes that are not UTF-8 go in and come out.
#[test]
fn bytes_that_are_not_text() {
    let bytes: Vec<u8> = (0..=255).chain(*b"a \xF0\x9F b\xC3").collect();
    for name in ["qwen3", "llama-bpe", "spm"] {
        let t = tokenizer(name);
        let ids = t.encode(&bytes, EncodeOptions::default()).unwrap();
        assert_eq!(t.decode_bytes(&ids, true), bytes, "{name}");
    }
    // A control token that is not UTF-8 is found like any other.
    let mut spec = spec("qwen3");
    spec.tokens.push(b"<\xFF>".to_vec());
    spec.types.as_mut().unwrap().push(3);
    let t = Tokenizer::from_spec(spec).unwrap();
    let id = t.vocab_size() as u32 - 1;
    assert_eq!(t.encode(b"\xFF<\xFF>", WHOLE).unwrap().last(), Some(&id));
    assert_eq!(t.token_bytes(id), Some(&b"<\xFF>"[..]));
}

/// Phi-3's control tokens take the white space that follows them.
#[test]
fn white_space_after_control_tokens() {
    let mut spec = spec("spm");
    let before = Tokenizer::from_spec(spec.clone()).unwrap();
    spec.strip_after_control = true;
    let after = Tokenizer::from_spec(spec).unwrap();
    let text = "  <tool>  the</s>\n \t the  </s><s>  the";
    assert_ne!(before.encode(text, WHOLE).unwrap(), after.encode(text, WHOLE).unwrap());
    let stripped = "  <tool>  the</s>the  </s><s>  the";
    assert_eq!(after.encode(text, WHOLE).unwrap(), before.encode(stripped, WHOLE).unwrap());
}

/// The mask token of some families takes the white space before it.
#[test]
fn white_space_before_the_mask() {
    let mut spec = spec("spm");
    let mask = spec.tokens.iter().position(|t| t == b"</s>").unwrap() as u32;
    spec.mask = Some(mask);
    let before = Tokenizer::from_spec(spec.clone()).unwrap();
    spec.strip_before_mask = true;
    let after = Tokenizer::from_spec(spec).unwrap();
    let stripped = |text: &str, alike: &str| {
        assert_eq!(after.encode(text, WHOLE).unwrap(), before.encode(alike, WHOLE).unwrap());
    };
    stripped("the \n </s> the <s> the", "the</s> the <s> the");
    stripped(" </s>", "</s>");
    assert_ne!(before.encode("the </s>", WHOLE).unwrap(), before.encode("the</s>", WHOLE).unwrap());
    // Bytes that are no text stay.
    assert_eq!(
        after.encode(b"\xFF</s>", WHOLE).unwrap(),
        before.encode(b"\xFF</s>", WHOLE).unwrap()
    );
}

/// Some vocabularies have no token for bytes that their texts did not have.
#[test]
fn bytes_without_a_token() {
    let mut spec = spec("qwen3");
    let at = spec.tokens.iter().position(|t| t == "Ą".as_bytes()).unwrap();
    spec.tokens[at] = b"<unused>".to_vec();
    spec.merges.as_mut().unwrap().clear();
    let t = Tokenizer::from_spec(spec).unwrap();
    let encode = |text: &[u8]| t.encode(text, EncodeOptions::default()).unwrap();
    assert_eq!(t.decode(&encode("a\u{4}b".as_bytes()), true), "a\u{FFFD}b");
    assert_eq!(t.decode_bytes(&encode(b"a\xFFb"), true), b"a\xFFb");
}

/// `<|end|>` ends a turn, except where there is `<|return|>` for that.
#[test]
fn end_or_return() {
    let mut spec = spec("qwen3");
    let end = spec.tokens.len() as u32;
    spec.tokens.push(b"<|end|>".to_vec());
    spec.types.as_mut().unwrap().push(3);
    assert!(Tokenizer::from_spec(spec.clone()).unwrap().is_eog(end));
    spec.tokens.push(b"<|return|>".to_vec());
    spec.types.as_mut().unwrap().push(3);
    let t = Tokenizer::from_spec(spec).unwrap();
    assert!(!t.is_eog(end) && t.is_eog(end + 1));
}

#[test]
fn token_bytes_are_what_tokens_stand_for() {
    let t = tokenizer("qwen3");
    assert_eq!(t.token_to_id(b" the").and_then(|id| t.token_bytes(id)), Some(&b" the"[..]));
    assert_eq!(t.token_bytes(id(&t, "<|im_end|>")), Some(&b"<|im_end|>"[..]));
    assert_eq!(t.token_bytes(t.vocab_size() as u32), None);
    for byte in 0..=255u8 {
        assert!(t.token_to_id(&[byte]).is_some(), "byte {byte}");
    }
    let t = tokenizer("spm");
    // The letter has a token of its own beside the byte's; the byte's has the lower id.
    assert_eq!(t.token_kind(id(&t, "a")), Some(TokenKind::Normal));
    assert_eq!(t.token_kind(id(&t, "\0")), Some(TokenKind::Byte));
    assert_eq!(t.token_bytes(6 + 0xC3), Some(&[0xC3][..]));
    assert_eq!(t.token_to_id(b"no such token"), None);
}

#[test]
fn tokenizers_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Tokenizer>();
    shared::<arclight_tokenizer::ChatTemplate>();
    shared::<arclight_tokenizer::Decoder<std::sync::Arc<Tokenizer>>>();
}
