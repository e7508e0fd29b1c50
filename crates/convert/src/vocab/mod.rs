//! The vocabulary of a folder, under GGUF's keys.

mod bpe;
mod coded;
mod model;
mod pre;
mod special;
mod spm;
mod unigram;
mod words;

use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::folder::Folder;
use bpe::TokenizerJson;
use gguf::OwnedValue;
use serde_json::Value;
use special::{NAMED, Special};

/// Which of the folder's files a family's vocabulary is in, and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Byte-level BPE, in tokenizer.json.
    Bpe,
    /// The same, its size a multiple of this number where layers have states.
    Padded(usize),
    /// tokenizer.model alone.
    SentencePiece,
    /// tokenizer.model, or byte-level BPE.
    SentencePieceOrBpe,
    /// tokenizer.model, or SentencePiece's rules in tokenizer.json, or byte-level BPE.
    Llama,
    Gemma,
    Gemma2,
    /// tokenizer.model, or tokenizer.json.
    Gemma3,
    /// SentencePiece's rules with merges.
    Gemma4,
    /// tokenizer.model with the added tokens of tokenizer.json; of Phi-4 byte-level BPE.
    Phi,
    Ernie,
    /// tokenizer.model, whose first tokens are padding and what stands for the unknown.
    Nemotron,
    /// tokenizer.model, of which few tokens are as in others.
    InternLm,
    /// Byte-level BPE whose end is told apart from that of a turn.
    Hunyuan,
    /// Byte-level BPE, or tokenizer.model of ChatGLM 3.
    ChatGlm,
    /// Words and their ends, in tokenizer.json or vocab.txt.
    WordPiece,
    /// The same, or SentencePiece's Unigram with a token for what is masked.
    WordPieceOrUnigram,
    /// The same, or byte-level BPE.
    WordPieceOrBpe,
    /// Byte-level BPE of a model that reads pairs of texts.
    BpeOfPairs,
    /// The same of one that reads texts with both their ends.
    BpeOfTexts,
    /// SentencePiece's Unigram, in sentencepiece.bpe.model or tokenizer.json.
    Unigram {
        /// Whether the first has a token for what is masked.
        mask: bool,
    },
    /// The same in spiece.model, tokenizer.model or tokenizer.json, of texts that have an end and no beginning.
    T5,
    /// Byte-level BPE whose control tokens have roles of GLM-4.
    Glm4,
    /// The same of GLM-4.5 and later.
    Glm,
}

/// Types of tokens.
mod ty {
    pub(super) const NORMAL: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const USER_DEFINED: i32 = 4;
    pub(super) const UNUSED: i32 = 5;
    pub(super) const BYTE: i32 = 6;
}

/// Tokens in order, with what GGUF says of each.
#[derive(Debug, Default)]
struct Tokens {
    texts: Vec<Vec<u8>>,
    types: Vec<i32>,
    /// Empty, if there are none.
    scores: Vec<f32>,
}

impl Tokens {
    /// So many places that nothing is in.
    fn unused(count: usize, score: Option<f32>) -> Tokens {
        Tokens {
            texts: (0..count).map(|i| format!("[PAD{i}]").into_bytes()).collect(),
            types: vec![ty::UNUSED; count],
            scores: score.map(|score| vec![score; count]).unwrap_or_default(),
        }
    }
}

/// What the folder says besides, for all kinds.
struct Files<'a> {
    folder: &'a Folder,
    config: &'a Config,
    /// tokenizer_config.json.
    told: Option<Value>,
    pre: &'a [&'a str],
    /// The name for `tokenizer.ggml.pre` that the caller gives.
    pre_given: Option<&'a str>,
}

