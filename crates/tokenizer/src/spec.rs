//! A vocabulary as plain data: what GGUF's `tokenizer.ggml.*` keys say, before anything is built.

use crate::Error;
use crate::fim::FimTokens;

/// Kinds of vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VocabModel {
    /// `gpt2`: byte-level BPE with a list of merges; tokens are text in the alphabet of bytes.
    ByteLevelBpe,
    /// `llama`: SentencePiece BPE; merges follow from the scores, `▁` is a space, unknown
    /// characters become byte tokens.
    SentencePiece,
    /// `gemma4`: the same with a list of merges instead of scores. A few files say `gpt2` and tell
    /// by their `pre` that they are of this kind.
    SentencePieceMerges,
    /// `bert`: WordPiece; the longest token that fits, word by word. `▁` begins a word.
    WordPiece,
    /// `t5`: SentencePiece Unigram; the tokens with the best sum of scores.
    Unigram,
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
    /// Between two texts, and at the end with WordPiece (`.seperator_token_id`, spelt so).
    pub sep: Option<u32>,
    /// In place of a word to guess (`.mask_token_id`).
    pub mask: Option<u32>,
    /// For code with a gap (`.fim_pre_token_id` and others).
    pub fim: FimTokens,
    /// Whether text begins with BOS (`.add_bos_token`); otherwise the model's default.
    pub add_bos: Option<bool>,
    /// Whether text ends with EOS (`.add_eos_token`); otherwise no.
    pub add_eos: Option<bool>,
    /// Whether a separator stands behind the end of a pair's first text (`.add_sep_token`); otherwise it does, but
    /// for WordPiece.
    pub add_sep: Option<bool>,
    /// Whether text begins with a space of its own (`.add_space_prefix`); SentencePiece only,
    /// otherwise yes, with merges no.
    pub add_space_prefix: Option<bool>,
    /// Whether runs of spaces count as one and those at the ends as none
    /// (`.remove_extra_whitespaces`); Unigram only, otherwise no.
    pub remove_extra_spaces: Option<bool>,
    /// SentencePiece's table of characters to replace (`.precompiled_charsmap`); Unigram only.
    pub charsmap: Option<Vec<u8>>,
    /// Whether text is put in lower case (`.normalizer.lowercase`); WordPiece only, otherwise yes.
    pub lowercase: Option<bool>,
    /// Whether accents are dropped (`.normalizer.strip_accents`); WordPiece only, otherwise as
    /// `lowercase`.
    pub strip_accents: Option<bool>,
    /// Whether white space after a control token goes with the token. Not in GGUF: Phi-3's
    /// vocabulary is like that.
    pub strip_after_control: bool,
    /// Whether white space before the mask token goes with the token. Not in GGUF: some families
    /// of embedding models are like that.
    pub strip_before_mask: bool,
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
            sep: None,
            mask: None,
            fim: FimTokens::default(),
            add_bos: None,
            add_eos: None,
            add_sep: None,
            add_space_prefix: None,
            remove_extra_spaces: None,
            charsmap: None,
            lowercase: None,
            strip_accents: None,
            strip_after_control: false,
            strip_before_mask: false,
        }
    }

    /// A vocabulary that any text can be written in: an unknown token (0), a begin (1) and an end (2)
    /// of sequence, a token for each byte (3 to 258), and `more` with their types, from 259 on.
    pub fn of_bytes<'a>(more: impl IntoIterator<Item = (&'a str, i32)>) -> Self {
        let first = [("<unk>", 2), ("<s>", 3), ("</s>", 3)].map(|(t, ty)| (t.into(), ty));
        let bytes = (0..=255_u8).map(|byte| (format!("<0x{byte:02X}>").into_bytes(), 6));
        let more = more.into_iter().map(|(token, ty)| (token.into(), ty));
        let (tokens, types): (Vec<Vec<u8>>, Vec<i32>) =
            first.into_iter().chain(bytes).chain(more).unzip();
        Self {
            scores: Some((0..tokens.len()).map(|id| -(id as f32)).collect()),
            types: Some(types),
            unk: Some(0),
            bos: Some(1),
            eos: Some(2),
            add_space_prefix: Some(false),
            ..Self::new(VocabModel::SentencePiece, tokens)
        }
    }
}

