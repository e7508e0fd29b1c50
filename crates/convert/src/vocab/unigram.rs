//! SentencePiece's Unigram, as XLM-R has it: in `sentencepiece.bpe.model`, whose tokens the model counts from another
//! number, or in `tokenizer.json`; and as T5 has it.

use super::special::Special;
use super::spm::{NO_SCORE, kind_of};
use super::{Files, Tokens, model, named, put, text_of, ty};
use crate::draft::Draft;
use crate::error::Error;
use gguf::OwnedValue;
use serde_json::Value;

const MODEL: &str = "sentencepiece.bpe.model";
const JSON: &str = "tokenizer.json";

/// A vocabulary and its rules.
struct Vocabulary {
    tokens: Tokens,
    /// Characters that are replaced, as SentencePiece has compiled them.
    replaced: Vec<u8>,
    prefix: bool,
    trims: bool,
}

/// Adds it; with a token for what is masked, which the first of the files does not have.
pub(super) fn add(draft: &mut Draft<'_>, files: &Files<'_>, mask: bool) -> Result<(), Error> {
    let vocabulary = match files.folder.read(MODEL)? {
        Some(file) => of_model(files, &file, mask)?,
        None => of_json(files)?,
    };
    let count = vocabulary.tokens.texts.len();
    draft_of(draft, vocabulary);
    let types = files.config.opt_size(&["type_vocab_size"])?.unwrap_or(1);
    draft.general("tokenizer.ggml.token_type_count", types as u32);
    Special::read(files.folder, files.told.clone(), Some(count))?.put(draft);
    Ok(())
}

/// Adds that of T5, whose model's numbers are the tokens' own.
pub(super) fn add_t5(draft: &mut Draft<'_>, files: &Files<'_>) -> Result<(), Error> {
    let mut found = None;
    for name in ["tokenizer.model", "spiece.model"] {
        if found.is_none() {
            found = files.folder.read(name)?.map(|file| (name, file));
        }
    }
    let vocabulary = match &found {
        Some((name, file)) => of_pieces(files, name, file)?,
        // Words are cut at spaces there, which a file says so.
        None => Vocabulary { trims: true, ..of_json(files)? },
    };
    let count = vocabulary.tokens.texts.len();
    draft_of(draft, vocabulary);
    Special::read(files.folder, files.told.clone(), Some(count))?.put(draft);
    Ok(())
}

/// Pieces in their order, and tokens that are added to them.
fn of_pieces(files: &Files<'_>, name: &'static str, file: &[u8]) -> Result<Vocabulary, Error> {
    let rename = |e| match e {
        Error::Vocabulary { what, .. } => Error::vocabulary(name, what),
        e => e,
    };
    let rules = model::rules(file).map_err(rename)?;
    if rules.kind != 1 {
        let what = "it is no Unigram model; those of BPE are not converted for T5";
        return Err(Error::vocabulary(name, what));
    }
    let pieces = model::pieces(file).map_err(rename)?;
    let size = files.config.opt_size(&["vocab_size"])?.unwrap_or(pieces.len());
    if size < pieces.len() {
        let what = format!("it has {} tokens, and vocab_size is {size}", pieces.len());
        return Err(Error::vocabulary(name, what));
    }
    let mut tokens = Tokens::unused(size, Some(NO_SCORE));
    for (id, piece) in pieces.into_iter().enumerate() {
        tokens.texts[id] = piece.text;
        tokens.scores[id] = piece.score;
        tokens.types[id] = kind_of(piece.kind);
    }
    if let Some(added) = files.folder.json("added_tokens.json")? {
        for (text, id) in added.as_object().into_iter().flatten() {
            let id = id.as_u64().ok_or_else(|| {
                Error::vocabulary("added_tokens.json", format!("the number of {text:?} is {id}"))
            })?;
            tokens.put(id as usize, text.as_bytes().to_vec(), false);
        }
    }
    Ok(Vocabulary { tokens, replaced: rules.replaced, prefix: rules.prefix, trims: rules.trims })
}

/// The vocabulary under GGUF's keys.
fn draft_of(draft: &mut Draft<'_>, vocabulary: Vocabulary) {
    let Vocabulary { tokens, replaced, prefix, trims } = vocabulary;
    put(draft, "t5", Some("default"), tokens);
    draft.general("tokenizer.ggml.add_space_prefix", prefix);
    draft.general("tokenizer.ggml.remove_extra_whitespaces", trims);
    if !replaced.is_empty() {
        let bytes: OwnedValue = replaced.into();
        draft.general("tokenizer.ggml.precompiled_charsmap", bytes);
    }
}

