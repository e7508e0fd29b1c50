//! Families with layers that keep a state of fixed size: Mamba-2.

use super::{Family, PLAIN, SILU, llama, llama::GRANITE_EXPERTS};
use crate::array::Array;
use crate::config::{Config, missing};
use crate::draft::Draft;
use crate::error::Error;
use crate::keys::{Is, SQUARED_RELU, is, none};
use crate::rules::{At, How, Rule, decays, keys, made, queries, same, squeezed};
use crate::vocab::Kind;
use serde_json::Value;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["GraniteMoeHybridForCausalLM", "BambaForCausalLM"],
        arch: "granitehybrid",
        // Some of the family have no recurrences: they are files of other architectures.
        variant: Some(|config| {
            let hybrid = attention(config).is_ok_and(|layers| layers.contains(&false));
            let experts = config.opt_size(&["num_experts_per_tok", "num_experts_per_token"]);
            let experts = experts.ok().flatten().is_some_and(|n| n > 0);
            match (hybrid, experts) {
                (true, _) => None,
                (false, true) => Some("granitemoe"),
                (false, false) => Some("granite"),
            }
        }),
        fixed: &[
            SILU,
            is("normalization_function", &[Is::Text("rmsnorm")]),
            is("time_step_limit", UNLIMITED),
        ],
        keys: granite,
        rules: &[BAMBA, MAMBA, GRANITE_EXPERTS],
        rename: Some(bamba_names),
        vocab: Kind::Padded(8),
        pre: &["gpt-2"],
        ..PLAIN
    },
    Family {
        classes: &["NemotronHForCausalLM"],
        arch: "nemotron_h",
        variant: Some(|config| {
            pattern(config).is_ok_and(|kinds| kinds.contains(&'E')).then_some("nemotron_h_moe")
        }),
        defaults: |config| {
            let kinds = config.texts("layers_block_type")?;
            if let Some(kinds) = kinds.or(config.texts("layer_types")?) {
                let layers = kinds.len();
                config.or("num_hidden_layers", layers);
            }
            Ok(())
        },
        fixed: &[
            is("mlp_hidden_act", SQUARED_RELU),
            is("mamba_hidden_act", crate::keys::SILU),
            is("time_step_limit", UNLIMITED),
            none("sliding_window"),
        ],
        keys: nemotron,
        rules: &[MIXERS],
        rename: Some(|_, name| (!name.starts_with("mtp.")).then(|| name.to_owned())),
        vocab: Kind::Padded(8),
        pre: &["pixtral"],
        ..PLAIN
    },
    Family {
        classes: &["FalconH1ForCausalLM"],
        arch: "falcon-h1",
        fixed: &[SILU, is("time_step_limit", UNLIMITED)],
        keys: falcon,
        rules: &[FALCON, MAMBA],
        // A tied head has a factor of its own.
        rename: Some(|config, name| {
            let tied = config.flag("tie_word_embeddings");
            let factor = |key: &str| config.opt_number(&[key]).ok().flatten();
            let differs = factor("lm_head_multiplier") != factor("embedding_multiplier");
            match name.ends_with("embed_tokens.weight") && tied && differs {
                true => Some(name.replace("embed_tokens", "tied_embed_tokens")),
                false => super::unless_tied(config, name),
            }
        }),
        pre: &["falcon-h1"],
        ..PLAIN
    },
];

/// Steps of recurrences have no limits above zero.
const UNLIMITED: &[Is] = &[Is::Unlimited];

/// Queries and keys of models of which some turn half of each head.
const BAMBA: &[Rule] = &[
    made("self_attn.q_proj", "attn_q", |at, of| turned_rows(at, of, at.config.heads()?, queries)),
    made("self_attn.k_proj", "attn_k", |at, of| turned_rows(at, of, at.config.kv_heads()?, keys)),
];

