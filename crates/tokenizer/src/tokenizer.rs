//! The tokenizer: text to ids and back, with the model's rules for BOS, EOS and special tokens.

use std::borrow::Cow;
use std::fmt;

use crate::bpe::ByteLevel;
use crate::decode::{DecodeOptions, Decoder};
use crate::escape::unescape;
use crate::fim::FimTokens;
use crate::spec::{VocabModel, VocabSpec};
use crate::special::{Piece, Specials};
use crate::spm::{self, Spm};
use crate::unigram::Unigram;
use crate::vocab::{TokenKind, Tokens, Vocab};
use crate::wordpiece::WordPiece;
use crate::{Error, eog};

/// How [`Tokenizer::encode`] treats a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Add BOS and EOS where the model wants them. A BOS or EOS that the text already has at that
    /// end is not doubled.
    pub add_special: bool,
    /// Take `<|im_end|>` and other control tokens in the text for what they say. For trusted prompts; text
    /// that a user wrote goes in without, and a template's by [`Tokenizer::encode_rendered`].
    pub parse_special: bool,
}

enum Model {
    ByteLevel(ByteLevel),
    Spm(Spm),
    WordPiece(WordPiece),
    Unigram(Unigram),
}

/// A model's vocabulary and the rules that go with it. Shared between threads as it is.
pub struct Tokenizer {
    pub(crate) kind: VocabModel,
    vocab: Vocab,
    model: Model,
    specials: Specials,
    bos: Option<u32>,
    eos: Option<u32>,
    pad: Option<u32>,
    fim: FimTokens,
    strip_after_control: bool,
    /// The mask token if it takes the white space before it.
    strip_before: Option<u32>,
    /// BOS if text begins with it.
    pub(crate) prepend: Option<u32>,
    /// EOS if text ends with it.
    pub(crate) append: Option<u32>,
    /// What stands between that and the second text of a pair.
    pub(crate) between: Option<u32>,
    eog: Vec<u32>,
}

impl Tokenizer {
    /// Builds the tokenizer of a model file, in less than a tenth of a second for 150,000 tokens.
    pub fn from_gguf(meta: &gguf::Metadata<'_>) -> Result<Self, Error> {
        Self::from_spec(VocabSpec::from_gguf(meta)?)
    }

    /// Builds a tokenizer and checks the vocabulary on the way; the error names the first fault.
    pub fn from_spec(spec: VocabSpec) -> Result<Self, Error> {
        let tokens = Tokens::new(&spec)?;
        let roles = Roles::new(&spec, &tokens)?;
        let vocab = Vocab::new(spec.model, &tokens)?;
        let (model, adds_bos) = match spec.model {
            VocabModel::ByteLevelBpe => {
                let model = ByteLevel::new(&spec, &tokens, &vocab)?;
                let adds_bos = model.pre.scheme.add_bos;
                (Model::ByteLevel(model), adds_bos)
            }
            VocabModel::SentencePiece | VocabModel::SentencePieceMerges => {
                (Model::Spm(Spm::new(&spec, &tokens, &vocab, roles.unk)?), true)
            }
            VocabModel::WordPiece => {
                (Model::WordPiece(WordPiece::new(&spec, &tokens, roles.unk)?), true)
            }
            VocabModel::Unigram => {
                (Model::Unigram(Unigram::new(&spec, &tokens, roles.unk)?), false)
            }
        };
        // Files of WordPiece may say that no separator is added: that is meant of pairs. A text has both its ends.
        let pieces = spec.model == VocabModel::WordPiece;
        let begins = pieces || spec.add_bos.unwrap_or(adds_bos);
        let prepend = role_if(begins, roles.bos, "tokenizer.ggml.bos_token_id")?;
        let append = match spec.model {
            VocabModel::WordPiece => role_if(true, spec.sep, "tokenizer.ggml.seperator_token_id")?,
            model => role_if(
                spec.add_eos.unwrap_or(model == VocabModel::Unigram),
                roles.eos,
                "tokenizer.ggml.eos_token_id",
            )?,
        };
        let between = spec.sep.or(append).filter(|_| !pieces && spec.add_sep.unwrap_or(true));
        let fim = spec.fim.found_in(&tokens);
        Ok(Self {
            specials: specials(spec.model, &tokens)?,
            eog: eog::ids(&spec, &tokens, roles.eos, &fim),
            kind: spec.model,
            vocab,
            model,
            bos: roles.bos,
            eos: roles.eos,
            pad: spec.pad,
            fim,
            strip_after_control: spec.strip_after_control,
            strip_before: spec.mask.filter(|_| spec.strip_before_mask),
            prepend,
            append,
            between,
        })
    }

