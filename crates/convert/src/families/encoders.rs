//! Encoders of texts after BERT: RoBERTa and XLM-R, Nomic Embed, Jina Embeddings, ModernBERT.

use super::{Family, PLAIN, bert};
use crate::array::Array;
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::keys::{GELU, Is, is, off};
use crate::rules::{At, Rule, made, same, without};
use crate::vocab::Kind;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["RobertaModel"],
        rules: &[bert::UNPOOLED, POSITIONS, bert::RULES],
        ..ROBERTA
    },
    Family {
        classes: &["RobertaForSequenceClassification"],
        keys: |d| ranking(d, roberta),
        rules: &[RANKING, POSITIONS, bert::RULES],
        ..ROBERTA
    },
    Family {
        classes: &["XLMRobertaModel"],
        fixed: &[
            is("hidden_act", GELU),
            is("position_embedding_type", &[Is::Text("absolute"), Is::Text("rotary")]),
            off("is_decoder"),
        ],
        variant: Some(|config| config.get("lora_adaptations").map(|_| "jina-bert-v3")),
        rules: &[bert::UNPOOLED, POSITIONS, bert::RULES, ROTATING],
        vocab: Kind::Unigram { mask: false },
        ..ROBERTA
    },
    Family {
        classes: &["XLMRobertaForSequenceClassification"],
        keys: |d| ranking(d, roberta),
        rules: &[RANKING, POSITIONS, bert::RULES],
        vocab: Kind::Unigram { mask: false },
        ..ROBERTA
    },
    Family {
        classes: &["NomicBertModel"],
        arch: "nomic-bert",
        variant: Some(|config| has_experts(config).then_some("nomic-bert-moe")),
        keys: nomic,
        rules: &[bert::UNPOOLED, bert::RULES, ROTATING],
        rename: Some(names),
        vocab: Kind::WordPieceOrUnigram,
        ..PLAIN
    },
    Family {
        classes: &["JinaBertModel", "JinaBertForMaskedLM"],
        arch: "jina-bert-v2",
        fixed: &[
            is("hidden_act", GELU),
            is("position_embedding_type", &[Is::Text("alibi")]),
            off("is_decoder"),
        ],
        keys: bert::keys,
        rules: &[
            bert::UNPOOLED,
            &[
                same("mlp.gated_layers", "ffn_up"),
                same("mlp.wo", "ffn_down"),
                same("mlp.layernorm", "layer_output_norm"),
            ],
            bert::RULES,
        ],
        rename: Some(names),
        vocab: Kind::WordPieceOrBpe,
        pre: &["jina-v2-de", "jina-v2-es"],
        ..PLAIN
    },
    Family {
        classes: &["ModernBertModel", "ModernBertForMaskedLM"],
        // The layer before the words that are predicted.
        rules: &[MODERN, &[without("head.dense"), without("head.norm"), without("decoder")]],
        ..MODERN_BERT
    },
    Family {
        classes: &["ModernBertForSequenceClassification"],
        keys: |d| ranking(d, modern),
        rules: &[
            MODERN,
            &[
                same("head.dense", "cls"),
                same("head.norm", "cls.norm"),
                same("classifier", "cls.output"),
            ],
        ],
        ..MODERN_BERT
    },
];

const ROBERTA: Family = Family {
    arch: "bert",
    fixed: bert::FIXED,
    keys: roberta,
    rename: Some(names),
    vocab: Kind::BpeOfPairs,
    pre: &["roberta-bpe"],
    ..PLAIN
};

const MODERN_BERT: Family = Family {
    arch: "modern-bert",
    fixed: &[is("hidden_activation", &[Is::Text("gelu"), Is::Text("silu")])],
    keys: modern,
    vocab: Kind::BpeOfTexts,
    pre: &["modern-bert"],
    ..PLAIN
};

const POSITIONS: &[Rule] = &[made("embeddings.position_embeddings", "position_embd", from_first)];

const RANKING: &[Rule] =
    &[same("classifier.dense", "cls"), same("classifier.out_proj", "cls.output")];

/// Layers with RoPE.
const ROTATING: &[Rule] = &[
    same("emb_ln", "token_embd_norm"),
    same("attn.Wqkv", "attn_qkv"),
    same("mixer.Wqkv", "attn_qkv"),
    same("attn.out_proj", "attn_output"),
    same("mixer.out_proj", "attn_output"),
    same("norm1", "attn_output_norm"),
    same("norm2", "layer_output_norm"),
    same("mlp.fc1", "ffn_up"),
    same("mlp.fc11", "ffn_up"),
    same("mlp.fc12", "ffn_gate"),
    same("mlp.fc2", "ffn_down"),
    same("mlp.router.layer", "ffn_gate_inp"),
    made("mlp.experts.mlp.w1", "ffn_up_exps.weight", ups),
    made("mlp.experts.mlp.w2", "ffn_down_exps.weight", downs),
    // The model adds it to what all experts give, and it is not trained.
    without("mlp.experts.bias"),
];

const MODERN: &[Rule] = &[
    same("embeddings.tok_embeddings", "token_embd"),
    same("embeddings.norm", "token_embd_norm"),
    same("final_norm", "output_norm"),
    same("attn_norm", "attn_norm"),
    same("attn.Wqkv", "attn_qkv"),
    same("attn.Wo", "attn_output"),
    same("mlp_norm", "ffn_norm"),
    same("mlp.Wi", "ffn_up"),
    same("mlp.Wo", "ffn_down"),
];

