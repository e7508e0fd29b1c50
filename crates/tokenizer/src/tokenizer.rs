//! The tokenizer: text to ids and back, with the model's rules for BOS, EOS and special tokens.

use std::borrow::Cow;
use std::fmt;

use crate::bpe::ByteLevel;
use crate::decode::{DecodeOptions, Decoder};
use crate::spec::{VocabModel, VocabSpec};
use crate::special::{Piece, Specials};
use crate::spm::Spm;
use crate::vocab::{TokenKind, Tokens, Vocab};
use crate::{Error, eog};

/// How [`Tokenizer::encode`] treats a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Add BOS and EOS where the model wants them. A BOS or EOS that the text already has at that
    /// end is not doubled.
    pub add_special: bool,
    /// Take `<|im_end|>` and other control tokens in the text for what they say. For templates and
    /// trusted prompts; what a user wrote goes in without.
    pub parse_special: bool,
}

enum Model {
    ByteLevel(ByteLevel),
    Spm(Spm),
}

/// A model's vocabulary and the rules that go with it. Shared between threads as it is.
pub struct Tokenizer {
    vocab: Vocab,
    model: Model,
    specials: Specials,
    bos: Option<u32>,
    eos: Option<u32>,
    pad: Option<u32>,
    /// BOS if text begins with it.
    prepend: Option<u32>,
    /// EOS if text ends with it.
    append: Option<u32>,
    eog: Vec<u32>,
}

impl Tokenizer {
    /// Builds the tokenizer of a model file. Takes some tenths of a second for 150,000 tokens.
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
                let model = ByteLevel::new(&spec, &tokens)?;
                let adds_bos = model.pre.scheme.add_bos;
                (Model::ByteLevel(model), adds_bos)
            }
            VocabModel::SentencePiece => (Model::Spm(Spm::new(&spec, &tokens, roles.unk)?), true),
        };
        let prepend =
            role_if(spec.add_bos.unwrap_or(adds_bos), roles.bos, "tokenizer.ggml.bos_token_id")?;
        let append =
            role_if(spec.add_eos.unwrap_or(false), roles.eos, "tokenizer.ggml.eos_token_id")?;
        Ok(Self {
            specials: specials(spec.model, &tokens)?,
            eog: eog::ids(&spec, &tokens, roles.eos),
            vocab,
            model,
            bos: roles.bos,
            eos: roles.eos,
            pad: spec.pad,
            prepend,
            append,
        })
    }

    /// The ids of `text`. Any text can be encoded; the empty one gives no ids but BOS and EOS.
    pub fn encode(&self, text: &str, opts: EncodeOptions) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        let text = match &self.model {
            Model::ByteLevel(_) => Cow::Borrowed(text),
            Model::Spm(_) => Spm::escape(text),
        };
        if opts.parse_special {
            for piece in self.specials.split_control(&text) {
                match piece {
                    Piece::Text(text) => self.encode_text(text, &mut ids)?,
                    Piece::Token(id) => ids.push(id),
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
    fn encode_text(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), Error> {
        let text = match &self.model {
            Model::Spm(model) if model.adds_space() => Spm::with_prefix(text),
            _ => Cow::Borrowed(text),
        };
        for piece in self.specials.split_user(&text) {
            match (piece, &self.model) {
                (Piece::Token(id), _) => ids.push(id),
                (Piece::Text(text), Model::ByteLevel(model)) => model.encode(text, ids)?,
                (Piece::Text(text), Model::Spm(model)) => model.encode(text, ids)?,
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
        matches!(&self.model, Model::Spm(model) if model.adds_space())
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = match self.model {
            Model::ByteLevel(_) => VocabModel::ByteLevelBpe,
            Model::Spm(_) => VocabModel::SentencePiece,
        };
        f.debug_struct("Tokenizer")
            .field("model", &model)
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
        ] {
            if let Some(id) = id.filter(|&id| id as usize >= tokens.texts.len()) {
                return Err(Error::IdOutOfRange { key, id, tokens: tokens.texts.len() });
            }
        }
        // SentencePiece fixes the first three ids unless told otherwise, and files may leave the
        // keys out.
        let usual = |id: u32, kind| {
            (spec.model == VocabModel::SentencePiece
                && tokens.kinds.get(id as usize) == Some(&kind))
            .then_some(id)
        };
        Ok(Self {
            bos: spec.bos.or_else(|| usual(1, TokenKind::Control)),
            eos: spec.eos.or_else(|| usual(2, TokenKind::Control)),
            unk: spec.unk.or_else(|| usual(0, TokenKind::Unknown)),
        })
    }
}

/// `id` if it is wanted; an error that names `key` if it is wanted and not there.
fn role_if(wanted: bool, id: Option<u32>, key: &'static str) -> Result<Option<u32>, Error> {
    if wanted { id.ok_or(Error::MissingKey { key }).map(Some) } else { Ok(None) }
}

/// The matcher for tokens in text, which SentencePiece sees escaped.
fn specials(model: VocabModel, tokens: &Tokens<'_>) -> Result<Specials, Error> {
    let form = |text| match model {
        VocabModel::ByteLevelBpe => Cow::Borrowed(text),
        VocabModel::SentencePiece => Spm::escape(text),
    };
    let (mut user, mut control) = (Vec::new(), Vec::new());
    for (id, text, kind) in tokens.iter() {
        match kind {
            TokenKind::UserDefined => user.push((form(text), id)),
            kind if kind.is_special() => control.push((form(text), id)),
            _ => {}
        }
    }
    Specials::new(&user, &control)
}