    /// The ids of `text`. Any bytes can be encoded, UTF-8 or not; no bytes give no ids but BOS and
    /// EOS.
    pub fn encode(&self, text: impl AsRef<[u8]>, opts: EncodeOptions) -> Result<Vec<u32>, Error> {
        self.encode_escaped(text.as_ref(), None, opts)
    }

    /// The ids of a rendered prompt or a part of one, with the control tokens that are not escaped; `escape` is the
    /// prompt's (see [`Rendered`](crate::Rendered)). Escape characters have no ids.
    pub fn encode_rendered(
        &self,
        text: &str,
        escape: Option<char>,
        add_special: bool,
    ) -> Result<Vec<u32>, Error> {
        let opts = EncodeOptions { add_special, parse_special: true };
        self.encode_escaped(text.as_bytes(), escape, opts)
    }

    fn encode_escaped(
        &self,
        text: &[u8],
        escape: Option<char>,
        opts: EncodeOptions,
    ) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        let text = match &self.model {
            // To SentencePiece its sign for a space is one.
            Model::Spm(_) => Cow::Owned(spm::unescape(text)),
            _ => Cow::Borrowed(text),
        };
        if opts.parse_special {
            let mut after_control = false;
            let mut pieces = self.specials.split_control(&text, escape).peekable();
            while let Some(piece) = pieces.next() {
                match piece {
                    Piece::Text(text) => {
                        let plain = unescape(text, escape);
                        let mut text = &*plain;
                        if let Some(&Piece::Token(next)) = pieces.peek()
                            && self.strip_before == Some(next)
                        {
                            text = trim_end(text);
                        }
                        if after_control && self.strip_after_control {
                            text = trim_start(text);
                        }
                        self.encode_text(text, &mut ids)?;
                        after_control = false;
                    }
                    Piece::Token(id) => {
                        ids.push(id);
                        // Two of Phi-3's stand apart.
                        after_control = self.vocab.kind(id) == Some(TokenKind::Control)
                            && self.bos != Some(id)
                            && self.vocab.bytes(id) != Some(b"<|endoftext|>");
                    }
                }
            }
        } else {
            self.encode_text(&text, &mut ids)?;
        }
        if opts.add_special {
            if let Some(bos) = self.prepend.filter(|bos| ids.first() != Some(bos)) {
                ids.insert(0, bos);
            }
            if let Some(eos) = self.append.filter(|eos| ids.last() != Some(eos)) {
                ids.push(eos);
            }
        }
        Ok(ids)
    }

    /// Appends the ids of a text between control tokens.
    fn encode_text(&self, text: &[u8], ids: &mut Vec<u32>) -> Result<(), Error> {
        let text = match &self.model {
            Model::Spm(model) if model.adds_space() => Spm::with_prefix(text),
            _ => Cow::Borrowed(text),
        };
        for piece in self.specials.split_user(&text) {
            match (piece, &self.model) {
                (Piece::Token(id), _) => ids.push(id),
                (Piece::Text(text), Model::ByteLevel(model)) => {
                    model.encode(text, &self.vocab, ids);
                }
                (Piece::Text(text), Model::Spm(model)) => model.encode(text, &self.vocab, ids),
                (Piece::Text(text), Model::WordPiece(model)) => model.encode(text, ids)?,
                (Piece::Text(text), Model::Unigram(model)) => model.encode(text, ids),
            }
        }
        Ok(())
    }

    /// The text of `ids`, as a whole: the inverse of [`encode`](Self::encode). Bytes that are not
    /// UTF-8 and ids outside the vocabulary give U+FFFD.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut decoder = self.decoder(DecodeOptions { skip_special, ..Default::default() });
        let mut text = String::new();
        for &id in ids {
            text.push_str(decoder.push(id));
        }
        text.push_str(decoder.flush());
        text
    }

    /// The same as the bytes that the tokens stand for, whether they are UTF-8 or not.
    pub fn decode_bytes(&self, ids: &[u32], skip_special: bool) -> Vec<u8> {
        let mut drop_space = self.drops_leading_space();
        let mut bytes = Vec::new();
        for &id in ids.iter().filter(|&&id| !(skip_special && self.is_special(id))) {
            bytes.extend(self.shown(id, std::mem::take(&mut drop_space)));
        }
        bytes
    }

    /// The bytes that a token adds to a text.
    pub(crate) fn shown(&self, id: u32, drop_space: bool) -> &[u8] {
        let bytes = self.token_bytes(id).unwrap_or("\u{FFFD}".as_bytes());
        bytes.strip_prefix(b" ").filter(|_| drop_space).unwrap_or(bytes)
    }

    /// Decodes ids one at a time. For a decoder that outlives the borrow, give
    /// [`Decoder::new`] an `Arc<Tokenizer>`.
    pub fn decoder(&self, opts: DecodeOptions) -> Decoder<&Self> {
        Decoder::new(self, opts)
    }

    /// The bytes that a token stands for, spaces as spaces; a control token's are its name.
    /// `None` outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocab.bytes(id)
    }

    /// Bytes of text that one token takes at most, so that a text has as many tokens at least as its bytes have such
    /// pieces. `None` where a vocabulary leaves bytes out, or has a token for any unknown word.
    pub fn longest_token(&self) -> Option<usize> {
        // Three characters at most become one when they are composed, and `▁` is a space of three bytes.
        const COMPOSED: usize = 3;
        let strips = self.strip_after_control || self.strip_before.is_some();
        if strips || matches!(self.kind, VocabModel::WordPiece | VocabModel::Unigram) {
            return None;
        }
        let bytes = |id| self.token_bytes(id).map_or(0, <[u8]>::len);
        (0..self.vocab_size() as u32).map(bytes).max().map(|most| most * COMPOSED)
    }

    /// What a token is for; `None` outside the vocabulary.
    pub fn token_kind(&self, id: u32) -> Option<TokenKind> {
        self.vocab.kind(id)
    }

    /// The token that stands for exactly these bytes (see [`token_bytes`](Self::token_bytes)). Of
    /// several the one with the lowest id, and a byte token only if there is no other.
    pub fn token_to_id(&self, bytes: &[u8]) -> Option<u32> {
        self.vocab.id_of(bytes)
    }

    /// Number of tokens; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// Begin of sequence.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// End of sequence. Not the only token that ends an answer: see [`is_eog`](Self::is_eog).
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Padding.
    pub fn pad(&self) -> Option<u32> {
        self.pad
    }

    /// The tokens for fill-in-the-middle.
    pub fn fim(&self) -> &FimTokens {
        &self.fim
    }

    /// Whether a generation ends with this token.
    pub fn is_eog(&self, id: u32) -> bool {
        self.eog.binary_search(&id).is_ok()
    }

    /// The tokens that end a generation, in order.
    pub fn eog_ids(&self) -> &[u32] {
        &self.eog
    }

    /// Whether a token is structure (control or unknown) and not text.
    pub fn is_special(&self, id: u32) -> bool {
        self.vocab.kind(id).is_some_and(TokenKind::is_special)
    }

    /// Whether decoding a text from its beginning drops the space that encoding puts there.
    pub(crate) fn drops_leading_space(&self) -> bool {
        match &self.model {
            Model::ByteLevel(_) => false,
            Model::Spm(model) => model.adds_space(),
            Model::WordPiece(_) => true,
            Model::Unigram(model) => model.adds_space(),
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("model", &self.kind)
            .field("vocab_size", &self.vocab_size())
            .field("bos", &self.bos)
            .field("eog", &self.eog)
            .finish_non_exhaustive()
    }
}