const MAMBA: &[Rule] = &[
    same("mamba.in_proj", "ssm_in"),
    made("mamba.conv1d", "ssm_conv1d", taps),
    same("mamba.dt_bias", "ssm_dt.bias"),
    made("mamba.A_log", "ssm_a", column_of_decays),
    made("mamba.D", "ssm_d", column),
    made("mamba.norm", "ssm_norm", by_group),
    same("mamba.out_proj", "ssm_out"),
];

const MIXERS: &[Rule] = &[
    same("embeddings", "token_embd"),
    same("norm_f", "output_norm"),
    same("norm", "attn_norm"),
    same("mixer.in_proj", "ssm_in"),
    made("mixer.conv1d", "ssm_conv1d", taps),
    same("mixer.dt_bias", "ssm_dt.bias"),
    made("mixer.A_log", "ssm_a", column_of_decays),
    made("mixer.D", "ssm_d", column),
    made("mixer.norm", "ssm_norm", by_group),
    same("mixer.out_proj", "ssm_out"),
    // There are no positions, so the order of rows would not matter: it is as files have it.
    made("mixer.q_proj", "attn_q", queries),
    made("mixer.k_proj", "attn_k", keys),
    same("mixer.v_proj", "attn_v"),
    same("mixer.o_proj", "attn_output"),
    same("mixer.up_proj", "ffn_up"),
    same("mixer.down_proj", "ffn_down"),
    same("mixer.gate", "ffn_gate_inp"),
    same("mixer.gate.e_score_correction_bias", "exp_probs_b.bias"),
    same("mixer.experts.*.up_proj", "ffn_up_exps"),
    same("mixer.experts.*.down_proj", "ffn_down_exps"),
    same("mixer.shared_experts.up_proj", "ffn_up_shexp"),
    same("mixer.shared_experts.down_proj", "ffn_down_shexp"),
];

/// Factors that the model multiplies with are put into the matrices.
const FALCON: &[Rule] = &[
    made("embed_tokens", "token_embd", |at, of| times(at, of, &[("embedding_multiplier", None)])),
    made("tied_embed_tokens", "token_embd output", |at, of| {
        let head = times(at, of.clone(), &[("lm_head_multiplier", None)])?.swap_remove(0);
        let embedding = times(at, of, &[("embedding_multiplier", None)])?.swap_remove(0);
        Ok(vec![embedding, head])
    }),
    made("lm_head", "output", |at, of| times(at, of, &[("lm_head_multiplier", None)])),
    same("final_layernorm", "output_norm"),
    same("pre_ff_layernorm.weight", "ffn_norm"),
    made("self_attn.q_proj", "attn_q", |at, of| {
        times(at, of, &[("attention_in_multiplier", None)])
    }),
    made("self_attn.k_proj", "attn_k", |at, of| {
        times(at, of, &[("key_multiplier", None), ("attention_in_multiplier", None)])
    }),
    made("self_attn.v_proj", "attn_v", |at, of| {
        times(at, of, &[("attention_in_multiplier", None)])
    }),
    made("self_attn.o_proj", "attn_output", |at, of| {
        times(at, of, &[("attention_out_multiplier", None)])
    }),
    made("feed_forward.gate_proj", "ffn_gate", |at, of| {
        times(at, of, &[("mlp_multipliers", Some(0))])
    }),
    same("feed_forward.up_proj", "ffn_up"),
    made("feed_forward.down_proj", "ffn_down", |at, of| {
        times(at, of, &[("mlp_multipliers", Some(1))])
    }),
    made("mamba.out_proj", "ssm_out", |at, of| times(at, of, &[("ssm_out_multiplier", None)])),
    made("mamba.in_proj", "ssm_in", falcon_inputs),
];

fn taps(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    if of.shape().len() < 2 { Ok(vec![of]) } else { squeezed(at, of) }
}

fn column(_: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    Ok(vec![of.reshaped(&[of.elements(), 1])])
}

fn column_of_decays(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    column(at, decays(at, of)?.swap_remove(0))
}

fn by_group(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let groups = at.config.opt_size(&["mamba_n_groups", "n_groups", "num_groups"])?.unwrap_or(1);
    if groups == 0 || !of.elements().is_multiple_of(groups) {
        return Err(at.shape(&of, format!("and cannot be cut into {groups} groups")));
    }
    Ok(vec![of.reshaped(&[groups, of.elements() / groups])])
}

