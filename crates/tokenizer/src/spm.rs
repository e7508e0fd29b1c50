//! SentencePiece BPE: the whole text is one word, and the scores say what merges first.
//!
//! SentencePiece merges the neighbours whose union is the token with the highest score, leftmost
//! first among equals. That is BPE whose merges are all splits of every token into two others,
//! ranked by the token's score. (It is not Unigram, which would search for the best total.) Byte,
//! control, unknown and unused tokens are no part of a split, so that the text `<0x41>` does not
//! become a byte. Limits: tokens of equal score are ranked by id instead of by place; unused
//! tokens are no stepping stones to longer ones. Neither occurs in published vocabularies.

use std::borrow::Cow;
use std::collections::HashSet;

use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Merges, Vocab};

use crate::Error;
use crate::spec::VocabSpec;
use crate::vocab::{TokenKind, Tokens};

/// Stands for a space inside tokens.
const SPACE: char = '▁';
const SPACE_STR: &str = "▁";

/// Longest normal token, in bytes. Finding the splits of a token takes time quadratic in it;
/// published vocabularies stay below 200.
const MAX_TOKEN: usize = 4096;

pub(crate) struct Spm {
    bpe: BPE,
    add_space_prefix: bool,
}

impl Spm {
    pub(crate) fn new(
        spec: &VocabSpec,
        tokens: &Tokens<'_>,
        unk: Option<u32>,
    ) -> Result<Self, Error> {
        let scores =
            spec.scores.as_ref().ok_or(Error::MissingKey { key: "tokenizer.ggml.scores" })?;
        let merges = merges(tokens, scores)?;

        let mut vocab = Vocab::default();
        for (id, text, kind) in tokens.iter().filter(|t| !t.1.is_empty()) {
            if matches!(kind, TokenKind::Normal | TokenKind::Byte) {
                vocab.entry(text.to_owned()).or_insert(id);
            }
        }
        let missing = (0..=255).find(|b| !vocab.contains_key(&byte_token(*b)));
        let mut builder = BPE::builder().byte_fallback(true).fuse_unk(true).cache_capacity(0);
        match (unk, missing) {
            (Some(id), _) => {
                let text = tokens.texts[id as usize].to_owned();
                vocab.entry(text.clone()).or_insert(id);
                builder = builder.unk_token(text);
            }
            // Without either the model would drop text.
            (None, Some(byte)) => return Err(Error::MissingByte { byte }),
            (None, None) => {}
        }
        let bpe = builder
            .vocab_and_merges(vocab, merges)
            .build()
            .map_err(|e| Error::Model(e.to_string()))?;
        Ok(Self { bpe, add_space_prefix: spec.add_space_prefix.unwrap_or(true) })
    }

    /// Text as tokens are written.
    pub(crate) fn escape(text: &str) -> Cow<'_, str> {
        if text.contains(' ') {
            Cow::Owned(text.replace(' ', SPACE_STR))
        } else {
            Cow::Borrowed(text)
        }
    }

    /// Text (escaped) with the space in front that every text gets, unless it is empty.
    pub(crate) fn with_prefix(text: &str) -> Cow<'_, str> {
        if text.is_empty() { Cow::Borrowed("") } else { Cow::Owned([SPACE_STR, text].concat()) }
    }

    /// Appends the ids of `text` (escaped).
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<(), Error> {
        let tokens = self.bpe.tokenize(text).map_err(|e| Error::Model(e.to_string()))?;
        out.extend(tokens.iter().map(|t| t.id));
        Ok(())
    }

    /// Whether encoding puts a space in front, which decoding drops again.
    pub(crate) fn adds_space(&self) -> bool {
        self.add_space_prefix
    }
}

/// All splits of every token into two others, best score first.
fn merges(tokens: &Tokens<'_>, scores: &[f32]) -> Result<Merges, Error> {
    let normal: HashSet<&str> = tokens.of_kind(TokenKind::Normal).map(|(_, text)| text).collect();
    let mut splits = Vec::new();
    for (id, text) in tokens.of_kind(TokenKind::Normal) {
        let score = scores[id as usize];
        if score.is_nan() {
            return Err(Error::BadScore { id: id as usize });
        }
        if text.len() > MAX_TOKEN {
            return Err(Error::BadToken { id: id as usize, fault: "is longer than 4096 bytes" });
        }
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if normal.contains(left) && normal.contains(right) {
                splits.push((score, id, left, right));
            }
        }
    }
    // Stable: the splits of one token stay in order, shortest left part first.
    splits.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    Ok(splits.into_iter().map(|(_, _, l, r)| (l.to_owned(), r.to_owned())).collect())
}

/// Appends the bytes that token `id` stands for.
pub(crate) fn push_bytes(
    id: usize,
    text: &str,
    kind: TokenKind,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    match kind {
        TokenKind::Byte => out.push(parse_byte(text).ok_or(Error::BadToken {
            id,
            fault: "has the type of a byte but is not of the form <0x00>",
        })?),
        TokenKind::Control | TokenKind::Unknown => out.extend(text.as_bytes()),
        TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused => {
            out.extend(text.replace(SPACE, " ").as_bytes());
        }
    }
    Ok(())
}

fn byte_token(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// The byte of a token like `<0x0A>`.
pub(crate) fn parse_byte(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let two_digits = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    u8::from_str_radix(hex, 16).ok().filter(|_| two_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens() {
        assert_eq!(parse_byte("<0x0A>"), Some(10));
        assert_eq!(parse_byte(&byte_token(0xFF)), Some(255));
        for text in ["<0x>", "<0x+A>", "<0x100>", "<0xé>", "0x0A", "<0x0A"] {
            assert_eq!(parse_byte(text), None, "{text}");
        }
    }
}