/// Adds the vocabulary to the metadata.
pub(crate) fn add(
    draft: &mut Draft<'_>,
    folder: &Folder,
    kind: Kind,
    pre: &[&str],
    pre_given: Option<&str>,
) -> Result<Vec<String>, Error> {
    let config = draft.config;
    let told = folder.json("tokenizer_config.json")?;
    let files = Files { folder, config, told, pre, pre_given };
    let mut notes = Vec::new();
    match kind {
        Kind::Bpe => byte_level(draft, &files, config.opt_size(&["vocab_size"])?, &mut notes)?,
        Kind::Padded(multiple) => {
            let multiple = if draft.has(&format!("{}.ssm.conv_kernel", draft.arch))
                && matches!(draft.arch, "granitehybrid" | "nemotron_h" | "nemotron_h_moe")
            {
                multiple
            } else {
                1
            };
            let size = config.vocab_size()?;
            let size = size.checked_next_multiple_of(multiple).unwrap_or(size);
            if files.has("tokenizer.model") && !draft.arch.starts_with("nemotron") {
                sentencepiece(draft, &files, Some(size))?;
            } else {
                byte_level(draft, &files, Some(size), &mut notes)?;
            }
        }
        Kind::SentencePiece => sentencepiece(draft, &files, config.opt_size(&["vocab_size"])?)?,
        Kind::SentencePieceOrBpe if files.has("tokenizer.model") => {
            sentencepiece(draft, &files, config.opt_size(&["vocab_size"])?)?;
        }
        Kind::SentencePieceOrBpe => {
            byte_level(draft, &files, config.opt_size(&["vocab_size"])?, &mut notes)?;
        }
        Kind::Llama => llama(draft, &files, &mut notes)?,
        Kind::Gemma | Kind::Gemma2 => {
            sentencepiece(draft, &files, config.opt_size(&["vocab_size"])?)?;
            draft.general("tokenizer.ggml.add_space_prefix", false);
            if kind == Kind::Gemma {
                // Of CodeGemma; the others have the same tokens there.
                draft.general(special::key("eot"), 107_u32);
            }
        }
        Kind::Gemma3 if files.has("tokenizer.model") => {
            sentencepiece(draft, &files, config.opt_size(&["vocab_size"])?)?;
            draft.general("tokenizer.ggml.add_space_prefix", false);
        }
        Kind::Gemma3 => byte_level(draft, &files, config.opt_size(&["vocab_size"])?, &mut notes)?,
        Kind::Gemma4 => gemma4(draft, &files)?,
        Kind::Phi => phi(draft, &files, &mut notes)?,
        Kind::Ernie => {
            sentencepiece(draft, &files, config.opt_size(&["vocab_size"])?)?;
            space_prefix(draft, &files);
        }
        Kind::Nemotron => {
            sentencepiece(draft, &files, config.opt_size(&["vocab_size"])?)?;
            draft.general(special::key("pad"), 0u32);
            draft.general(special::key("unk"), 1u32);
        }
        Kind::InternLm => coded::internlm(draft, &files)?,
        Kind::Hunyuan => coded::hunyuan(draft, &files, &mut notes)?,
        Kind::ChatGlm if files.has("tokenizer.json") || !files.has("tokenizer.model") => roles(
            draft,
            &files,
            &[("eos", "<|endoftext|>"), ("eot", "<|user|>"), ("unk", "<|endoftext|>")],
            &mut notes,
        )?,
        Kind::ChatGlm => coded::chatglm(draft, &files)?,
        Kind::WordPiece => words::add(draft, &files)?,
        Kind::WordPieceOrUnigram if words::are_in(&files)? => words::add(draft, &files)?,
        Kind::WordPieceOrUnigram => unigram::add(draft, &files, true)?,
        Kind::WordPieceOrBpe if words::are_in(&files)? => words::add(draft, &files)?,
        Kind::WordPieceOrBpe | Kind::BpeOfPairs => {
            byte_level(draft, &files, config.opt_size(&["vocab_size"])?, &mut notes)?;
            let types = config.opt_size(&["type_vocab_size"])?.unwrap_or(1);
            draft.general("tokenizer.ggml.token_type_count", types as u32);
        }
        Kind::BpeOfTexts => {
            for end in ["bos", "eos", "sep"] {
                draft.general(format!("tokenizer.ggml.add_{end}_token"), true);
            }
            byte_level(draft, &files, config.opt_size(&["vocab_size"])?, &mut notes)?;
        }
        Kind::Unigram { mask } => unigram::add(draft, &files, mask)?,
        Kind::T5 => unigram::add_t5(draft, &files)?,
        Kind::Glm4 => roles(
            draft,
            &files,
            &[
                ("eos", "<|endoftext|>"),
                ("eot", "<|user|>"),
                ("unk", "<|endoftext|>"),
                ("bos", "<|endoftext|>"),
            ],
            &mut notes,
        )?,
        Kind::Glm => roles(
            draft,
            &files,
            &[
                ("bos", "[gMASK]"),
                ("eot", "<|user|>"),
                ("unk", "<|endoftext|>"),
                ("eom", "<|observation|>"),
            ],
            &mut notes,
        )?,
    }
    Ok(notes)
}