/// Which layers have attention.
fn attention(config: &Config) -> Result<Vec<bool>, Error> {
    if let Some(layers) = config.layers_that_are(&["attention", "full_attention"])? {
        return Ok(layers);
    }
    let layers = config.layers()?;
    if let Some(listed) = config.numbers("attn_layer_indices")?.filter(|list| !list.is_empty()) {
        return Ok((0..layers).map(|layer| listed.contains(&(layer as f64))).collect());
    }
    let period = config.size(&["attn_layer_period"])?;
    let offset = config.size(&["attn_layer_offset"])?;
    if period == 0 {
        return Err(Error::config("attn_layer_period is 0"));
    }
    Ok((0..layers).map(|layer| layer % period == offset).collect())
}

fn states(d: &mut Draft<'_>) -> Result<(), Error> {
    let config = d.config;
    d.set_size("ssm.conv_kernel", config.size(&["mamba_d_conv", "conv_kernel", "d_conv"])?);
    d.set_size(
        "ssm.state_size",
        config.size(&["mamba_d_state", "ssm_state_size", "state_size", "d_state"])?,
    );
    let groups = config.opt_size(&["mamba_n_groups", "n_groups", "num_groups"])?;
    d.set_size("ssm.group_count", groups.unwrap_or(1));
    Ok(())
}

fn granite(d: &mut Draft<'_>) -> Result<(), Error> {
    llama::granite_experts(d)?;
    let (config, attention) = (d.config, attention(d.config)?);
    states(d)?;
    let expand = config.size(&["mamba_expand", "expand"])?;
    d.set_size("ssm.inner_size", expand * config.hidden()?);
    d.set_size("ssm.time_step_rank", config.size(&["mamba_n_heads", "mamba_num_heads"])?);
    let heads = config.kv_heads()?;
    d.set_sizes(
        "attention.head_count_kv",
        attention.iter().map(|&has| if has { heads } else { 0 }),
    );
    let turned = match is_bamba(config) {
        true => {
            // The class turns half of each head, whatever folders say.
            d.turned(config.head_dim()?, 0.5);
            config.get("attn_rotary_emb");
            d.rope.part(0.5)?;
            true
        }
        false => config.meant("position_embedding_type").is_some_and(|kind| kind == "rope"),
    };
    d.set("rope.scaling.finetuned", turned);
    if config.experts()?.is_none_or(|experts| experts == 0) {
        d.copy_size("feed_forward_length", &["shared_intermediate_size"])?;
    }
    let inner = config.opt_size(&["mamba_d_head"]).ok().flatten();
    let heads = config.size(&["mamba_n_heads", "mamba_num_heads"])?;
    if let Some(head) = inner.filter(|head| head * heads != expand * config.hidden().unwrap_or(0)) {
        let what = format!(
            "mamba_d_head is {head}, and {heads} heads of it are not mamba_expand times the width"
        );
        return Err(Error::config(what));
    }
    if !turned {
        d.set_size("context_length", 1 << 20);
    }
    Ok(())
}

fn is_bamba(config: &Config) -> bool {
    config.architectures().contains(&"BambaForCausalLM")
}

/// Names of Bamba as Granite's, which has one expert for all tokens in their place.
fn bamba_names(config: &Config, name: &str) -> Option<String> {
    if !is_bamba(config) {
        return llama::granite_names(config, name);
    }
    let name = name.replace("final_layernorm", "norm").replace("feed_forward.", "mlp.");
    Some(name.replace("pre_ff_layernorm", "post_attention_layernorm"))
}

