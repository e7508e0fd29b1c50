//! Which way of cutting text a `tokenizer.json` describes.
//!
//! Files of models name the way, folders spell it out as patterns, and the same rules are spelt in many ways.
//! So the pattern is run, by the engine that it was written for, on texts made for it, and compared with what
//! every scheme makes of them. Texts are of all kinds of characters that patterns distinguish, in random order:
//! two sets of rules that agree on all of them are taken for one.

use crate::Error;
use crate::pretokenize::PreTokenizer;
use crate::schemes::{PRE_TOKENIZERS, Scheme};
use serde_json::Value;
use std::ops::Range;
use tokenizers::{
    OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _, PreTokenizerWrapper,
};

/// What texts are made of.
const PIECES: &[&str] = &[
    "a",
    "b",
    "the",
    "Word",
    "HELLO",
    "camelCase",
    "Z",
    "é",
    "É",
    "ß",
    "ü",
    "Ж",
    "нещо",
    "ǅ",
    "ʰ",
    "ª",
    "e\u{301}",
    "\u{301}",
    "अ",
    "आ",
    "ि",
    "的",
    "我想在",
    "、",
    "。",
    "ひ",
    "カタ",
    "한국",
    "ไทย",
    "កាន់",
    "ㄅ",
    "0",
    "1",
    "12",
    "345",
    "6789",
    "20260",
    "१२",
    "²",
    "Ⅷ",
    " ",
    " ",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    " \n",
    "\u{a0}",
    "\u{3000}",
    "'s",
    "'S",
    "'ll",
    "'Ll",
    "'t",
    "'re",
    "'VE",
    "'d",
    "'m",
    "'",
    "’s",
    "!",
    "?",
    ".",
    "...",
    ",",
    ";",
    ":",
    "-",
    "--",
    "_",
    "/",
    "//",
    "\\",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "=",
    "==",
    "+",
    "*",
    "&",
    "|",
    "^",
    "~",
    "`",
    "```",
    "@",
    "#",
    "$",
    "€",
    "%",
    "\"",
    "“",
    "”",
    "…",
    "—",
    "－",
    "！",
    "？",
    "🚀",
    "👩\u{200d}🔬",
    "\u{200b}",
    "\u{fe0f}",
    "<sentinel:12>",
    "IMGIMGABZ",
    "    ",
    "        ",
];
const TEXTS: usize = 700;
const LENGTHS: usize = 12;

/// The schemes that cut text as `pre_tokenizer`, a part of a `tokenizer.json`, does. None, if it is unlike all
/// that are known; those that remain differ in other things than cutting.
///
/// # Errors
/// When it is not what such a file may have there.
pub fn recognise(pre_tokenizer: &Value) -> Result<Vec<&'static Scheme>, Error> {
    let mut spelt = pre_tokenizer.clone();
    without_prefix_space(&mut spelt);
    let theirs: PreTokenizerWrapper =
        serde_json::from_value(spelt).map_err(|e| Error::Model(e.to_string()))?;
    let mut ours = Vec::with_capacity(PRE_TOKENIZERS.len());
    for scheme in PRE_TOKENIZERS {
        ours.push(PreTokenizer::named(scheme.names[0])?);
    }
    for text in texts() {
        let Some(cut) = cut(&theirs, &text)? else { return Ok(Vec::new()) };
        ours.retain(|pre| pre.split(&text) == cut);
        if ours.is_empty() {
            break;
        }
    }
    Ok(ours.into_iter().map(|pre| pre.scheme).collect())
}

/// The space that some put before a text is a key of its own in files.
fn without_prefix_space(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(prefix) = map.get_mut("add_prefix_space") {
                *prefix = false.into();
            }
            map.values_mut().for_each(without_prefix_space);
        }
        Value::Array(list) => list.iter_mut().for_each(without_prefix_space),
        _ => {}
    }
}

/// The words of a text; `None` if some of it is left out.
fn cut(by: &PreTokenizerWrapper, text: &str) -> Result<Option<Vec<Range<usize>>>, Error> {
    let mut pieces = PreTokenizedString::from(text);
    by.pre_tokenize(&mut pieces).map_err(|e| Error::Model(e.to_string()))?;
    let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
    let mut at = 0;
    let mut words = Vec::with_capacity(splits.len());
    for (_, (start, end), _) in splits {
        if start != at {
            return Ok(None);
        }
        at = end;
        words.push(start..end);
    }
    Ok((at == text.len()).then_some(words))
}

/// Texts of pieces in an order that is the same every time.
fn texts() -> impl Iterator<Item = String> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    (0..TEXTS).map(move |_| {
        let length = 2 + random(LENGTHS);
        (0..length).map(|_| PIECES[random(PIECES.len())]).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published patterns, in the form that `tokenizer.json` has them in.
    #[test]
    fn published_patterns_are_those_of_their_schemes() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pre_tokenizers.json");
        let all: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let mut wrong = Vec::new();
        // Its scheme cuts otherwise where digits stand beside other numbers (12²345): it has to be named.
        let known = all.as_object().unwrap().iter().filter(|(name, _)| *name != "superbpe");
        for (name, pre) in known {
            let found = recognise(pre).unwrap();
            if !found.iter().any(|scheme| scheme.names.contains(&&**name)) {
                let names: Vec<_> = found.iter().map(|scheme| scheme.names).collect();
                wrong.push(format!("{name} is taken for {names:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn schemes_are_told_apart_and_unknown_ones_are_none() {
        let split = |pattern: &str| serde_json::json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        assert!(recognise(&split(r"\p{L}+|\p{N}{1,5}")).unwrap().is_empty());
        let space = serde_json::json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        assert!(recognise(&space).unwrap().iter().any(|s| s.names.contains(&"gpt-2")));
        assert!(recognise(&serde_json::json!({"type": "Novel"})).is_err());
        // What is left out of the words would be lost.
        let removed = serde_json::json!({"type": "WhitespaceSplit"});
        assert!(recognise(&removed).unwrap().is_empty());
    }
}
