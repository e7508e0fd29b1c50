//! What a file states besides sizes, as the page of a family reads it.

use crate::decoder::{Mixer, Moe, Style};
use crate::recurrent::Recurrent;
use crate::{Error, Hparams};
use gguf::{Metadata, Value};
use graph::{Activation, Expert, Gate, GroupScore, Groups, Router};
use std::ops::{Deref, Range};

/// Keys that several families obey.
pub(crate) const WINDOW: &str = "attention.sliding_window";
pub(crate) const EXPERTS: &str = "expert_count";
pub(crate) const NEXTN: &str = "nextn_predict_layers";
pub(crate) const SHARED_EXPERTS: &str = "expert_shared_count";
pub(crate) const LEADING_DENSE: &str = "leading_dense_block_count";
pub(crate) const CLAMP: &str = "attention.clamp_kqv";
pub(crate) const CAUSAL: &str = "attention.causal";
pub(crate) const ALIBI: &str = "attention.max_alibi_bias";
pub(crate) const SHARED_KV: &str = "attention.shared_kv_layers";
pub(crate) const PER_LAYER: &str = "embedding_length_per_layer_input";
pub(crate) const STREAMS: &str = "altup.num_inputs";
pub(crate) const ACTIVE_STREAM: &str = "altup.active_idx";
pub(crate) const SPARSITY: &str = "activation_sparsity_scale";
/// Numbers that may differ by layer.
pub(crate) const KV_HEADS: &str = "attention.head_count_kv";
pub(crate) const FFN: &str = "feed_forward_length";
pub(crate) const WINDOW_PATTERN: &str = "attention.sliding_window_pattern";

/// Hyper-parameters, and the metadata below the architecture's name.
pub(crate) struct Facts<'a> {
    pub(crate) hparams: &'a Hparams,
    pub(crate) metadata: &'a Metadata<'a>,
    /// Whether the layers that predict further tokens are wanted.
    pub(crate) predicts: bool,
    /// The layers that are wanted, if not all: those of one host.
    pub(crate) part: Option<Range<usize>>,
}

impl Deref for Facts<'_> {
    type Target = Hparams;

    fn deref(&self) -> &Hparams {
        self.hparams
    }
}

