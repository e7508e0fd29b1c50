//! Damaged vocabularies: an error that names the fault, never a panic.

use std::iter::repeat;
use std::sync::LazyLock;

use arclight_tokenizer::{
    ChatTemplate, EncodeOptions, Error, MAX_OUTPUT, Message, RenderOptions, Tokenizer, VocabModel,
    VocabSpec,
};
use gguf::{Gguf, Writer};
use proptest::prelude::*;
use serde_json::json;

use crate::{data, read, spec};

fn fault(name: &str, damage: impl FnOnce(&mut VocabSpec)) -> String {
    let mut spec = spec(name);
    damage(&mut spec);
    Tokenizer::from_spec(spec).expect_err("a damaged vocabulary").to_string()
}

#[track_caller]
fn assert_names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} does not name {part:?}");
    }
}

#[test]
fn absent_parts() {
    assert_names(&fault("qwen3", |s| s.tokens.clear()), &["tokenizer.ggml.tokens"]);
    assert_names(&fault("qwen3", |s| s.merges = None), &["tokenizer.ggml.merges"]);
    assert_names(&fault("qwen3", |s| s.pre = None), &["tokenizer.ggml.pre"]);
    assert_names(&fault("spm", |s| s.scores = None), &["tokenizer.ggml.scores"]);
    let message = fault("llama-bpe", |s| s.bos = None);
    assert_names(&message, &["tokenizer.ggml.bos_token_id"]);
    let message = fault("qwen3", |s| (s.eos, s.add_eos) = (None, Some(true)));
    assert_names(&message, &["tokenizer.ggml.eos_token_id"]);
}

#[test]
fn unknown_pre_tokenizer() {
    assert_names(&fault("qwen3", |s| s.pre = Some("novel".into())), &["`novel`", "llama-bpe"]);
}

#[test]
fn lengths_that_differ() {
    let message = fault("spm", |s| s.scores.as_mut().unwrap().truncate(7));
    assert_names(&message, &["tokenizer.ggml.scores", "7 entries"]);
    let message = fault("qwen3", |s| s.types.as_mut().unwrap().push(1));
    assert_names(&message, &["tokenizer.ggml.token_type"]);
}

#[test]
fn tokens_that_cannot_be() {
    let message = fault("qwen3", |s| s.tokens[65] = b"\xC2\xA0\xC2\xA0".to_vec());
    assert_names(&message, &["no token for byte 0x"]);
    assert_names(&fault("qwen3", |s| s.types.as_mut().unwrap()[9] = 7), &["token 9", "type 7"]);
    let message = fault("spm", |s| s.tokens[13] = b"<0x0>".to_vec());
    assert_names(&message, &["token 13", "<0x00>"]);
    assert_names(
        &fault("spm", |s| s.scores.as_mut().unwrap()[1000] = f32::NAN),
        &["token 1000", "NaN"],
    );
    assert_names(&fault("spm", |s| s.tokens[1000] = vec![b'x'; 5000]), &["token 1000", "4096"]);
    // Without an unknown token every byte needs its own.
    let message = fault("spm", |s| {
        s.types.as_mut().unwrap()[0] = 3;
        s.unk = None;
        s.tokens[6 + 0x41] = b"<0x42>".to_vec();
    });
    assert_names(&message, &["0x41"]);
}

#[test]
fn merges_that_cannot_be() {
    for (merge, what) in [
        ("", "one space"),
        ("a", "one space"),
        ("a ", "one space"),
        (" a", "one space"),
        ("a b c", "one space"),
        ("a  b", "one space"),
        ("a qqqqq", "`qqqqq`"),
        ("q q", "`qq`"),
    ] {
        let message = fault("qwen3", |s| s.merges.as_mut().unwrap()[5] = merge.into());
        assert_names(&message, &["merge 5", what]);
    }
    let message = fault("qwen3", |s| s.merges.as_mut().unwrap()[5] = b"a \xFF".to_vec());
    assert_names(&message, &["merge 5", "UTF-8"]);
}

#[test]
fn ids_out_of_range() {
    type Slot = fn(&mut VocabSpec) -> &mut Option<u32>;
    let slots: [(&str, Slot); 6] = [
        ("bos", |s| &mut s.bos),
        ("eos", |s| &mut s.eos),
        ("eot", |s| &mut s.eot),
        ("eom", |s| &mut s.eom),
        ("unknown", |s| &mut s.unk),
        ("padding", |s| &mut s.pad),
    ];
    for (name, slot) in slots {
        for damaged in ["qwen3", "spm"] {
            let message = fault(damaged, |s| *slot(s) = Some(u32::MAX));
            assert_names(&message, &[&format!("tokenizer.ggml.{name}_token_id"), "4294967295"]);
        }
    }
}

