//! SentencePiece BPE: the scores say what merges first.
//!
//! SentencePiece merges the neighbours whose union is the token with the highest score, leftmost
//! first among equals. (It is not Unigram, which would search for the best total.) Byte,
//! control, unknown and unused tokens are no unions, so that the text `<0x41>` does not
//! become a byte. Some files bring a list of merges instead of the scores. Limit: unused
//! tokens are no stepping stones to longer ones, which does not occur in published vocabularies.
//!
//! To SentencePiece a text is one word. But where no token has a space behind another character, nothing merges
//! over the beginning of a word, and words are taken one by one.

use std::borrow::Cow;

use crate::Error;
use crate::bpe::{self, Known};
use crate::merge::{self, Merged, Pairs, Symbol};
use crate::spec::{VocabModel, VocabSpec};
use crate::vocab::{TokenKind, Tokens, Vocab};

/// Stands for a space inside tokens.
pub(crate) const SPACE: &str = "▁";

/// Longest normal token, in bytes; published vocabularies stay below 200.
pub(crate) const MAX_TOKEN: usize = 4096;

pub(crate) struct Spm {
    rule: Rule,
    bytes: ByteTokens,
    unk: Option<u32>,
    /// Whether nothing merges over a space that follows another character.
    by_words: bool,
    add_space_prefix: bool,
}

/// What merges first.
enum Rule {
    /// Tokens of higher scores: the order of each.
    Scores(Vec<u32>),
    /// Those of the list.
    List(Pairs),
}

impl Spm {
    pub(crate) fn new(
        spec: &VocabSpec,
        tokens: &Tokens<'_>,
        vocab: &Vocab,
        unk: Option<u32>,
    ) -> Result<Self, Error> {
        let has_merges = spec.model == VocabModel::SentencePieceMerges;
        let rule = if has_merges {
            Rule::List(bpe::merges(spec, tokens, vocab)?)
        } else {
            let scores =
                spec.scores.as_ref().ok_or(Error::MissingKey { key: "tokenizer.ggml.scores" })?;
            Rule::Scores(orders(tokens, scores)?)
        };
        let bytes = ByteTokens::new(tokens);
        // Without either, text would be dropped.
        if let (None, Some(byte)) = (unk, bytes.missing()) {
            return Err(Error::MissingByte { byte });
        }
        let is_union = |kind: TokenKind| match rule {
            Rule::Scores(_) => kind == TokenKind::Normal,
            Rule::List(_) => !kind.is_special(),
        };
        let mut unions = tokens.bytes().filter(|t| is_union(t.2));
        let by_words = unions.all(|(_, text, _)| !has_inner_space(text));
        let add_space_prefix = spec.add_space_prefix.unwrap_or(!has_merges);
        Ok(Self { rule, bytes, unk, by_words, add_space_prefix })
    }

    /// Text with the space in front that every text gets, unless it is empty.
    pub(crate) fn with_prefix(text: &[u8]) -> Cow<'_, [u8]> {
        if text.is_empty() { Cow::Borrowed(b"") } else { Cow::Owned([b" ", text].concat()) }
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, text: &[u8], vocab: &Vocab, out: &mut Vec<u32>) {
        let (mut known, mut symbols) = (Known::default(), Vec::new());
        for chunk in text.utf8_chunks() {
            let mut rest = chunk.valid();
            while !rest.is_empty() {
                let (word, after) = rest.split_at(self.first_word(rest));
                known.push(word.as_bytes(), out, |_, out| {
                    self.word(word, vocab, &mut symbols, out);
                });
                rest = after;
            }
            if !chunk.invalid().is_empty() {
                self.bytes.push(chunk.invalid(), self.unk, out);
            }
        }
    }

    /// Bytes of the first word: spaces, and what follows up to the next one.
    fn first_word(&self, text: &str) -> usize {
        if !self.by_words {
            return text.len();
        }
        let spaces = text.len() - text.trim_start_matches(' ').len();
        text[spaces..].find(' ').map_or(text.len(), |at| spaces + at)
    }

    /// Appends the ids of a word. Neighbours without tokens become one unknown token, or their bytes if each byte of the
    /// character has one.
    fn word(&self, word: &str, vocab: &Vocab, symbols: &mut Vec<Symbol>, out: &mut Vec<u32>) {
        symbols.clear();
        let text = word.as_bytes();
        symbols.extend(word.char_indices().map(|(at, c)| {
            let range = at..at + c.len_utf8();
            let id = vocab.text(&text[range.clone()]);
            Symbol::new(range, id)
        }));
        match &self.rule {
            Rule::List(pairs) => merge::merge(symbols, |left, right| pairs.get(left, right)),
            Rule::Scores(orders) => merge::merge(symbols, |left, right| {
                let id = vocab.text(&text[left.range().start..right.range().end])?;
                Some(Merged { order: orders[id as usize], id })
            }),
        }
        let mut after_unknown = false;
        for symbol in &*symbols {
            let character = &text[symbol.range()];
            after_unknown = match symbol.id {
                Some(id) => {
                    out.push(id);
                    false
                }
                None if self.bytes.have(character) => {
                    self.bytes.push(character, None, out);
                    false
                }
                None => {
                    out.extend(self.unk.filter(|_| !after_unknown));
                    true
                }
            };
        }
    }

    /// Whether encoding puts a space in front, which decoding drops again.
    pub(crate) fn adds_space(&self) -> bool {
        self.add_space_prefix
    }
}

