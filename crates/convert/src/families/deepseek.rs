//! DeepSeek-V2 and V3, and what is made like them.

use super::{Family, PLAIN, SILU, unless_tied};
use crate::array::Array;
use crate::config::Config;
use crate::draft::{Draft, SIGMOID};
use crate::error::Error;
use crate::folder::Folder;
use crate::keys::{Fixed, Is, is, on};
use crate::rules::{At, Rule, made, same};
use crate::vocab::Kind;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &[
            "DeepseekV2ForCausalLM",
            "DeepseekV3ForCausalLM",
            "KimiK25ForConditionalGeneration",
        ],
        pre: &["deepseek-v3", "kimi-k2"],
        ..DEEPSEEK
    },
    Family {
        classes: &[MISTRAL4],
        arch: "mistral4",
        keys: |d| {
            latent(d)?;
            // Latents are turned whole: the part is that of a whole head.
            d.rope.part(1.0)?;
            let rope = d.rope.clone();
            if let Some(growth) = rope.opt("llama_4_scaling_beta")? {
                d.set_number("attention.temperature_scale", growth);
                if let Some(length) = rope.original()? {
                    d.set_size("attention.temperature_length", length);
                }
            }
            Ok(())
        },
        rules: &[&[same("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight")], RULES],
        vocab: Kind::Llama,
        pre: &["tekken"],
        ..DEEPSEEK
    },
];

const DEEPSEEK: Family = Family {
    arch: "deepseek2",
    fixed: FIXED,
    defaults,
    keys: latent,
    rules: &[RULES],
    // A head that is the embedding is not kept twice.
    rename: Some(unless_tied),
    ..PLAIN
};

const MISTRAL4: &str = "Mistral4ForCausalLM";

/// Gives folders of models for images whose text model is Mistral 4 the class of that.
pub(super) fn note(folder: &mut Folder) {
    let class = folder.config.architectures().first() == Some(&"Mistral3ForConditionalGeneration");
    if class && folder.config.text(&["model_type"]) == Some("mistral4") {
        folder.config.set("architectures", vec![MISTRAL4]);
    }
}

pub(super) const FIXED: &[Fixed] = &[
    SILU,
    on("rope_interleave"),
    is("moe_layer_freq", &[Is::Number(1.0)]),
    is(
        "topk_method",
        &[Is::Text("greedy"), Is::Text("group_limited_greedy"), Is::Text("noaux_tc")],
    ),
];

pub(super) const RULES: &[Rule] = &[
    same("self_attn.q_a_proj", "attn_q_a"),
    same("self_attn.q_a_layernorm", "attn_q_a_norm"),
    same("self_attn.q_b_proj", "attn_q_b"),
    same("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    same("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
    made("self_attn.kv_b_proj", "attn_k_b attn_v_b", keys_and_values),
];

pub(super) fn defaults(config: &mut Config) -> Result<(), Error> {
    config.or("rms_norm_eps", 1e-6);
    Ok(())
}

pub(super) fn latent(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    let config = d.config;
    // All heads share the latents.
    d.set_size("attention.head_count_kv", 1);
    let experts = config.opt_size(&["n_routed_experts"])?;
    let dense = match super::leading_dense(config)? {
        Some(dense) => dense,
        None if experts.is_some() => 0,
        None => config.layers()?,
    };
    d.set_size("leading_dense_block_count", dense);
    let rank = config.meant_size("kv_lora_rank")?.unwrap_or(512);
    d.set_size("vocab_size", config.vocab_size()?);
    d.copy_size("attention.q_lora_rank", &["q_lora_rank"])?;
    let rope = config.size(&["qk_rope_head_dim"])?;
    d.set_size("attention.kv_lora_rank", rank);
    d.set_size("attention.key_length", rank + rope);
    d.set_size("attention.value_length", rank);
    d.set_size("attention.key_length_mla", config.size(&["qk_nope_head_dim"])? + rope);
    d.set_size("attention.value_length_mla", config.size(&["v_head_dim"])?);
    let width = config.size(&["moe_intermediate_size", "intermediate_size"])?;
    d.set_size("expert_feed_forward_length", width);
    d.copy_size("expert_count", &["n_routed_experts"])?;
    d.set_size("expert_shared_count", config.opt_size(&["n_shared_experts"])?.unwrap_or(0));
    d.copy_number("expert_weights_scale", &["routed_scaling_factor"])?;
    // Classes after the second version divide weights by their sum and have sigmoids, which folders need not say. Code of
    // the second has the key for the former and does not obey it.
    let of = |class: &str| config.architectures().iter().any(|known| known.starts_with(class));
    let second = of("DeepseekV2");
    let norm = config.meant("norm_topk_prob").is_some_and(|norm| norm == true);
    if norm && !second {
        d.set("expert_weights_norm", true);
    }
    let softmax = second || of("Mistral4");
    if experts.is_some() && !softmax && config.get("scoring_func").is_none() {
        d.set("expert_gating_func", SIGMOID);
    }
    // Groups count for one of the ways to choose in the second version.
    let greedy = config.meant("topk_method").is_some_and(|method| method == "greedy");
    if greedy && config.opt_size(&["n_group"])?.is_some_and(|groups| groups > 1) {
        d.unset("expert_group_count");
        d.unset("expert_group_used_count");
    }
    d.set_size("rope.dimension_count", rope);
    if let Some(gain) = d.rope.opt("mscale_all_dim")? {
        d.set_number("rope.scaling.yarn_log_multiplier", 0.1 * gain);
    }
    Ok(())
}

/// Each head's keys, turned, and values: queries are multiplied by the former instead of the latents.
fn keys_and_values(at: &At<'_>, of: Array) -> Result<Vec<Array>, Error> {
    let heads = at.config.kv_heads()?;
    let (key, value) = (at.config.size(&["qk_nope_head_dim"])?, at.config.size(&["v_head_dim"])?);
    let each = key + value;
    if of.rows() != heads * each {
        return Err(at.shape(&of, format!("and should have {heads} heads of {key} + {value} rows")));
    }
    let rank = of.cols();
    let part = |start: usize, len: usize| {
        let runs = (0..heads).map(|h| h * each + start..h * each + start + len);
        of.runs(runs.collect()).reshaped(&[heads, len, rank])
    };
    Ok(vec![part(0, key).turned(), part(key, value)])
}