/// Names as BERT's are; those of Jina's adapters without what stands around the weights, which are kept, and adapters
/// left out.
fn names(config: &Config, name: &str) -> Option<String> {
    let name = name.strip_prefix("roberta.").unwrap_or(name);
    if name.contains("lora_A") || name.contains("lora_B") || name.starts_with("lm_head.") {
        return None;
    }
    let name = name.replace(".parametrizations.", ".");
    let name = name.strip_suffix(".original").unwrap_or(&name);
    let name = bert::rename(config, name)?;
    Some(name.strip_prefix("encoder.").map_or_else(|| name.clone(), str::to_owned))
}

/// The first position with an embedding: those before it are of padding.
fn first_position(config: &Config) -> Result<usize, Error> {
    Ok(config.opt_size(&["pad_token_id"])?.map_or(0, |padding| padding + 1))
}

fn from_first(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let (first, all) = (first_position(at.config)?, of.shape()[0]);
    match first < all {
        true => Ok(vec![of.part(first..all)]),
        false => Err(at.shape(&of, format!("and positions begin at {first}"))),
    }
}

fn roberta(d: &mut Draft<'_>) -> Result<(), Error> {
    bert::keys(d)?;
    let first = first_position(d.config)?;
    if let Some(all) = d.config.opt_size(&["max_position_embeddings"])? {
        let context = all.checked_sub(first).filter(|&context| context > 0);
        let context = context.ok_or_else(|| {
            Error::config(format!(
                "max_position_embeddings is {all}, and positions begin at {first}"
            ))
        })?;
        d.set_size("context_length", context);
    }
    Ok(())
}

fn ranking(d: &mut Draft<'_>, keys: fn(&mut Draft<'_>) -> Result<(), Error>) -> Result<(), Error> {
    keys(d)?;
    d.set("pooling_type", bert::RANK);
    bert::labels(d);
    Ok(())
}

fn has_experts(config: &Config) -> bool {
    config.opt_size(&["moe_every_n_layers"]).ok().flatten().is_some_and(|every| every > 0)
}

fn nomic(d: &mut Draft<'_>) -> Result<(), Error> {
    bert::keys(d)?;
    let config = d.config;
    let experts = has_experts(config);
    // What the page takes for granted.
    let want = |key: &str, value: serde_json::Value| match config.get(key) {
        Some(other) if *other != value => {
            Err(Error::config(format!("{key} is {other}, and only {value} is converted")))
        }
        _ => Ok(()),
    };
    want("activation_function", if experts { "gelu" } else { "swiglu" }.into())?;
    for (key, value) in [
        ("causal", false),
        ("prenorm", false),
        ("rotary_emb_interleaved", false),
        ("qkv_proj_bias", experts),
        ("mlp_fc1_bias", experts),
        ("mlp_fc2_bias", experts),
    ] {
        want(key, value.into())?;
    }
    if config.opt_number(&["rotary_emb_fraction"])?.is_some_and(|part| part != 1.0) {
        return Err(Error::config("rotary_emb_fraction is not 1, which is not converted"));
    }
    if config.get("rotary_emb_scale_base").is_some() {
        return Err(Error::config("rotary_emb_scale_base is set, which is not converted"));
    }
    // Configurations say what the code can do; the models are trained on less.
    let trained = config.opt_size(&["max_trained_positions"])?.unwrap_or(2048);
    let context = match (config.size(&["n_positions"])?, trained) {
        (8192, 2048) => 2048,
        (2048, 2048) => 512,
        (positions, trained) => {
            return Err(Error::config(format!(
                "n_positions is {positions} and max_trained_positions {trained}, which no known model has"
            )));
        }
    };
    d.set_size("context_length", context);
    if experts {
        d.copy_size("moe_every_n_layers", &["moe_every_n_layers"])?;
        d.copy_size("expert_used_count", &["moe_top_k"])?;
    }
    Ok(())
}

/// Matrices of all experts, one behind the other.
fn ups(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let (experts, inner) = (at.config.experts()?.unwrap_or(0), at.config.size(&["n_inner"])?);
    let hidden = at.config.hidden()?;
    match of.shape() == [experts * inner, hidden] {
        true => Ok(vec![of.reshaped(&[experts, inner, hidden])]),
        false => Err(at.shape(&of, format!("and not {experts} experts of {inner} by {hidden}"))),
    }
}

fn downs(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    Ok(vec![ups(at, of)?.swap_remove(0).turned()])
}

fn modern(d: &mut Draft<'_>) -> Result<(), Error> {
    bert::keys(d)?;
    let config = d.config;
    d.set_size("attention.sliding_window", config.size(&["local_attention"])?);
    d.copy_size("attention.sliding_window_pattern", &["global_attn_every_n_layers"])?;
    d.set("rope.scaling.type", "none");
    d.set_size("vocab_size", config.vocab_size()?);
    if let Some(function) = config.text(&["hidden_activation"]) {
        d.set("hidden_activation", function);
    }
    if d.rope.kind() != "default" {
        return Err(Error::config(format!(
            "rope_type is {:?}, which is not converted",
            d.rope.kind()
        )));
    }
    match config.text(&["classifier_pooling"]) {
        None => {}
        Some("mean") => d.set("classifier.pooling_type", 1u32),
        Some("cls") => d.set("classifier.pooling_type", 2u32),
        Some(other) => {
            let what = format!("classifier_pooling is {other:?}, which no file can say");
            return Err(Error::config(what));
        }
    }
    Ok(())
}
