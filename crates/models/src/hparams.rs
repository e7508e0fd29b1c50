//! Hyper-parameters that all transformer architectures share, read from GGUF metadata.

use crate::error::Error;
use gguf::{Gguf, Metadata, Value};

/// Sizes and constants of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Hparams {
    /// `general.architecture`.
    pub arch: String,
    /// `general.name`, or the architecture's.
    pub name: String,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Longest context that the model was trained for.
    pub context: usize,
    /// Keys that a token sees in layers with a sliding window, the last of which is its own.
    pub window: Option<usize>,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Width of the feed-forward layer.
    pub ffn: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of a head that RoPE rotates.
    pub rope_dims: usize,
    /// Base of the RoPE frequencies.
    pub rope_theta: f32,
    /// Added to the mean square in RMSNorm, or to the variance in LayerNorm.
    pub norm_eps: f32,
}

const RMS_EPS: &str = "attention.layer_norm_rms_epsilon";

/// No published model is near these; a larger value is a broken file.
const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 20;

impl Hparams {
    /// Reads and checks the parameters.
    ///
    /// # Errors
    /// When a key is missing, of the wrong type, or implausible.
    pub fn read(gguf: &Gguf<'_>) -> Result<Hparams, Error> {
        let m = gguf.metadata();
        let arch = m.str("general.architecture")?;
        let key = |k: &str| format!("{arch}.{k}");
        let size = |k: &str, max| positive(m, &key(k), max);
        let size_or = |k: &str, default, max| match m.get(&key(k)) {
            Some(_) => positive(m, &key(k), max),
            None => Ok(default),
        };
        let hidden = size("embedding_length", MAX_WIDTH)?;
        let heads = size("attention.head_count", MAX_WIDTH)?;
        let head_dim = size_or("attention.key_length", hidden / heads, MAX_WIDTH)?;
        let value_dim = size_or("attention.value_length", head_dim, MAX_WIDTH)?;
        if value_dim != head_dim {
            let value = value_dim.to_string();
            return Err(Error::UnsupportedFeature { key: key("attention.value_length"), value });
        }
        let rope_dims = size_or("rope.dimension_count", head_dim, MAX_WIDTH)?;
        if rope_dims > head_dim || !rope_dims.is_multiple_of(2) {
            return Err(Error::Implausible {
                key: key("rope.dimension_count"),
                value: rope_dims.to_string(),
                why: "it must be even and at most the length of a head",
            });
        }
        let window = m.opt_u32(&key("attention.sliding_window"))?.filter(|&window| window > 0);
        let embedding = gguf
            .tensor("token_embd.weight")
            .ok_or_else(|| graph::Error::MissingTensor("token_embd.weight".to_owned()))?;
        Ok(Hparams {
            name: m.opt_str("general.name")?.unwrap_or(arch).to_owned(),
            vocab: embedding.rows(),
            context: size("context_length", u32::MAX as usize)?,
            window: window.map(|window| window as usize),
            hidden,
            layers: size("block_count", MAX_LAYERS)?,
            ffn: size("feed_forward_length", MAX_WIDTH)?,
            heads,
            kv_heads: size_or("attention.head_count_kv", heads, MAX_WIDTH)?,
            head_dim,
            rope_dims,
            rope_theta: m.opt_f32(&key("rope.freq_base"))?.unwrap_or(10_000.0),
            norm_eps: match m.opt_f32(&key("attention.layer_norm_epsilon"))? {
                Some(eps) if m.get(&key(RMS_EPS)).is_none() => eps,
                _ => m.f32(&key(RMS_EPS))?,
            },
            arch: arch.to_owned(),
        })
    }