fn of_model(files: &Files<'_>, file: &[u8], mask: bool) -> Result<Vocabulary, Error> {
    const MASK: &[u8] = b"<mask>";
    let rename = |e| match e {
        Error::Vocabulary { what, .. } => Error::vocabulary(MODEL, what),
        e => e,
    };
    let rules = model::rules(file).map_err(rename)?;
    if rules.kind != 1 {
        return Err(Error::vocabulary(MODEL, "it is no Unigram model, which encoders have"));
    }
    let pieces = model::pieces(file).map_err(rename)?;
    let size = files.config.opt_size(&["vocab_size"])?.unwrap_or(0).max(pieces.len());
    let mut all = Tokens::unused(size, Some(NO_SCORE));
    for (id, piece) in pieces.into_iter().enumerate() {
        all.texts[id] = piece.text;
        all.scores[id] = piece.score;
        all.types[id] = kind_of(piece.kind);
    }
    if size < 4 {
        return Err(Error::vocabulary(MODEL, format!("it has {size} tokens")));
    }
    // The first three are four in the model.
    let first = ["<s>", "<pad>", "</s>", "<unk>"].map(|text| text.as_bytes().to_vec());
    let mut tokens = Tokens {
        texts: first.to_vec(),
        types: vec![ty::CONTROL, ty::CONTROL, ty::CONTROL, ty::UNKNOWN],
        scores: vec![0.0; 4],
    };
    tokens.texts.extend(all.texts.drain(3..size - 1));
    tokens.types.extend(all.types.drain(3..size - 1));
    tokens.scores.extend(all.scores.drain(3..size - 1));
    if mask && !tokens.texts.iter().any(|text| text == MASK) {
        let last = size - 1;
        tokens.texts[last] = MASK.to_vec();
        tokens.scores[last] = 0.0;
        tokens.types[last] = ty::CONTROL;
    }
    Ok(Vocabulary { tokens, replaced: rules.replaced, prefix: rules.prefix, trims: rules.trims })
}

fn of_json(files: &Files<'_>) -> Result<Vocabulary, Error> {
    let fault = |what: String| Error::vocabulary(JSON, what);
    let what = "the folder has neither it nor sentencepiece.bpe.model";
    let json = files.folder.json(JSON)?.ok_or_else(|| fault(what.to_owned()))?;
    let model = &json["model"];
    if let Some(kind) = model["type"].as_str().filter(|kind| *kind != "Unigram") {
        return Err(fault(format!("its model is {kind}, not Unigram")));
    }
    let vocab = model["vocab"].as_array().ok_or_else(|| fault("its model has no vocab".into()))?;
    let size = files.config.opt_size(&["vocab_size"])?.unwrap_or(0).max(vocab.len());
    let mut tokens = Tokens::unused(size, Some(NO_SCORE));
    for (id, token) in vocab.iter().enumerate() {
        let parts = token[0].as_str().zip(token[1].as_f64());
        let (text, score) = parts.ok_or_else(|| fault(format!("token {id} is {token}")))?;
        tokens.texts[id] = text.as_bytes().to_vec();
        tokens.scores[id] = score as f32;
        tokens.types[id] = ty::NORMAL;
    }
    let special = named(files.told.as_ref());
    let mut unknown = model["unk_id"].as_u64();
    let role = files.told.as_ref().and_then(|told| text_of(told.get("unk_token")?));
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let parts = token["id"].as_u64().zip(token["content"].as_str());
        let (id, text) = parts.ok_or_else(|| fault(format!("an added token is {token}")))?;
        if role == Some(text) {
            unknown = Some(id);
        }
        let Some(at) = usize::try_from(id).ok().filter(|&at| at < vocab.len()) else { continue };
        let control = token["special"].as_bool() == Some(true) || special.iter().any(|s| s == text);
        tokens.types[at] = if control { ty::CONTROL } else { ty::USER_DEFINED };
    }
    if let Some(kind) = tokens.types.get_mut(unknown.unwrap_or(3) as usize) {
        *kind = ty::UNKNOWN;
    }
    let trims = files.told.as_ref().and_then(|told| told["clean_up_tokenization_spaces"].as_bool());
    Ok(Vocabulary {
        tokens,
        replaced: replaced(&json["normalizer"])?.unwrap_or_default(),
        prefix: prefix(&json["pre_tokenizer"]),
        trims: trims.unwrap_or(false),
    })
}

/// The replacements of a normalizer or of one of its parts.
fn replaced(normalizer: &Value) -> Result<Option<Vec<u8>>, Error> {
    if let Some(text) = normalizer["precompiled_charsmap"].as_str() {
        let what = "its precompiled_charsmap is no base64";
        return base64(text).map(Some).ok_or_else(|| Error::vocabulary(JSON, what));
    }
    for part in normalizer["normalizers"].as_array().into_iter().flatten() {
        if let Some(found) = replaced(part)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Whether a space is put before texts: the part that marks spaces says it, in one of two ways.
fn prefix(pre: &Value) -> bool {
    let parts = pre["pretokenizers"].as_array();
    let parts = parts.map_or_else(|| vec![pre], |parts| parts.iter().collect());
    let marks = parts.into_iter().find(|part| part["type"] == "Metaspace");
    marks.is_none_or(|part| match part["prepend_scheme"].as_str() {
        Some(scheme) => scheme != "never",
        None => part["add_prefix_space"].as_bool().unwrap_or(true),
    })
}

/// Bytes of a text in base64.
fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for four in text.chunks(4) {
        let mut bits = 0u32;
        for &c in four {
            let six = match c {
                b'A'..=b'Z' => c - b'A',
                b'a'..=b'z' => c - b'a' + 26,
                b'0'..=b'9' => c - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(six);
        }
        bits <<= 6 * (4 - four.len());
        let count = match four.len() {
            1 => return None,
            n => n - 1,
        };
        bytes.extend_from_slice(&bits.to_be_bytes()[1..=count]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_gives_the_bytes() {
        assert_eq!(base64("AAECAwQ="), Some(vec![0, 1, 2, 3, 4]));
        assert_eq!(base64("+/8="), Some(vec![0xFB, 0xFF]));
        assert_eq!(base64(""), Some(Vec::new()));
        assert_eq!(base64("A"), None);
        assert_eq!(base64("A?=="), None);
    }
}