/// Ids with a role, all inside the vocabulary.
struct Roles {
    bos: Option<u32>,
    eos: Option<u32>,
    unk: Option<u32>,
}

impl Roles {
    fn new(spec: &VocabSpec, tokens: &Tokens<'_>) -> Result<Self, Error> {
        for (key, id) in [
            ("tokenizer.ggml.bos_token_id", spec.bos),
            ("tokenizer.ggml.eos_token_id", spec.eos),
            ("tokenizer.ggml.eot_token_id", spec.eot),
            ("tokenizer.ggml.eom_token_id", spec.eom),
            ("tokenizer.ggml.unknown_token_id", spec.unk),
            ("tokenizer.ggml.padding_token_id", spec.pad),
            ("tokenizer.ggml.seperator_token_id", spec.sep),
            ("tokenizer.ggml.mask_token_id", spec.mask),
        ]
        .into_iter()
        .chain(spec.fim.keys())
        {
            if let Some(id) = id.filter(|&id| id as usize >= tokens.texts.len()) {
                return Err(Error::IdOutOfRange { key, id, tokens: tokens.texts.len() });
            }
        }
        // SentencePiece fixes the first three ids by default, and files may leave the
        // keys out.
        let usual = |id: u32, kind| {
            (spec.model == VocabModel::SentencePiece
                && tokens.kinds.get(id as usize) == Some(&kind))
            .then_some(id)
        };
        Ok(Self {
            bos: spec.bos.or_else(|| usual(1, TokenKind::Control)),
            eos: spec.eos.or_else(|| usual(2, TokenKind::Control)),
            unk: spec.unk.or_else(|| tokens.of_kind(TokenKind::Unknown).next().map(|t| t.0)),
        })
    }
}

