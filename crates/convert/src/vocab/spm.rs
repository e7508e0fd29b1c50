//! Tokens of `tokenizer.model`, with those that other files add.

use super::model::{self, Piece};
use super::{Tokens, looks_special, ty};
use crate::error::Error;
use crate::folder::Folder;
use serde_json::Value;

/// Of places that nothing is in, and of added tokens.
pub(super) const NO_SCORE: f32 = -10000.0;
pub(super) const ADDED: f32 = -1000.0;

/// Tokens of a folder; as many as `size` says, or as the model has.
pub(super) fn tokens(
    folder: &Folder,
    told: Option<&Value>,
    size: Option<usize>,
) -> Result<Tokens, Error> {
    let mut tokens = of_model(folder, size)?;
    for (id, text, special) in decoder(told)? {
        let special = special || looks_special(text);
        let text = if special { text.to_owned() } else { text.replace('▁', " ") };
        tokens.put(id, text.into_bytes(), special);
    }
    Ok(tokens)
}

/// The same with added tokens exactly as they are told.
pub(super) fn tokens_as_told(
    folder: &Folder,
    told: Option<&Value>,
    size: Option<usize>,
) -> Result<Tokens, Error> {
    let mut tokens = of_model(folder, size)?;
    for (id, text, special) in decoder(told)? {
        tokens.put(id, text.as_bytes().to_vec(), special);
    }
    Ok(tokens)
}

impl Tokens {
    /// Puts an added token in its place, if there is one.
    pub(super) fn put(&mut self, id: usize, text: Vec<u8>, special: bool) {
        let Some(place) = self.texts.get_mut(id) else { return };
        *place = text;
        self.scores[id] = ADDED;
        self.types[id] = if special { ty::CONTROL } else { ty::USER_DEFINED };
    }
}

fn of_model(folder: &Folder, size: Option<usize>) -> Result<Tokens, Error> {
    let file = folder.read("tokenizer.model")?;
    let file = file.ok_or_else(|| {
        Error::vocabulary(
            "tokenizer.model",
            "it is not there, and this family's vocabulary is in it",
        )
    })?;
    let pieces = model::pieces(&file)?;
    let mut tokens = Tokens::unused(size.unwrap_or(pieces.len()), Some(NO_SCORE));
    for (id, Piece { text, score, kind }) in pieces.into_iter().enumerate().take(tokens.texts.len())
    {
        tokens.texts[id] = text;
        tokens.scores[id] = score;
        tokens.types[id] = kind_of(kind);
    }
    if let Some(added) = folder.json("added_tokens.json")? {
        for (text, id) in added.as_object().into_iter().flatten() {
            let id = id.as_u64().ok_or_else(|| {
                Error::vocabulary("added_tokens.json", format!("the number of {text:?} is {id}"))
            })?;
            tokens.put(id as usize, text.as_bytes().to_vec(), false);
        }
    }
    Ok(tokens)
}

/// The type of a token of `tokenizer.model`.
pub(super) fn kind_of(kind: u64) -> i32 {
    match kind {
        2 => ty::UNKNOWN,
        3 => ty::CONTROL,
        5 => ty::UNUSED,
        6 => ty::BYTE,
        // Those that users define are told by other files.
        _ => ty::NORMAL,
    }
}

/// Number, text and whether it is special of each token of `added_tokens_decoder`.
pub(super) fn decoder(told: Option<&Value>) -> Result<Vec<(usize, &str, bool)>, Error> {
    let decoder = told.and_then(|told| told.get("added_tokens_decoder")?.as_object());
    let entry = |(id, token): (&'_ String, &'_ Value)| {
        let fault =
            || Error::vocabulary("tokenizer_config.json", format!("added token {id} is {token}"));
        id.parse::<usize>().map_err(|_| fault())
    };
    let mut all = Vec::new();
    for (id, token) in decoder.into_iter().flatten() {
        let number = entry((id, token))?;
        let text = token["content"].as_str().ok_or_else(|| {
            Error::vocabulary("tokenizer_config.json", format!("added token {id} has no content"))
        })?;
        all.push((number, text, token["special"].as_bool().unwrap_or(false)));
    }
    Ok(all)
}
