//! GPT-2 and those that came before Llama, and families with LayerNorm or blocks side by side.

use super::{Family, PLAIN, SILU, llama};
use crate::array::Array;
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::keys::{self, GELU, GELU_TANH, Is, SQUARED_RELU, is, none, off, on};
use crate::rules::{At, Rule, made, plus_one, same, without};
use crate::vocab::Kind;
use serde_json::Value;

/// What GPT-2 and StarCoder call alike.
const NAMES: &[Rule] = &[
    same("wte", "token_embd"),
    same("wpe", "position_embd"),
    same("ln_f", "output_norm"),
    same("ln_1", "attn_norm"),
    same("ln_2", "ffn_norm"),
];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["GPT2LMHeadModel"],
        arch: "gpt2",
        fixed: &[
            is("activation_function", GELU_TANH),
            on("scale_attn_weights"),
            off("scale_attn_by_inverse_layer_idx"),
            off("add_cross_attention"),
        ],
        keys: |d| {
            usual(d)?;
            d.set_size("context_length", d.config.size(&["n_ctx", "n_positions"])?);
            d.set_size("feed_forward_length", wide(d.config, "n_inner")?);
            d.copy_number("attention.layer_norm_epsilon", &["layer_norm_epsilon"])
        },
        rules: &[
            NAMES,
            &[
                made("attn.c_attn.weight", "attn_qkv.weight", turned),
                same("attn.c_attn.bias", "attn_qkv.bias"),
                made("attn.c_proj.weight", "attn_output.weight", turned),
                same("attn.c_proj.bias", "attn_output.bias"),
                made("mlp.c_fc.weight", "ffn_up.weight", turned),
                same("mlp.c_fc.bias", "ffn_up.bias"),
                made("mlp.c_proj.weight", "ffn_down.weight", turned),
                same("mlp.c_proj.bias", "ffn_down.bias"),
                without("attn.bias"),
                without("attn.masked_bias"),
            ],
        ],
        pre: &["gpt-2"],
        ..PLAIN
    },
    Family {
        classes: &["GPTBigCodeForCausalLM"],
        arch: "starcoder",
        fixed: &[
            is("activation_function", GELU_TANH),
            on("scale_attn_weights"),
            on("multi_query"),
            off("add_cross_attention"),
        ],
        keys: |d| {
            usual(d)?;
            d.set_size("context_length", d.config.size(&["n_positions"])?);
            d.set_size("feed_forward_length", wide(d.config, "n_inner")?);
            d.set_size("attention.head_count_kv", 1);
            d.copy_number("attention.layer_norm_epsilon", &["layer_norm_epsilon"])
        },
        rules: &[
            NAMES,
            &[
                same("attn.c_attn", "attn_qkv"),
                same("attn.c_proj", "attn_output"),
                same("mlp.c_fc", "ffn_up"),
                same("mlp.c_proj", "ffn_down"),
                without("attn.bias"),
                without("attn.masked_bias"),
            ],
        ],
        pre: &["starcoder"],
        ..PLAIN
    },
    Family {
        classes: &["GPTNeoXForCausalLM"],
        arch: "gptneox",
        keys: |d| {
            usual(d)?;
            let config = d.config;
            d.set_size("context_length", config.size(&["max_position_embeddings"])?);
            d.set_size("feed_forward_length", config.size(&["intermediate_size"])?);
            d.turned(config.hidden_per_head()?, d.rope.part(0.25)?);
            d.rotates()?;
            d.set("use_parallel_residual", or_true(config, "use_parallel_residual"));
            // Readers take the approximation in models as deep as GPT-NeoX-20B alone.
            let function = if config.layers()? == 44 { GELU_TANH } else { GELU };
            keys::compare(config, &[is("hidden_act", function)], d.arch)?;
            d.copy_number("attention.layer_norm_epsilon", &["layer_norm_eps"])
        },
        rules: &[
            BLOOM,
            &[
                same("embed_in", "token_embd"),
                same("embed_out", "output"),
                same("final_layer_norm", "output_norm"),
                made("attention.query_key_value", "attn_qkv", by_kind),
                same("attention.dense", "attn_output"),
                without("attention.bias"),
                without("attention.masked_bias"),
                without("attention.rotary_emb.inv_freq"),
            ],
        ],
        pre: &["olmo"],
        ..PLAIN
    },
    Family {
        classes: &["BloomForCausalLM"],
        arch: "bloom",
        fixed: &[off("apply_residual_connection_post_layernorm")],
        keys: |d| {
            usual(d)?;
            let config = d.config;
            d.set_size(
                "context_length",
                config.opt_size(&["seq_length"])?.unwrap_or(config.hidden()?),
            );
            d.set_size("feed_forward_length", 4 * config.hidden()?);
            d.set_size("attention.head_count_kv", config.heads()?);
            d.copy_number("attention.layer_norm_epsilon", &["layer_norm_epsilon"])
        },
        rules: &[BLOOM, &[made("self_attention.query_key_value", "attn_qkv", by_kind)]],
        pre: &["bloom"],
        ..PLAIN
    },
    Family {
        classes: &["FalconForCausalLM", "RWForCausalLM"],
        arch: "falcon",
        fixed: &[
            off("alibi"),
            on("parallel_attn"),
            off("apply_residual_connection_post_layernorm"),
            is("activation", GELU),
        ],
        keys: |d| {
            usual(d)?;
            let config = d.config;
            // Configurations do not say it.
            d.set_size("context_length", 2048);
            d.set("tensor_data_layout", "jploski");
            d.set_size("feed_forward_length", wide(config, "ffn_hidden_size")?);
            d.set_size("attention.head_count_kv", falcon_keys(config)?);
            d.rotates()?;
            d.copy_number("attention.layer_norm_epsilon", &["layer_norm_epsilon"])
        },
        rules: &[
            &[
                same("ln_mlp", "attn_norm"),
                same("ln_attn", "attn_norm_2"),
                made("self_attention.query_key_value", "attn_qkv", by_group),
            ],
            BLOOM,
        ],
        pre: &["falcon"],
        ..PLAIN
    },
    Family {
        classes: &["MPTForCausalLM", "MptForCausalLM"],
        arch: "mpt",
        fixed: &[
            none("logit_scale"),
            // The class has this one, whatever is stated.
            is("expansion_ratio", &[Is::Number(4.0)]),
            is("embedding_fraction", &[Is::Number(1.0)]),
            is("norm_type", &[Is::Text("low_precision_layernorm"), Is::Text("layernorm")]),
        ],
        keys: |d| {
            usual(d)?;
            let config = d.config;
            let of = config.get("attn_config").cloned().unwrap_or(Value::Null);
            d.set_size("context_length", config.size(&["max_seq_len"])?);
            d.set_size("feed_forward_length", 4 * config.hidden()?);
            for (key, usual) in [
                ("attn_type", Value::from("multihead_attention")),
                ("prefix_lm", false.into()),
                ("attn_uses_sequence_id", false.into()),
                ("softmax_scale", Value::Null),
                ("rope", false.into()),
                // The model's code takes it whatever is stated.
                ("alibi_bias_max", 8.into()),
            ] {
                let said = &of[key];
                let groups = key == "attn_type" && *said != "multiquery_attention";
                if !said.is_null() && *said != usual && !groups {
                    return Err(Error::config(format!(
                        "attn_config.{key} is {said}, which is not converted"
                    )));
                }
            }
            if let Some(heads) = of["kv_n_heads"].as_u64().filter(|&heads| heads > 0) {
                d.set_size("attention.head_count_kv", heads as usize);
            }
            let eps = config.meant_number("layer_norm_epsilon")?.unwrap_or(1e-5);
            d.set_number("attention.layer_norm_epsilon", eps);
            if let Some(clip) = of["clip_qkv"].as_f64() {
                d.set_number("attention.clamp_kqv", clip);
            }
            let alibi = of["alibi"].as_bool().unwrap_or(false);
            let bias = of["alibi_bias_max"].as_f64().filter(|_| alibi).unwrap_or(0.0);
            d.set_number("attention.max_alibi_bias", bias);
            Ok(())
        },
        rules: &[&[
            same("wte", "token_embd"),
            same("norm_f", "output_norm"),
            same("norm_1", "attn_norm"),
            same("norm_2", "ffn_norm"),
            same("attn.Wqkv", "attn_qkv"),
            same("attn.out_proj", "attn_output"),
            same("attn.q_ln", "attn_q_norm"),
            same("attn.k_ln", "attn_k_norm"),
            same("ffn.up_proj", "ffn_up"),
            same("ffn.down_proj", "ffn_down"),
            same("ffn.act.scales", "ffn.act.scales"),
        ]],
        pre: &["mpt"],
        ..PLAIN
    },
    Family {
        classes: &["PhiForCausalLM"],
        arch: "phi2",
        fixed: &[is("hidden_act", GELU_TANH), off("qk_layernorm")],
        keys: |d| {
            usual(d)?;
            let config = d.config;
            d.set_size("context_length", config.size(&["n_positions", "max_position_embeddings"])?);
            d.set_size("feed_forward_length", wide(config, "intermediate_size")?);
            d.set_size("attention.head_count_kv", config.kv_heads()?);
            let turned = (d.rope.part(0.5)? * config.hidden()? as f64) as usize;
            d.set_size("rope.dimension_count", turned / config.heads()?.max(1));
            d.rotates()?;
            d.copy_number(
                "attention.layer_norm_epsilon",
                &["layer_norm_epsilon", "layer_norm_eps"],
            )?;
            d.general("tokenizer.ggml.add_bos_token", false);
            Ok(())
        },
        rules: &[&[
            same("final_layernorm", "output_norm"),
            same("self_attn.dense", "attn_output"),
            same("mlp.fc1", "ffn_up"),
            same("mlp.fc2", "ffn_down"),
        ]],
        pre: &["phi-2"],
        ..PLAIN
    },
    Family {
        classes: &["StableLmForCausalLM", "StableLMEpochForCausalLM"],
        arch: "stablelm",
        fixed: &[SILU],
        keys: |d| {
            usual(d)?;
            let config = d.config;
            d.set_size("context_length", config.size(&["max_position_embeddings"])?);
            d.set_size("feed_forward_length", config.size(&["intermediate_size"])?);
            d.turned(config.hidden_per_head()?, d.rope.part(0.25)?);
            d.rotates()?;
            d.set_size("attention.head_count_kv", config.kv_heads()?);
            d.set("use_parallel_residual", or_true(config, "use_parallel_residual"));
            d.copy_number("attention.layer_norm_epsilon", &["layer_norm_eps", "norm_eps"])
        },
        rules: &[&[
            same("self_attn.q_layernorm.norms.*", "attn_q_norm"),
            same("self_attn.k_layernorm.norms.*", "attn_k_norm"),
        ]],
        pre: &["stablelm2"],
        ..PLAIN
    },
    Family {
        classes: &["CohereForCausalLM"],
        arch: "command-r",
        fixed: &[SILU],
        keys: |d| {
            d.usual()?;
            d.copy_size("context_length", &["model_max_length", "max_position_embeddings"])?;
            d.set_number("logit_scale", d.config.number(&["logit_scale"])?);
            if d.rope.kind() == "default" {
                d.set("rope.scaling.type", "none");
            }
            Ok(())
        },
        pre: &["command-r"],
        ..PLAIN
    },
    Family {
        classes: &["OlmoForCausalLM", "OLMoForCausalLM"],
        arch: "olmo",
        fixed: &[SILU],
        keys: |d| {
            d.usual()?;
            d.set_number("attention.layer_norm_epsilon", 1e-5);
            d.copy_number("attention.clamp_kqv", &["clip_qkv"])
        },
        rules: &[llama::INTERLEAVED],
        pre: &["olmo"],
        ..PLAIN
    },
    Family {
        classes: &["Exaone4ForCausalLM"],
        arch: "exaone4",
        fixed: &[SILU],
        keys: |d| {
            d.usual()?;
            d.set_size("vocab_size", d.config.vocab_size()?);
            // The pattern is that of models with a window.
            let windows = d.config.windowed(4)?;
            if let Some(window) = d.config.meant_size("sliding_window")? {
                match d.config.has("layer_types") {
                    true => d.windows(window, Some(windows)),
                    false => d.windows_by(window, 4)?,
                }
            }
            Ok(())
        },
        rules: &[AFTER],
        pre: &["exaone4"],
        ..PLAIN
    },
    Family {
        classes: &["NemotronForCausalLM"],
        arch: "nemotron",
        fixed: &[is("hidden_act", SQUARED_RELU)],
        defaults: llama::with_heads,
        keys: |d| {
            d.usual()?;
            let config = d.config;
            d.set_size("vocab_size", config.vocab_size()?);
            d.copy_number(
                "attention.layer_norm_epsilon",
                &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"],
            )?;
            d.turned(config.head_dim()?, d.rope.part(0.5)?);
            if d.rope.kind() == "default" {
                d.set("rope.scaling.type", "none");
            }
            Ok(())
        },
        rules: &[&[
            made("norm.weight", "output_norm.weight", plus_one),
            made("input_layernorm.weight", "attn_norm.weight", plus_one),
            made("post_attention_layernorm.weight", "ffn_norm.weight", plus_one),
        ]],
        vocab: Kind::Nemotron,
        ..PLAIN
    },
    Family {
        classes: &["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
        arch: "ernie4_5",
        fixed: &[SILU],
        vocab: Kind::Ernie,
        ..PLAIN
    },
];

