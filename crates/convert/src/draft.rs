//! Metadata as it is put together.

use crate::config::Config;
use crate::error::Error;
use crate::rope::Rope;
use gguf::OwnedValue;
use serde_json::Value;
use std::collections::BTreeMap;

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
    /// Counts by their keys, without the architecture.
    sizes: BTreeMap<String, usize>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(config: &'a Config, arch: &'static str) -> Draft<'a> {
        let (rope, sizes) = (Rope::of(config), BTreeMap::new());
        let mut draft = Draft { config, rope, arch, pairs: Vec::new(), sizes };
        draft.general("general.architecture", arch);
        draft
    }

    /// A count of the architecture that is set already.
    pub(crate) fn size(&self, key: &str) -> Option<usize> {
        self.sizes.get(key).copied()
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
        self.sizes.remove(key);
        let key = format!("{}.{key}", self.arch);
        self.pairs.retain(|(known, _)| *known != key);
    }

    pub(crate) fn set_size(&mut self, key: &str, size: usize) {
        self.sizes.insert(key.to_owned(), size);
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

    /// Takes over a number other than zero, if the folder or its class has it.
    pub(crate) fn copy_factor(&mut self, key: &str, from: &str) -> Result<(), Error> {
        match self.config.meant_number(from)? {
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
        if let Some(dim) = config.stated_head_dim()? {
            self.set_size("attention.key_length", dim);
            self.set_size("attention.value_length", dim);
        }
        Ok(())
    }

    /// The elements of a head that are turned: all, or a part.
    pub(crate) fn turned(&mut self, dim: usize, part: f64) {
        self.set_size("rope.dimension_count", (dim as f64 * part) as usize);
    }

    /// Whether the weights of chosen experts are divided by their sum, where readers of files take `usual`.
    pub(crate) fn weights_norm(&mut self, usual: bool) {
        let norm = self.config.meant("norm_topk_prob").and_then(|value| value.as_bool());
        if let Some(norm) = norm.filter(|&norm| norm != usual) {
            self.set("expert_weights_norm", norm);
        }
    }

    /// Positions of families whose files have no base where it is the usual one.
    pub(crate) fn rotates(&mut self) -> Result<(), Error> {
        self.positions()?;
        self.without_usual_base();
        Ok(())
    }

    /// Leaves out a base that readers of files take where there is none.
    pub(crate) fn without_usual_base(&mut self) {
        let key = format!("{}.rope.freq_base", self.arch);
        let usual = OwnedValue::from(10000.0_f32);
        self.pairs.retain(|(known, value)| *known != key || *value != usual);
    }

    /// The window, and which layers have it where these are not all but the last of every `period`.
    pub(crate) fn windows_by(&mut self, window: usize, period: usize) -> Result<(), Error> {
        let layers = self.config.windowed(period)?;
        let usual = (1..=layers.len()).map(|n| !n.is_multiple_of(period));
        let layers = Some(layers.clone()).filter(|layers| !usual.eq(layers.iter().copied()));
        self.windows(window, layers);
        Ok(())
    }

    /// Refuses windows, which no file of the architecture can say.
    pub(crate) fn no_windows(&self) -> Result<(), Error> {
        let config = self.config;
        let refused = |what: String| {
            let what =
                format!("{what}, and no file of {} can say that layers have a window", self.arch);
            Err(Error::config(what))
        };
        let on = config.meant("use_sliding_window").is_none_or(|on| on != Value::Bool(false));
        let window = config.meant_size("sliding_window")?.filter(|_| on);
        let first = config.meant_size("max_window_layers")?.unwrap_or(0);
        if let Some(kinds) = config.texts("layer_types")? {
            return match kinds.iter().find(|kind| **kind != "full_attention") {
                Some(kind) => refused(format!("layer_types has {kind:?}")),
                None => Ok(()),
            };
        }
        // In models with experts it is the first of them that have one.
        match window.filter(|&window| window > 0) {
            Some(window) if first < config.layers()? || self.arch.ends_with("moe") => {
                refused(format!("sliding_window is {window}"))
            }
            _ => Ok(()),
        }
    }

    /// The window of those layers that have one, and which these are.
    pub(crate) fn windows(&mut self, window: usize, layers: Option<Vec<bool>>) {
        self.set_size("attention.sliding_window", window);
        if let Some(layers) = layers {
            self.set("attention.sliding_window_pattern", layers);
        }
    }
}
