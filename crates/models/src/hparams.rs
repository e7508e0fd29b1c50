//! Hyper-parameters that all transformer architectures share, read from GGUF metadata.

use crate::error::Error;
use crate::vision::Vision;
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
    /// Types of tokens that it has embeddings of: parts of a text, as BERT tells them apart.
    pub token_types: usize,
    /// Longest context that the model was trained for.
    pub context: usize,
    /// Keys that a token sees in layers with a sliding window, the last of which is its own.
    pub window: Option<usize>,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of layers, without those that predict further tokens.
    pub layers: usize,
    /// Layers behind them that do.
    pub predicting: usize,
    /// Width of the feed-forward layer, the widest if layers differ.
    pub ffn: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads, the most that a layer has.
    pub kv_heads: usize,
    /// What differs from layer to layer.
    pub by_layer: ByLayer,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of a head that RoPE rotates.
    pub rope_dims: usize,
    /// Base of the RoPE frequencies.
    pub rope_theta: f32,
    /// Added to the mean square in RMSNorm, or to the variance in LayerNorm.
    pub norm_eps: f32,
}

/// Numbers of each layer, those behind the others included.
#[derive(Clone, Debug, PartialEq)]
pub struct ByLayer {
    /// Key/value heads: 0 where a layer has no attention.
    pub kv_heads: Vec<usize>,
    /// Width of the feed-forward layer: 0 where there is none.
    pub ffn: Vec<usize>,
}

const RMS_EPS: &str = "attention.layer_norm_rms_epsilon";
const EXPERT_WIDTH: &str = "expert_feed_forward_length";

/// No published model is near these; a larger value is a broken file.
const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 20;

impl Hparams {
    /// Reads and checks the parameters of a file.
    ///
    /// # Errors
    /// When a key is missing, of the wrong type, or implausible.
    pub fn read(gguf: &Gguf<'_>) -> Result<Hparams, Error> {
        if Vision::is_encoder(gguf.metadata()) {
            return Vision::read(gguf.metadata())?.hparams(gguf.metadata());
        }
        const EMBEDDING: &str = "token_embd.weight";
        let missing = || graph::Error::MissingTensor(EMBEDDING.to_owned());
        let embedding = gguf.tensor(EMBEDDING).ok_or_else(missing)?;
        Hparams::of(gguf.metadata(), embedding.rows())
    }

    /// Those of a model with `vocab` tokens.
    pub(crate) fn of(m: &Metadata<'_>, vocab: usize) -> Result<Hparams, Error> {
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
        let latents = m.get(&key("attention.kv_lora_rank")).is_some();
        if value_dim != head_dim && !latents {
            let value = value_dim.to_string();
            return Err(Error::UnsupportedFeature { key: key("attention.value_length"), value });
        }
        // Heads of odd length have no RoPE.
        let rope_dims = match m.get(&key("rope.dimension_count")) {
            Some(_) => positive(m, &key("rope.dimension_count"), MAX_WIDTH)?,
            None => head_dim & !1,
        };
        if rope_dims > head_dim || !rope_dims.is_multiple_of(2) {
            return Err(Error::Implausible {
                key: key("rope.dimension_count"),
                value: rope_dims.to_string(),
                why: "it must be even and at most the length of a head",
            });
        }
        let (layers, predicting) = layers(m, &key("block_count"), &key("nextn_predict_layers"))?;
        let each = |k: &str| numbers(m, &key(k), layers + predicting, MAX_WIDTH);
        let kv_heads = match m.get(&key("attention.head_count_kv")) {
            Some(_) => each("attention.head_count_kv")?,
            None => vec![heads; layers + predicting],
        };
        // Files of models in which every layer has experts may state no other width.
        let ffn = match m.get(&key("feed_forward_length")) {
            None if m.get(&key(EXPERT_WIDTH)).is_some() => each(EXPERT_WIDTH)?,
            _ => each("feed_forward_length")?,
        };
        let window = m.opt_u32(&key("attention.sliding_window"))?.filter(|&window| window > 0);
        Ok(Hparams {
            name: m.opt_str("general.name")?.unwrap_or(arch).to_owned(),
            vocab,
            token_types: m.opt_u32("tokenizer.ggml.token_type_count")?.unwrap_or(1) as usize,
            context: size("context_length", u32::MAX as usize)?,
            window: window.map(|window| window as usize),
            hidden,
            layers,
            predicting,
            ffn: most(&ffn, &key("feed_forward_length"))?,
            heads,
            kv_heads: most(&kv_heads, &key("attention.head_count_kv"))?,
            by_layer: ByLayer { kv_heads, ffn },
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
}

/// A number for each layer, by an array or one for all.
fn numbers(m: &Metadata<'_>, key: &str, layers: usize, max: usize) -> Result<Vec<usize>, Error> {
    let implausible = |value: String, why| Error::Implausible { key: key.to_owned(), value, why };
    let all = match m.get(key) {
        Some(Value::Array(_)) => m.u32s(key)?.into_iter().map(|n| n as usize).collect(),
        _ => vec![m.u32(key)? as usize],
    };
    if let Some(large) = all.iter().find(|n| **n > max) {
        return Err(implausible(large.to_string(), "no such model exists"));
    }
    match all.split_first() {
        Some((first, rest)) if rest.iter().all(|n| n == first) => Ok(vec![*first; layers]),
        _ if all.len() == layers => Ok(all),
        _ => Err(implausible(all.len().to_string(), "it must have a number for each layer")),
    }
}

/// The largest of the layers' numbers, which must not be zero.
fn most(numbers: &[usize], key: &str) -> Result<usize, Error> {
    let why = "it must be at least one";
    let zero = || Error::Implausible { key: key.to_owned(), value: "0".to_owned(), why };
    numbers.iter().copied().max().filter(|most| *most > 0).ok_or_else(zero)
}

/// The layers of a file, of which the last may be there to predict further tokens.
fn layers(m: &Metadata<'_>, all: &str, predicting: &str) -> Result<(usize, usize), Error> {
    let layers = positive(m, all, MAX_LAYERS)?;
    let others = m.opt_u32(predicting)?.unwrap_or(0) as usize;
    if others >= layers {
        let (key, value) = (predicting.to_owned(), others.to_string());
        return Err(Error::Implausible { key, value, why: "a model has other layers too" });
    }
    Ok((layers - others, others))
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
