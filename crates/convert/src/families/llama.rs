//! Llama and those that are made like it.

use super::{Family, PLAIN, SILU};
use crate::array::Array;
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::keys::{SQUARED_RELU, is, none, off};
use crate::rules::{At, Rule, halves, keys, made, queries, same};
use crate::vocab::Kind;

/// Rows of queries and keys in the order that RoPE of neighbours wants.
pub(super) const INTERLEAVED: &[Rule] =
    &[made("self_attn.q_proj", "attn_q", queries), made("self_attn.k_proj", "attn_k", keys)];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &[
            "LlamaForCausalLM",
            "LLaMAForCausalLM",
            "MistralForCausalLM",
            "VLlama3ForCausalLM",
            "LlavaForConditionalGeneration",
            "Idefics3ForConditionalGeneration",
            "SmolVLMForConditionalGeneration",
            "IQuestCoderForCausalLM",
        ],
        arch: "llama",
        fixed: &[SILU, off("use_sliding_window"), none("clip_qkv")],
        defaults: with_heads,
        rules: &[INTERLEAVED],
        ..LLAMA
    },
    Family { classes: &["MixtralForCausalLM"], arch: "llama", rules: &[INTERLEAVED], ..LLAMA },
    Family {
        classes: &["Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"],
        arch: "mistral3",
        defaults: with_heads,
        fixed: &[SILU, none("sliding_window")],
        keys: |d| {
            llama(d)?;
            let rope = d.rope.clone();
            if let Some(gain) = rope.opt("mscale_all_dim")? {
                d.set_number("rope.scaling.yarn_log_multiplier", gain);
            }
            if let Some(scale) = rope.opt("llama_4_scaling_beta")? {
                d.set_number("attention.temperature_scale", scale);
                if let Some(original) = rope.original()? {
                    d.set_size("rope.scaling.original_context_length", original);
                }
            }
            Ok(())
        },
        rules: &[INTERLEAVED],
        ..LLAMA
    },
    Family {
        classes: &["SmolLM3ForCausalLM"],
        arch: "smollm3",
        keys: |d| {
            llama(d)?;
            d.no_windows()?;
            every_fourth_without_rope(d.config)
        },
        rules: &[INTERLEAVED],
        ..LLAMA
    },
    Family {
        classes: &["ArceeForCausalLM"],
        arch: "arcee",
        fixed: &[is("hidden_act", SQUARED_RELU)],
        defaults: with_heads,
        rules: &[INTERLEAVED],
        ..LLAMA
    },
    Family {
        classes: &["MiniCPMForCausalLM"],
        arch: "minicpm",
        keys: |d| {
            d.usual()?;
            d.set_number("embedding_scale", d.config.number(&["scale_emb"])?);
            let depth = (d.config.layers()? as f64).sqrt();
            d.set_number("residual_scale", d.config.number(&["scale_depth"])? / depth);
            let base = d.config.number(&["dim_model_base"])?;
            d.set_number("logit_scale", d.config.hidden()? as f64 / base);
            Ok(())
        },
        rules: &[INTERLEAVED],
        fixed: &[SILU],
        vocab: Kind::SentencePiece,
        ..PLAIN
    },
    Family {
        classes: &["GraniteForCausalLM"],
        arch: "granite",
        keys: granite,
        rules: &[INTERLEAVED],
        ..LLAMA
    },
    Family {
        classes: &["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
        arch: "granitemoe",
        keys: granite_experts,
        rules: &[INTERLEAVED, GRANITE_EXPERTS],
        rename: Some(granite_names),
        ..LLAMA
    },
    Family {
        classes: &["Llama4ForCausalLM", "Llama4ForConditionalGeneration"],
        arch: "llama4",
        keys: |d| {
            llama(d)?;
            let config = d.config;
            chunks(d)?;
            d.copy_size("feed_forward_length", &["intermediate_size_mlp"])?;
            d.copy_size("interleave_moe_layer_step", &["interleave_moe_layer_step"])?;
            d.copy_size("expert_feed_forward_length", &["intermediate_size"])?;
            let full = config.layers_that_are(&["full_attention"])?;
            if full.is_some_and(|full| full.iter().all(|&full| full)) {
                d.set_size("attention.sliding_window", 0);
            }
            Ok(())
        },
        rules: &[&[
            same("feed_forward.gate_proj", "ffn_gate"),
            same("feed_forward.up_proj", "ffn_up"),
            same("feed_forward.down_proj", "ffn_down"),
            same("feed_forward.router", "ffn_gate_inp"),
            same("feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"),
            same("feed_forward.shared_expert.up_proj", "ffn_up_shexp"),
            same("feed_forward.shared_expert.down_proj", "ffn_down_shexp"),
            made(
                "feed_forward.experts.gate_up_proj",
                "ffn_gate_exps.weight ffn_up_exps.weight",
                turned_halves,
            ),
            made("feed_forward.experts.down_proj", "ffn_down_exps.weight", turned),
        ]],
        vocab: Kind::Bpe,
        pre: &["llama4"],
        ..LLAMA
    },
];

