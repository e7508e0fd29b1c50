//! Phi-3, Phi-4 and Phi-3.5-MoE.

use super::{Family, PLAIN, llama};
use crate::draft::Draft;
use crate::error::Error;
use crate::rules::{Rule, same};
use crate::vocab::Kind;

pub(super) const FAMILIES: &[Family] = &[
    Family { classes: &["Phi3ForCausalLM"], arch: "phi3", ..PHI },
    Family {
        classes: &["PhiMoEForCausalLM", "PhimoeForCausalLM"],
        arch: "phimoe",
        keys: |d| {
            phi(d)?;
            d.copy_size("expert_count", &["num_local_experts", "num_experts"])?;
            d.copy_size("expert_used_count", &["num_experts_per_tok", "num_experts_per_token"])
        },
        rules: &[ROUTER],
        ..PHI
    },
];

const PHI: Family =
    Family { keys: phi, extra: |d| llama::factors(d, dimensions(d)?), vocab: Kind::Phi, ..PLAIN };

const ROUTER: &[Rule] =
    &[same("block_sparse_moe.router", "ffn_gate_inp"), same("mlp.router", "ffn_gate_inp")];

/// Elements of a head that are turned.
fn dimensions(d: &Draft<'_>) -> Result<usize, Error> {
    let heads = d.config.heads()?;
    let turned = (d.rope.part(1.0)? * d.config.hidden()? as f64) as usize;
    turned.checked_div(heads).ok_or_else(|| Error::config("num_attention_heads is 0"))
}

fn phi(d: &mut Draft<'_>) -> Result<(), Error> {
    let config = d.config;
    let context = config.size(&["n_positions", "max_position_embeddings"])?;
    d.set_size("context_length", context);
    let original = match d.rope.opt("original_max_position_embeddings")? {
        Some(_) => d.rope.size("original_max_position_embeddings")?,
        None => context,
    };
    d.set_size("rope.scaling.original_context_length", original);
    d.set_size("embedding_length", config.hidden()?);
    d.set_size("feed_forward_length", config.size(&["intermediate_size"])?);
    d.set_size("block_count", config.layers()?);
    d.set_size("attention.head_count", config.heads()?);
    d.set_size("attention.head_count_kv", config.kv_heads()?);
    d.set_number("attention.layer_norm_rms_epsilon", config.number(&["rms_norm_eps"])?);
    d.set_size("rope.dimension_count", dimensions(d)?);
    d.set_number("rope.freq_base", d.rope.theta()?.unwrap_or(10000.0));
    // Files of Phi-4 say 0, by which they are told from others.
    d.set_size("attention.sliding_window", config.opt_size(&["sliding_window"])?.unwrap_or(0));
    if d.rope.numbers("long_factor")?.is_some() {
        let (scale, original) = (context as f64 / original as f64, original as f64);
        let factor = match d.rope.kind() {
            _ if scale <= 1.0 => 1.0,
            "su" | "longrope" => (1.0 + scale.ln() / original.ln()).sqrt(),
            "yarn" => 0.1 * scale.ln() + 1.0,
            other => {
                let what = format!("rope_type {other:?} beside long_factor is not converted");
                return Err(Error::config(what));
            }
        };
        d.set_number("rope.scaling.attn_factor", factor);
    }
    Ok(())
}
