//! The name of the way in which a vocabulary cuts text.

use super::bpe::TokenizerJson;
use crate::error::Error;
use serde_json::Value;
use tokenizer::schemes::{PRE_TOKENIZERS, Scheme};

/// A name that `--pre` gave.
pub(super) fn check(name: &str) -> Result<&'static str, Error> {
    let names = || PRE_TOKENIZERS.iter().flat_map(|scheme| scheme.names).copied();
    names().find(|known| *known == name).ok_or_else(|| Error::UnknownPre {
        name: name.to_owned(),
        known: names().collect::<Vec<_>>().join(", "),
    })
}

/// The name whose rules a file has; of several, one that the family prefers.
pub(super) fn name(
    json: &TokenizerJson,
    preferred: &[&str],
    notes: &mut Vec<String>,
) -> Result<&'static str, Error> {
    let pre = &json.whole["pre_tokenizer"];
    let unknown = || Error::UnknownPreTokenizer { found: patterns(pre).join("; then ") };
    if pre.is_null() {
        return Err(unknown());
    }
    let found = tokenizer::recognise(pre)
        .map_err(|e| Error::vocabulary("tokenizer.json", format!("its pre_tokenizer: {e}")))?;
    let composes = composes(&json.whole["normalizer"]);
    let whole = json.whole["model"]["ignore_merges"].as_bool().unwrap_or(false);
    let differs = |scheme: &Scheme| (scheme.nfc != composes, scheme.whole_words != whole);
    let liked = |scheme: &Scheme| {
        preferred.iter().find_map(|name| scheme.names.iter().find(|known| *known == name)).copied()
    };
    // Files of a family have its name, even where a vocabulary takes words whole and the name's rules do not.
    let best = found.into_iter().min_by_key(|scheme| {
        let (composed, words) = differs(scheme);
        (composed, liked(scheme).is_none(), words)
    });
    let best = best.ok_or_else(unknown)?;
    let (nfc, words) = differs(best);
    let name = liked(best).unwrap_or(best.names[0]);
    if nfc {
        let does =
            if composes { "composes characters (NFC)" } else { "leaves characters as they are" };
        notes.push(format!("the vocabulary {does}, and the rules of {name:?} do not"));
    }
    if words {
        let does = if whole { "takes words that are tokens whole" } else { "merges every word" };
        notes.push(format!("the vocabulary {does}, and the rules of {name:?} do not"));
    }
    Ok(name)
}

/// Whether characters are composed first.
fn composes(normalizer: &Value) -> bool {
    match normalizer["type"].as_str() {
        Some("NFC") => true,
        Some("Sequence") => {
            normalizer["normalizers"].as_array().into_iter().flatten().any(composes)
        }
        _ => false,
    }
}

/// What a person would want to see of it.
fn patterns(pre: &Value) -> Vec<String> {
    match pre["type"].as_str() {
        Some("Sequence") => {
            pre["pretokenizers"].as_array().into_iter().flatten().flat_map(patterns).collect()
        }
        Some("Split") => {
            let pattern = &pre["pattern"];
            let text = pattern["Regex"].as_str().or(pattern["String"].as_str());
            vec![text.unwrap_or("a pattern").to_owned()]
        }
        Some(kind) => vec![kind.to_owned()],
        None => Vec::new(),
    }
}