    /// Refuses a file that states something which changes results, unless it is among `known`.
    ///
    /// # Errors
    /// When a key of [`TRAITS`] that is not among `known` has another value than it has there, or is
    /// no number nor an array of them.
    pub(crate) fn only(&self, gguf: &Gguf<'_>, known: &[&str]) -> Result<(), Error> {
        for (name, neutral) in TRAITS.iter().filter(|(name, _)| !known.contains(name)) {
            let key = format!("{}.{name}", self.arch);
            let Some(value) = gguf.metadata().get(&key) else { continue };
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
    pub(crate) fn windowed(&self, gguf: &Gguf<'_>, period: usize) -> Result<Vec<bool>, Error> {
        let key = format!("{}.attention.sliding_window_pattern", self.arch);
        let all_but_the_last = |period: usize| {
            let windowed = |layer: usize| !(layer + 1).is_multiple_of(period); // of 0: none is
            (0..self.layers).map(windowed).collect()
        };
        let listed: Vec<bool> = match gguf.metadata().get(&key) {
            None => return Ok(all_but_the_last(period)),
            Some(Value::Array(list)) => {
                list.values().filter_map(|v| Some(number(&v)? != 0.0)).collect()
            }
            Some(_) => return Ok(all_but_the_last(gguf.metadata().u32(&key)? as usize)),
        };
        if listed.len() != self.layers {
            let (value, why) =
                (listed.len().to_string(), "it must have a truth value for each layer");
            return Err(Error::Implausible { key, value, why });
        }
        Ok(listed)
    }

    /// A cap from the metadata: what the file states, where 0 means none, or else `default`.
    ///
    /// # Errors
    /// When it is not a number, or negative.
    pub(crate) fn cap(
        &self,
        gguf: &Gguf<'_>,
        name: &str,
        default: Option<f32>,
    ) -> Result<Option<f32>, Error> {
        let key = format!("{}.{name}", self.arch);
        match gguf.metadata().opt_f32(&key)? {
            None => Ok(default),
            Some(0.0) => Ok(None),
            Some(cap) if cap.is_finite() && cap > 0.0 => Ok(Some(cap)),
            Some(cap) => {
                let why = "a cap is a number above zero";
                Err(Error::Implausible { key, value: cap.to_string(), why })
            }
        }
    }

    /// A factor from the metadata, when the file states it.
    ///
    /// # Errors
    /// When it is not a number, or zero.
    pub(crate) fn factor(&self, gguf: &Gguf<'_>, name: &str) -> Result<Option<f32>, Error> {
        let key = format!("{}.{name}", self.arch);
        match gguf.metadata().opt_f32(&key)? {
            Some(value) if !value.is_finite() || value == 0.0 => {
                let why = "a factor is a number other than zero";
                Err(Error::Implausible { key, value: value.to_string(), why })
            }
            value => Ok(value),
        }
    }
}

/// What some families have and others do not, by its key, and the value that means its absence. A
/// file that states one is only right when it is obeyed.
const TRAITS: &[(&str, f64)] = &[
    ("expert_count", 0.0),
    ("embedding_scale", 1.0),
    ("residual_scale", 1.0),
    ("logit_scale", 1.0),
    ("attention.scale", 0.0),
    ("attention.causal", 1.0),
    ("attention.clamp_kqv", 0.0),
    ("attention.max_alibi_bias", 0.0),
    ("attention.sliding_window", 0.0),
    ("attention.sliding_window_pattern", 0.0),
    ("attention.temperature_scale", 0.0),
    ("attn_logit_softcapping", 0.0),
    ("final_logit_softcapping", 0.0),
    ("use_parallel_residual", 0.0),
    ("pooling_type", 0.0),
    ("rope.dimension_sections", 0.0),
    ("rope.scaling.alpha", 0.0),
    ("nextn_predict_layers", 0.0),
];

/// A number or a truth value.
fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Bool(b) => Some(f64::from(u8::from(*b))),
        v => v.as_float().or_else(|| v.as_int().map(|int| int as f64)),
    }
}

/// A number that the file states for each layer.
fn same_for_all_layers(m: &Metadata<'_>, key: &str) -> Result<u32, Error> {
    let all = m.u32s(key)?;
    match all.split_first() {
        Some((first, rest)) if rest.iter().all(|n| n == first) => Ok(*first),
        _ => {
            let value = "numbers that differ by layer".to_owned();
            Err(Error::UnsupportedFeature { key: key.to_owned(), value })
        }
    }
}

fn positive(m: &Metadata<'_>, key: &str, max: usize) -> Result<usize, Error> {
    let value = match m.get(key) {
        Some(Value::Array(_)) => same_for_all_layers(m, key)?,
        _ => m.u32(key)?,
    };
    let value = value as usize;
    let why = match value {
        0 => "it must be at least one",
        v if v > max => "no such model exists",
        v => return Ok(v),
    };
    Err(Error::Implausible { key: key.to_owned(), value: value.to_string(), why })
}
