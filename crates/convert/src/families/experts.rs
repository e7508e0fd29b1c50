//! Families with experts that have little else of their own.

use super::{Family, PLAIN, Predicting, SILU, llama, qwen, unless_tied};
use crate::array::Array;
use crate::draft::Draft;
use crate::error::Error;
use crate::keys::{Is, is, none, off, on};
use crate::rules::{At, halves, made, same};
use crate::vocab::Kind;
use serde_json::Value;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["OlmoeForCausalLM"],
        arch: "olmoe",
        fixed: &[SILU, none("clip_qkv")],
        keys: |d| {
            d.usual()?;
            let eps = d.config.number(&["rms_norm_eps"])?;
            d.set_number("attention.layer_norm_rms_epsilon", eps);
            d.weights_norm(false);
            Ok(())
        },
        pre: &["olmo"],
        ..PLAIN
    },
    Family {
        classes: &["Dots1ForCausalLM"],
        arch: "dots1",
        fixed: &[SILU],
        keys: |d| {
            qwen::experts(d)?;
            d.copy_size("expert_count", &["n_routed_experts"])?;
            d.copy_size("leading_dense_block_count", &["first_k_dense_replace"])?;
            d.copy_size("expert_shared_count", &["n_shared_experts"])?;
            d.copy_number("expert_weights_scale", &["routed_scaling_factor"])?;
            d.set("expert_weights_norm", d.config.meant_flag("norm_topk_prob"));
            d.no_windows()
        },
        pre: &["qwen2"],
        ..PLAIN
    },
    Family {
        classes: &["MiniMaxM2ForCausalLM"],
        arch: "minimax-m2",
        fixed: &[SILU],
        keys: |d| {
            d.usual()?;
            d.copy_size("expert_feed_forward_length", &["intermediate_size"])?;
            let dims = d.config.opt_size(&["rotary_dim"])?;
            match (d.rope.opt("partial_rotary_factor")?, dims) {
                (None, Some(dims)) => d.set_size("rope.dimension_count", dims),
                (part, _) => d.turned(d.config.head_dim()?, part.unwrap_or(1.0)),
            }
            Ok(())
        },
        rules: &[&[same("block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias")]],
        pre: &["minimax-m2"],
        ..PLAIN
    },
    Family {
        classes: &["Ernie4_5_MoeForCausalLM"],
        arch: "ernie4_5-moe",
        fixed: &[
            SILU,
            is("moe_norm_min", &[Is::Number(1e-12)]),
            is("moe_layer_interval", &[Is::Number(1.0)]),
        ],
        keys: ernie,
        rules: &[&[
            same("mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"),
            made("mlp.up_gate_proj", "ffn_gate ffn_up", halves),
        ]],
        rename: Some(|_, name| (!name.starts_with("model.mtp_")).then(|| name.to_owned())),
        vocab: Kind::Ernie,
        ..PLAIN
    },
    Family {
        classes: &["HunYuanMoEV1ForCausalLM"],
        arch: "hunyuan-moe",
        fixed: &[SILU],
        keys: hunyuan,
        rules: &[&[
            same("self_attn.query_layernorm", "attn_q_norm"),
            same("self_attn.key_layernorm", "attn_k_norm"),
            same("mlp.gate.wg", "ffn_gate_inp"),
            same("mlp.shared_mlp.gate_proj", "ffn_gate_shexp"),
            same("mlp.shared_mlp.up_proj", "ffn_up_shexp"),
            same("mlp.shared_mlp.down_proj", "ffn_down_shexp"),
        ]],
        rename: Some(unless_tied),
        pre: &["hunyuan"],
        ..PLAIN
    },
    Family {
        classes: &["BailingMoeV2ForCausalLM"],
        arch: "bailingmoe2",
        fixed: &[SILU, on("use_rmsnorm"), off("use_sliding_window")],
        keys: bailing,
        rules: &[&[
            same("word_embeddings", "token_embd"),
            same("attention.query_key_value", "attn_qkv"),
            same("attention.dense", "attn_output"),
            same("attention.query_layernorm", "attn_q_norm"),
            same("attention.key_layernorm", "attn_k_norm"),
            same("mlp.gate.expert_bias", "exp_probs_b.bias"),
            same("final_layernorm", "layer_output_norm"),
        ]],
        predicting: Predicting::Kept,
        pre: &["bailingmoe2"],
        ..PLAIN
    },
    Family {
        classes: &["GptOssForCausalLM"],
        arch: "gpt-oss",
        fixed: &[
            SILU,
            is("swiglu_limit", &[Is::Number(7.0)]),
            is("swiglu_alpha", &[Is::Number(1.702)]),
        ],
        keys: |d| {
            d.usual()?;
            d.windows_by(d.config.size(&["sliding_window"])?, 2)?;
            d.copy_size("expert_feed_forward_length", &["intermediate_size"])
        },
        rules: &[&[
            same("post_attention_layernorm", "post_attention_norm"),
            same("self_attn.sinks", "attn_sinks.weight"),
            same("mlp.router", "ffn_gate_inp"),
            made("mlp.experts.gate_up_proj", "ffn_gate_exps.weight ffn_up_exps.weight", in_turns),
            made("mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias ffn_up_exps.bias", biases),
            made("mlp.experts.down_proj", "ffn_down_exps.weight", downs),
            same("mlp.experts.down_proj_bias", "ffn_down_exps.bias"),
        ]],
        pre: &["gpt-4o"],
        ..PLAIN
    },
];

