//! Encoders of T5: sentence-T5, GTR, and what has its form (mT5, UMT5).

use super::{Family, PLAIN};
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::folder::Folder;
use crate::rules::{Rule, same, without};
use crate::vocab::Kind;
use serde_json::Value;

pub(super) const FAMILIES: &[Family] = &[Family {
    classes: &["T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel"],
    arch: "t5encoder",
    blocks: "enc.blk",
    keys,
    rules: &[RULES],
    rename: Some(names),
    vocab: Kind::T5,
    ..PLAIN
}];

const RULES: &[Rule] = &[
    same("shared", "token_embd"),
    same("encoder.final_layer_norm", "enc.output_norm"),
    same("attention.layer_norm", "attn_norm"),
    same("SelfAttention.q", "attn_q"),
    same("SelfAttention.k", "attn_k"),
    same("SelfAttention.v", "attn_v"),
    same("SelfAttention.o", "attn_o"),
    same("SelfAttention.relative_attention_bias", "attn_rel_b"),
    same("dense.layer_norm", "ffn_norm"),
    same("DenseReluDense.wi", "ffn_up"),
    same("DenseReluDense.wi_0", "ffn_gate"),
    same("DenseReluDense.wi_1", "ffn_up"),
    same("DenseReluDense.wo", "ffn_down"),
    // Of the decoder, which these classes do not have.
    without("lm_head"),
];

/// Whether the embedding is there by its own name too.
const SHARED: &str = "arclight_has_shared";

/// Notes whether the folder has the embedding by its own name: tensors that are one may be saved under either name, and
/// old folders have both.
pub(super) fn note(folder: &mut Folder) {
    if folder.tensors().iter().any(|tensor| tensor.entry.name == "shared.weight") {
        folder.config.set(SHARED, true);
    }
}

/// `encoder.block.3.layer.0.SelfAttention.q` as `layers.3.SelfAttention.q`; norms by what stands behind them.
fn names(config: &Config, name: &str) -> Option<String> {
    if name.starts_with("decoder.") {
        return None;
    }
    if name == "encoder.embed_tokens.weight" {
        return (!config.flag(SHARED)).then(|| "shared.weight".to_owned());
    }
    let in_layer = name.strip_prefix("encoder.block.").and_then(|rest| rest.split_once(".layer."));
    let Some((layer, rest)) = in_layer else { return Some(name.to_owned()) };
    let part = match rest.split_once('.') {
        Some(("0", norm)) if norm.starts_with("layer_norm") => format!("attention.{norm}"),
        Some(("1", norm)) if norm.starts_with("layer_norm") => format!("dense.{norm}"),
        Some(("0" | "1", part)) => part.to_owned(),
        _ => rest.to_owned(),
    };
    Some(format!("layers.{layer}.{part}"))
}

fn keys(d: &mut Draft<'_>) -> Result<(), Error> {
    let config = d.config;
    let size = |keys: &[&str]| config.size(keys);
    d.set_size("context_length", config.opt_size(&["n_positions"])?.unwrap_or(512));
    d.set_size("embedding_length", size(&["d_model"])?);
    d.set_size("feed_forward_length", size(&["d_ff"])?);
    d.set_size("block_count", config.layers()?);
    d.set_size("attention.head_count", size(&["num_heads"])?);
    d.set_size("attention.key_length", size(&["d_kv"])?);
    d.set_size("attention.value_length", size(&["d_kv"])?);
    d.set_size("attention.relative_buckets_count", size(&["relative_attention_num_buckets"])?);
    for norm in ["layer_norm_epsilon", "layer_norm_rms_epsilon"] {
        d.set_number(&format!("attention.{norm}"), config.number(&["layer_norm_epsilon"])?);
    }
    // What no file can say.
    let distance = config.opt_size(&["relative_attention_max_distance"])?;
    if let Some(other) = distance.filter(|&distance| distance != 128) {
        let what = format!("relative_attention_max_distance is {other}, and only 128 is converted");
        return Err(Error::config(what));
    }
    match config.get("feed_forward_proj").map(|function| function.as_str()) {
        None | Some(Some("relu" | "gated-gelu")) => Ok(()),
        Some(_) => {
            let other = config.get("feed_forward_proj").unwrap_or(&Value::Null);
            let what =
                format!("feed_forward_proj is {other}, and only relu and gated-gelu are converted");
            Err(Error::config(what))
        }
    }
}