impl Files<'_> {
    fn has(&self, name: &str) -> bool {
        self.folder.path.join(name).is_file()
    }

    fn json(&self) -> Result<TokenizerJson, Error> {
        TokenizerJson::open(self.folder)
    }
}

fn put(draft: &mut Draft<'_>, model: &str, pre: Option<&str>, tokens: Tokens) {
    draft.general("tokenizer.ggml.model", model);
    if let Some(pre) = pre {
        draft.general("tokenizer.ggml.pre", pre);
    }
    draft.general("tokenizer.ggml.tokens", OwnedValue::strings(&tokens.texts));
    if !tokens.scores.is_empty() {
        draft.general("tokenizer.ggml.scores", tokens.scores);
    }
    draft.general("tokenizer.ggml.token_type", tokens.types);
}

fn byte_level(
    draft: &mut Draft<'_>,
    files: &Files<'_>,
    size: Option<usize>,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let json = files.json()?;
    let special = special_of_bytes(draft, files, &json, size, notes)?;
    special.put(draft);
    Ok(())
}

/// Tokens of byte-level BPE, and the special ones that are still to be put.
fn special_of_bytes(
    draft: &mut Draft<'_>,
    files: &Files<'_>,
    json: &TokenizerJson,
    size: Option<usize>,
    notes: &mut Vec<String>,
) -> Result<Special, Error> {
    let pre = match files.pre_given {
        Some(name) => pre::check(name)?,
        None => pre::name(json, files.pre, notes)?,
    };
    let tokens = json.byte_level(size, files.told.as_ref())?;
    put(draft, "gpt2", Some(pre), tokens);
    let merges = match json.merges()? {
        merges if merges.is_empty() => bpe::merges_txt(files.folder)?,
        merges => merges,
    };
    if merges.is_empty() {
        return Err(Error::vocabulary("tokenizer.json", "its model has no merges"));
    }
    draft.general("tokenizer.ggml.merges", OwnedValue::strings(&merges));
    Special::read(files.folder, files.told.clone(), None)
}

fn sentencepiece(
    draft: &mut Draft<'_>,
    files: &Files<'_>,
    size: Option<usize>,
) -> Result<(), Error> {
    let tokens = spm::tokens(files.folder, files.told.as_ref(), size)?;
    let count = tokens.texts.len();
    put(draft, "llama", Some("default"), tokens);
    Special::read(files.folder, files.told.clone(), Some(count))?.put(draft);
    Ok(())
}

fn space_prefix(draft: &mut Draft<'_>, files: &Files<'_>) {
    let told = files.told.as_ref().and_then(|told| told.get("add_prefix_space")?.as_bool());
    if let Some(prefix) = told {
        draft.general("tokenizer.ggml.add_space_prefix", prefix);
    }
}

fn llama(draft: &mut Draft<'_>, files: &Files<'_>, notes: &mut Vec<String>) -> Result<(), Error> {
    let size = files.config.opt_size(&["vocab_size"])?;
    space_prefix(draft, files);
    if files.has("tokenizer.model") {
        sentencepiece(draft, files, size)?;
    } else if !files.has("tokenizer.json") {
        let what = if files.has("tekken.json") {
            "tekken.json is not read: take a folder that has tokenizer.json as well"
        } else {
            "the folder has neither tokenizer.json nor tokenizer.model"
        };
        return Err(Error::vocabulary("tokenizer.json", what));
    } else {
        let json = files.json()?;
        match json.has_sentencepiece_rules() {
            true => {
                let mut tokens = json.sentencepiece(files.told.as_ref())?;
                json.rank(&mut tokens)?;
                let count = tokens.texts.len();
                put(draft, "llama", Some("default"), tokens);
                Special::read(files.folder, files.told.clone(), Some(count))?.put(draft);
            }
            false => byte_level(draft, files, size, notes)?,
        }
    }
    if size == Some(32016) {
        // CodeLlama.
        draft.general(special::key("eot"), 32010_u32);
    }
    if size == Some(49152) {
        draft.general("tokenizer.ggml.add_bos_token", false);
    }
    Ok(())
}