const LLAMA: Family =
    Family { fixed: &[SILU], keys: llama, vocab: Kind::Llama, pre: &["llama-bpe"], ..PLAIN };

/// The model's own code derives the size of heads where nothing is said.
pub(super) fn with_heads(config: &mut Config) -> Result<(), Error> {
    let dim = config.head_dim()?;
    config.or("head_dim", dim);
    let theta = config.class().and_then(|class| class.takes("rope_theta")).cloned();
    config.or("rope_theta", theta.unwrap_or_else(|| 10000.0.into()));
    Ok(())
}

pub(super) fn llama(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    d.set_size("vocab_size", d.config.vocab_size()?);
    d.set_size("rope.dimension_count", d.config.head_dim()?);
    // Mistral and Mixtral have a window in all layers, or none. Llama has none.
    let text = d.config.text(&["model_type"]).unwrap_or_default();
    let mut classes = d.config.architectures().into_iter();
    let mistral =
        classes.any(|class| ["MistralForCausalLM", "MixtralForCausalLM"].contains(&class));
    if d.arch == "llama"
        && (mistral || text == "mistral")
        && let Some(window) = d.config.meant_size("sliding_window")?
    {
        d.set_size("attention.sliding_window", window);
    }
    Ok(())
}

/// Refuses layers with RoPE other than three of four.
fn every_fourth_without_rope(config: &Config) -> Result<(), Error> {
    const KEY: &str = "no_rope_layers";
    let usual = |layer: usize| !(layer + 1).is_multiple_of(4);
    let every = config.meant_size("no_rope_layer_interval")?;
    let listed = config.numbers(KEY)?.filter(|list| !list.is_empty());
    let as_usual = match &listed {
        Some(list) => list.iter().enumerate().all(|(n, &rope)| (rope != 0.0) == usual(n)),
        None => every.is_none_or(|every| every == 4),
    };
    match as_usual {
        true => Ok(()),
        false => {
            let key = if listed.is_some() { KEY } else { "no_rope_layer_interval" };
            Err(Error::config(format!(
                "{key} is other than every fourth layer, which no file can say"
            )))
        }
    }
}