/// What Bloom and those after it call their tensors.
const BLOOM: &[Rule] = &[
    same("word_embeddings", "token_embd"),
    same("word_embeddings_layernorm", "token_embd_norm"),
    same("ln_f", "output_norm"),
    same("self_attention.dense", "attn_output"),
    same("mlp.dense_h_to_4h", "ffn_up"),
    same("mlp.dense_4h_to_h", "ffn_down"),
];

const AFTER: &[Rule] = &[
    same("post_attention_layernorm", "post_attention_norm"),
    same("post_feedforward_layernorm", "post_ffw_norm"),
];

fn usual(d: &mut Draft<'_>) -> Result<(), Error> {
    d.set_size("block_count", d.config.layers()?);
    d.set_size("embedding_length", d.config.hidden()?);
    d.set_size("attention.head_count", d.config.heads()?);
    Ok(())
}

/// The width of feed-forward layers: four times that of the model where the folder says nothing.
fn wide(config: &Config, key: &str) -> Result<usize, Error> {
    Ok(config.opt_size(&[key])?.unwrap_or(4 * config.hidden()?))
}

fn or_true(config: &Config, key: &str) -> bool {
    config.get(key).and_then(Value::as_bool).unwrap_or(true)
}

/// Heads of keys and values of Falcon. Configurations name a number that counts only in the newer of its forms.
fn falcon_keys(config: &Config) -> Result<usize, Error> {
    let newer = config.flag("new_decoder_architecture");
    let shared = or_true(config, "multi_query");
    let newer_stated = config.opt_size(&["num_kv_heads"])?.filter(|_| newer);
    let stated = newer_stated.or(config.opt_size(&["n_head_kv"])?);
    match stated {
        Some(heads) => Ok(heads),
        None if shared => Ok(1),
        None => config.heads(),
    }
}

