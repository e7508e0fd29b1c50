//! Dense families with little of their own.

use super::{Family, PLAIN};
use crate::rules::same;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        classes: &["Olmo2ForCausalLM", "Olmo3ForCausalLM"],
        arch: "olmo2",
        keys: |d| {
            d.usual()?;
            if let Some(window) = d.config.opt_size(&["sliding_window"])? {
                let layers = d.config.layers()?;
                let said = d.config.layers_that_are(&["sliding_attention"])?;
                // Every fourth sees everything.
                let windows = said.unwrap_or_else(|| (1..=layers).map(|n| n % 4 != 0).collect());
                d.windows(window, Some(windows));
            }
            Ok(())
        },
        rules: &[&[
            same("post_attention_layernorm", "post_attention_norm"),
            same("post_feedforward_layernorm", "post_ffw_norm"),
        ]],
        pre: &["dbrx", "gpt-2"],
        ..PLAIN
    },
    Family {
        classes: &["Starcoder2ForCausalLM"],
        arch: "starcoder2",
        rules: &[&[same("mlp.c_fc", "ffn_up"), same("mlp.c_proj", "ffn_down")]],
        pre: &["starcoder"],
        ..PLAIN
    },
    Family {
        classes: &["SeedOssForCausalLM"],
        arch: "seed_oss",
        rules: &[&[same("post_attention_layernorm", "post_attention_norm")]],
        pre: &["seed-coder"],
        ..PLAIN
    },
];
