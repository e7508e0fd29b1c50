//! Phi-3, Phi-4 and Phi-3.5-MoE.

use super::{Family, PLAIN, SILU};
use crate::draft::Draft;
use crate::error::Error;
use crate::positions::long_amplitude;
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

const PHI: Family = Family { fixed: &[SILU], keys: phi, vocab: Kind::Phi, ..PLAIN };

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
    let original = d.rope.original()?.unwrap_or(context);
    d.set_size("rope.scaling.original_context_length", original);
    d.set_size("embedding_length", config.hidden()?);
    d.set_size("feed_forward_length", config.size(&["intermediate_size"])?);
    d.set_size("block_count", config.layers()?);
    d.set_size("attention.head_count", config.heads()?);
    d.set_size("attention.head_count_kv", config.kv_heads()?);
    d.set_number("attention.layer_norm_rms_epsilon", config.number(&["rms_norm_eps"])?);
    d.set_size("rope.dimension_count", dimensions(d)?);
    // The class has no YaRN, and LongRoPE by its name in old folders.
    if ["yarn", "su"].contains(&d.rope.kind()) {
        d.rope.set_kind("longrope");
    }
    let base = config.meant_number("rope_theta")?.unwrap_or(10000.0);
    d.set_number("rope.freq_base", base);
    d.positions()?;
    if d.rope.kind() == "longrope" {
        d.unset("rope.scaling.type");
        d.unset("rope.scaling.attn_factor");
    }
    // Files of Phi-4 say 0, by which they are told from others.
    d.set_size("attention.sliding_window", config.opt_size(&["sliding_window"])?.unwrap_or(0));
    if d.rope.numbers("long_factor")?.is_some() {
        let scale = d.rope.opt("factor")?.unwrap_or(context as f64 / original as f64);
        let stated = d.rope.opt("attention_factor")?;
        let factor = stated.unwrap_or_else(|| long_amplitude(scale, original));
        d.set_number("rope.scaling.attn_factor", factor);
    }
    Ok(())
}