/// The order in which each token merges: higher scores first.
fn orders(tokens: &Tokens<'_>, scores: &[f32]) -> Result<Vec<u32>, Error> {
    for (id, text) in tokens.of_kind(TokenKind::Normal) {
        if scores[id as usize].is_nan() {
            return Err(Error::BadScore { id: id as usize });
        }
        if text.len() > MAX_TOKEN {
            return Err(Error::BadToken { id: id as usize, fault: "is longer than 4096 bytes" });
        }
    }
    // Floats in the order of integers.
    let order = |score: &f32| match (score + 0.0).to_bits() {
        bits if bits >> 31 == 1 => bits,
        bits => !bits ^ 1 << 31,
    };
    Ok(scores.iter().map(order).collect())
}

/// Whether a token, as it is written, has a space behind another character.
fn has_inner_space(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(tail) = rest.strip_prefix(SPACE.as_bytes()) {
        rest = tail;
    }
    rest.windows(SPACE.len()).any(|run| run == SPACE.as_bytes())
}

/// Appends the bytes that token `id` stands for.
pub(crate) fn push_bytes(
    id: usize,
    text: &[u8],
    kind: TokenKind,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    match kind {
        TokenKind::Byte => out.push(parse_byte(text).ok_or(Error::BadToken {
            id,
            fault: "has the type of a byte but is not of the form <0x00>",
        })?),
        TokenKind::Control | TokenKind::Unknown => out.extend(text),
        TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused => {
            push_unescaped(text, out);
        }
    }
    Ok(())
}

/// Text with its spaces back, which may hold anything.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    push_unescaped(text, &mut out);
    out
}

/// Appends it.
pub(crate) fn push_unescaped(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(SPACE.as_bytes()) {
            out.push(b' ');
            rest = tail;
        } else {
            out.push(first);
            rest = tail;
        }
    }
}

/// The tokens of single bytes.
pub(crate) struct ByteTokens(Box<[Option<u32>; 256]>);

impl ByteTokens {
    pub(crate) fn new(tokens: &Tokens<'_>) -> Self {
        let mut ids = [None; 256];
        for (id, text) in tokens.of_kind(TokenKind::Byte) {
            if let Some(byte) = parse_byte(text.as_bytes()) {
                ids[byte as usize].get_or_insert(id);
            }
        }
        Self(Box::new(ids))
    }

    /// The first byte that has none.
    pub(crate) fn missing(&self) -> Option<u8> {
        (0..=255).find(|&b| self.0[b as usize].is_none())
    }

    /// Whether all of `bytes` have one.
    pub(crate) fn have(&self, bytes: &[u8]) -> bool {
        bytes.iter().all(|&b| self.0[b as usize].is_some())
    }

    /// Appends the tokens of `bytes`, or one `unk` for them all if a byte has none.
    pub(crate) fn push(&self, bytes: &[u8], unk: Option<u32>, out: &mut Vec<u32>) {
        let ids = || bytes.iter().map(|&b| self.0[b as usize]);
        if ids().all(|id| id.is_some()) {
            out.extend(ids().flatten());
        } else {
            out.extend(unk);
        }
    }
}

/// The byte of a token like `<0x0A>`.
pub(crate) fn parse_byte(text: &[u8]) -> Option<u8> {
    let hex = str::from_utf8(text).ok()?.strip_prefix("<0x")?.strip_suffix('>')?;
    let two_digits = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    u8::from_str_radix(hex, 16).ok().filter(|_| two_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens() {
        assert_eq!(parse_byte(b"<0x0A>"), Some(10));
        assert_eq!(parse_byte(b"<0xFF>"), Some(255));
        for text in ["<0x>", "<0x+A>", "<0x100>", "<0xé>", "0x0A", "<0x0A"] {
            assert_eq!(parse_byte(text.as_bytes()), None, "{text}");
        }
    }
}