/// Rows of queries or keys for RoPE that pairs neighbours: those of each head that are turned.
fn turned_rows(at: &At<'_>, of: Array, heads: usize, whole: How) -> Result<Vec<Array>, Error> {
    if !is_bamba(at.config) {
        return whole(at, of);
    }
    let dim = of.rows().checked_div(heads).unwrap_or(0);
    if dim * heads != of.rows() || !dim.is_multiple_of(4) {
        return Err(
            at.shape(&of, format!("and not rows of {heads} heads, of which half is turned"))
        );
    }
    let pairs = dim / 4;
    Ok(vec![of.reordered(|row| {
        let (head, i) = (row / dim, row % dim);
        match i < 2 * pairs {
            true => head * dim + i / 2 + i % 2 * pairs,
            false => row,
        }
    })])
}

/// Kinds of layers: `M`, `*`, `-` or `E`.
fn pattern(config: &Config) -> Result<Vec<char>, Error> {
    if let Some(text) = config.text(&["hybrid_override_pattern"]) {
        return Ok(text.chars().collect());
    }
    let kinds = match config.texts("layers_block_type")? {
        None => config.texts("layer_types")?,
        kinds => kinds,
    };
    let kinds = kinds.ok_or_else(|| missing(&["hybrid_override_pattern", "layers_block_type"]))?;
    let of = |kind: &&str| match *kind {
        "mamba" | "linear_attention" => Ok('M'),
        "attention" | "full_attention" => Ok('*'),
        "moe" => Ok('E'),
        "mlp" => Ok('-'),
        other => {
            Err(Error::config(format!("layers_block_type has {other:?}, which is not converted")))
        }
    };
    kinds.iter().map(of).collect()
}

fn nemotron(d: &mut Draft<'_>) -> Result<(), Error> {
    llama::granite_experts(d)?;
    let (config, pattern) = (d.config, pattern(d.config)?);
    let layers = config.layers()?;
    if pattern.len() != layers {
        return Err(Error::config(format!(
            "hybrid_override_pattern has {} layers of {layers}",
            pattern.len()
        )));
    }
    config.get("expand");
    config.get("mamba_expand");
    if !pattern.contains(&'E') {
        // Folders state sizes of experts without having any.
        for key in ["count", "used_count", "group_count", "group_used_count"] {
            d.unset(&format!("expert_{key}"));
        }
        for key in [
            "n_shared_experts",
            "moe_intermediate_size",
            "moe_latent_size",
            "routed_scaling_factor",
        ] {
            config.get(key);
        }
        config.get("norm_topk_prob");
        config.get("moe_shared_expert_intermediate_size");
    }
    if config.opt_size(&["num_nextn_predict_layers"])?.is_some_and(|n| n > 0) {
        // Its two halves would be one layer of the file.
        d.unset("nextn_predict_layers");
    }
    states(d)?;
    let heads = config.size(&["mamba_num_heads", "mamba_n_heads"])?;
    d.set_size("ssm.inner_size", heads * config.size(&["mamba_head_dim", "mamba_d_head"])?);
    d.set_size("ssm.time_step_rank", heads);
    let kv = config.kv_heads()?;
    d.set_sizes(
        "attention.head_count_kv",
        pattern.iter().map(|&kind| if kind == '*' { kv } else { 0 }),
    );
    d.set("rope.scaling.finetuned", false);
    d.set_size("context_length", 1 << 20);
    let dim = config.size(&["head_dim", "attention_head_dim"])?;
    d.set_size("attention.key_length", dim);
    d.set_size("attention.value_length", dim);
    if d.arch == "nemotron_h" {
        let width = config.size(&["intermediate_size", "n_inner", "hidden_dim"])?;
        d.set_sizes(
            "feed_forward_length",
            pattern.iter().map(|&kind| if kind == '-' { width } else { 0 }),
        );
        return Ok(());
    }
    let width = config.size(&["moe_intermediate_size"])?;
    d.set_sizes(
        "feed_forward_length",
        pattern.iter().map(|&kind| if kind == 'E' { width } else { 0 }),
    );
    d.set_size("expert_feed_forward_length", width);
    for (key, from) in [
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"),
        ("expert_count", "n_routed_experts"),
        ("expert_shared_count", "n_shared_experts"),
        ("expert_group_count", "n_group"),
    ] {
        d.set_size(key, config.size(&[from])?);
    }
    d.set(
        "expert_weights_norm",
        config.get("norm_topk_prob").and_then(Value::as_bool).unwrap_or(false),
    );
    d.set_number("expert_weights_scale", config.number(&["routed_scaling_factor"])?);
    d.copy_size("moe_latent_size", &["moe_latent_size"])
}

