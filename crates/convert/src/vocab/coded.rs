//! Vocabularies of families whose code is in their folders.

use super::model::{self, Piece};
use super::special::Special;
use super::spm::{ADDED, NO_SCORE, decoder, kind_of};
use super::{Files, Tokens, put, special_of_bytes, ty};
use crate::draft::Draft;
use crate::error::Error;
use serde_json::Value;

const FILE: &str = "tokenizer.model";

fn file(files: &Files<'_>) -> Result<Vec<u8>, Error> {
    let what = "it is not there, and this family's vocabulary is in it";
    files.folder.read(FILE)?.ok_or_else(|| Error::vocabulary(FILE, what))
}

/// InternLM2's: added tokens are behind those of the model, and turns have an end of their own.
pub(super) fn internlm(draft: &mut Draft<'_>, files: &Files<'_>) -> Result<(), Error> {
    /// Stands for the character of number 0, which ends texts of C.
    const DRAGON: &str = "🐉";
    const END: &str = "<|im_end|>";
    let file = file(files)?;
    let pieces = model::pieces(&file)?;
    let size = files.config.opt_size(&["vocab_size"])?.unwrap_or(pieces.len());
    if size > pieces.len() {
        let what = format!("it has {} tokens, and vocab_size is {size}", pieces.len());
        return Err(Error::vocabulary(FILE, what));
    }
    let mut tokens = Tokens::default();
    for Piece { text, score, kind } in pieces.into_iter().take(size) {
        let unused = text.starts_with(b"[UNUSED");
        tokens.types.push(if unused { ty::UNUSED } else { kind_of(kind) });
        tokens.texts.push(if text == [0] { DRAGON.into() } else { text });
        tokens.scores.push(score);
    }
    let added = files.folder.json("added_tokens.json")?;
    let mut added: Vec<(u64, &String)> = added
        .iter()
        .filter_map(Value::as_object)
        .flatten()
        .map(|(text, id)| (id.as_u64().unwrap_or(u64::MAX), text))
        .collect();
    added.sort_unstable();
    for (_, text) in added {
        tokens.texts.push(text.clone().into_bytes());
        tokens.scores.push(ADDED);
        tokens.types.push(ty::USER_DEFINED);
    }
    let json = files.folder.json("tokenizer.json")?;
    let listed = json.as_ref().and_then(|json| json["added_tokens"].as_array());
    let listed = listed.into_iter().flatten().filter_map(|token| {
        let (id, text) = (token["id"].as_u64()?, token["content"].as_str()?);
        Some((id as usize, text, token["special"].as_bool().unwrap_or(false)))
    });
    let mut end = None;
    for (id, text, special) in decoder(files.told.as_ref())?.into_iter().chain(listed) {
        if id >= tokens.texts.len() {
            let what = format!("added token {id} is behind the last, {}", tokens.texts.len() - 1);
            return Err(Error::vocabulary("tokenizer_config.json", what));
        }
        if text == END {
            end = Some(id as u32);
        }
        tokens.put(id, text.as_bytes().to_vec(), special);
    }
    let count = tokens.texts.len();
    put(draft, "llama", Some("default"), tokens);
    draft.general("tokenizer.ggml.add_space_prefix", model::rules(&file)?.prefix);
    let mut special = Special::read(files.folder, files.told.clone(), Some(count))?;
    if let Some(end) = end {
        special.replace("eos", end);
    }
    special.put(draft);
    Ok(())
}

/// Hunyuan's: the configuration has the end of a text, and the list of recommended ends begins with that of a turn.
pub(super) fn hunyuan(
    draft: &mut Draft<'_>,
    files: &Files<'_>,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let json = files.json()?;
    let size = files.config.opt_size(&["vocab_size"])?;
    let mut special = special_of_bytes(draft, files, &json, size, notes)?;
    if let Some(end) = files.config.opt_size(&["eod_token_id"])? {
        special.replace("eos", end as u32);
    }
    let recommended = files.folder.json("generation_config.json")?;
    let ends = recommended.as_ref().and_then(|said| said["eos_token_id"].as_array());
    if let Some([first, _, ..]) = ends.map(Vec::as_slice)
        && let Some(turn) = first.as_u64().and_then(|id| u32::try_from(id).ok())
    {
        special.replace("eot", turn);
    }
    special.put(draft);
    Ok(())
}

/// ChatGLM 3's: some tokens have texts that the model's code gives them.
pub(super) fn chatglm(draft: &mut Draft<'_>, files: &Files<'_>) -> Result<(), Error> {
    const FIRST: [&str; 3] = ["<unk>", "<bos>", "<eos>"];
    const BEHIND: [&str; 9] = [
        "[MASK]",
        "[gMASK]",
        "[sMASK]",
        "sop",
        "eop",
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
        "<|observation|>",
    ];
    let pieces = model::pieces(&file(files)?).map_err(|_| {
        let what = "it is no SentencePiece model: of GLM-4, tokenizer.json is needed";
        Error::vocabulary(FILE, what)
    })?;
    let of_model = pieces.len();
    let size = files.config.opt_size(&["padded_vocab_size", "vocab_size"])?;
    let size = size.unwrap_or(of_model + BEHIND.len());
    if size < of_model + BEHIND.len() {
        let what = format!("it has {of_model} tokens, and padded_vocab_size is {size}");
        return Err(Error::vocabulary(FILE, what));
    }
    let mut tokens = Tokens::unused(size, Some(NO_SCORE));
    tokens.scores.fill(0.0);
    for (id, Piece { text, score, kind }) in pieces.into_iter().enumerate() {
        tokens.texts[id] = FIRST.get(id).map_or(text, |text| text.as_bytes().to_vec());
        tokens.scores[id] = score;
        tokens.types[id] = kind_of(kind);
    }
    for (n, text) in BEHIND.into_iter().enumerate() {
        tokens.texts[of_model + n] = text.into();
        tokens.types[of_model + n] = ty::CONTROL;
    }
    put(draft, "llama", Some("chatglm-spm"), tokens);
    Special::read(files.folder, files.told.clone(), Some(size))?.put(draft);
    Ok(())
}
