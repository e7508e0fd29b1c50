//! Gemma, its text models.

use super::{Extra, Family, PLAIN};
use crate::array::Array;
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::keys::{Fixed, GELU_TANH, Is, is, off, on};
use crate::rules::{At, Rule, made, plus_one, same};
use crate::vocab::Kind;
use serde_json::Value;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["GemmaForCausalLM"],
        arch: "gemma",
        // The first of them was published with the name of the exact function, and means the approximation.
        fixed: &[
            is("hidden_act", ANY_GELU),
            is("hidden_activation", ANY_GELU),
            off("use_bidirectional_attention"),
        ],
        keys: first,
        rules: &[SHIFTED],
        rename: Some(unless_meant_tied),
        vocab: Kind::Gemma,
        ..PLAIN
    },
    Family {
        classes: &["Gemma2ForCausalLM"],
        arch: "gemma2",
        fixed: FIXED,
        keys: |d| {
            first(d)?;
            // None is a cap of zero.
            for cap in ["attn_logit_softcapping", "final_logit_softcapping"] {
                d.set_number(cap, d.config.meant_number(cap)?.unwrap_or(0.0));
            }
            scores(d, 46)?;
            d.windows_by(d.config.size(&["sliding_window"])?, 2)
        },
        rules: &[BOTH_SIDES_SHIFTED, SHIFTED],
        rename: Some(unless_meant_tied),
        vocab: Kind::Gemma2,
        ..PLAIN
    },
    Family {
        classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
        arch: "gemma3",
        // Most of them say little.
        defaults: |config| {
            for (key, value) in [
                ("num_attention_heads", 8),
                ("num_key_value_heads", 4),
                ("head_dim", 256),
                ("max_position_embeddings", 131_072),
                ("vocab_size", 262_208),
                ("sliding_window", 4096),
            ] {
                config.or(key, value);
            }
            if config.get("rope_parameters").is_none() {
                config.or("rope_theta", 1e6);
                config.or("rope_local_base_freq", 1e4);
            }
            Ok(())
        },
        fixed: FIXED,
        keys: |d| {
            third(d)?;
            scores(d, 62)?;
            local(d, 6)
        },
        rules: &[BOTH_SIDES_SHIFTED, SHIFTED],
        vocab: Kind::Gemma3,
        ..PLAIN
    },
    Family {
        classes: &["Gemma3TextModel"],
        arch: "gemma-embedding",
        fixed: &[is("hidden_activation", GELU_TANH)],
        keys: |d| {
            third(d)?;
            scores(d, usize::MAX)?;
            if d.config.get("use_bidirectional_attention") == Some(&Value::Bool(false)) {
                let what = "use_bidirectional_attention is false, which no file of gemma-embedding can say";
                return Err(Error::config(what));
            }
            d.windows_by(d.config.size(&["sliding_window"])?, 6)
        },
        rules: &[BOTH_SIDES_SHIFTED, SHIFTED],
        vocab: Kind::Gemma3,
        ..PLAIN
    },
    Family {
        classes: &["Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"],
        arch: "gemma3n",
        fixed: &[
            is("hidden_activation", GELU_TANH),
            off("use_bidirectional_attention"),
            on("altup_correct_scale"),
        ],
        keys: streams,
        rules: &[STREAMS, BOTH_SIDES],
        vocab: Kind::Gemma3,
        ..PLAIN
    },
    Family {
        classes: &["Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"],
        arch: "gemma4",
        fixed: &[
            is("hidden_activation", GELU_TANH),
            // Of text, those that see images in both directions are as others.
            is("use_bidirectional_attention", &[Is::Flag(false), Is::Text("vision")]),
        ],
        keys: fourth,
        rules: &[FOURTH, BOTH_SIDES],
        extra: unturned,
        vocab: Kind::Gemma4,
        ..PLAIN
    },
];

const FIXED: &[Fixed] = &[
    is("hidden_activation", GELU_TANH),
    is("hidden_act", ANY_GELU),
    off("use_bidirectional_attention"),
];