fn falcon(d: &mut Draft<'_>) -> Result<(), Error> {
    let config = d.config;
    d.set_size("embedding_length", config.hidden()?);
    d.set_size("block_count", config.layers()?);
    states(d)?;
    let inner = match config.opt_size(&["mamba_d_ssm"])? {
        Some(inner) => inner,
        None => config.size(&["mamba_expand"])? * config.hidden()?,
    };
    d.set_size("ssm.inner_size", inner);
    let head = config.size(&["mamba_d_head"])?;
    d.set_size("ssm.time_step_rank", inner.checked_div(head).unwrap_or(0));
    let eps = config.opt_number(&["layer_norm_epsilon", "rms_norm_eps"])?.unwrap_or(1e-5);
    d.set_number("attention.layer_norm_rms_epsilon", eps);
    d.set_size("vocab_size", config.vocab_size()?);
    d.set_size("context_length", config.opt_size(&["max_position_embeddings"])?.unwrap_or(0));
    d.set_size("feed_forward_length", config.size(&["intermediate_size"])?);
    d.set_size("attention.head_count", config.heads()?);
    d.set_size("attention.head_count_kv", config.kv_heads()?);
    d.set_size("attention.key_length", config.head_dim()?);
    d.set_size("attention.value_length", config.head_dim()?);
    d.set_number("rope.freq_base", d.rope.theta()?.ok_or_else(|| missing(&["rope_theta"]))?);
    d.positions()?;
    if config.opt_size(&["mamba_n_heads"])?.is_some_and(|heads| heads * head != inner) {
        return Err(Error::config(format!("mamba_d_ssm is {inner}, and not heads of {head}")));
    }
    config.get("mamba_expand");
    if config.meant_flag("mamba_rms_norm") && config.meant_flag("mamba_norm_before_gate") {
        let what = "mamba_norm_before_gate is on, which no file of falcon-h1 can say";
        return Err(Error::config(what));
    }
    config.get("mamba_norm_before_gate");
    Ok(())
}

/// The product with factors of the configuration, of which some are lists.
fn times(at: &At<'_>, of: Array, factors: &[(&str, Option<usize>)]) -> Result<Vec<Array>, Error> {
    let mut product = of;
    for &(key, place) in factors {
        let factor = match place {
            None => at.config.opt_number(&[key])?,
            Some(n) => at.config.numbers(key)?.and_then(|list| list.get(n).copied()),
        };
        let factor = factor.ok_or_else(|| missing(&[key]))? as f32;
        product = product.each(move |x| x * factor);
    }
    Ok(vec![product])
}

/// Gates, values, keys, queries and steps of the recurrence have a factor each.
fn falcon_inputs(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let of = times(at, of, &[("ssm_in_multiplier", None)])?.swap_remove(0);
    let config = at.config;
    let inner = config.size(&["mamba_d_ssm"])?;
    let keys = config.size(&["mamba_n_groups"])? * config.size(&["mamba_d_state"])?;
    let factors = config.numbers("ssm_multipliers")?.unwrap_or_default();
    let ends = [inner, 2 * inner, 2 * inner + keys, 2 * inner + 2 * keys, of.rows()];
    if factors.len() != ends.len() || !ends.is_sorted() {
        return Err(at.shape(&of, format!("which ssm_multipliers {factors:?} do not fit")));
    }
    let mut start = 0;
    let mut parts = Vec::with_capacity(ends.len());
    for (end, factor) in ends.into_iter().zip(factors) {
        let factor = factor as f32;
        parts.push(of.part(start..end).each(move |x| x * factor));
        start = end;
    }
    Ok(vec![Array::joined(parts)])
}
