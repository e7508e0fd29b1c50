//! Families whose code is in their folders, not in `transformers`: InternLM2, Baichuan, ChatGLM, MiniCPM3, PLaMo.

use super::{Family, PLAIN, SILU, deepseek};
use crate::array::Array;
use crate::config::Config;
use crate::draft::Draft;
use crate::error::Error;
use crate::keys::{Is, is, none, off, on};
use crate::rules::{At, Rule, made, same, without};
use crate::vocab::Kind;
use std::ops::Range;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["InternLM2ForCausalLM"],
        arch: "internlm2",
        fixed: &[SILU],
        rules: &[&[
            same("tok_embeddings", "token_embd"),
            same("attention_norm", "attn_norm"),
            same("ffn_norm", "ffn_norm"),
            made("attention.wqkv", "attn_q attn_k attn_v", of_groups),
            same("attention.wo", "attn_output"),
            same("feed_forward.w1", "ffn_gate"),
            same("feed_forward.w2", "ffn_down"),
            same("feed_forward.w3", "ffn_up"),
            same("output", "output"),
        ]],
        vocab: Kind::InternLm,
        ..PLAIN
    },
    Family {
        classes: &["BaichuanForCausalLM", "BaiChuanForCausalLM"],
        arch: "baichuan",
        fixed: &[SILU],
        keys: |d| {
            d.usual()?;
            d.set("tensor_data_layout", "Meta AI original pth");
            d.set_size("rope.dimension_count", d.config.hidden_per_head()?);
            Ok(())
        },
        rules: &[&[made("self_attn.W_pack", "attn_q attn_k attn_v", thirds)]],
        vocab: Kind::SentencePiece,
        ..PLAIN
    },
    Family {
        classes: &["ChatGLMModel", "ChatGLMForConditionalGeneration"],
        arch: "chatglm",
        fixed: &[
            on("rmsnorm"),
            on("post_layer_norm"),
            on("original_rope"),
            off("apply_residual_connection_post_layernorm"),
            off("add_bias_linear"),
            off("interleaved_qkv"),
            off("prefix_projection"),
            none("pre_seq_len"),
        ],
        keys: chatglm,
        rules: &[CHATGLM],
        // A layer's number is behind one more name.
        rename: Some(|_, name| {
            let name = name.strip_prefix("transformer.").unwrap_or(name);
            Some(name.strip_prefix("encoder.").unwrap_or(name).to_owned())
        }),
        vocab: Kind::ChatGlm,
        pre: &["chatglm-bpe"],
        ..PLAIN
    },
    Family {
        classes: &["GlmForCausalLM"],
        arch: "chatglm",
        fixed: &[SILU],
        keys: chatglm,
        vocab: Kind::ChatGlm,
        pre: &["chatglm-bpe", "glm4"],
        ..PLAIN
    },
    Family {
        classes: &["MiniCPM3ForCausalLM"],
        arch: "minicpm3",
        // What files do not say, as there is one model.
        fixed: &[
            SILU,
            is("scale_emb", &[Is::Number(12.0)]),
            is("scale_depth", &[Is::Number(1.4)]),
            is("dim_model_base", &[Is::Number(256.0)]),
        ],
        keys: minicpm,
        rules: &[&[same("self_attn.kv_b_proj", "attn_kv_b")], deepseek::RULES],
        vocab: Kind::SentencePiece,
        ..PLAIN
    },
    Family {
        classes: &["PlamoForCausalLM"],
        arch: "plamo",
        keys: |d| {
            let config = d.config;
            // Configurations do not say it.
            d.set_size("context_length", 4096);
            d.set_size("embedding_length", config.hidden()?);
            d.set_size("feed_forward_length", config.size(&["intermediate_size"])?);
            d.set_size("block_count", config.layers()?);
            d.set_size("attention.head_count", config.heads()?);
            d.set_size("attention.head_count_kv", plamo_groups(d.config)?.0);
            // It counts keys as if each query had its own.
            config.get("num_key_value_heads");
            d.set_number("attention.layer_norm_rms_epsilon", config.number(&["rms_norm_eps"])?);
            Ok(())
        },
        rules: &[&[
            made("self_attn.q_proj", "attn_q", together),
            made("self_attn.o_proj", "attn_output", columns_together),
        ]],
        rename: Some(|_, name| {
            let Some(of_layer) = name.strip_prefix("model.layers.layers.") else {
                return Some(name.to_owned());
            };
            Some(format!("model.layers.{}", of_layer.replace(".norm.", ".input_layernorm.")))
        }),
        vocab: Kind::SentencePiece,
        ..PLAIN
    },
];

/// Queries, key and value of each group of heads become those of all groups, queries and keys in the order of their
/// pairs.
fn of_groups(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let (heads, groups) = (at.config.heads()?, at.config.kv_heads()?);
    let fits = groups > 0 && heads.is_multiple_of(groups);
    let dim = of.rows().checked_div(heads + 2 * groups).unwrap_or(0);
    if !fits || dim * (heads + 2 * groups) != of.rows() || !dim.is_multiple_of(2) {
        return Err(at.shape(&of, format!("and not {heads} queries in {groups} groups")));
    }
    let each = heads / groups;
    let part = |first: usize, count: usize| {
        let of_group = |group: usize| {
            let first = (group * (each + 2) + first) * dim;
            first..first + count * dim
        };
        of.runs((0..groups).map(of_group).collect())
    };
    Ok(vec![part(0, each).interleaved(heads), part(each, 1).interleaved(groups), part(each + 1, 1)])
}

