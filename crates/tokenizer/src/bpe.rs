//! Byte-level BPE: the text's words, whose bytes are merged by a list of ranks.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use crate::merge::{self, Merged, Pairs, Symbol};
use crate::pretokenize::PreTokenizer;
use crate::spec::{VocabModel, VocabSpec};
use crate::vocab::{Tokens, Vocab};
use crate::{Error, alphabet, spm};

pub(crate) struct ByteLevel {
    pub(crate) pre: PreTokenizer,
    pairs: Pairs,
    /// The token of each byte: some vocabularies leave out what their texts did not have.
    bytes: Box<[Option<u32>; 256]>,
    /// Whether all bytes have one.
    complete: bool,
}

impl ByteLevel {
    pub(crate) fn new(spec: &VocabSpec, tokens: &Tokens<'_>, vocab: &Vocab) -> Result<Self, Error> {
        let name = spec.pre.as_deref().ok_or(Error::MissingKey { key: "tokenizer.ggml.pre" })?;
        let pre = PreTokenizer::named(name)?;
        let bytes: [_; 256] = std::array::from_fn(|byte| vocab.text(&[byte as u8]));
        // Without these it is no vocabulary for text; the last three are U+FFFD.
        let needed = |b: u8| matches!(b, b'\n' | b' '..=b'~' | 0xEF | 0xBF | 0xBD);
        let missing = |b: &u8| bytes[*b as usize].is_none() && needed(*b);
        if let Some(byte) = (0..=0xFF).find(missing) {
            return Err(Error::MissingByte { byte });
        }
        let complete = bytes.iter().all(Option::is_some);
        Ok(Self { pre, pairs: merges(spec, tokens, vocab)?, bytes: Box::new(bytes), complete })
    }

    /// Appends the ids of `text`. Bytes that are not UTF-8 stand as words of their own. U+FFFD
    /// stands for a character with a byte that has no token.
    pub(crate) fn encode(&self, text: &[u8], vocab: &Vocab, out: &mut Vec<u32>) {
        let (mut known, mut symbols) = (Known::default(), Vec::new());
        for chunk in text.utf8_chunks() {
            let valid = self.substitute(self.pre.normalize(chunk.valid()));
            for range in self.pre.split(&valid) {
                let word = &valid.as_bytes()[range];
                known.push(word, out, |word, out| self.word(word, vocab, &mut symbols, out));
            }
            let mut invalid = chunk.invalid();
            if self.lacks(invalid) {
                invalid = "\u{FFFD}".as_bytes();
            }
            if !invalid.is_empty() {
                self.word(invalid, vocab, &mut symbols, out);
            }
        }
    }

    /// Appends the ids of a word.
    fn word(&self, word: &[u8], vocab: &Vocab, symbols: &mut Vec<Symbol>, out: &mut Vec<u32>) {
        if self.pre.scheme.whole_words
            && let Some(id) = vocab.text(word)
        {
            return out.push(id);
        }
        symbols.clear();
        let bytes = word.iter().enumerate();
        symbols.extend(bytes.map(|(at, &b)| Symbol::new(at..at + 1, self.bytes[b as usize])));
        merge::merge(symbols, |left, right| self.pairs.get(left, right));
        out.extend(symbols.iter().filter_map(|symbol| symbol.id));
    }

    fn lacks(&self, bytes: &[u8]) -> bool {
        !self.complete && bytes.iter().any(|&b| self.bytes[b as usize].is_none())
    }

    fn substitute<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        if !self.lacks(text.as_bytes()) {
            return text;
        }
        let known = |c: char| !self.lacks(c.encode_utf8(&mut [0; 4]).as_bytes());
        text.chars().map(|c| if known(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
    }
}

/// Words of one text whose ids are known: most come again.
#[derive(Default)]
pub(crate) struct Known {
    words: HashMap<Vec<u8>, Vec<u32>>,
}

/// Words that are longer are not kept.
const LONGEST: usize = 64;

impl Known {
    /// Appends the ids of a word, which `encode` gives if it is new.
    pub(crate) fn push(
        &mut self,
        word: &[u8],
        out: &mut Vec<u32>,
        encode: impl FnOnce(&[u8], &mut Vec<u32>),
    ) {
        if let Some(ids) = self.words.get(word) {
            return out.extend(ids);
        }
        let before = out.len();
        encode(word, out);
        if word.len() <= LONGEST {
            self.words.insert(word.to_vec(), out[before..].to_vec());
        }
    }
}

/// The merges of the file that stay inside of what text may become, best first.
pub(crate) fn merges(spec: &VocabSpec, tokens: &Tokens<'_>, vocab: &Vocab) -> Result<Pairs, Error> {
    let lines = spec.merges.as_ref().ok_or(Error::MissingKey { key: "tokenizer.ggml.merges" })?;
    let push = |part: &[u8], out: &mut Vec<u8>| match spec.model {
        VocabModel::ByteLevelBpe => alphabet::push_decoded(part, out),
        _ => {
            spm::push_unescaped(part, out);
            true
        }
    };
    let mut pairs = Pairs::with_capacity(lines.len());
    // Tokens that no text becomes, as they are written; hardly a list leads to one.
    let mut others: Option<HashSet<&[u8]>> = None;
    let mut whole = Vec::new();
    for (line, text) in lines.iter().enumerate() {
        let fault = |fault: &str| Error::BadMerge { line, fault: fault.to_owned() };
        let is_space = |&at: &usize| text[at] == b' ';
        let mut spaces = (0..text.len()).filter(is_space);
        let one = match (spaces.next(), spaces.next()) {
            (Some(at), None) if at > 0 && at + 1 < text.len() => Some(at),
            _ => None,
        };
        let Some(at) = one else {
            let fault = match str::from_utf8(text) {
                Ok(_) => fault("is not two tokens with one space between them"),
                Err(_) => fault("is not UTF-8"),
            };
            return Err(fault);
        };
        let (left, right) = (&text[..at], &text[at + 1..]);
        whole.clear();
        let left_known = push(left, &mut whole);
        let end = whole.len();
        let end = (left_known && push(right, &mut whole)).then_some(end);
        let found = end.and_then(|end| {
            let parts = [&whole[..end], &whole[end..], &whole[..]];
            let [left, right, id] = parts.map(|part| vocab.text(part));
            Some((left?, right?, id?))
        });
        if let Some((left, right, id)) = found {
            pairs.add(left, right, Merged { order: line as u32, id });
            continue;
        }
        // One that leads to a special token is left out; others are faults.
        let others = others.get_or_insert_with(|| {
            let is_text = |id| vocab.bytes(id).and_then(|bytes| vocab.text(bytes)) == Some(id);
            tokens.bytes().filter(|t| !is_text(t.0)).map(|(_, text, _)| text).collect()
        });
        for part in [left, right, &[left, right].concat()] {
            whole.clear();
            let is_text = push(part, &mut whole) && vocab.text(&whole).is_some();
            if !is_text && !others.contains(part) {
                let part = str::from_utf8(part).map_err(|_| fault("is not UTF-8"))?;
                return Err(fault(&format!("needs `{part}`, which is not in the vocabulary")));
            }
        }
    }
    Ok(pairs)
}