impl Facts<'_> {
    /// The whole key of `name`.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    /// A number, when the file states it.
    ///
    /// # Errors
    /// When it is something else.
    pub(crate) fn opt_f32(&self, name: &str) -> Result<Option<f32>, Error> {
        Ok(self.metadata.opt_f32(&self.key(name))?)
    }

    /// Refuses a file that states something which changes results, unless it is among `known`.
    ///
    /// # Errors
    /// When a key of [`TRAITS`] that is not among `known` has another value than it has there, or is
    /// no number nor an array of them.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Error> {
        let by_layer = [(KV_HEADS, &self.by_layer.kv_heads), (FFN, &self.by_layer.ffn)];
        for (name, numbers) in by_layer.into_iter().filter(|(name, _)| !known.contains(name)) {
            if numbers.iter().any(|n| *n != numbers[0]) {
                let value = "numbers that differ by layer".to_owned();
                return Err(Error::UnsupportedFeature { key: self.key(name), value });
            }
        }
        for (name, neutral) in TRAITS.iter().filter(|(name, _)| !known.contains(name)) {
            let key = self.key(name);
            let Some(value) = self.metadata.get(&key) else { continue };
            let other = |value: Value<'_>| match number(&value) {
                Some(n) => (n != *neutral).then(|| n.to_string()),
                None => Some("something that is no number".to_owned()),
            };
            let stated = match value {
                Value::Array(list) => list.values().find_map(other),
                value => other(*value),
            };
            if let Some(value) = stated {
                return Err(Error::UnsupportedFeature { key, value });
            }
        }
        Ok(())
    }

    /// Which layers have a sliding window, if any has: those that the file names, or all but the last
    /// of every `period`.
    ///
    /// # Errors
    /// When the file states something else than a period or a list with an entry for each layer.
    pub(crate) fn windowed(&self, period: usize) -> Result<Vec<bool>, Error> {
        self.windowed_from(1, period)
    }

    /// The same, or all but the first of every `period`.
    ///
    /// # Errors
    /// As [`Facts::windowed`].
    pub(crate) fn windowed_but_first(&self, period: usize) -> Result<Vec<bool>, Error> {
        self.windowed_from(0, period)
    }

    /// The same, or all but those whose number and `add` are a multiple of `period`.
    fn windowed_from(&self, add: usize, period: usize) -> Result<Vec<bool>, Error> {
        let key = self.key(WINDOW_PATTERN);
        let all_but_the_last = |period: usize| {
            let windowed = |layer: usize| !(layer + add).is_multiple_of(period); // of 0: none is
            (0..self.layers).map(windowed).collect()
        };
        let listed: Vec<bool> = match self.metadata.get(&key) {
            None => return Ok(all_but_the_last(period)),
            Some(Value::Array(list)) => {
                list.values().filter_map(|v| Some(number(&v)? != 0.0)).collect()
            }
            Some(_) => return Ok(all_but_the_last(self.metadata.u32(&key)? as usize)),
        };
        if listed.len() != self.layers {
            let (value, why) =
                (listed.len().to_string(), "it must have a truth value for each layer");
            return Err(Error::Implausible { key, value, why });
        }
        Ok(listed)
    }

    /// Which layers have a recurrence instead of attention: those that the file names, or all but the last of
    /// every period. The styles of all layers.
    ///
    /// # Errors
    /// When the file states something else than a period or a list with an entry for each layer.
    pub(crate) fn with_recurrence(
        &self,
        attends: Style,
        recurrent: Recurrent,
    ) -> Result<Vec<Style>, Error> {
        let recurs = Style { mixer: Mixer::Recurrent(recurrent), ..attends };
        let key = self.key("attention.recurrent_layers");
        let listed: Vec<bool> = match self.metadata.get(&key) {
            Some(Value::Array(list)) => {
                list.values().filter_map(|v| Some(number(&v)? != 0.0)).collect()
            }
            _ => {
                let period = self.opt_size("full_attention_interval")?.unwrap_or(4);
                (0..self.layers).map(|layer| !(layer + 1).is_multiple_of(period)).collect()
            }
        };
        if listed.len() < self.layers {
            let (value, why) =
                (listed.len().to_string(), "it must have a truth value for each layer");
            return Err(Error::Implausible { key, value, why });
        }
        let style = |recurrent: bool| if recurrent { recurs } else { attends };
        Ok(listed.into_iter().take(self.layers).map(style).collect())
    }

    /// Whose keys and values each layer attends, if not its own: the last layers, as many as the file states, those of
    /// the last one of their kind before them.
    ///
    /// # Errors
    /// When there is no such layer.
    pub(crate) fn borrowed(&self, windowed: &[bool]) -> Result<Vec<Option<usize>>, Error> {
        let own = self.layers - self.opt_size(SHARED_KV)?.unwrap_or(0).min(self.layers);
        let of_kind = |layer: usize| (0..own).rev().find(|&of| windowed[of] == windowed[layer]);
        let borrows: Vec<_> = (0..self.layers).map(|l| of_kind(l).filter(|_| l >= own)).collect();
        if borrows[own..].contains(&None) {
            let (key, value) = (self.key(SHARED_KV), (self.layers - own).to_string());
            let why = "a layer of each kind must have keys and values of its own";
            return Err(Error::Implausible { key, value, why });
        }
        Ok(borrows)
    }

    /// A cap from the metadata: what the file states, where 0 means none, or else `default`.
    ///
    /// # Errors
    /// When it is not a number, or negative.
    pub(crate) fn cap(&self, name: &str, default: Option<f32>) -> Result<Option<f32>, Error> {
        match self.opt_f32(name)? {
            None => Ok(default),
            Some(0.0) => Ok(None),
            Some(cap) if cap.is_finite() && cap > 0.0 => Ok(Some(cap)),
            Some(cap) => {
                let why = "a cap is a number above zero";
                Err(Error::Implausible { key: self.key(name), value: cap.to_string(), why })
            }
        }
    }

    /// A size of experts, when the file states it.
    ///
    /// # Errors
    /// When it is no size.
    pub(crate) fn opt_size(&self, name: &str) -> Result<Option<usize>, Error> {
        let size = self.metadata.opt_u32(&self.key(name))?;
        Ok(size.map(|size| size as usize).filter(|&size| size > 0))
    }

    /// A size that the file must state.
    ///
    /// # Errors
    /// When it does not, or it is no size.
    pub(crate) fn size(&self, name: &str) -> Result<usize, Error> {
        let missing = |value: u32| Error::Implausible {
            key: self.key(name),
            value: value.to_string(),
            why: "it must be at least one",
        };
        self.opt_size(name)?.ok_or_else(|| missing(0))
    }

    /// A mixture of experts as the file describes it. What it leaves open is as `router` has it.
    ///
    /// # Errors
    /// When a number is missing or means nothing.
    pub(crate) fn experts(&self, router: Router) -> Result<Moe, Error> {
        let gate = match self.metadata.opt_u32(&self.key("expert_gating_func"))? {
            None | Some(0) => router.gate,
            Some(1) => Gate::Softmax,
            Some(2) => Gate::Sigmoid,
            Some(3) => Gate::ChosenSoftmax,
            Some(4) => Gate::SqrtSoftplus,
            Some(other) => {
                let (key, value) = (self.key("expert_gating_func"), other.to_string());
                return Err(Error::UnsupportedFeature { key, value });
            }
        };
        let groups = match self.opt_size("expert_group_count")? {
            Some(count) if count > 1 => {
                let used = self.size("expert_group_used_count")?;
                let by = router.groups.map_or(GroupScore::TwoBest, |groups| groups.by);
                Some(Groups { count, used, by })
            }
            _ => None,
        };
        let normalised = self.metadata.opt_bool(&self.key("expert_weights_norm"))?;
        let scale = self.opt_f32("expert_weights_scale")?.filter(|&scale| scale != 0.0);
        Ok(Moe {
            router: Router {
                experts: self.size("expert_count")?,
                chosen: self.size("expert_used_count")?,
                gate,
                groups,
                normalised: normalised.unwrap_or(router.normalised),
                scale: scale.unwrap_or(router.scale),
                ..router
            },
            width: self.opt_size("expert_feed_forward_length")?.unwrap_or(self.ffn),
            expert: Expert { activation: Activation::Silu, gated: true, weigh_input: false },
            fused: false,
            biases: false,
            early: false,
            shared: None,
        })
    }

    /// A number of each layer, by an array or one for all. `key` is the whole one.
    ///
    /// # Errors
    /// When it is missing, or no number for each layer.
    pub(crate) fn of_layers(&self, key: &str) -> Result<Vec<f32>, Error> {
        let missing = || gguf::Error::MissingKey { key: key.to_owned() };
        let numbers: Vec<f64> = match self.metadata.get(key).ok_or_else(missing)? {
            Value::Array(list) => list.values().filter_map(|v| number(&v)).collect(),
            one => number(one).map_or_else(Vec::new, |one| vec![one; self.layers]),
        };
        if numbers.len() != self.layers {
            let (key, value) = (key.to_owned(), numbers.len().to_string());
            let why = "it must have a number for each layer";
            return Err(Error::Implausible { key, value, why });
        }
        Ok(numbers.into_iter().map(|number| number as f32).collect())
    }

    /// A factor from the metadata, when the file states it.
    ///
    /// # Errors
    /// When it is not a number, or zero.
    pub(crate) fn factor(&self, name: &str) -> Result<Option<f32>, Error> {
        match self.opt_f32(name)? {
            Some(value) if !value.is_finite() || value == 0.0 => {
                let why = "a factor is a number other than zero";
                Err(Error::Implausible { key: self.key(name), value: value.to_string(), why })
            }
            value => Ok(value),
        }
    }
}