/// Queries, keys and values one behind the other.
fn thirds(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let heads = at.config.heads()?;
    if heads == 0 || !of.rows().is_multiple_of(6 * heads) {
        return Err(at.shape(&of, format!("and not query, key and value of {heads} heads")));
    }
    let third = of.rows() / 3;
    let part = |n: usize| of.runs(std::iter::once(n * third..(n + 1) * third).collect());
    Ok(vec![part(0).interleaved(heads), part(1).interleaved(heads), part(2)])
}

const CHATGLM: &[Rule] = &[
    same("embedding.word_embeddings", "token_embd"),
    same("final_layernorm", "output_norm"),
    same("output_layer", "output"),
    same("self_attention.query_key_value", "attn_qkv"),
    same("self_attention.dense", "attn_output"),
    same("mlp.dense_h_to_4h", "ffn_up"),
    same("mlp.dense_4h_to_h", "ffn_down"),
    without("rotary_pos_emb.inv_freq"),
];

/// Of the class of `transformers` as well, which has the usual keys.
fn chatglm(d: &mut Draft<'_>) -> Result<(), Error> {
    let config = d.config;
    d.set_size("block_count", config.layers()?);
    let hidden = config.hidden()?;
    let context = config.opt_size(&["seq_length", "max_position_embeddings"])?;
    d.set_size("context_length", context.unwrap_or(hidden));
    d.set_size("embedding_length", hidden);
    let width = config.opt_size(&["ffn_hidden_size", "intermediate_size"])?;
    d.set_size("feed_forward_length", width.unwrap_or(4 * hidden));
    d.set_size("attention.head_count", config.heads()?);
    let groups = config.opt_size(&["multi_query_group_num"])?;
    let groups = groups.filter(|_| config.get("multi_query_attention") != Some(&false.into()));
    d.set_size("attention.head_count_kv", groups.map_or_else(|| config.kv_heads(), Ok)?);
    let eps = config.opt_number(&["layernorm_epsilon", "rms_norm_eps"])?.unwrap_or(1e-5);
    d.set_number("attention.layer_norm_rms_epsilon", eps);
    let dim = config.opt_size(&["attention_dim", "kv_channels"])?;
    let dim = dim.map_or_else(|| config.head_dim(), Ok)?;
    if dim != config.hidden_per_head()? {
        d.set_size("attention.key_length", dim);
        d.set_size("attention.value_length", dim);
    }
    d.turned(dim, d.rope.part(0.5)?);
    d.positions()?;
    let base = d.rope.theta()?.unwrap_or(10000.0);
    d.set_number("rope.freq_base", base * config.opt_number(&["rope_ratio"])?.unwrap_or(1.0));
    d.general("tokenizer.ggml.add_bos_token", false);
    Ok(())
}

fn minicpm(d: &mut Draft<'_>) -> Result<(), Error> {
    super::sizes(d)?;
    let config = d.config;
    d.set_size("vocab_size", config.vocab_size()?);
    d.copy_size("attention.q_lora_rank", &["q_lora_rank"])?;
    d.set_size("attention.kv_lora_rank", config.size(&["kv_lora_rank"])?);
    let rope = config.size(&["qk_rope_head_dim"])?;
    d.set_size("attention.key_length", config.size(&["qk_nope_head_dim"])? + rope);
    if config.opt_size(&["head_dim"])?.is_some_and(|dim| dim != rope) {
        return Err(Error::config("head_dim is not qk_rope_head_dim, as files stand for"));
    }
    // Readers take the share of the width.
    let value = config.opt_size(&["v_head_dim"])?;
    if let Some(value) = value.filter(|&value| config.hidden_per_head().ok() != Some(value)) {
        d.set_size("attention.value_length", value);
    }
    d.set_size("rope.dimension_count", rope);
    d.rotates()?;
    if d.rope.kind() == "longrope" {
        // The divisors say it.
        d.unset("rope.scaling.type");
    }
    Ok(())
}

/// Heads of keys, and of queries for each. The configuration counts keys as if each query had its own.
fn plamo_groups(config: &Config) -> Result<(usize, usize), Error> {
    let (heads, each) = (config.heads()?, config.opt_size(&["n_shared_head"])?.unwrap_or(8));
    match heads.checked_div(each) {
        Some(groups) if groups > 0 && heads == groups * each => Ok((groups, each)),
        _ => {
            Err(Error::config(format!("n_shared_head is {each} and does not divide {heads} heads")))
        }
    }
}

/// Runs of elements by which heads that share a key stand together: in the folder these are as far apart as there
/// are keys.
fn shared(at: &At<'_>, of: &Array, elements: usize) -> Result<Vec<Range<usize>>, Error> {
    let (groups, each) = plamo_groups(at.config)?;
    if !elements.is_multiple_of(groups * each) {
        return Err(at.shape(of, format!("and not of {} heads", groups * each)));
    }
    let dim = elements / (groups * each);
    let from = |group: usize, n: usize| (n * groups + group) * dim;
    Ok((0..groups)
        .flat_map(|group| (0..each).map(move |n| from(group, n)..from(group, n) + dim))
        .collect())
}

fn together(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let runs = shared(at, &of, of.rows())?;
    Ok(vec![of.runs(runs)])
}

fn columns_together(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    if of.shape().len() != 2 {
        return Err(at.shape(&of, "and should be a matrix".to_owned()));
    }
    let runs = shared(at, &of, of.cols())?;
    Ok(vec![of.columns(runs.into_iter().flatten().collect())])
}
