//! WordPiece: words and their ends, in `tokenizer.json` or `vocab.txt`.

use super::bpe::TokenizerJson;
use super::special::Special;
use super::{Files, Tokens, named, put, ty};
use crate::draft::Draft;
use crate::error::Error;

/// Whether the vocabulary is of this kind. A folder without tokenizer.json has it in vocab.txt.
pub(super) fn are_in(files: &Files<'_>) -> Result<bool, Error> {
    let json = files.folder.json("tokenizer.json")?;
    Ok(match &json {
        Some(json) => json["model"]["type"] == "WordPiece",
        None => files.has("vocab.txt"),
    })
}

/// Words begin with a mark in the file, where those of the folder have one on what goes on.
pub(super) fn add(draft: &mut Draft<'_>, files: &Files<'_>) -> Result<(), Error> {
    let size = files.config.opt_size(&["vocab_size"])?;
    let mut tokens = match files.has("tokenizer.json") {
        true => TokenizerJson::of_words(files.folder)?.byte_level(size, files.told.as_ref())?,
        false => vocab_txt(files)?,
    };
    let id_of = |role: &str| tokens.texts.iter().position(|text| text == role.as_bytes());
    let usual = [
        ("bos", "[CLS]"),
        ("eos", "[SEP]"),
        ("unk", "[UNK]"),
        ("sep", "[SEP]"),
        ("pad", "[PAD]"),
        ("cls", "[CLS]"),
    ];
    let usual = usual.map(|(role, text)| (role, id_of(text)));
    for (text, kind) in tokens.texts.iter_mut().zip(&tokens.types) {
        if *kind == ty::CONTROL {
            continue;
        }
        *text = match text.strip_prefix(b"##") {
            Some(rest) => rest.to_vec(),
            None => ["\u{2581}".as_bytes(), text].concat(),
        };
    }
    let types = files.config.opt_size(&["type_vocab_size"])?.unwrap_or(1);
    draft.general("tokenizer.ggml.token_type_count", types as u32);
    let count = tokens.texts.len();
    put(draft, "bert", Some(files.pre_given.unwrap_or("default")), tokens);
    let mut special = Special::read(files.folder, files.told.clone(), Some(count))?;
    for (role, id) in usual.into_iter().filter_map(|(role, id)| Some((role, id?))) {
        special.give(role, id as u32);
    }
    special.put(draft);
    Ok(())
}

/// A token on each line.
fn vocab_txt(files: &Files<'_>) -> Result<Tokens, Error> {
    const FILE: &str = "vocab.txt";
    let what = "the folder has neither tokenizer.json nor vocab.txt";
    let text = files.folder.text(FILE)?.ok_or_else(|| Error::vocabulary(FILE, what))?;
    let special = named(files.told.as_ref());
    let mut tokens = Tokens::default();
    for line in text.lines() {
        let bracketed = line.starts_with('[') && line.ends_with(']') && line.len() > 2;
        let control = special.iter().any(|s| s == line) || bracketed && !line.contains("unused");
        tokens.types.push(if control { ty::CONTROL } else { ty::NORMAL });
        tokens.texts.push(line.as_bytes().to_vec());
    }
    Ok(tokens)
}