fn ernie(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    let config = d.config;
    d.set_size("expert_count", config.size(&["moe_num_experts", "num_experts"])?);
    d.set_size("expert_used_count", config.size(&["moe_k", "num_experts_per_tok"])?);
    let end = config.get("moe_layer_end_index").and_then(Value::as_i64).unwrap_or(-1);
    if end != -1 && end != config.layers()? as i64 - 1 {
        let what =
            format!("moe_layer_end_index is {end}, and only layers up to the last are converted");
        return Err(Error::config(what));
    }
    d.copy_size("interleave_moe_layer_step", &["moe_layer_interval"])?;
    d.copy_size("leading_dense_block_count", &["moe_layer_start_index"])?;
    d.copy_size("expert_feed_forward_length", &["moe_intermediate_size"])?;
    if let Some(shared) = config.opt_size(&["moe_num_shared_experts"])? {
        d.set_size("expert_shared_count", shared);
        let width = config.opt_size(&["moe_intermediate_size"])?;
        if let Some(width) = width.filter(|_| shared > 0) {
            d.set_size("expert_shared_feed_forward_length", width * shared);
        }
    }
    Ok(())
}

fn hunyuan(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    let config = d.config;
    let same = |key: &str| config.same_size(key)?.ok_or_else(|| crate::config::missing(&[key]));
    d.copy_size("expert_shared_feed_forward_length", &["intermediate_size"])?;
    let width = config.same_size("moe_intermediate_size")?;
    let width = width.map_or_else(|| config.size(&["intermediate_size"]), Ok)?;
    d.set_size("expert_feed_forward_length", width);
    d.set_size("expert_used_count", same("moe_topk")?);
    // The class has one.
    d.set_size("expert_shared_count", config.same_size("num_shared_expert")?.unwrap_or(1));
    if let Some(alpha) = d.rope.opt("alpha")?.filter(|_| d.rope.kind() == "dynamic") {
        // A base so large that positions up to 256 K can be told apart.
        let dim = config.hidden_per_head()? as f64;
        let base = d.rope.theta()?.unwrap_or(10000.0) * alpha.powf(dim / (dim - 2.0));
        d.set_number("rope.freq_base", base);
        d.set("rope.scaling.type", "none");
        d.set_number("rope.scaling.factor", 1.0);
        d.set_size("rope.scaling.original_context_length", 256 * 1024);
        d.set_size("context_length", 256 * 1024);
    }
    Ok(())
}

fn bailing(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    let config = d.config;
    let predicting = config.opt_size(&["num_nextn_predict_layers"])?;
    d.set_size("block_count", config.layers()? + predicting.unwrap_or(0));
    d.turned(config.head_dim()?, d.rope.part(0.5)?);
    d.set_size("leading_dense_block_count", config.size(&["first_k_dense_replace"])?);
    d.set_size("vocab_size", config.vocab_size()?);
    let (width, shared) =
        (config.size(&["moe_intermediate_size"])?, config.size(&["num_shared_experts"])?);
    d.set_size("expert_feed_forward_length", width);
    let of_shared = config.opt_size(&["moe_shared_expert_intermediate_size"])?;
    d.set_size("expert_shared_feed_forward_length", of_shared.unwrap_or(width * shared));
    d.set_number("expert_weights_scale", config.number(&["routed_scaling_factor"])?);
    d.set_size("expert_shared_count", shared);
    d.set(
        "expert_weights_norm",
        config.get("norm_topk_prob").and_then(Value::as_bool).unwrap_or(false),
    );
    if let Some(predicting) = predicting {
        d.set_size("nextn_predict_layers", predicting);
    }
    Ok(())
}

/// Gates and ups row by row in turn. What is quantised has its rows as files have them.
fn in_turns(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let of = downs(at, of)?.swap_remove(0);
    if !of.shape()[1].is_multiple_of(2) {
        return Err(at.shape(&of, "and cannot be gates and ups in turn".to_owned()));
    }
    Ok(vec![of.every(2, 0), of.every(2, 1)])
}

fn downs(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    match of.kept() {
        Some(_) if of.shape().len() == 3 => Ok(vec![of]),
        _ => llama::turned(at, of),
    }
}

fn biases(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let &[_, both] = of.shape() else {
        return Err(at.shape(&of, "and should be a vector for each expert".to_owned()));
    };
    if !both.is_multiple_of(2) {
        return Err(at.shape(&of, "and cannot be gates and ups in turn".to_owned()));
    }
    let of_kind = |first: usize| {
        let order = (0..both / 2).map(|i| 2 * i + first);
        of.columns(order.collect())
    };
    Ok(vec![of_kind(0), of_kind(1)])
}
