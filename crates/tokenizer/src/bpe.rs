//! Byte-level BPE: the text's words, written in the alphabet of bytes, merged by a list of ranks.

use std::collections::HashSet;

use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Vocab};

use crate::pretokenize::PreTokenizer;
use crate::spec::VocabSpec;
use crate::vocab::Tokens;
use crate::{Error, alphabet};

pub(crate) struct ByteLevel {
    pub(crate) pre: PreTokenizer,
    bpe: BPE,
}

impl ByteLevel {
    pub(crate) fn new(spec: &VocabSpec, tokens: &Tokens<'_>) -> Result<Self, Error> {
        let name = spec.pre.as_deref().ok_or(Error::MissingKey { key: "tokenizer.ggml.pre" })?;
        let pre = PreTokenizer::named(name)?;
        let lines =
            spec.merges.as_ref().ok_or(Error::MissingKey { key: "tokenizer.ggml.merges" })?;

        // Control tokens stay out of the model: no text may become one by merging.
        let mut vocab = Vocab::default();
        let mut special = HashSet::new();
        for (id, text, kind) in tokens.iter().filter(|t| !t.1.is_empty()) {
            if kind.is_special() {
                special.insert(text);
            } else {
                vocab.entry(text.to_owned()).or_insert(id);
            }
        }
        if let Some(byte) = missing_byte(&vocab) {
            return Err(Error::MissingByte { byte });
        }
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
        let bpe = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .ignore_merges(pre.scheme.whole_words)
            .build()
            .map_err(|e| Error::Model(e.to_string()))?;
        Ok(Self { pre, bpe })
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), Error> {
        let text = self.pre.normalize(text);
        let mut word = String::new();
        for range in self.pre.split(&text) {
            word.clear();
            alphabet::push_encoded(&text.as_bytes()[range], &mut word);
            let tokens = self.bpe.tokenize(&word).map_err(|e| Error::Model(e.to_string()))?;
            out.extend(tokens.iter().map(|t| t.id));
        }
        Ok(())
    }
}

/// The first byte without a token, of those that occur in UTF-8.
fn missing_byte(vocab: &Vocab) -> Option<u8> {
    let mut text = String::new();
    (0..=0xF4).filter(|b| !matches!(b, 0xC0 | 0xC1)).find(|&byte| {
        text.clear();
        alphabet::push_encoded(&[byte], &mut text);
        !vocab.contains_key(&text)
    })
}