/// `text` without the white space that it begins with.
fn trim_start(text: &[u8]) -> &[u8] {
    let valid = text.utf8_chunks().next().map_or("", |c| c.valid());
    &text[valid.len() - valid.trim_start_matches(|c: char| c == '▁' || c.is_whitespace()).len()..]
}

/// `text` without the white space that it ends with.
fn trim_end(text: &[u8]) -> &[u8] {
    let Some(last) = text.utf8_chunks().last().filter(|c| c.invalid().is_empty()) else {
        return text;
    };
    let kept = last.valid().trim_end_matches(|c: char| c == '▁' || c.is_whitespace()).len();
    &text[..text.len() - (last.valid().len() - kept)]
}

/// `id` if it is wanted; an error that names `key` if it is wanted and not there.
fn role_if(wanted: bool, id: Option<u32>, key: &'static str) -> Result<Option<u32>, Error> {
    if wanted { id.ok_or(Error::MissingKey { key }).map(Some) } else { Ok(None) }
}

/// The matcher for tokens in text.
fn specials(model: VocabModel, tokens: &Tokens<'_>) -> Result<Specials, Error> {
    let form = |text| match model {
        VocabModel::ByteLevelBpe => Cow::Borrowed(text),
        _ => Cow::Owned(spm::unescape(text)),
    };
    let (mut user, mut control) = (Vec::new(), Vec::new());
    for (id, text, kind) in tokens.bytes() {
        match kind {
            TokenKind::UserDefined => user.push((form(text), id)),
            kind if kind.is_special() => control.push((form(text), id)),
            _ => {}
        }
    }
    Specials::new(&user, &control)
}
