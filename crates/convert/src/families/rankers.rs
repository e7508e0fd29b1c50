//! Qwen3's rerankers: models that write, of whose head the words "yes" and "no" are a classifier.
//!
//! Their folders name the class of the models that write; what tells them apart is their name, as in llama.cpp.

use super::{Family, PLAIN, unless_tied};
use crate::array::Array;
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::folder::Folder;
use crate::rules::{At, Rule, made};
use crate::vocab::Kind;
use gguf::OwnedValue;

pub(super) const FAMILIES: &[Family] = &[
    Family { classes: &[TIED], rules: &[EMBEDDING], rename: Some(unless_tied), ..RANKER },
    Family { classes: &[UNTIED], rules: &[HEAD], ..RANKER },
];

const RANKER: Family =
    Family { arch: "qwen3", keys, vocab: Kind::SentencePieceOrBpe, pre: &["qwen2"], ..PLAIN };

const WRITES: &str = "Qwen3ForCausalLM";
const TIED: &str = "Qwen3Reranker";
const UNTIED: &str = "Qwen3RerankerWithHead";

const EMBEDDING: &[Rule] = &[made("embed_tokens", "token_embd cls.output", embedding_and_words)];
const HEAD: &[Rule] = &[made("lm_head", "cls.output", words)];

/// Where the numbers of both words are noted.
const WORDS: [&str; 2] = ["arclight_yes", "arclight_no"];

/// The form in which the models were trained to read a query and a document.
const TEMPLATE: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the \
    Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: \
    Given a web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: \
    {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

/// Gives a reranker's folder a class of its own, and notes the numbers of its words.
pub(super) fn note(folder: &mut Folder) -> Result<(), Error> {
    if !folder.config.architectures().contains(&WRITES) || !ranks(folder)? {
        return Ok(());
    }
    let vocabulary = folder.json("tokenizer.json")?;
    for (word, key) in ["yes", "no"].into_iter().zip(WORDS) {
        let id = vocabulary.as_ref().and_then(|all| all["model"]["vocab"][word].as_u64());
        let Some(id) = id else {
            let what = format!("it is a reranker, and tokenizer.json has no token {word:?}");
            return Err(Error::config(what));
        };
        folder.config.set(key, id);
    }
    let class = if folder.config.flag("tie_word_embeddings") { TIED } else { UNTIED };
    folder.config.set("architectures", vec![class]);
    Ok(())
}

fn ranks(folder: &Folder) -> Result<bool, Error> {
    const NAME: &str = "qwen3-reranker";
    let folder_name = folder.path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let stated = folder.config.text(&["_name_or_path"]).map(str::to_lowercase);
    let named = [folder_name.as_deref(), stated.as_deref()];
    let about = folder.text("README.md")?.unwrap_or_default().to_lowercase();
    Ok(named.into_iter().flatten().any(|name| name.contains(NAME))
        || about.contains(&format!("# {NAME}")))
}

fn keys(draft: &mut Draft<'_>) -> Result<(), Error> {
    draft.usual()?;
    draft.set("pooling_type", super::bert::RANK);
    draft.set("classifier.output_labels", OwnedValue::strings(["yes", "no"]));
    draft.general("tokenizer.chat_templates", OwnedValue::strings(["rerank"]));
    draft.general("tokenizer.chat_template.rerank", TEMPLATE);
    Ok(())
}

fn words(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    rows(at.config, &of).map(|words| vec![words])
}

fn embedding_and_words(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let words = rows(at.config, &of)?;
    Ok(vec![of, words])
}

/// The rows of both words.
fn rows(config: &Config, of: &Array) -> Result<Array, Error> {
    let mut runs = Vec::new();
    for key in WORDS {
        let id = config.size(&[key])?;
        if id >= of.rows() {
            let what = format!("token {id} is outside of a vocabulary of {}", of.rows());
            return Err(Error::config(what));
        }
        runs.push(id..id + 1);
    }
    Ok(of.runs(runs))
}
