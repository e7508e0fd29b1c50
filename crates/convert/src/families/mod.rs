//! The families: which class of `transformers` is which architecture, what its files say, and what becomes of
//! its tensors.
//!
//! To add one: a [`Family`] in a file of this folder, and its list in [`all`]. What it has in common with most
//! (`Draft::usual`, `rules::USUAL`) is not said again. `tests/convert` compares it with llama.cpp's converter.

mod bert;
mod coded;
mod deepseek;
mod dense;
mod encoders;
mod experts;
mod gemma;
mod glm;
mod gpt;
mod llama;
mod phi;
mod qwen;
mod rankers;
mod recurrent;
mod short;
mod t5;

use crate::array::Array;
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::folder::Folder;
use crate::keys::{self, Fixed};
use crate::rules::Rule;
use crate::vocab::Kind;

/// How models of some classes are converted.
pub(crate) struct Family {
    /// Classes, as `architectures` in `config.json` names them.
    pub(crate) classes: &'static [&'static str],
    /// `general.architecture`.
    pub(crate) arch: &'static str,
    /// Another, where the configuration says so.
    pub(crate) variant: Option<fn(&Config) -> Option<&'static str>>,
    /// What the model's own code takes where the configuration says nothing.
    pub(crate) defaults: fn(&mut Config) -> Result<(), Error>,
    /// Keys that must have the values that files of the architecture stand for.
    pub(crate) fixed: &'static [Fixed],
    pub(crate) keys: fn(&mut Draft<'_>) -> Result<(), Error>,
    /// Keys whose values are tensors of the folder.
    pub(crate) learnt: Option<Learnt>,
    /// Searched in turn before the usual ones.
    pub(crate) rules: &'static [&'static [Rule]],
    /// The name that a tensor should have; `None` leaves it out.
    pub(crate) rename: Option<fn(&Config, &str) -> Option<String>>,
    /// Tensors that follow from the configuration.
    pub(crate) extra: fn(&Draft<'_>) -> Result<Extra, Error>,
    pub(crate) predicting: Predicting,
    /// What names of tensors of layers begin with in files.
    pub(crate) blocks: &'static str,
    pub(crate) vocab: Kind,
    /// Which of several names of one way to cut text is preferred.
    pub(crate) pre: &'static [&'static str],
}

/// Sets keys by the folder's tensors.
pub(crate) type Learnt = fn(&mut Draft<'_>, &[(String, Array)]) -> Result<(), Error>;

/// Tensors by their names in the file.
pub(crate) type Extra = Vec<(&'static str, Array)>;

/// What becomes of layers behind the last, which predict further tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Predicting {
    /// They are left out.
    Dropped,
    /// They are layers of the file.
    Kept,
}

/// The function of most feed-forward layers.
pub(crate) const SILU: Fixed = keys::is("hidden_act", keys::SILU);

/// A family without peculiarities.
pub(crate) const PLAIN: Family = Family {
    classes: &[],
    arch: "",
    variant: None,
    defaults: |_| Ok(()),
    fixed: &[],
    keys: |draft| draft.usual(),
    learnt: None,
    rules: &[],
    rename: None,
    extra: |_| Ok(Vec::new()),
    predicting: Predicting::Dropped,
    blocks: "blk",
    vocab: Kind::Bpe,
    pre: &[],
};

/// All families.
pub(crate) fn all() -> impl Iterator<Item = &'static Family> {
    [
        llama::FAMILIES,
        bert::FAMILIES,
        encoders::FAMILIES,
        qwen::FAMILIES,
        rankers::FAMILIES,
        gemma::FAMILIES,
        phi::FAMILIES,
        glm::FAMILIES,
        deepseek::FAMILIES,
        dense::FAMILIES,
        coded::FAMILIES,
        gpt::FAMILIES,
        experts::FAMILIES,
        recurrent::FAMILIES,
        short::FAMILIES,
        t5::FAMILIES,
    ]
    .into_iter()
    .flatten()
}

