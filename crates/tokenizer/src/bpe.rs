//! Byte-level BPE: the text's words, written in the alphabet of bytes, merged by a list of ranks.

use std::borrow::Cow;
use std::collections::HashSet;

use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Merges, Vocab};

use crate::pretokenize::PreTokenizer;
use crate::spec::VocabSpec;
use crate::vocab::Tokens;
use crate::{Error, alphabet};

pub(crate) struct ByteLevel {
    pub(crate) pre: PreTokenizer,
    bpe: BPE,
    /// Bytes without a token: some vocabularies leave out what their texts did not have.
    missing: Vec<u8>,
}

impl ByteLevel {
    pub(crate) fn new(spec: &VocabSpec, tokens: &Tokens<'_>) -> Result<Self, Error> {
        let name = spec.pre.as_deref().ok_or(Error::MissingKey { key: "tokenizer.ggml.pre" })?;
        let pre = PreTokenizer::named(name)?;

        let vocab = text_vocab(tokens);
        let missing: Vec<u8> = (0..=0xFF).filter(|&b| !has_byte(&vocab, b)).collect();
        // Without these it is no vocabulary for text; the last three are U+FFFD.
        let needed = |b: u8| matches!(b, b'\n' | b' '..=b'~' | 0xEF | 0xBF | 0xBD);
        if let Some(&byte) = missing.iter().find(|&&b| needed(b)) {
            return Err(Error::MissingByte { byte });
        }
        let merges = merges(spec, tokens, &vocab)?;
        let bpe = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .ignore_merges(pre.scheme.whole_words)
            .build()
            .map_err(|e| Error::Model(e.to_string()))?;
        Ok(Self { pre, bpe, missing })
    }

    /// Appends the ids of `text`. Bytes that are not UTF-8 stand as words of their own. U+FFFD
    /// stands for a character with a byte that has no token.
    pub(crate) fn encode(&self, text: &[u8], out: &mut Vec<u32>) -> Result<(), Error> {
        let mut word = String::new();
        for chunk in text.utf8_chunks() {
            let valid = self.substitute(self.pre.normalize(chunk.valid()));
            let words = self.pre.split(&valid).into_iter().map(|range| &valid.as_bytes()[range]);
            let mut invalid = chunk.invalid();
            if self.lacks(invalid) {
                invalid = "\u{FFFD}".as_bytes();
            }
            for bytes in words.chain([invalid].into_iter().filter(|b| !b.is_empty())) {
                word.clear();
                alphabet::push_encoded(bytes, &mut word);
                let tokens = self.bpe.tokenize(&word).map_err(|e| Error::Model(e.to_string()))?;
                out.extend(tokens.iter().map(|t| t.id));
            }
        }
        Ok(())
    }

    fn lacks(&self, bytes: &[u8]) -> bool {
        !self.missing.is_empty() && bytes.iter().any(|b| self.missing.contains(b))
    }

    fn substitute<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        if !self.lacks(text.as_bytes()) {
            return text;
        }
        let known = |c: char| !self.lacks(c.encode_utf8(&mut [0; 4]).as_bytes());
        text.chars().map(|c| if known(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
    }
}

/// The tokens that text may become. Control tokens stay out: nothing merges into one.
pub(crate) fn text_vocab(tokens: &Tokens<'_>) -> Vocab {
    let mut vocab = Vocab::default();
    for (id, text, _) in tokens.iter().filter(|t| !t.1.is_empty() && !t.2.is_special()) {
        vocab.entry(text.to_owned()).or_insert(id);
    }
    vocab
}

/// The merges of the file that stay inside `vocab`, best first.
pub(crate) fn merges(
    spec: &VocabSpec,
    tokens: &Tokens<'_>,
    vocab: &Vocab,
) -> Result<Merges, Error> {
    let lines = spec.merges.as_ref().ok_or(Error::MissingKey { key: "tokenizer.ggml.merges" })?;
    let special: HashSet<&str> = tokens.iter().filter(|t| t.2.is_special()).map(|t| t.1).collect();
    let mut merges = Vec::with_capacity(lines.len());
    for (line, text) in lines.iter().enumerate() {
        let fault = |fault: &str| Error::BadMerge { line, fault: fault.to_owned() };
        let text = str::from_utf8(text).map_err(|_| fault("is not UTF-8"))?;
        let (left, right) = (text.split_once(' '))
            .filter(|(l, r)| !l.is_empty() && !r.is_empty() && !r.contains(' '))
            .ok_or_else(|| fault("is not two tokens with one space between them"))?;
        let mut reaches_special = false;
        for part in [left, right, &[left, right].concat()] {
            reaches_special |= special.contains(part) && !vocab.contains_key(part);
            if !vocab.contains_key(part) && !special.contains(part) {
                return Err(fault(&format!("needs `{part}`, which is not in the vocabulary")));
            }
        }
        if !reaches_special {
            merges.push((left.to_owned(), right.to_owned()));
        }
    }
    Ok(merges)
}

fn has_byte(vocab: &Vocab, byte: u8) -> bool {
    let mut text = String::new();
    alphabet::push_encoded(&[byte], &mut text);
    vocab.contains_key(&text)
}
