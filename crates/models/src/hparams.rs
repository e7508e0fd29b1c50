//! Hyper-parameters that all transformer architectures share, read from GGUF metadata.

use crate::error::Error;
use gguf::{Gguf, Metadata};

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
    /// Added to the mean square in RMSNorm.
    pub norm_eps: f32,
}

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
        let embedding = gguf
            .tensor("token_embd.weight")
            .ok_or_else(|| graph::Error::MissingTensor("token_embd.weight".to_owned()))?;
        Ok(Hparams {
            name: m.opt_str("general.name")?.unwrap_or(arch).to_owned(),
            vocab: embedding.rows(),
            context: size("context_length", u32::MAX as usize)?,
            hidden,
            layers: size("block_count", MAX_LAYERS)?,
            ffn: size("feed_forward_length", MAX_WIDTH)?,
            heads,
            kv_heads: size_or("attention.head_count_kv", heads, MAX_WIDTH)?,
            head_dim,
            rope_dims,
            rope_theta: m.opt_f32(&key("rope.freq_base"))?.unwrap_or(10_000.0),
            norm_eps: m.f32(&key("attention.layer_norm_rms_epsilon"))?,
            arch: arch.to_owned(),
        })
    }

    /// Refuses a file that asks for a way to stretch RoPE other than per-pair factors.
    ///
    /// # Errors
    /// When `rope.scaling.type` is set to anything but `none`.
    pub(crate) fn plain_rope(&self, gguf: &Gguf<'_>) -> Result<(), Error> {
        self.only(gguf, "rope.scaling.type", "none")
    }

    /// Refuses a file whose optional string `key` is set to anything but `value`.
    fn only(&self, gguf: &Gguf<'_>, key: &str, value: &str) -> Result<(), Error> {
        let key = format!("{}.{key}", self.arch);
        match gguf.metadata().opt_str(&key)? {
            Some(other) if other != value => {
                Err(Error::UnsupportedFeature { key, value: other.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a mixture-of-experts variant.
    ///
    /// # Errors
    /// When `expert_count` is above zero.
    pub(crate) fn dense(&self, gguf: &Gguf<'_>) -> Result<(), Error> {
        let key = format!("{}.expert_count", self.arch);
        match gguf.metadata().opt_u32(&key)? {
            Some(n) if n > 0 => Err(Error::UnsupportedFeature { key, value: n.to_string() }),
            _ => Ok(()),
        }
    }
}

fn positive(m: &Metadata<'_>, key: &str, max: usize) -> Result<usize, Error> {
    let value = m.u32(key)? as usize;
    let why = match value {
        0 => "it must be at least one",
        v if v > max => "no such model exists",
        v => return Ok(v),
    };
    Err(Error::Implausible { key: key.to_owned(), value: value.to_string(), why })
}
