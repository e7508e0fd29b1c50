//! A vocabulary as plain data: what GGUF's `tokenizer.ggml.*` keys say, before anything is built.

use crate::Error;

/// Kinds of vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VocabModel {
    /// `gpt2`: byte-level BPE with a list of merges; tokens are text in the alphabet of bytes.
    ByteLevelBpe,
    /// `llama`: SentencePiece BPE; merges follow from the scores, `▁` is a space, unknown
    /// characters become byte tokens.
    SentencePiece,
}

/// All that a [`Tokenizer`](crate::Tokenizer) is made of. Nothing in it is checked yet.
#[derive(Debug, Clone)]
pub struct VocabSpec {
    /// Kind of vocabulary (`tokenizer.ggml.model`).
    pub model: VocabModel,
    /// Name of the way text is cut into words (`.pre`); byte-level BPE needs it.
    pub pre: Option<String>,
    /// Tokens in their stored form (`.tokens`); the index is the id.
    pub tokens: Vec<Vec<u8>>,
    /// Score per token, higher merges first (`.scores`); SentencePiece needs it.
    pub scores: Option<Vec<f32>>,
    /// Type per token, 1 to 6 (`.token_type`): normal, unknown, control, user-defined, unused, byte.
    pub types: Option<Vec<i32>>,
    /// Merges in order of rank, each `left right` (`.merges`); byte-level BPE needs it.
    pub merges: Option<Vec<Vec<u8>>>,
    /// Begin of sequence (`.bos_token_id`).
    pub bos: Option<u32>,
    /// End of sequence (`.eos_token_id`).
    pub eos: Option<u32>,
    /// End of turn (`.eot_token_id`).
    pub eot: Option<u32>,
    /// End of message, to wait for a tool (`.eom_token_id`).
    pub eom: Option<u32>,
    /// Unknown token (`.unknown_token_id`).
    pub unk: Option<u32>,
    /// Padding (`.padding_token_id`).
    pub pad: Option<u32>,
    /// Whether text begins with BOS (`.add_bos_token`); otherwise the model's default.
    pub add_bos: Option<bool>,
    /// Whether text ends with EOS (`.add_eos_token`); otherwise no.
    pub add_eos: Option<bool>,
    /// Whether text begins with a space of its own (`.add_space_prefix`); SentencePiece only,
    /// otherwise yes.
    pub add_space_prefix: Option<bool>,
}

impl VocabSpec {
    /// A vocabulary of `tokens` with every optional part absent.
    pub fn new(model: VocabModel, tokens: Vec<Vec<u8>>) -> Self {
        Self {
            model,
            pre: None,
            tokens,
            scores: None,
            types: None,
            merges: None,
            bos: None,
            eos: None,
            eot: None,
            eom: None,
            unk: None,
            pad: None,
            add_bos: None,
            add_eos: None,
            add_space_prefix: None,
        }
    }
}

/// Reading the keys of a GGUF file.
impl VocabSpec {
    /// The vocabulary of a model file. Only the keys and their types are checked here.
    pub fn from_gguf(meta: &gguf::Metadata<'_>) -> Result<Self, Error> {
        let missing = |key| Error::MissingKey { key };
        let model_key = "tokenizer.ggml.model";
        let model = match meta.opt_str(model_key)?.ok_or(missing(model_key))? {
            "gpt2" => VocabModel::ByteLevelBpe,
            "llama" => VocabModel::SentencePiece,
            model => return Err(Error::UnsupportedModel { model: model.to_owned() }),
        };
        let strings = |key| -> Result<Option<Vec<Vec<u8>>>, Error> {
            Ok(meta.opt_strings(key)?.map(|s| s.map(<[u8]>::to_vec).collect()))
        };
        let tokens_key = "tokenizer.ggml.tokens";
        Ok(Self {
            model,
            pre: meta.opt_str("tokenizer.ggml.pre")?.map(str::to_owned),
            tokens: strings(tokens_key)?.ok_or(missing(tokens_key))?,
            scores: meta.opt_f32s("tokenizer.ggml.scores")?,
            types: meta.opt_i32s("tokenizer.ggml.token_type")?,
            merges: strings("tokenizer.ggml.merges")?,
            bos: meta.opt_u32("tokenizer.ggml.bos_token_id")?,
            eos: meta.opt_u32("tokenizer.ggml.eos_token_id")?,
            eot: meta.opt_u32("tokenizer.ggml.eot_token_id")?,
            eom: meta.opt_u32("tokenizer.ggml.eom_token_id")?,
            unk: meta.opt_u32("tokenizer.ggml.unknown_token_id")?,
            pad: meta.opt_u32("tokenizer.ggml.padding_token_id")?,
            add_bos: meta.opt_bool("tokenizer.ggml.add_bos_token")?,
            add_eos: meta.opt_bool("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: meta.opt_bool("tokenizer.ggml.add_space_prefix")?,
        })
    }
}