/// The family of a configuration.
pub(crate) fn of(config: &Config) -> Result<&'static Family, Error> {
    let named = config.architectures();
    let known = |name: &&str| all().find(|family| family.classes.contains(name));
    if let Some(family) = named.iter().find_map(known) {
        return Ok(family);
    }
    let Some(name) = named.first() else {
        return Err(Error::config("it names no class in \"architectures\""));
    };
    let classes = || all().flat_map(|family| family.classes.iter().copied());
    let mut near: Vec<(usize, &str)> =
        classes().map(|class| (distance(name, class), class)).collect();
    near.sort_unstable();
    // A name shares most of its letters with one that is meant.
    let near = near.into_iter().filter(|(d, class)| 4 * d <= class.len()).take(2);
    let near = near.map(|(_, class)| class.to_owned()).collect();
    Err(Error::UnknownArchitecture { name: (*name).to_owned(), near, known: classes().count() })
}

/// Notes in the configuration how many layers predict further tokens, where it says nothing of those that the
/// folder has.
pub(crate) fn note_predicting(folder: &mut Folder) {
    let layer = |name: &str| {
        let name = name.strip_prefix("model.").unwrap_or(name);
        let (layer, _) = name.strip_prefix("mtp.layers.")?.split_once('.')?;
        layer.parse::<usize>().ok()
    };
    let most = folder.tensors().iter().filter_map(|tensor| layer(&tensor.entry.name)).max();
    if let Some(most) = most {
        folder.config.or(qwen::FOUND, most + 1);
    }
}

/// Tells folders apart whose class says too little.
pub(crate) fn note_class(folder: &mut Folder) -> Result<(), Error> {
    t5::note(folder);
    deepseek::note(folder);
    rankers::note(folder)
}

/// Keys of a file that has no others of the usual ones.
fn sizes(d: &mut Draft<'_>) -> Result<(), Error> {
    let config = d.config;
    d.set_size("context_length", config.size(&["max_position_embeddings"])?);
    d.set_size("embedding_length", config.hidden()?);
    d.set_size("block_count", config.layers()?);
    d.set_size("feed_forward_length", config.size(&["intermediate_size"])?);
    d.set_size("attention.head_count", config.heads()?);
    d.set_size("attention.head_count_kv", config.kv_heads()?);
    d.set_number("attention.layer_norm_rms_epsilon", config.number(&["rms_norm_eps"])?);
    Ok(())
}

/// Layers before the first with experts, in either of the forms that folders have; none where nothing is said.
fn leading_dense(config: &Config) -> Result<Option<usize>, Error> {
    const KINDS: &str = "mlp_layer_types";
    let Some(kinds) = config.texts(KINDS)? else {
        return config.meant_size("first_k_dense_replace");
    };
    let dense = kinds.iter().take_while(|kind| **kind == "dense").count();
    config.get("first_k_dense_replace");
    match kinds[dense..].iter().find(|kind| **kind != "sparse") {
        None => Ok(Some(dense)),
        Some(other) => {
            let what =
                format!("{KINDS} has {other:?} behind layers with experts, which no file can say");
            Err(Error::config(what))
        }
    }
}

/// Names of a model whose folder may have the head twice: as such, and as the embedding.
fn unless_tied(config: &Config, name: &str) -> Option<String> {
    let twice = config.flag("tie_word_embeddings") && name.ends_with("lm_head.weight");
    (!twice).then(|| name.to_owned())
}

/// Letters to add, drop or change to make one name of the other.
fn distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_class_is_in_two_families() {
        let mut seen = std::collections::HashSet::new();
        for class in all().flat_map(|family| family.classes) {
            assert!(seen.insert(class), "{class}");
        }
    }

    #[test]
    fn an_unknown_class_is_told_with_its_neighbours() {
        let of = |name: &str| {
            let config = Config::new(json!({"architectures": [name]})).unwrap();
            super::of(&config).map(|family| family.arch).map_err(|e| e.to_string())
        };
        assert_eq!(of("Qwen3ForCausalLM"), Ok("qwen3"));
        let message = of("Qwen33ForCausalLM").unwrap_err();
        assert!(message.contains("did you mean Qwen3ForCausalLM"), "{message}");
        assert!(!of("SomethingElse").unwrap_err().contains("did you mean"));
    }
}