#[test]
fn files() {
    let build = |writer: &mut Writer<'_>| {
        let mut file = Vec::new();
        writer.write_to(&mut file).unwrap();
        let gguf = Gguf::parse(&file).unwrap();
        let template = ChatTemplate::from_gguf(gguf.metadata()).err();
        (Tokenizer::from_gguf(gguf.metadata()).unwrap_err().to_string(), template)
    };
    let mut writer = Writer::new();
    assert_names(&build(&mut writer).0, &["tokenizer.ggml.model"]);
    let mut writer = Writer::new();
    assert_names(&build(writer.kv("tokenizer.ggml.model", "rwkv")).0, &["`rwkv`", "gpt2, llama"]);
    let mut writer = Writer::new();
    assert_names(&build(writer.kv("tokenizer.ggml.model", 7u32)).0, &["tokenizer.ggml.model"]);
    let mut writer = Writer::new();
    writer.kv("tokenizer.ggml.model", "llama");
    assert_names(&build(&mut writer).0, &["tokenizer.ggml.tokens"]);
    writer.kv("tokenizer.chat_template", "{% for %}");
    assert!(matches!(build(&mut writer).1, Some(Error::Template { line: 1, .. })));
}

/// A value of a wrong type gives an error that names the key.
#[test]
fn values_of_wrong_types() {
    let file = read(&data("unigram.gguf"));
    let gguf = Gguf::parse(&file).unwrap();
    let mut keys: Vec<&str> =
        gguf.metadata().iter().map(|e| e.0).filter(|k| k.starts_with("tokenizer")).collect();
    keys.extend([
        "tokenizer.ggml.merges",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.cls_token_id",
        "tokenizer.ggml.mask_token_id",
        "tokenizer.ggml.fim_pre_token_id",
        "tokenizer.ggml.middle_token_id",
        "tokenizer.ggml.normalizer.lowercase",
        "tokenizer.ggml.normalizer.strip_accents",
    ]);
    assert!(keys.len() >= 18, "{keys:?}");
    for key in keys {
        let mut writer = Writer::new();
        for (other, value) in gguf.metadata().iter().filter(|e| e.0 != key) {
            writer.kv(other, value);
        }
        // No key has a value of this type.
        writer.kv(key, 1.5f32);
        let mut file = Vec::new();
        writer.write_to(&mut file).unwrap();
        let error = Tokenizer::from_gguf(Gguf::parse(&file).unwrap().metadata()).unwrap_err();
        assert_names(&error.to_string(), &[key]);
    }
}

/// Pieces of templates, whole and broken.
const FRAGMENTS: &[&str] = &[
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "{%- ",
    " -%}",
    "{#",
    "#}",
    "\n",
    "text ",
    "messages",
    "tools",
    "for m in messages",
    "endfor",
    "if ",
    "else",
    "elif ",
    "endif",
    "set x = ",
    "set ns.x = ",
    "set ns = namespace(x=[])",
    "endset",
    "macro f(a, b=1)",
    "endmacro",
    "f(",
    ")",
    "(",
    "[",
    "]",
    "m.content",
    "m['role']",
    "[0]",
    "[-1]",
    "[::-1]",
    "[1:]",
    ".items()",
    ".split('h')",
    ".rsplit()",
    ".strip()",
    ".format(1)",
    "| tojson",
    "| tojson(indent=2)",
    "| join",
    "| list",
    "| length",
    "| map('upper')",
    "| selectattr('role', 'equalto', 'user')",
    "| replace('h', 'hh')",
    "| indent(2)",
    "| batch(2)",
    "| default('d')",
    " is defined",
    " is iterable",
    " in ",
    " not ",
    " and ",
    " == ",
    " ~ ",
    " + ",
    " * ",
    " - ",
    " // ",
    " % ",
    " ** ",
    "9999999999",
    "2",
    "-1",
    "1.5",
    "'é'",
    "none",
    "true",
    "undefined",
    "x",
    "ns",
    "loop.index0",
    "loop.previtem",
    "break",
    "continue",
    "generation",
    "endgeneration",
    "raise_exception('no')",
    "strftime_now('%Y')",
    "range(9)",
    "range(99999)",
    "cycler('a')",
    "include 'chat'",
    "extends 'chat'",
    "block b",
    "endblock",
    "call f()",
    "endcall",
    "caller()",
    "filter upper",
    "endfilter",
    "autoescape true",
    "endautoescape",
    "recursive",
    "loop(m)",
    "self",
    "super()",
    "debug()",
    "lipsum()",
    "dict(a=1)",
];