const ANY_GELU: &[Is] = &[Is::Text("gelu"), Is::Text("gelu_pytorch_tanh"), Is::Text("gelu_new")];

/// The head is the embedding, if the folder or its class says so; some folders have it twice.
fn unless_meant_tied(config: &Config, name: &str) -> Option<String> {
    let twice = config.meant_flag("tie_word_embeddings") && name.ends_with("lm_head.weight");
    (!twice).then(|| name.to_owned())
}

/// The scale of scores, where it is other than readers take: heads by their length, or by their share of the width in
/// models of a number of layers.
fn scores(d: &mut Draft<'_>, by_width: usize) -> Result<(), Error> {
    let config = d.config;
    let usual = match config.layers()? == by_width {
        true => (config.hidden()? / config.heads()?.max(1)) as f64,
        false => config.head_dim()? as f64,
    };
    match config.meant_number("query_pre_attn_scalar")? {
        Some(other) if other <= 0.0 => Err(Error::config(format!(
            "query_pre_attn_scalar is {other}, and should be above zero"
        ))),
        Some(other) if other != usual => {
            d.set_number("attention.scale", other.sqrt().recip());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The window, if any layer has one, and where it is not in all but the last of every `period`.
fn local(d: &mut Draft<'_>, period: usize) -> Result<(), Error> {
    let window = d.config.size(&["sliding_window"])?;
    match d.config.get("sliding_window_pattern").and_then(Value::as_u64) {
        Some(1) if !d.config.has("layer_types") => Ok(()),
        _ => d.windows_by(window, period),
    }
}

const SHIFTED: &[Rule] = &[
    made("norm", "output_norm", plus_one),
    made("input_layernorm", "attn_norm", plus_one),
    made("post_attention_layernorm", "ffn_norm", plus_one),
    made("self_attn.q_norm", "attn_q_norm", plus_one),
    made("self_attn.k_norm", "attn_k_norm", plus_one),
];

const BOTH_SIDES: &[Rule] = &[
    same("post_attention_layernorm", "post_attention_norm"),
    same("pre_feedforward_layernorm", "ffn_norm"),
    same("post_feedforward_layernorm", "post_ffw_norm"),
];

const BOTH_SIDES_SHIFTED: &[Rule] = &[
    made("post_attention_layernorm", "post_attention_norm", plus_one),
    made("pre_feedforward_layernorm", "ffn_norm", plus_one),
    made("post_feedforward_layernorm", "post_ffw_norm", plus_one),
];

/// Inputs of layers.
const STREAMS: &[Rule] = &[
    made("embed_tokens", "token_embd", whole_vocabulary),
    made("embed_tokens_per_layer", "per_layer_token_embd", whole_vocabulary),
    same("per_layer_model_projection", "per_layer_model_proj"),
    same("per_layer_projection_norm", "per_layer_proj_norm"),
    same("altup_projections.*", "altup_proj"),
    same("altup_unembed_projections.*", "altup_unembd_proj"),
    same("per_layer_input_gate", "inp_gate"),
    same("per_layer_projection", "proj"),
    same("post_per_layer_input_norm", "post_norm"),
    same("altup.correct_output_scale", "altup_correct_scale.weight"),
    same("altup.correction_coefs", "altup_correct_coef"),
    same("altup.prediction_coefs", "altup_predict_coef"),
    same("altup.modality_router", "altup_router"),
    same("altup.router_norm", "altup_router_norm"),
    same("laurel.linear_left", "laurel_l"),
    same("laurel.linear_right", "laurel_r"),
    same("laurel.post_laurel_norm", "laurel_post_norm"),
];

const FOURTH: &[Rule] = &[
    same("embed_tokens_per_layer", "per_layer_token_embd"),
    same("per_layer_model_projection", "per_layer_model_proj"),
    same("per_layer_projection_norm", "per_layer_proj_norm"),
    same("per_layer_input_gate", "inp_gate"),
    same("per_layer_projection", "proj"),
    same("post_per_layer_input_norm", "post_norm"),
    same("layer_scalar", "layer_output_scale.weight"),
    same("post_feedforward_layernorm_1", "post_ffw_norm_1"),
    same("post_feedforward_layernorm_2", "post_ffw_norm_2"),
    same("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
    same("router.proj", "ffn_gate_inp"),
    same("router.scale", "ffn_gate_inp.scale"),
    same("router.per_expert_scale", "ffn_down_exps.scale"),
    same("experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    same("experts.down_proj", "ffn_down_exps.weight"),
];

fn first(d: &mut Draft<'_>) -> Result<(), Error> {
    super::sizes(d)?;
    let config = d.config;
    d.set_size("attention.key_length", config.size(&["head_dim"])?);
    d.set_size("attention.value_length", config.size(&["head_dim"])?);
    d.rotates()
}

fn third(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    let config = d.config;
    let eps = config.opt_number(&["rms_norm_eps"])?.unwrap_or(1e-6);
    d.set_number("attention.layer_norm_rms_epsilon", eps);
    d.set_number("rope.freq_base", d.rope.theta()?.unwrap_or(1e6));
    if config.get("attn_logit_softcapping").is_some() {
        return Err(Error::config("attn_logit_softcapping is set, which Gemma 3 does not have"));
    }
    d.copy_factor("final_logit_softcapping", "final_logit_softcapping")?;
    if config.get("sliding_window_pattern").and_then(Value::as_u64) != Some(1) {
        d.set_size("attention.sliding_window", config.size(&["sliding_window"])?);
    }
    Ok(())
}

fn windows(d: &mut Draft<'_>, period: usize) -> Result<Vec<bool>, Error> {
    let windows = d.config.windowed(period)?;
    d.windows(d.config.size(&["sliding_window"])?, Some(windows.clone()));
    Ok(windows)
}

fn streams(d: &mut Draft<'_>) -> Result<(), Error> {
    third(d)?;
    let config = d.config;
    if config.size(&["altup_num_inputs"])? != 4 {
        return Err(Error::config("altup_num_inputs is not 4, which files cannot say"));
    }
    d.copy_size("altup.active_idx", &["altup_active_idx"])?;
    d.copy_size("altup.num_inputs", &["altup_num_inputs"])?;
    d.copy_size("embedding_length_per_layer_input", &["hidden_size_per_layer_input"])?;
    d.copy_size("attention.shared_kv_layers", &["num_kv_shared_layers"])?;
    let shares = config.numbers("activation_sparsity_pattern")?.unwrap_or_default();
    let scales: Vec<f32> = shares.into_iter().map(quantile).collect();
    d.set("activation_sparsity_scale", scales);
    windows(d, 5)?;
    Ok(())
}

/// Standard deviations above the mean below which a share of all lies.
fn quantile(share: f64) -> f32 {
    // As torch has it in single precision: from the inverse of the error function.
    let y = 2.0 * f64::from(share as f32) - 1.0;
    if y <= -1.0 {
        return f32::NEG_INFINITY;
    }
    if y >= 1.0 {
        return f32::INFINITY;
    }
    // Giles' start, then Newton's steps on the error function.
    let w = -((1.0 - y) * (1.0 + y)).ln();
    let mut x = y.signum() * (w / 2.0).sqrt().max(y.abs());
    for _ in 0..60 {
        let step = (erf(x) - y) / (2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp());
        x -= step.clamp(-0.5, 0.5);
        if step.abs() < 1e-15 {
            break;
        }
    }
    (x * std::f64::consts::SQRT_2) as f32
}

/// The error function by its series, which is good where shares are asked for.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        let next = term / f64::from(2 * n + 1);
        sum += next;
        if next.abs() < 1e-17 * sum.abs() {
            break;
        }
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// Rows of zeros for tokens that only stand for images and sound.
fn whole_vocabulary(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    Ok(vec![of.padded(at.config.opt_size(&["vocab_size"])?.unwrap_or(262_400))])
}

/// What layers that see everything have otherwise, in either of its forms.
fn of_full_layers(config: &Config, key: &str, in_layers: &str) -> Result<Option<usize>, Error> {
    if let Some(size) = config.opt_size(&[key])? {
        return Ok(Some(size));
    }
    let full = config.layers_that_are(&["full_attention"])?.unwrap_or_default();
    let Some(Value::Object(layers)) = config.get("per_layer_config") else { return Ok(None) };
    for (layer, said) in layers {
        let is_full = layer.parse().ok().and_then(|n: usize| full.get(n)).copied();
        if is_full == Some(true)
            && let Some(value) = said.get(in_layers)
        {
            return crate::config::size(in_layers, value).map(Some);
        }
    }
    Ok(None)
}

fn full_head(config: &Config) -> Result<usize, Error> {
    let dim = of_full_layers(config, "global_head_dim", "head_dim")?;
    match dim {
        Some(dim) => Ok(dim),
        None => config.size(&["global_head_dim"]),
    }
}

fn fourth(d: &mut Draft<'_>) -> Result<(), Error> {
    third(d)?;
    let config = d.config;
    let shared = config.size(&["num_kv_shared_layers"])?;
    d.set_size("attention.shared_kv_layers", shared);
    let inputs = config.opt_size(&["hidden_size_per_layer_input"])?.unwrap_or(0);
    d.set_size("embedding_length_per_layer_input", inputs);
    let windows = windows(d, 6)?;
    let (full, local) = (full_head(config)?, config.size(&["head_dim"])?);
    for (key, dim) in [("", full), ("_swa", local)] {
        d.set_size(&format!("attention.key_length{key}"), dim);
        d.set_size(&format!("attention.value_length{key}"), dim);
    }
    d.copy_size(
        "expert_feed_forward_length",
        &["expert_intermediate_size", "moe_intermediate_size"],
    )?;
    let layers = config.layers()?;
    if config.flag("use_double_wide_mlp") {
        let (width, first) = (config.size(&["intermediate_size"])?, layers.saturating_sub(shared));
        d.set_sizes(
            "feed_forward_length",
            (0..layers).map(|l| if l < first { width } else { 2 * width }),
        );
    }
    let of_full = of_full_layers(config, "num_global_key_value_heads", "num_key_value_heads")?;
    // Without values of their own alone; the classes that do not know the key take the number.
    let shares = config.meant("attention_k_eq_v").is_none_or(|shares| shares == true);
    let of_full = of_full.filter(|_| shares || config.has("per_layer_config"));
    if let (Some(full), Some(local)) = (of_full, config.opt_size(&["num_key_value_heads"])?) {
        let heads = windows.iter().map(|&window| if window { local } else { full });
        d.set_sizes("attention.head_count_kv", heads);
    }
    d.set_size("rope.dimension_count", full);
    d.set_size("rope.dimension_count_swa", local);
    Ok(())
}

/// Pairs of a head that are not turned in layers that see everything: their angles are divided by so much that
/// they are none.
fn unturned(d: &Draft<'_>) -> Result<Extra, Error> {
    if d.rope.kind() != "proportional" {
        let what =
            format!("rope_type of full_attention is {:?}, not \"proportional\"", d.rope.kind());
        return Err(Error::config(what));
    }
    let dim = full_head(d.config)?;
    let turned = (dim as f64 * d.rope.number("partial_rotary_factor")? / 2.0) as usize;
    let values = (0..dim / 2).map(|pair| if pair < turned { 1.0 } else { 1e30 });
    Ok(vec![("rope_freqs.weight", Array::of_values(values.collect()))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_normal_distribution() {
        assert_eq!(quantile(0.5), 0.0);
        assert!((quantile(0.75) - 0.674_489_8).abs() < 1e-7);
        assert!((quantile(0.95) - 1.644_853_6).abs() < 1e-6);
        assert!((quantile(0.02) + 2.053_749).abs() < 1e-6);
        assert_eq!((quantile(0.0), quantile(1.0)), (f32::NEG_INFINITY, f32::INFINITY));
    }
}