/// What some families have and others do not, by its key, and the value that means its absence. A
/// file that states one is only right when it is obeyed.
const TRAITS: &[(&str, f64)] = &[
    (EXPERTS, 0.0),
    (LEADING_DENSE, 0.0),
    (SHARED_EXPERTS, 0.0),
    ("interleave_moe_layer_step", 1.0),
    ("embedding_scale", 1.0),
    ("residual_scale", 1.0),
    ("logit_scale", 1.0),
    ("attention.scale", 0.0),
    (CAUSAL, 1.0),
    (CLAMP, 0.0),
    (ALIBI, 0.0),
    (WINDOW, 0.0),
    (WINDOW_PATTERN, 0.0),
    ("attention.temperature_scale", 0.0),
    ("attn_logit_softcapping", 0.0),
    ("final_logit_softcapping", 0.0),
    ("use_parallel_residual", 0.0),
    ("rope.dimension_sections", 0.0),
    ("rope.scaling.alpha", 0.0),
    ("rope.scaling.yarn_log_multiplier", 0.0),
    (NEXTN, 0.0),
    ("moe_latent_size", 0.0),
    (SHARED_KV, 0.0),
    (PER_LAYER, 0.0),
    (STREAMS, 1.0),
    (ACTIVE_STREAM, 0.0),
    (SPARSITY, f64::NEG_INFINITY),
];

/// A number or a truth value.
fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Bool(b) => Some(f64::from(u8::from(*b))),
        v => v.as_float().or_else(|| v.as_int().map(|int| int as f64)),
    }
}