/// Llama 4's chunks, and the growth of queries in layers without them.
fn chunks(d: &mut Draft<'_>) -> Result<(), Error> {
    let config = d.config;
    every_fourth_without_rope(config)?;
    let refused = |what: String| Err(Error::config(format!("{what}, which no file can say")));
    if let Some(other) = config.texts("layer_types")?.filter(|kinds| {
        let usual = |n: usize| {
            if (n + 1).is_multiple_of(4) { "full_attention" } else { "chunked_attention" }
        };
        let all_full = kinds.iter().all(|kind| *kind == "full_attention");
        !all_full && kinds.iter().enumerate().any(|(n, kind)| *kind != usual(n))
    }) {
        return refused(format!("layer_types is {other:?}"));
    }
    const CHUNK: usize = 8192;
    for (key, from, usual) in [
        ("attention.sliding_window", "attention_chunk_size", CHUNK),
        ("attention.temperature_length", "floor_scale", CHUNK),
    ] {
        if let Some(stated) = config.meant_size(from)?.filter(|&stated| stated != usual) {
            d.set_size(key, stated);
        }
    }
    if let Some(scale) = config.meant_number("attn_scale")?.filter(|&scale| scale != 0.1) {
        d.set_number("attention.temperature_scale", scale);
    }
    let on = |key: &str| config.meant(key).is_none_or(|on| on != false && on != 0);
    if !on("attn_temperature_tuning") {
        return refused("attn_temperature_tuning is off".to_owned());
    }
    // Readers know models without norms of queries and keys by the number of experts.
    let norms = on("use_qk_norm");
    if norms == (config.experts()? == Some(128)) {
        return refused(format!("use_qk_norm is {norms}"));
    }
    let step = config.meant_size("interleave_moe_layer_step")?.unwrap_or(1).max(1);
    if let Some(layers) = config.numbers("moe_layers")? {
        let usual = (step - 1..config.layers()?).step_by(step).map(|layer| layer as f64);
        if !usual.eq(layers) {
            return refused(format!("moe_layers is other than every {step}"));
        }
    }
    Ok(())
}

/// Factors of Granite, whatever its layers. Files have no size of heads where it is the width's share.
pub(super) fn granite(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    if d.config.head_dim()? == d.config.hidden_per_head()? {
        d.unset("attention.key_length");
        d.unset("attention.value_length");
    }
    d.set_size("vocab_size", d.config.vocab_size()?);
    d.set_size("rope.dimension_count", d.config.hidden_per_head()?.min(d.config.head_dim()?));
    d.copy_factor("attention.scale", "attention_multiplier")?;
    d.copy_factor("embedding_scale", "embedding_multiplier")?;
    d.copy_factor("residual_scale", "residual_multiplier")?;
    d.copy_factor("logit_scale", "logits_scaling")
}

pub(super) fn granite_experts(d: &mut Draft<'_>) -> Result<(), Error> {
    granite(d)?;
    if let Some(width) = d.config.opt_size(&["shared_intermediate_size"])?.filter(|&w| w > 0) {
        d.set_size("expert_shared_feed_forward_length", width);
    }
    Ok(())
}

/// Without experts, the one for all tokens is the layer's own.
pub(super) fn granite_names(config: &Config, name: &str) -> Option<String> {
    let experts = config.experts().ok().flatten().is_some_and(|experts| experts > 0);
    Some(if experts { name.to_owned() } else { name.replace("shared_mlp.", "only_mlp.") })
}

/// Gates and ups are one tensor.
pub(super) const GRANITE_EXPERTS: &[Rule] = &[
    same("block_sparse_moe.router.layer", "ffn_gate_inp"),
    made("block_sparse_moe.input_linear", "ffn_gate_exps ffn_up_exps", halves),
    same("block_sparse_moe.output_linear", "ffn_down_exps"),
    made("shared_mlp.input_linear", "ffn_gate_shexp ffn_up_shexp", halves),
    same("shared_mlp.output_linear", "ffn_down_shexp"),
    made("only_mlp.input_linear", "ffn_gate ffn_up", halves),
    same("only_mlp.output_linear", "ffn_down"),
];

/// Experts whose rows are columns.
pub(super) fn turned(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    if of.shape().len() != 3 {
        return Err(at.shape(&of, "and should be a matrix for each expert".to_owned()));
    }
    Ok(vec![of.turned()])
}

fn turned_halves(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    halves(at, turned(at, of)?.swap_remove(0))
}
