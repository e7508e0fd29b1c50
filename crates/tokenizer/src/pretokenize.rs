//! Cutting text into the words inside which byte-level BPE merges, one table entry per scheme.
//!
//! The published patterns end in `\s+(?!\S)|\s+`: a run of white space leaves its last character
//! to the word that follows. Look-ahead needs a backtracking engine, whose time on hostile text
//! has no good bound. The entries here end in a plain `\s+` and `PreTokenizer::split` gives the
//! last character back itself, which is the same thing and runs in time linear in the text.

use std::borrow::Cow;
use std::ops::Range;

use regex::Regex;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::Error;

/// How the vocabularies of one family cut text, and what else goes with the family's name.
#[derive(Debug)]
pub struct Scheme {
    /// Values of `tokenizer.ggml.pre` that select this entry.
    pub names: &'static [&'static str],
    /// The published pattern with its ending `\s+(?!\S)|\s+` shortened to `\s+`.
    pub pattern: &'static str,
    /// Whether text is brought to Unicode form NFC first.
    pub nfc: bool,
    /// Whether a word that is a token is taken as such, even if the merges do not lead to it.
    pub whole_words: bool,
    /// Whether text begins with BOS when `tokenizer.ggml.add_bos_token` is absent.
    pub add_bos: bool,
}

/// The schemes that are known. Each is checked against the reference by the test vectors.
pub const PRE_TOKENIZERS: &[Scheme] = &[
    Scheme {
        names: &["qwen2"],
        pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
        nfc: true,
        whole_words: false,
        add_bos: false,
    },
    Scheme {
        names: &["llama-bpe", "llama3", "llama-v3"],
        pattern: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
        nfc: false,
        whole_words: true,
        add_bos: true,
    },
];

/// A scheme with its pattern compiled.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    pub(crate) scheme: &'static Scheme,
    regex: Regex,
}

impl PreTokenizer {
    /// Finds the scheme called `name`.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        let scheme = PRE_TOKENIZERS.iter().find(|s| s.names.contains(&name)).ok_or_else(|| {
            let names: Vec<_> = PRE_TOKENIZERS.iter().flat_map(|s| s.names).copied().collect();
            Error::UnsupportedPre { pre: name.to_owned(), supported: names.join(", ") }
        })?;
        let regex = Regex::new(scheme.pattern).map_err(|e| Error::Model(e.to_string()))?;
        Ok(Self { scheme, regex })
    }

    /// The text as the vocabulary was trained on it.
    pub(crate) fn normalize<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !self.scheme.nfc || is_nfc_quick(text.chars()) == IsNormalized::Yes {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(text.nfc().collect())
        }
    }

    /// Byte ranges of the words of `text`, which together cover it.
    pub(crate) fn split<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == text.len() {
                return None;
            }
            // What no alternative matches is a word of its own, up to the next match.
            let range = match self.regex.find_at(text, at) {
                Some(m) if m.start() == at && m.end() > at => at..self.give_back(text, m.range()),
                Some(m) if m.start() > at => at..m.start(),
                _ => at..text.len(),
            };
            at = range.end;
            Some(range)
        })
    }

    /// End of `range` after the rule for white space. Only the alternative `\s+` ends in white
    /// space that is no line end: the one before it takes every run up to its last line end.
    fn give_back(&self, text: &str, range: Range<usize>) -> usize {
        let Some(last) = text[range.clone()].chars().next_back() else { return range.end };
        let shorter = range.end - last.len_utf8();
        let gives = last.is_whitespace() && !matches!(last, '\r' | '\n');
        if gives && range.end < text.len() && shorter > range.start { shorter } else { range.end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        PreTokenizer::named(name).unwrap().split(text).map(|r| &text[r]).collect()
    }

    #[test]
    fn white_space_leaves_one_to_the_next_word() {
        assert_eq!(words("qwen2", "a   b"), ["a", "  ", " b"]);
        assert_eq!(words("qwen2", "a   "), ["a", "   "]);
        assert_eq!(words("qwen2", "  \n \n  x"), ["  \n \n", " ", " x"]);
        assert_eq!(words("qwen2", "a \u{3000}b"), ["a", " ", "\u{3000}b"]);
        assert_eq!(words("qwen2", "\t\t1"), ["\t", "\t", "1"]);
    }

    #[test]
    fn digits_differ_between_schemes() {
        assert_eq!(words("qwen2", "12345"), ["1", "2", "3", "4", "5"]);
        assert_eq!(words("llama-bpe", "12345"), ["123", "45"]);
    }

    #[test]
    fn contractions_in_both_cases() {
        assert_eq!(words("qwen2", "I'll IT'S"), ["I", "'ll", " IT", "'S"]);
    }

    #[test]
    fn composed_only_where_the_scheme_says_so() {
        let text = "e\u{301}";
        assert_eq!(PreTokenizer::named("qwen2").unwrap().normalize(text), "é");
        assert_eq!(PreTokenizer::named("llama-bpe").unwrap().normalize(text), text);
    }

    #[test]
    fn unknown_name_is_named_with_the_known_ones() {
        let message = PreTokenizer::named("novel").unwrap_err().to_string();
        assert!(message.contains("`novel`") && message.contains("qwen2"), "{message}");
    }
}
