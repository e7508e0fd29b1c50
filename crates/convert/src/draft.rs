//! Metadata as it is put together.

use crate::config::Config;
use crate::error::Error;
use crate::rope::Rope;
use gguf::OwnedValue;
use serde_json::Value;

/// Values of `expert_gating_func`.
pub(crate) const SOFTMAX: u32 = 1;
pub(crate) const SIGMOID: u32 = 2;
const SQRT_SOFTPLUS: u32 = 4;

/// The metadata of a file in the making, beside what it is made from.
pub(crate) struct Draft<'a> {
    pub(crate) config: &'a Config,
    pub(crate) rope: Rope,
    pub(crate) arch: &'static str,
    pairs: Vec<(String, OwnedValue)>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(config: &'a Config, arch: &'static str) -> Draft<'a> {
        let mut draft = Draft { config, rope: Rope::of(config), arch, pairs: Vec::new() };
        draft.general("general.architecture", arch);
        draft
    }

    pub(crate) fn into_pairs(self) -> Vec<(String, OwnedValue)> {
        self.pairs
    }

    /// Sets a key by its whole name.
    pub(crate) fn general(&mut self, key: impl Into<String>, value: impl Into<OwnedValue>) {
        let (key, value) = (key.into(), value.into());
        match self.pairs.iter_mut().find(|(known, _)| *known == key) {
            Some(pair) => pair.1 = value,
            None => self.pairs.push((key, value)),
        }
    }

    /// Whether a key is set.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(known, _)| known == key)
    }

    /// Sets a key of the architecture.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<OwnedValue>) {
        self.general(format!("{}.{key}", self.arch), value);
    }

    pub(crate) fn unset(&mut self, key: &str) {
        let key = format!("{}.{key}", self.arch);
        self.pairs.retain(|(known, _)| *known != key);
    }

    pub(crate) fn set_size(&mut self, key: &str, size: usize) {
        self.set(key, size as u32);
    }

    pub(crate) fn set_number(&mut self, key: &str, number: f64) {
        self.set(key, number as f32);
    }

    /// One number for each layer.
    pub(crate) fn set_sizes(&mut self, key: &str, sizes: impl IntoIterator<Item = usize>) {
        self.set(key, sizes.into_iter().map(|size| size as i32).collect::<Vec<_>>());
    }

    /// Takes over a count, if one of these keys has it.
    pub(crate) fn copy_size(&mut self, key: &str, from: &[&str]) -> Result<(), Error> {
        if let Some(size) = self.config.opt_size(from)? {
            self.set_size(key, size);
        }
        Ok(())
    }

    /// Takes over a number, if one of these keys has it.
    pub(crate) fn copy_number(&mut self, key: &str, from: &[&str]) -> Result<(), Error> {
        if let Some(number) = self.config.opt_number(from)? {
            self.set_number(key, number);
        }
        Ok(())
    }

    /// Takes over a number other than zero, if the key has it.
    pub(crate) fn copy_factor(&mut self, key: &str, from: &str) -> Result<(), Error> {
        match self.config.opt_number(&[from])? {
            Some(number) if number != 0.0 => self.set_number(key, number),
            _ => {}
        }
        Ok(())
    }

    /// What most families say alike.
    pub(crate) fn usual(&mut self) -> Result<(), Error> {
        let config = self.config;
        self.set_size("block_count", config.layers()?);
        self.copy_size(
            "context_length",
            &[
                "max_position_embeddings",
                "n_ctx",
                "n_positions",
                "max_length",
                "max_sequence_length",
                "model_max_length",
            ],
        )?;
        self.copy_size("embedding_length", &["hidden_size", "n_embd", "dim"])?;
        let width = [
            "prefix_dense_intermediate_size",
            "dense_intermediate_size",
            "intermediate_size",
            "n_inner",
            "hidden_dim",
        ];
        match config.first(&width) {
            Some((key, Value::Array(list))) => {
                let sizes = list.iter().map(|v| crate::config::size(key, v));
                let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
                self.set_sizes("feed_forward_length", sizes);
            }
            _ => self.copy_size("feed_forward_length", &width)?,
        }
        self.copy_size("attention.head_count", &["num_attention_heads", "n_head", "n_heads"])?;
        self.copy_size("attention.head_count_kv", &["num_key_value_heads", "n_kv_heads"])?;
        if config.get("is_causal").and_then(Value::as_bool) == Some(false) {
            self.set("attention.causal", false);
        }
        self.positions()?;
        self.copy_number("attention.layer_norm_rms_epsilon", &["rms_norm_eps", "norm_eps"])?;
        self.copy_number(
            "attention.layer_norm_epsilon",
            &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"],
        )?;
        self.copy_size("expert_count", &["num_local_experts", "num_experts", "n_routed_experts"])?;
        self.copy_size(
            "expert_used_count",
            &["num_experts_per_tok", "num_experts_per_token", "top_k_experts"],
        )?;
        self.copy_size("expert_group_count", &["n_group"])?;
        self.copy_size("expert_group_used_count", &["topk_group"])?;
        let score = [
            "score_function",
            "scoring_func",
            "score_func",
            "moe_router_activation",
            "moe_router_activation_func",
            "expert_selection_fn",
        ];
        if let Some((key, score)) = config.first(&score) {
            let function = match score.as_str() {
                Some("sigmoid") => SIGMOID,
                Some("softmax") => SOFTMAX,
                Some("sqrtsoftplus") => SQRT_SOFTPLUS,
                _ => return Err(Error::config(format!("{key} is {score}, which no file can say"))),
            };
            self.set("expert_gating_func", function);
        }
        if let Some(dim) = config.opt_size(&["head_dim"])? {
            self.set_size("attention.key_length", dim);
            self.set_size("attention.value_length", dim);
        }
        Ok(())
    }

    fn positions(&mut self) -> Result<(), Error> {
        let rope = self.rope.clone();
        match rope.kind() {
            "linear" if rope.opt("factor")?.is_some() => {
                self.set("rope.scaling.type", "linear");
                self.set_number("rope.scaling.factor", rope.number("factor")?);
            }
            "yarn" if rope.opt("factor")?.is_some() => {
                self.set("rope.scaling.type", "yarn");
                self.set_number("rope.scaling.factor", rope.number("factor")?);
                let original = rope.size("original_max_position_embeddings")?;
                self.set_size("rope.scaling.original_context_length", original);
                for (key, from) in [
                    ("yarn_ext_factor", "extrapolation_factor"),
                    ("yarn_attn_factor", "attn_factor"),
                    ("yarn_attn_factor", "attention_factor"),
                    ("yarn_beta_fast", "beta_fast"),
                    ("yarn_beta_slow", "beta_slow"),
                ] {
                    if let Some(number) = rope.opt(from)? {
                        self.set_number(&format!("rope.scaling.{key}"), number);
                    }
                }
            }
            "su" | "longrope" => self.set("rope.scaling.type", "longrope"),
            // Said otherwise: by tensors, or by the family.
            "default" | "linear" | "yarn" | "dynamic" | "proportional" | "xdrope" | "mrope" => {}
            other if other.eq_ignore_ascii_case("llama3") => {}
            other => {
                let what = format!("rope_type is {other:?}, which is not converted");
                return Err(Error::config(what));
            }
        }
        if let Some(sections) = rope.numbers("mrope_section")? {
            let mut sections: Vec<i32> = sections.iter().map(|&n| n as i32).collect();
            sections.resize(4, 0);
            self.set("rope.dimension_sections", sections);
        }
        if let Some(theta) = rope.theta()? {
            self.set_number("rope.freq_base", theta);
        }
        if let Some(theta) = rope.local_theta()? {
            self.set_number("rope.freq_base_swa", theta);
        }
        Ok(())
    }

    /// The elements of a head that are turned: all, or a part.
    pub(crate) fn turned(&mut self, dim: usize, part: f64) {
        self.set_size("rope.dimension_count", (dim as f64 * part) as usize);
    }

    /// The window of those layers that have one, and which these are.
    pub(crate) fn windows(&mut self, window: usize, layers: Option<Vec<bool>>) {
        self.set_size("attention.sliding_window", window);
        if let Some(layers) = layers {
            self.set("attention.sliding_window_pattern", layers);
        }
    }
}