/// Matrices that are stored with inputs as rows.
fn turned(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    if of.shape().len() != 2 {
        return Err(at.shape(&of, "and should be a matrix".to_owned()));
    }
    Ok(vec![of.turned()])
}

/// Query, key and value of each head become those of all heads.
fn by_kind(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let heads = at.config.heads()?;
    if heads == 0 || !of.rows().is_multiple_of(3 * heads) {
        return Err(at.shape(&of, format!("and not query, key and value of {heads} heads")));
    }
    let dim = of.rows() / heads / 3;
    let runs = (0..3).flat_map(|kind| {
        (0..heads).map(move |head| (3 * head + kind) * dim..(3 * head + kind + 1) * dim)
    });
    Ok(vec![of.runs(runs.collect())])
}

/// Queries, key and value of each group of heads become those of all groups.
fn by_group(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let (heads, groups) = (at.config.heads()?, falcon_keys(at.config)?);
    let fits = groups > 0 && heads.is_multiple_of(groups);
    let dim = of.rows().checked_div(heads + 2 * groups).unwrap_or(0);
    if !fits || dim * (heads + 2 * groups) != of.rows() {
        return Err(at.shape(&of, format!("and not {heads} queries in {groups} groups")));
    }
    let each = heads / groups;
    let part = |start: usize, count: usize| {
        (0..groups).map(move |group| {
            let first = group * (each + 2) + start;
            first * dim..(first + count) * dim
        })
    };
    let runs = part(0, each).chain(part(each, 1)).chain(part(each + 1, 1));
    Ok(vec![of.runs(runs.collect())])
}
