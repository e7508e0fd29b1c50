//! GLM-4 and GLM-4.5 to 4.7.

use super::{Family, PLAIN, Predicting, SILU, deepseek};
use crate::config::Config;
use crate::draft::{Draft, SIGMOID};
use crate::error::Error;
use crate::keys::{Is, is};
use crate::rules::{Rule, same};
use crate::vocab::Kind;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["Glm4ForCausalLM"],
        arch: "glm4",
        fixed: &[SILU],
        keys: |d| {
            d.usual()?;
            if d.rope.numbers("mrope_section")?.is_some() {
                return Err(Error::config("mrope_section: GLM for images is not converted"));
            }
            d.turned(d.config.head_dim()?, d.rope.part(0.5)?);
            Ok(())
        },
        rules: &[&[
            same("post_self_attn_layernorm", "post_attention_norm"),
            same("post_mlp_layernorm", "post_ffw_norm"),
        ]],
        vocab: Kind::Glm4,
        ..GLM
    },
    Family {
        classes: &["Glm4MoeForCausalLM"],
        arch: "glm4moe",
        fixed: &[SILU, is("topk_method", &[Is::Text("noaux_tc")])],
        keys: experts,
        rules: &[AFTER],
        predicting: Predicting::Kept,
        vocab: Kind::Glm,
        ..GLM
    },
    Family {
        classes: &["Glm4MoeLiteForCausalLM"],
        arch: "deepseek2",
        fixed: deepseek::FIXED,
        defaults: deepseek::defaults,
        keys: |d| {
            deepseek::latent(d)?;
            let more = predicting_layers(d.config)?;
            if more > 0 {
                d.set_size("block_count", d.config.layers()? + more);
                d.set_size("nextn_predict_layers", more);
            }
            Ok(())
        },
        rules: &[deepseek::RULES],
        predicting: Predicting::Kept,
        vocab: Kind::Glm,
        ..GLM
    },
];

const GLM: Family = Family { pre: &["glm4"], ..PLAIN };

const AFTER: &[Rule] = &[same("post_attention_layernorm", "post_attention_norm")];

fn predicting_layers(config: &Config) -> Result<usize, Error> {
    Ok(config.opt_size(&["num_nextn_predict_layers"])?.unwrap_or(0))
}

fn experts(d: &mut Draft<'_>) -> Result<(), Error> {
    d.usual()?;
    let config = d.config;
    d.set_size("block_count", config.layers()? + predicting_layers(config)?);
    d.turned(config.head_dim()?, d.rope.part(0.5)?);
    d.copy_size("expert_count", &["n_routed_experts"])?;
    d.copy_size("expert_feed_forward_length", &["moe_intermediate_size"])?;
    d.copy_size("expert_shared_count", &["n_shared_experts"])?;
    if let Some(dense) = super::leading_dense(config)? {
        d.set_size("leading_dense_block_count", dense);
    }
    d.set("expert_gating_func", SIGMOID);
    d.copy_number("expert_weights_scale", &["routed_scaling_factor"])?;
    let norm = config.meant("norm_topk_prob").and_then(|value| value.as_bool());
    if let Some(norm) = norm {
        d.set("expert_weights_norm", norm);
    }
    d.copy_size("nextn_predict_layers", &["num_nextn_predict_layers"])
}
