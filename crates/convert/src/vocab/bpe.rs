//! Tokens and merges of `tokenizer.json`.

use super::{Tokens, looks_special, named, ty};
use crate::error::Error;
use crate::folder::Folder;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

const FILE: &str = "tokenizer.json";

/// No vocabulary has as many tokens.
const MOST: u64 = 1 << 24;

/// A file, its vocabulary in order of the numbers.
pub(super) struct TokenizerJson {
    pub(super) whole: Value,
    /// Tokens of the model itself.
    vocab: Vec<(usize, String)>,
    added: Vec<Added>,
}

/// A token that is found in text before anything else.
#[derive(Debug, Clone)]
struct Added {
    id: usize,
    text: String,
    special: bool,
    normalized: bool,
}

impl TokenizerJson {
    pub(super) fn open(folder: &Folder) -> Result<TokenizerJson, Error> {
        Self::open_as(folder, "BPE")
    }

    /// The same of words and their ends.
    pub(super) fn of_words(folder: &Folder) -> Result<TokenizerJson, Error> {
        Self::open_as(folder, "WordPiece")
    }

    fn open_as(folder: &Folder, want: &str) -> Result<TokenizerJson, Error> {
        let fault = |what: &str| Error::vocabulary(FILE, what);
        let whole = folder
            .json(FILE)?
            .ok_or_else(|| fault("it is not there, and this family's vocabulary is in it"))?;
        let model = &whole["model"];
        if let Some(kind) = model["type"].as_str().filter(|kind| *kind != want) {
            return Err(fault(&format!("its model is {kind}, not {want}")));
        }
        let map = model["vocab"].as_object().ok_or_else(|| fault("its model has no vocab"))?;
        let mut vocab = Vec::with_capacity(map.len());
        for (text, id) in map {
            let id =
                id.as_u64().ok_or_else(|| fault(&format!("the number of {text:?} is {id}")))?;
            vocab.push((id as usize, text.clone()));
        }
        vocab.sort_unstable();
        let mut added = Vec::new();
        for token in whole["added_tokens"].as_array().into_iter().flatten() {
            let id = token["id"].as_u64().filter(|&id| id < MOST);
            let parts = id.zip(token["content"].as_str());
            let (id, text) = parts.ok_or_else(|| fault(&format!("an added token is {token}")))?;
            added.push(Added {
                id: id as usize,
                text: text.to_owned(),
                special: token["special"].as_bool().unwrap_or(false),
                normalized: token["normalized"].as_bool().unwrap_or(true),
            });
        }
        Ok(TokenizerJson { whole, vocab, added })
    }

    /// Whether it is SentencePiece's BPE, with tokens for bytes.
    pub(super) fn has_sentencepiece_rules(&self) -> bool {
        self.whole["model"]["byte_fallback"].as_bool().unwrap_or(false)
            && self.whole["decoder"]["type"].as_str() == Some("Sequence")
    }

    /// The number of an added token.
    pub(super) fn added(&self, text: &str) -> Option<u32> {
        self.added.iter().find(|token| token.text == text).map(|token| token.id as u32)
    }

    /// Added tokens with those that tokenizer_config.json makes special.
    fn added_as_told(&self, told: Option<&Value>) -> Vec<Added> {
        let mut added = self.added.clone();
        let decoder = told.and_then(|told| told.get("added_tokens_decoder")?.as_object());
        let by_text: HashMap<&str, usize> = self.vocab.iter().map(|(id, t)| (&**t, *id)).collect();
        let mut tell = |text: &str, id: Option<usize>, special: bool| match added
            .iter_mut()
            .find(|token| token.text == text)
        {
            Some(token) => token.special |= special,
            None => {
                let Some(id) = id.or_else(|| by_text.get(text).copied()) else { return };
                let (text, normalized) = (text.to_owned(), false);
                added.push(Added { id, text, special, normalized });
            }
        };
        for (id, token) in decoder.into_iter().flatten() {
            let id = id.parse::<usize>().ok().filter(|&id| (id as u64) < MOST);
            if let (Some(id), Some(text)) = (id, token["content"].as_str()) {
                tell(text, Some(id), token["special"].as_bool().unwrap_or(false));
            }
        }
        for text in named(told) {
            tell(&text, None, true);
        }
        added
    }

    /// All tokens of byte-level BPE; as many as `size` says, or as there are.
    pub(super) fn byte_level(
        &self,
        size: Option<usize>,
        told: Option<&Value>,
    ) -> Result<Tokens, Error> {
        let added = self.added_as_told(told);
        let ids = self.vocab.iter().map(|(id, _)| *id).chain(added.iter().map(|token| token.id));
        let most = ids.max().map_or(0, |id| id + 1);
        let size = size.unwrap_or(most);
        if most > size {
            return Err(Error::vocabulary(
                FILE,
                format!("it has a token {}, and config.json's vocab_size is {size}", most - 1),
            ));
        }
        let mut tokens = Tokens::unused(size, None);
        for (id, text) in &self.vocab {
            tokens.texts[*id] = text.clone().into_bytes();
            tokens.types[*id] = ty::NORMAL;
        }
        let decodes = self.whole["decoder"]["type"].as_str() == Some("ByteLevel");
        for token in &added {
            let mut text = token.text.clone();
            if !token.normalized && decodes {
                text = decoded(&text).unwrap_or(text);
            }
            let special = token.special || looks_special(&text);
            if !special {
                text = text.replace('▁', " ");
            }
            tokens.texts[token.id] = text.into_bytes();
            tokens.types[token.id] = if special { ty::CONTROL } else { ty::USER_DEFINED };
        }
        Ok(tokens)
    }

