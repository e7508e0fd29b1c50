//! Tokens as the bytes they stand for, their kinds, and the way back from bytes to ids.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

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

/// The finished vocabulary: bytes and kind of every token, and the way back from bytes.
#[derive(Debug)]
pub(crate) struct Vocab {
    /// The bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Where each token ends in `bytes`.
    ends: Vec<usize>,
    kinds: Vec<TokenKind>,
    hasher: DefaultHashBuilder,
    /// What text may become, and all others; of equal ones that which is to be found.
    texts: HashTable<u32>,
    others: HashTable<u32>,
}

impl Vocab {
    pub(crate) fn new(model: VocabModel, tokens: &Tokens<'_>) -> Result<Self, Error> {
        let count = tokens.texts.len();
        let room = tokens.texts.iter().map(|text| text.len()).sum();
        let (mut bytes, mut ends) = (Vec::with_capacity(room), Vec::with_capacity(count));
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
        let mut vocab = Self {
            bytes,
            ends,
            kinds: tokens.kinds.clone(),
            hasher: DefaultHashBuilder::default(),
            texts: HashTable::with_capacity(count),
            others: HashTable::new(),
        };
        let mut others = Vec::new();
        for (id, text, kind) in tokens.bytes() {
            let is_text = match model {
                VocabModel::SentencePiece => kind == TokenKind::Normal,
                // What is written otherwise than the text that it stands for comes out of no merge.
                VocabModel::ByteLevelBpe => {
                    !kind.is_special() && alphabet::stands_for(text, vocab.bytes_at(id as usize))
                }
                _ => !kind.is_special() && kind != TokenKind::Byte,
            };
            let is_text = is_text && !text.is_empty();
            if is_text && str::from_utf8(text).is_ok() {
                vocab.insert(id, true);
            } else {
                others.push(id);
            }
        }
        others.sort_by_key(|&id| vocab.is_byte(id));
        others.into_iter().for_each(|id| vocab.insert(id, false));
        Ok(vocab)
    }

    /// Enters a token unless there is one of the same bytes.
    fn insert(&mut self, id: u32, is_text: bool) {
        let Self { bytes, ends, hasher, texts, others, .. } = self;
        let at = |id: u32| slice(bytes, ends, id as usize);
        let table = if is_text { texts } else { others };
        let own = at(id);
        let hash = hasher.hash_one(own);
        if table.find(hash, |&other| at(other) == own).is_none() {
            table.insert_unique(hash, id, |&other| hasher.hash_one(at(other)));
        }
    }

    /// The token that text of these bytes may become.
    pub(crate) fn text(&self, bytes: &[u8]) -> Option<u32> {
        self.find(&self.texts, bytes)
    }

    fn find(&self, table: &HashTable<u32>, bytes: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(bytes);
        table.find(hash, |&id| self.bytes_at(id as usize) == bytes).copied()
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
        let (text, other) = (self.text(bytes), self.find(&self.others, bytes));
        // Of several the first, and one that stands for a byte only if there is no other.
        text.into_iter().chain(other).min_by_key(|&id| (self.is_byte(id), id))
    }

    fn bytes_at(&self, id: usize) -> &[u8] {
        slice(&self.bytes, &self.ends, id)
    }

    fn is_byte(&self, id: u32) -> bool {
        self.kinds[id as usize] == TokenKind::Byte
    }
}

fn slice<'v>(bytes: &'v [u8], ends: &[usize], id: usize) -> &'v [u8] {
    let start = id.checked_sub(1).map_or(0, |before| ends[before]);
    &bytes[start..ends[id]]
}

/// Only normal tokens are written in the alphabet of bytes. A normal token with other characters
/// in it can never come out of a merge (text is encoded in the alphabet), but a model may still
/// emit it: it stands for its own text.
fn push_byte_level(text: &[u8], kind: TokenKind, out: &mut Vec<u8>) {
    if kind != TokenKind::Normal || !alphabet::push_decoded(text, out) {
        out.extend(text);
    }
}