fn gemma4(draft: &mut Draft<'_>, files: &Files<'_>) -> Result<(), Error> {
    /// They are part of what a chat's parser reads.
    const VISIBLE: [&[u8]; 7] = [
        b"<|channel>",
        b"<channel|>",
        b"<|tool_call>",
        b"<tool_call|>",
        b"<|tool_response>",
        b"<tool_response|>",
        b"<|\"|>",
    ];
    let json = files.json()?;
    if !json.has_sentencepiece_rules() {
        let what = "it is not SentencePiece's rules in BPE, which Gemma 4 has";
        return Err(Error::vocabulary("tokenizer.json", what));
    }
    let mut tokens = json.sentencepiece(files.told.as_ref())?;
    for (text, kind) in tokens.texts.iter().zip(&mut tokens.types) {
        if VISIBLE.contains(&&**text) {
            *kind = ty::USER_DEFINED;
        }
    }
    put(draft, "gemma4", None, tokens);
    draft.general("tokenizer.ggml.merges", OwnedValue::strings(&json.merges()?));
    Special::read(files.folder, files.told.clone(), None)?.put(draft);
    draft.general("tokenizer.ggml.add_space_prefix", false);
    draft.general("tokenizer.ggml.add_bos_token", true);
    Ok(())
}

fn phi(draft: &mut Draft<'_>, files: &Files<'_>, notes: &mut Vec<String>) -> Result<(), Error> {
    let size = files.config.opt_size(&["vocab_size"])?;
    let class = files.told.as_ref().and_then(|told| told["tokenizer_class"].as_str());
    if class == Some("GPT2Tokenizer") || !files.has("tokenizer.model") {
        return byte_level(draft, files, size, notes);
    }
    let mut tokens = spm::tokens_as_told(files.folder, files.told.as_ref(), size)?;
    if files.has("tokenizer.json") {
        files.json()?.add_to(&mut tokens)?;
    }
    let count = tokens.texts.len();
    put(draft, "llama", Some("default"), tokens);
    Special::read(files.folder, files.told.clone(), Some(count))?.put(draft);
    Ok(())
}

/// Byte-level BPE with roles for tokens by their texts.
fn roles(
    draft: &mut Draft<'_>,
    files: &Files<'_>,
    roles: &[(&'static str, &str)],
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let json = files.json()?;
    let size = files.config.opt_size(&["vocab_size"])?;
    let mut special = special_of_bytes(draft, files, &json, size, notes)?;
    for &(role, text) in roles {
        let id = json.added(text).ok_or_else(|| {
            Error::vocabulary("tokenizer.json", format!("it has no added token {text:?}"))
        })?;
        special.give(role, id);
    }
    special.put(draft);
    Ok(())
}

/// The text of a token that may be written alone or with its properties.
fn text_of(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// Texts of the tokens that tokenizer_config.json gives a role.
fn named(told: Option<&Value>) -> Vec<String> {
    let Some(told) = told else { return Vec::new() };
    let one = NAMED.iter().filter_map(|role| text_of(told.get(format!("{role}_token"))?));
    let more = ["additional_special_tokens", "extra_special_tokens"];
    let more = more.iter().filter_map(|key| told.get(key));
    let more = more.flat_map(|value| match value {
        Value::Array(list) => list.iter().collect::<Vec<_>>(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    });
    one.chain(more.filter_map(text_of)).map(str::to_owned).collect()
}

/// Whether a token is one of structure, whatever the folder says of it.
fn looks_special(text: &str) -> bool {
    matches!(text, "<pad>" | "<mask>" | "<2mass>" | "[@BOS@]")
        || text.starts_with("<|") && text.ends_with("|>")
        || text.starts_with("<｜") && text.ends_with("｜>")
        || text.starts_with("<unused") && text.ends_with('>')
}