/// Reading the keys of a GGUF file.
impl VocabSpec {
    /// The vocabulary of a model file. Only the keys and their types are checked here.
    pub fn from_gguf(meta: &gguf::Metadata<'_>) -> Result<Self, Error> {
        let missing = |key| Error::MissingKey { key };
        let model_key = "tokenizer.ggml.model";
        let pre = meta.opt_str("tokenizer.ggml.pre")?;
        let model = match meta.opt_str(model_key)?.ok_or(missing(model_key))? {
            "gpt2" if pre.is_some_and(|p| RAW_TEXT.contains(&p)) => VocabModel::SentencePieceMerges,
            "gpt2" => VocabModel::ByteLevelBpe,
            "llama" => VocabModel::SentencePiece,
            "gemma4" => VocabModel::SentencePieceMerges,
            "bert" => VocabModel::WordPiece,
            "t5" => VocabModel::Unigram,
            model => return Err(Error::UnsupportedModel { model: model.to_owned() }),
        };
        let strings = |key| -> Result<Option<Vec<Vec<u8>>>, Error> {
            Ok(meta.opt_strings(key)?.map(|s| s.map(<[u8]>::to_vec).collect()))
        };
        let charsmap = match meta.opt_array("tokenizer.ggml.precompiled_charsmap")? {
            Some(array) => Some(
                charsmap_bytes(&array)
                    .ok_or(Error::BadCharsmap { fault: "is not an array of bytes" })?,
            ),
            None => None,
        };
        let arch = meta.opt_bytes("general.architecture")?.unwrap_or_default();
        let is_phi3 = model == VocabModel::SentencePiece && arch == b"phi3";
        let strip_before_mask = pre.is_some_and(|p| SPACELESS_MASK.0.contains(&p))
            || SPACELESS_MASK.1.iter().any(|a| a.as_bytes() == arch);
        let tokens_key = "tokenizer.ggml.tokens";
        Ok(Self {
            model,
            pre: pre.map(str::to_owned),
            tokens: strings(tokens_key)?.ok_or(missing(tokens_key))?,
            scores: meta.opt_f32s("tokenizer.ggml.scores")?,
            types: meta.opt_i32s("tokenizer.ggml.token_type")?,
            merges: strings("tokenizer.ggml.merges")?,
            bos: first_of(meta, &["tokenizer.ggml.bos_token_id", "tokenizer.ggml.cls_token_id"])?,
            eos: meta.opt_u32("tokenizer.ggml.eos_token_id")?,
            eot: meta.opt_u32("tokenizer.ggml.eot_token_id")?,
            eom: meta.opt_u32("tokenizer.ggml.eom_token_id")?,
            unk: meta.opt_u32("tokenizer.ggml.unknown_token_id")?,
            pad: meta.opt_u32("tokenizer.ggml.padding_token_id")?,
            sep: meta.opt_u32("tokenizer.ggml.seperator_token_id")?,
            mask: meta.opt_u32("tokenizer.ggml.mask_token_id")?,
            fim: FimTokens::from_gguf(meta)?,
            add_bos: meta.opt_bool("tokenizer.ggml.add_bos_token")?,
            add_eos: meta.opt_bool("tokenizer.ggml.add_eos_token")?,
            add_sep: meta.opt_bool("tokenizer.ggml.add_sep_token")?,
            add_space_prefix: meta.opt_bool("tokenizer.ggml.add_space_prefix")?,
            remove_extra_spaces: meta.opt_bool("tokenizer.ggml.remove_extra_whitespaces")?,
            charsmap,
            lowercase: meta.opt_bool("tokenizer.ggml.normalizer.lowercase")?,
            strip_accents: meta.opt_bool("tokenizer.ggml.normalizer.strip_accents")?,
            strip_after_control: is_phi3,
            strip_before_mask,
        })
    }
}

/// Values of `tokenizer.ggml.pre` that name a vocabulary of raw text with merges.
const RAW_TEXT: &[&str] = &["gemma4", "granite-embed-multi-311m", "sarvam-moe"];

/// Values of `tokenizer.ggml.pre`, and architectures, whose mask token takes the white space before
/// it (`lstrip` in their published vocabularies).
const SPACELESS_MASK: (&[&str], &[&str]) = (
    &["jina-v2-de", "jina-v2-es", "jina-v2-code"],
    &["nomic-bert-moe", "jina-bert-v3", "modern-bert"],
);

/// The value of the first of `keys` that is there.
pub(crate) fn first_of(meta: &gguf::Metadata<'_>, keys: &[&str]) -> Result<Option<u32>, Error> {
    for key in keys {
        if let Some(id) = meta.opt_u32(key)? {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Files store it as signed or unsigned bytes.
fn charsmap_bytes(array: &gguf::Array<'_>) -> Option<Vec<u8>> {
    let byte = |v: i128| u8::try_from(v).or_else(|_| i8::try_from(v).map(i8::cast_unsigned)).ok();
    array.ints()?.map(byte).collect()
}
