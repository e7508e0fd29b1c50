//! LFM2: short convolutions, and attention in some layers.

use super::{Family, PLAIN};
use crate::config::{Config, missing};
use crate::draft::{Draft, SIGMOID};
use crate::error::Error;
use crate::rules::{Rule, made, same, squeezed};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["Lfm2ForCausalLM", "LFM2ForCausalLM", "Lfm2VlForConditionalGeneration"],
        arch: "lfm2",
        defaults: kinds_by_number,
        keys: |d| {
            short(d, |kind| kind != "conv")?;
            d.set_size("feed_forward_length", adjusted(d.config)?);
            Ok(())
        },
        rules: &[SHORT],
        pre: &["lfm2"],
        ..PLAIN
    },
    Family {
        classes: &["Lfm2MoeForCausalLM"],
        arch: "lfm2moe",
        defaults: kinds_by_number,
        keys: |d| {
            short(d, |kind| kind == "full_attention")?;
            d.set_size("expert_feed_forward_length", d.config.size(&["moe_intermediate_size"])?);
            d.set_size("leading_dense_block_count", d.config.size(&["num_dense_layers"])?);
            d.set("expert_gating_func", SIGMOID);
            d.weights_norm(true);
            let scale = d.config.meant_number("routed_scaling_factor")?;
            if let Some(scale) = scale.filter(|&scale| scale != 1.0) {
                d.set_number("expert_weights_scale", scale);
            }
            Ok(())
        },
        rules: &[SHORT],
        pre: &["lfm2"],
        ..PLAIN
    },
];

const SHORT: &[Rule] = &[
    same("embedding_norm", "token_embd_norm"),
    same("operator_norm", "attn_norm"),
    same("ffn_norm", "ffn_norm"),
    same("self_attn.out_proj", "attn_output"),
    same("self_attn.q_layernorm", "attn_q_norm"),
    same("self_attn.k_layernorm", "attn_k_norm"),
    made("conv.conv", "shortconv.conv", squeezed),
    same("conv.in_proj", "shortconv.in_proj"),
    same("conv.out_proj", "shortconv.out_proj"),
    same("feed_forward.w1", "ffn_gate"),
    same("feed_forward.w2", "ffn_down"),
    same("feed_forward.w3", "ffn_up"),
    same("feed_forward.gate", "ffn_gate_inp"),
    same("feed_forward.experts.*.w1", "ffn_gate_exps"),
    same("feed_forward.experts.*.w2", "ffn_down_exps"),
    same("feed_forward.experts.*.w3", "ffn_up_exps"),
    same("feed_forward.expert_bias", "exp_probs_b.bias"),
];

/// Older configurations list the layers with attention.
fn kinds_by_number(config: &mut Config) -> Result<(), Error> {
    if let Some(full) = config.numbers("full_attn_idxs")? {
        let kind = |n| if full.contains(&(n as f64)) { "full_attention" } else { "conv" };
        let kinds: Vec<&str> = (0..config.layers()?).map(kind).collect();
        config.or("layer_types", kinds);
    }
    Ok(())
}

fn short(d: &mut Draft<'_>, has_attention: fn(&str) -> bool) -> Result<(), Error> {
    d.usual()?;
    let config = d.config;
    let kinds = config.texts("layer_types")?.ok_or_else(|| missing(&["layer_types"]))?;
    let heads = config.kv_heads()?;
    let sizes = kinds.iter().map(|kind| if has_attention(kind) { heads } else { 0 });
    d.set_sizes("attention.head_count_kv", sizes);
    d.set_size("vocab_size", config.vocab_size()?);
    d.set_size("shortconv.l_cache", config.size(&["conv_L_cache"])?);
    d.copy_number("attention.layer_norm_rms_epsilon", &["norm_eps"])
}

/// The width of feed-forward layers, which configurations state before it is rounded.
fn adjusted(config: &Config) -> Result<usize, Error> {
    let mut width = config.size(&["block_ff_dim", "intermediate_size"])?;
    let factor = config.meant_number("block_ffn_dim_multiplier")?;
    let multiple = config.meant_size("block_multiple_of")?;
    if config.meant_flag("block_auto_adjust_ff_dim") {
        width = 2 * width / 3;
        if let Some(factor) = factor {
            width = (factor * width as f64) as usize;
        }
        let multiple = multiple.ok_or_else(|| missing(&["block_multiple_of"]))?;
        width = width.checked_next_multiple_of(multiple).unwrap_or(width);
    }
    Ok(width)
}
