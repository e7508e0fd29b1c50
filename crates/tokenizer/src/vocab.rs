//! Tokens as the bytes they stand for, their kinds, and the way back from bytes to ids.

use crate::spec::{VocabModel, VocabSpec};
use crate::{Error, alphabet, eog, spm};

/// What a token is for (`tokenizer.ggml.token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Stands for text that has no token.
    Unknown,
    /// Structure, such as the end of a turn; not text.
    Control,
    /// A text that is always one token.
    UserDefined,
    /// A place kept free in the vocabulary.
    Unused,
    /// One byte.
    Byte,
}

impl TokenKind {
    fn from_gguf(id: usize, value: i32) -> Result<Self, Error> {
        Ok(match value {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return Err(Error::BadTokenType { id, value }),
        })
    }

    /// Control and unknown tokens: they have a text, but are not part of the text.
    pub(crate) fn is_special(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }

    /// Control and user-defined tokens: found in the text before anything else looks at it.
    pub(crate) fn is_markup(self) -> bool {
        matches!(self, Self::Control | Self::UserDefined)
    }
}

/// Tokens as stored and their kinds, checked against each other: what a model is built from.
pub(crate) struct Tokens<'s> {
    pub(crate) texts: Vec<&'s [u8]>,
    pub(crate) kinds: Vec<TokenKind>,
}

impl<'s> Tokens<'s> {
    pub(crate) fn new(spec: &'s VocabSpec) -> Result<Self, Error> {
        let count = spec.tokens.len();
        if count == 0 {
            return Err(Error::MissingKey { key: "tokenizer.ggml.tokens" });
        }
        for (key, len) in [
            ("tokenizer.ggml.scores", spec.scores.as_ref().map(Vec::len)),
            ("tokenizer.ggml.token_type", spec.types.as_ref().map(Vec::len)),
        ] {
            if let Some(len) = len.filter(|&len| len != count) {
                return Err(Error::LengthMismatch { key, len, tokens: count });
            }
        }
        let texts: Vec<&[u8]> = spec.tokens.iter().map(Vec::as_slice).collect();
        let mut kinds: Vec<_> = match &spec.types {
            Some(types) => (types.iter().enumerate())
                .map(|(id, &value)| TokenKind::from_gguf(id, value))
                .collect::<Result<_, _>>()?,
            None => guess_kinds(spec, &texts),
        };
        // Some files have the end of a turn as text, and any user could end one then.
        for (text, kind) in texts.iter().zip(&mut kinds) {
            if *kind == TokenKind::UserDefined && eog::is_end(text) {
                *kind = TokenKind::Control;
            }
        }
        Ok(Self { texts, kinds })
    }

    /// Ids and texts of the tokens of `kind`.
    pub(crate) fn of_kind(&self, kind: TokenKind) -> impl Iterator<Item = (u32, &'s str)> + '_ {
        self.iter().filter(move |t| t.2 == kind).map(|(id, text, _)| (id, text))
    }

    /// The tokens that are UTF-8. What is not can be matched only as a special token
    /// (see [`bytes`](Self::bytes)) and otherwise only be decoded.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &'s str, TokenKind)> + '_ {
        self.bytes().filter_map(|(id, text, kind)| Some((id, str::from_utf8(text).ok()?, kind)))
    }

    /// All tokens.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = (u32, &'s [u8], TokenKind)> + '_ {
        self.texts.iter().zip(&self.kinds).zip(0..).map(|((&text, &kind), id)| (id, text, kind))
    }
}

/// Kinds for a file without `token_type`: what the metadata gives a role is no text.
fn guess_kinds(spec: &VocabSpec, texts: &[&[u8]]) -> Vec<TokenKind> {
    let mut kinds: Vec<_> = texts
        .iter()
        .map(|text| match spec.model {
            VocabModel::ByteLevelBpe | VocabModel::WordPiece => TokenKind::Normal,
            _ if spm::parse_byte(text).is_some() => TokenKind::Byte,
            _ => TokenKind::Normal,
        })
        .collect();
    let control = [spec.bos, spec.eos, spec.eot, spec.eom, spec.pad, spec.sep, spec.mask];
    for (id, kind) in (control.into_iter().map(|id| (id, TokenKind::Control)))
        .chain([(spec.unk, TokenKind::Unknown)])
    {
        // An id out of range gets its own error later.
        if let Some(slot) = id.and_then(|id| kinds.get_mut(id as usize)) {
            *slot = kind;
        }
    }
    kinds
}

/// The finished vocabulary: bytes and kind of every token.
#[derive(Debug)]
pub(crate) struct Vocab {
    /// The bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Where each token ends in `bytes`.
    ends: Vec<usize>,
    kinds: Vec<TokenKind>,
    /// All ids in the order of their bytes; of equal ones that which `id_of` should give is first.
    by_bytes: Vec<u32>,
}

impl Vocab {
    pub(crate) fn new(model: VocabModel, tokens: &Tokens<'_>) -> Result<Self, Error> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(tokens.texts.len()));
        for (id, text, kind) in tokens.bytes() {
            match model {
                VocabModel::ByteLevelBpe => push_byte_level(text, kind, &mut bytes),
                VocabModel::SentencePiece
                | VocabModel::SentencePieceMerges
                | VocabModel::WordPiece
                | VocabModel::Unigram => spm::push_bytes(id as usize, text, kind, &mut bytes)?,
            }
            ends.push(bytes.len());
        }
        let mut vocab = Self { bytes, ends, kinds: tokens.kinds.clone(), by_bytes: Vec::new() };
        let mut order: Vec<u32> = tokens.bytes().map(|t| t.0).collect();
        order.sort_by_key(|&id| (vocab.bytes_at(id as usize), vocab.is_byte(id), id));
        vocab.by_bytes = order;
        Ok(vocab)
    }

    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        ((id as usize) < self.len()).then(|| self.bytes_at(id as usize))
    }

    pub(crate) fn id_of(&self, bytes: &[u8]) -> Option<u32> {
        let at = self.by_bytes.partition_point(|&id| self.bytes_at(id as usize) < bytes);
        self.by_bytes.get(at).copied().filter(|&id| self.bytes_at(id as usize) == bytes)
    }

    fn bytes_at(&self, id: usize) -> &[u8] {
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[id]]
    }

    fn is_byte(&self, id: u32) -> bool {
        self.kinds[id as usize] == TokenKind::Byte
    }
}

/// Only normal tokens are written in the alphabet of bytes. A normal token with other characters
/// in it can never come out of a merge (text is encoded in the alphabet), but a model may still
/// emit it: it stands for its own text.
fn push_byte_level(text: &[u8], kind: TokenKind, out: &mut Vec<u8>) {
    match (kind, str::from_utf8(text).ok().and_then(alphabet::decode)) {
        (TokenKind::Normal, Some(bytes)) => out.extend(bytes),
        _ => out.extend(text),
    }
}