/// The tokens of single bytes, without which no byte-level vocabulary is accepted.
static BYTES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let single = |t: &Vec<u8>| str::from_utf8(t).unwrap().chars().count() == 1;
    spec("qwen3").tokens.into_iter().filter(single).collect()
});

fn any_spec() -> impl Strategy<Value = VocabSpec> {
    let word =
        prop::sample::select(vec!["a", "b", "ab", "ba", "▁", "Ġ", "<0x41>", "", "\u{301}", "aa"]);
    let tokens = prop::collection::vec(word.clone(), 0..12);
    let types = prop::option::of(prop::collection::vec(
        prop::sample::select(vec![1, 1, 1, 2, 3, 4, 5, 6, 7]),
        0..6,
    ));
    let scores = prop::option::of(prop::collection::vec(prop::num::f32::ANY, 0..12));
    let merges = prop::option::of(prop::collection::vec((word.clone(), word), 0..6));
    let id = || prop::option::of(0u32..14);
    let model = prop::sample::select(vec![
        VocabModel::ByteLevelBpe,
        VocabModel::SentencePiece,
        VocabModel::SentencePieceMerges,
        VocabModel::WordPiece,
        VocabModel::Unigram,
    ]);
    let charsmap = prop::option::of(prop::collection::vec(0u8..4, 0..24));
    let ids = (id(), id(), id(), id());
    (model, tokens, types, scores, merges, charsmap, ids).prop_map(
        |(model, tokens, types, scores, merges, charsmap, (bos, eos, unk, sep))| {
            let mut tokens: Vec<Vec<u8>> = tokens.iter().map(|t| t.as_bytes().to_vec()).collect();
            if model == VocabModel::ByteLevelBpe {
                tokens.extend_from_slice(&BYTES);
            }
            let types = types.map(|t| t.into_iter().chain(repeat(1)).take(tokens.len()).collect());
            let scores =
                scores.map(|s| s.into_iter().chain(repeat(0.)).take(tokens.len()).collect());
            VocabSpec {
                types,
                scores,
                merges: merges.map(|m| m.iter().map(|(a, b)| format!("{a} {b}").into()).collect()),
                bos,
                eos,
                unk,
                sep,
                charsmap,
                pre: Some("qwen2".into()),
                ..VocabSpec::new(model, tokens)
            }
        },
    )
}

proptest! {
    /// Whatever the vocabulary, building and using it ends in a value or an error.
    #[test]
    fn no_vocabulary_panics(
        spec in any_spec(),
        text in "[ab▁ <>0x4\u{301}]{0,20}",
        bytes in prop::collection::vec(any::<u8>(), 0..8),
        parse_special: bool,
    ) {
        if let Ok(t) = Tokenizer::from_spec(spec) {
            let text = [text.as_bytes(), &bytes].concat();
            let opts = EncodeOptions { add_special: true, parse_special };
            let ids = t.encode(&text, opts).unwrap();
            prop_assert!(ids.iter().all(|&id| (id as usize) < t.vocab_size()));
            t.decode(&ids, true);
        }
    }

    /// The same for the file that a vocabulary is in, with any byte of it changed.
    #[test]
    fn no_damaged_file_panics(
        name in prop::sample::select(vec!["unigram", "bert", "internlm2-merges"]),
        at in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut file = read(&data(&format!("{name}.gguf")));
        for (index, byte) in at {
            // Most of what can go wrong is in the first keys and the last.
            let len = file.len();
            let at = index.index(4096);
            file[if at < 2048 { at } else { len - 4096 + at }] = byte;
        }
        if let Ok(gguf) = Gguf::parse(&file)
            && let Ok(t) = Tokenizer::from_gguf(gguf.metadata())
        {
            t.encode("the ﬁrst  of e\u{301}<tool>", EncodeOptions::default()).unwrap();
        }
    }

    /// Whatever a template is put together from, it ends in a text or an error.
    #[test]
    fn no_template_panics(parts in prop::collection::vec(prop::sample::select(FRAGMENTS), 0..24)) {
        if let Ok(template) = ChatTemplate::new(&parts.concat(), Some("<s>"), None) {
            let messages = [Message::new("user", "hi"), Message::new("assistant", "é")];
            let opts = RenderOptions { tools: Some(json!([{"a": 1}])), ..Default::default() };
            if let Ok(text) = template.render(&messages, &opts) {
                prop_assert!(text.len() <= MAX_OUTPUT);
            }
        }
    }
}
