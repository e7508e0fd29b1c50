//! BERT, as an encoder of texts and as a classifier of pairs.

use super::{Family, PLAIN};
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::keys::{Fixed, GELU, Is, is, off};
use crate::rules::{Rule, same, without};
use crate::vocab::Kind;
use gguf::OwnedValue;
use serde_json::Value;

pub(super) const FAMILIES: &[Family] = &[
    Family { classes: &["BertModel", "BertForMaskedLM"], rules: &[RULES, UNPOOLED], ..BERT },
    Family {
        classes: &["BertForSequenceClassification"],
        keys: |draft| {
            keys(draft)?;
            draft.set("pooling_type", RANK);
            labels(draft);
            Ok(())
        },
        rules: &[RULES, CLASSIFIER],
        ..BERT
    },
];

/// `pooling_type` of a model that ranks.
pub(super) const RANK: u32 = 4;

const BERT: Family = Family {
    arch: "bert",
    fixed: FIXED,
    keys,
    rename: Some(rename),
    vocab: Kind::WordPiece,
    ..PLAIN
};

pub(super) const FIXED: &[Fixed] = &[
    is("hidden_act", GELU),
    is("position_embedding_type", &[Is::Text("absolute")]),
    off("is_decoder"),
    off("add_cross_attention"),
];

pub(super) fn keys(draft: &mut Draft<'_>) -> Result<(), Error> {
    draft.usual()?;
    draft.set("attention.causal", false);
    Ok(())
}

/// What the numbers of a classifier stand for, where the folder says it. Two labels by number are what
/// `transformers` takes where it does not.
pub(super) fn labels(draft: &mut Draft<'_>) {
    let Some(Value::Object(named)) = draft.config.get("id2label") else { return };
    let label = |(id, text): (&String, &Value)| Some((id.parse().ok()?, text.as_str()?.to_owned()));
    let mut labels: Vec<(u32, String)> = named.iter().filter_map(label).collect();
    labels.sort_unstable();
    let dummy = labels.len() == 2 && labels[0].1 == "LABEL_0";
    if !labels.is_empty() && !dummy {
        let texts: Vec<String> = labels.into_iter().map(|(_, text)| text).collect();
        draft.set("classifier.output_labels", OwnedValue::strings(&texts));
    }
}

pub(super) const RULES: &[Rule] = &[
    same("embeddings.word_embeddings", "token_embd"),
    same("embeddings.position_embeddings", "position_embd"),
    same("embeddings.token_type_embeddings", "token_types"),
    same("embeddings.LayerNorm", "token_embd_norm"),
    same("attention.self.query", "attn_q"),
    same("attention.self.key", "attn_k"),
    same("attention.self.value", "attn_v"),
    same("attention.output.dense", "attn_output"),
    same("attention.output.LayerNorm", "attn_output_norm"),
    same("intermediate.dense", "ffn_up"),
    same("output.dense", "ffn_down"),
    same("output.LayerNorm", "layer_output_norm"),
];

/// Nothing is classified: the layer behind the first token is left out.
pub(super) const UNPOOLED: &[Rule] = &[without("pooler.dense")];

const CLASSIFIER: &[Rule] = &[same("pooler.dense", "cls"), same("classifier", "cls.output")];

/// Names of a layer as most have them; old files call a norm's weights gamma and beta. Heads that predict words are
/// left out.
pub(super) fn rename(_: &Config, name: &str) -> Option<String> {
    let name = name.strip_prefix("bert.").unwrap_or(name);
    let heads = ["cls.predictions", "cls.seq_relationship"];
    if name == "embeddings.position_ids" || heads.iter().any(|head| name.starts_with(head)) {
        return None;
    }
    let name = match name.strip_prefix("encoder.layer.") {
        Some(rest) => format!("layers.{rest}"),
        None => name.to_owned(),
    };
    let old = [(".gamma", ".weight"), (".beta", ".bias")];
    let new = old.iter().find_map(|(old, new)| Some(format!("{}{new}", name.strip_suffix(old)?)));
    Some(new.unwrap_or(name))
}