    /// All tokens of SentencePiece's rules. There are no scores: merges say what they would.
    pub(super) fn sentencepiece(&self, told: Option<&Value>) -> Result<Tokens, Error> {
        let special: HashSet<String> = named(told).into_iter().collect();
        let base = self.vocab.len();
        let mut tokens = Tokens::default();
        let is_special = |text: &str| special.contains(text);
        for (n, (id, text)) in self.vocab.iter().enumerate() {
            if n != *id {
                return Err(Error::vocabulary(FILE, format!("no token has the number {n}")));
            }
            tokens.types.push(match text {
                _ if is_byte(text) => ty::BYTE,
                _ if is_special(text) => ty::CONTROL,
                _ => ty::NORMAL,
            });
            tokens.texts.push(text.clone().into_bytes());
        }
        let mut more: Vec<&Added> = self.added.iter().filter(|token| token.id >= base).collect();
        more.sort_unstable_by_key(|token| token.id);
        for (n, token) in more.into_iter().enumerate() {
            if token.id != base + n {
                return Err(Error::vocabulary(
                    FILE,
                    format!("no token has the number {}", base + n),
                ));
            }
            let special = is_special(&token.text);
            tokens.types.push(if special { ty::CONTROL } else { ty::USER_DEFINED });
            tokens.texts.push(token.text.clone().into_bytes());
        }
        tokens.scores = vec![-1000.0; tokens.texts.len()];
        Ok(tokens)
    }

    /// Gives tokens scores by the merges that lead to them: files of this kind have no others, and without them
    /// nothing would say what merges first.
    pub(super) fn rank(&self, tokens: &mut Tokens) -> Result<(), Error> {
        let merges = self.merges()?;
        let ids: HashMap<&str, usize> =
            self.vocab.iter().map(|(id, text)| (&**text, *id)).collect();
        for (id, _) in &self.vocab {
            tokens.scores[*id] = -(merges.len() as f32);
        }
        for (rank, merge) in merges.iter().enumerate().rev() {
            let merged = merge.replacen(' ', "", 1);
            let id = ids.get(&*merged).ok_or_else(|| {
                Error::vocabulary(FILE, format!("the merge {merge:?} makes no token"))
            })?;
            tokens.scores[*id] = -(rank as f32);
        }
        Ok(())
    }

    /// Puts added tokens, as they are written, over those of another file.
    pub(super) fn add_to(&self, tokens: &mut Tokens) -> Result<(), Error> {
        for token in &self.added {
            if token.id >= tokens.texts.len() {
                return Err(Error::vocabulary(
                    FILE,
                    format!("added token {} is outside of config.json's vocab_size", token.id),
                ));
            }
            tokens.put(token.id, token.text.clone().into_bytes(), token.special);
        }
        Ok(())
    }

    /// Merges in order, each of two tokens with a space between. A space that is part of one is written as in
    /// the alphabet of bytes.
    pub(super) fn merges(&self) -> Result<Vec<String>, Error> {
        let merges = self.whole["model"]["merges"].as_array();
        let merge = |value: &Value| match value {
            Value::String(merge) => Some(merge.clone()),
            Value::Array(pair) => {
                let [left, right] = &pair[..] else { return None };
                let part = |part: &Value| Some(part.as_str()?.replace(' ', "Ġ"));
                Some(format!("{} {}", part(left)?, part(right)?))
            }
            _ => None,
        };
        let all: Option<_> = merges.into_iter().flatten().map(merge).collect();
        all.ok_or_else(|| Error::vocabulary(FILE, "a merge is not two tokens"))
    }
}

/// Merges of `merges.txt`, which some folders have apart.
pub(super) fn merges_txt(folder: &Folder) -> Result<Vec<String>, Error> {
    let Some(text) = folder.text("merges.txt")? else { return Ok(Vec::new()) };
    let lines = text.lines().enumerate().filter(|(n, line)| *n > 0 || !line.starts_with('#'));
    let pairs = lines.filter_map(|(_, line)| {
        let mut parts = line.split_whitespace();
        let pair = (parts.next()?, parts.next()?);
        parts.next().is_none().then(|| format!("{} {}", pair.0, pair.1))
    });
    Ok(pairs.collect())
}

fn is_byte(text: &str) -> bool {
    let hex = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    hex.is_some_and(|hex| hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// What the bytes stand for that a text spells in the alphabet of bytes; `None` if it is not written so.
fn decoded(text: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = text.chars().map(byte).collect();
    Some(String::from_utf8_lossy(&bytes?).into_owned())
}

/// The byte that a character stands for: itself where it is visible, and otherwise one from 256 on, in order.
fn byte(c: char) -> Option<u8> {
    let visible = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if let Ok(byte) = u8::try_from(u32::from(c)) {
        return visible(byte).then_some(byte);
    }
    let number = u32::from(c).checked_sub(256)?;
    (0..=255).filter(|&byte| !visible(byte)).nth(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stand_for_bytes() {
        assert_eq!(decoded("Ġa"), Some(" a".to_owned()));
        assert_eq!(decoded("<think>"), Some("<think>".to_owned()));
        assert_eq!(decoded("Ã©"), Some("é".to_owned()));
        assert_eq!(decoded("é"), Some("\u{fffd}".to_owned()));
        assert_eq!(decoded("a b"), None);
        assert!(is_byte("<0x0A>") && !is_byte("<0x0G>") && !is_byte("<0xA>"));
    }
}
