//! SentencePiece BPE: the whole text is one word, and the scores say what merges first.
//!
//! SentencePiece merges the neighbours whose union is the token with the highest score, leftmost
//! first among equals. That is BPE whose merges are all splits of every token into two others,
//! ranked by the token's score. (It is not Unigram, which would search for the best total.) Byte,
//! control, unknown and unused tokens are no part of a split, so that the text `<0x41>` does not
//! become a byte. Some files bring the list of merges instead of the scores. Limits: tokens of equal score are ranked by id instead of by place; unused
//! tokens are no stepping stones to longer ones. Neither occurs in published vocabularies.

use std::borrow::Cow;
use std::collections::HashSet;

use tokenizers::Model as _;
use tokenizers::models::bpe::{BPE, Merges, Vocab};

use crate::Error;
use crate::bpe::{self, text_vocab};
use crate::spec::{VocabModel, VocabSpec};
use crate::vocab::{TokenKind, Tokens};

/// Stands for a space inside tokens.
pub(crate) const SPACE: &str = "▁";

/// Longest normal token, in bytes. Finding the splits of a token takes time quadratic in it;
/// published vocabularies stay below 200.
pub(crate) const MAX_TOKEN: usize = 4096;

pub(crate) struct Spm {
    bpe: BPE,
    bytes: ByteTokens,
    unk: Option<u32>,
    add_space_prefix: bool,
}

impl Spm {
    pub(crate) fn new(
        spec: &VocabSpec,
        tokens: &Tokens<'_>,
        unk: Option<u32>,
    ) -> Result<Self, Error> {
        let has_merges = spec.model == VocabModel::SentencePieceMerges;
        let (mut vocab, merges);
        if has_merges {
            vocab = text_vocab(tokens);
            merges = bpe::merges(spec, tokens, &vocab)?;
        } else {
            vocab = Vocab::default();
            for (id, text, kind) in tokens.iter().filter(|t| !t.1.is_empty()) {
                if matches!(kind, TokenKind::Normal | TokenKind::Byte) {
                    vocab.entry(text.to_owned()).or_insert(id);
                }
            }
            let scores =
                spec.scores.as_ref().ok_or(Error::MissingKey { key: "tokenizer.ggml.scores" })?;
            merges = merges_of_scores(tokens, scores)?;
        }
        let bytes = ByteTokens::new(tokens);
        let mut builder = BPE::builder().byte_fallback(true).fuse_unk(true).cache_capacity(0);
        match (unk, bytes.missing()) {
            (Some(id), _) => {
                // The model wants a text for it. No character of the input is this one's.
                let text = format!("\u{10FFFF}\u{10FFFF}{id}");
                vocab.insert(text.clone(), id);
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
        let add_space_prefix = spec.add_space_prefix.unwrap_or(!has_merges);
        Ok(Self { bpe, bytes, unk, add_space_prefix })
    }

    /// Text as tokens are written.
    pub(crate) fn escape(text: &[u8]) -> Cow<'_, [u8]> {
        if text.contains(&b' ') {
            Cow::Owned(text.split(|&b| b == b' ').collect::<Vec<_>>().join(SPACE.as_bytes()))
        } else {
            Cow::Borrowed(text)
        }
    }

    /// Text (escaped) with the space in front that every text gets, unless it is empty.
    pub(crate) fn with_prefix(text: &[u8]) -> Cow<'_, [u8]> {
        if text.is_empty() {
            Cow::Borrowed(b"")
        } else {
            Cow::Owned([SPACE.as_bytes(), text].concat())
        }
    }

    /// Appends the ids of `text` (escaped).
    pub(crate) fn encode(&self, text: &[u8], out: &mut Vec<u32>) -> Result<(), Error> {
        for chunk in text.utf8_chunks() {
            let tokens =
                self.bpe.tokenize(chunk.valid()).map_err(|e| Error::Model(e.to_string()))?;
            out.extend(tokens.iter().map(|t| t.id));
            if !chunk.invalid().is_empty() {
                self.bytes.push(chunk.invalid(), self.unk, out);
            }
        }
        Ok(())
    }

    /// Whether encoding puts a space in front, which decoding drops again.
    pub(crate) fn adds_space(&self) -> bool {
        self.add_space_prefix
    }
}

/// All splits of every token into two others, best score first.
fn merges_of_scores(tokens: &Tokens<'_>, scores: &[f32]) -> Result<Merges, Error> {
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
            out.extend(unescape(text));
        }
    }
    Ok(())
}

/// Text with its spaces back, which may hold anything.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
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
    out
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
