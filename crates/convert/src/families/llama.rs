//! Llama and those that are made like it.

use super::{Extra, Family, PLAIN};
use crate::array::Array;
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
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
        defaults: with_heads,
        rules: &[INTERLEAVED],
        ..LLAMA
    },
    Family { classes: &["MixtralForCausalLM"], arch: "llama", rules: &[INTERLEAVED], ..LLAMA },
    Family {
        classes: &["Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"],
        arch: "mistral3",
        defaults: with_heads,
        keys: |d| {
            llama(d)?;
            if d.config.text(&["model_type"]) == Some("ministral3") {
                let rope = d.rope.clone();
                d.set_number("rope.scaling.yarn_log_multiplier", rope.number("mscale_all_dim")?);
                d.set_number("attention.temperature_scale", rope.number("llama_4_scaling_beta")?);
            }
            Ok(())
        },
        rules: &[INTERLEAVED],
        ..LLAMA
    },
    Family { classes: &["SmolLM3ForCausalLM"], arch: "smollm3", rules: &[INTERLEAVED], ..LLAMA },
    Family {
        classes: &["ArceeForCausalLM"],
        arch: "arcee",
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
        extra: |d| factors(d, d.config.hidden_per_head()?),
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
    Family { keys: llama, extra: divisors, vocab: Kind::Llama, pre: &["llama-bpe"], ..PLAIN };

/// The model's own code derives the size of heads where nothing is said.
pub(super) fn with_heads(config: &mut Config) -> Result<(), Error> {
    let dim = config.head_dim()?;
    config.or("head_dim", dim);
    config.or("rope_theta", 10000.0);
    Ok(())
}

pub(super) fn llama(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    d.set_size("vocab_size", d.config.vocab_size()?);
    d.set_size("rope.dimension_count", d.config.head_dim()?);
    Ok(())
}

/// What RoPE's frequencies are divided by, where Llama 3.1's way is followed.
pub(super) fn divisors(d: &Draft<'_>) -> Result<Extra, Error> {
    let divisors = d.rope.llama3_divisors(d.config.head_dim()?)?;
    Ok(divisors.into_iter().map(|v| ("rope_freqs.weight", Array::of_values(v))).collect())
}

/// LongRoPE's divisors.
pub(super) fn factors(d: &Draft<'_>, dim: usize) -> Result<Extra, Error> {
    let (long, short) = (d.rope.numbers("long_factor")?, d.rope.numbers("short_factor")?);
    let (Some(long), Some(short)) = (long, short) else { return Ok(Vec::new()) };
    if long.len() != short.len() || long.len() != dim / 2 {
        return Err(Error::config(format!(
            "long_factor and short_factor should have {} numbers, and have {} and {}",
            dim / 2,
            long.len(),
            short.len()
        )));
    }
    let array = |list: Vec<f64>| Array::of_values(list.into_iter().map(|x| x as f32).collect());
    Ok(vec![("rope_factors_long.weight", array(long)), ("rope_factors_short.weight", array(short))])
}

/// Factors of Granite, whatever its layers. It has no size of heads of its own.
pub(super) fn granite(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    d.unset("attention.key_length");
    d.unset("attention.value_length");
    d.set_size("vocab_size", d.config.vocab_size()?);
    d.set_size("rope.dimension_count", d.config.hidden_per_head()?);
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
