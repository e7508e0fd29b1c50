//! The shape of the model that is asked about: of a file, or of a published shape.

use crate::error::Error;
use crate::model_info::ModelInfo;
use arclight_engine::{KvType, ModelFile};
use gguf::TensorType;
use graph::TensorSpec;
use kernels::{ActKind, act_kind};
use models::Model;
use models::published::Published;
use std::path::PathBuf;
use std::str::FromStr;
use tune::{Math, ModelShape, Window};

/// A shape and a type, or a file.
#[derive(Clone, Debug)]
pub(super) enum ModelChoice {
    Shape(Published),
    File(PathBuf),
}

impl FromStr for ModelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<ModelChoice, String> {
        match text.parse::<Published>() {
            Ok(model) => Ok(ModelChoice::Shape(model)),
            // A name with a colon is no file unless there is one.
            Err(e) if text.contains(':') && !PathBuf::from(text).exists() => Err(e.to_string()),
            Err(_) => Ok(ModelChoice::File(text.into())),
        }
    }
}

/// A model's name and shape.
#[derive(Clone, Debug)]
pub(super) struct NamedShape {
    pub(super) name: String,
    pub(super) shape: ModelShape,
}

impl ModelChoice {
    /// Reads the shape, with a cache of this type.
    pub(super) fn read(&self, kv: KvType) -> Result<NamedShape, Error> {
        match self {
            ModelChoice::Shape(model) => of_preset(model, kv),
            ModelChoice::File(path) => of_file(&ModelFile::open(path)?, kv),
        }
    }
}

fn of_file(file: &ModelFile, kv: KvType) -> Result<NamedShape, Error> {
    let gguf = file.gguf()?;
    let fault = |source| Error::Model { path: file.path().to_owned(), source };
    let model = models::build(&gguf, 1).map_err(fault)?;
    let info = ModelInfo::of(&gguf);
    let shape = shape(&model, &file.path().display().to_string(), kv)?;
    Ok(NamedShape { name: format!("{} {}", info.name, info.ty), shape })
}

fn of_preset(published: &Published, kv: KvType) -> Result<NamedShape, Error> {
    let shape = shape(&published.build(1), &published.to_string(), kv)?;
    Ok(NamedShape { name: format!("{} {}", published.shape.title, published.mix.name), shape })
}

fn shape(model: &Model, name: &str, kv: KvType) -> Result<ModelShape, Error> {
    let Model { hparams: h, graph } = model;
    let windows = graph.windows();
    let windows = windows.iter().enumerate();
    let mut windowed = windows.filter_map(|(class, window)| {
        Some(Window { layers: graph.class_layers(class), tokens: (*window)? })
    });
    let window = windowed.next();
    if windowed.next().is_some() {
        let text = format!("{name}: plan knows models with one window, not several");
        return Err(Error::Refused(text));
    }
    let tensors: Vec<&TensorSpec> = graph.tensors().iter().filter(|t| t.rows > 1).collect();
    let of_layers = || tensors.iter().filter(|t| t.name.starts_with("blk."));
    let sum = |of: fn(&TensorSpec) -> usize| of_layers().map(|t| of(t)).sum::<usize>() as f64;
    let named = |name: &str| tensors.iter().find(|t| t.name == name);
    // A tied head is the embedding matrix.
    let head = named("output.weight").or_else(|| named("token_embd.weight"));
    let gated = of_layers().any(|t| {
        t.name.ends_with("ffn_gate.weight")
            || t.name.ends_with("ffn_up.weight") && t.rows == 2 * h.ffn
    });
    let most = of_layers().max_by_key(|t| t.bytes()).map_or(TensorType::F32, |t| t.ty);
    Ok(ModelShape {
        layers: h.layers,
        hidden: h.hidden,
        heads: h.heads,
        kv_heads: h.kv_heads,
        head_dim: h.head_dim,
        ff: h.ffn,
        ff_inputs: if gated { 2 } else { 1 },
        vocab: h.vocab,
        window,
        layer_weight: sum(TensorSpec::bytes) / sum(TensorSpec::elements).max(1.0),
        layer_math: math(most),
        head_weight: head.map_or(4.0, |t| t.bytes() as f64 / t.elements() as f64),
        head_math: math(head.map_or(TensorType::F32, |t| t.ty)),
        kv_element: kv.token_bytes(h.head_dim) as f64 / h.head_dim as f64,
    })
}

fn math(ty: TensorType) -> Math {
    match act_kind(ty) {
        ActKind::Q8 => Math::Int8,
        ActKind::Bf16 => Math::Bf16,
        ActKind::F32 => Math::F32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth;

    fn preset(text: &str) -> ModelShape {
        text.parse::<ModelChoice>().unwrap().read(KvType::Q4_0).unwrap().shape
    }

    #[test]
    fn the_published_shapes_are_those_of_the_papers() {
        assert_eq!(preset("qwen3-4b:q4_0"), tune::known::qwen3_4b_q4_0());
        let llama = ModelShape { kv_element: 18.0 / 32.0, ..tune::known::llama3_8b_q4_0() };
        assert_eq!(preset("llama3-8b:q4_0"), llama);
    }

    #[test]
    fn a_shape_and_its_file_are_the_same() {
        for text in ["tiny:q4_k_m", "tiny:bf16", "tiny:f32"] {
            let model: Published = text.parse().unwrap();
            let file = synth::in_memory(&model, 1).unwrap();
            let read = of_file(&file, KvType::F16).unwrap().shape;
            assert_eq!(read, of_preset(&model, KvType::F16).unwrap().shape, "{text}");
        }
    }

    #[test]
    fn windows_and_heads_of_their_own_are_seen() {
        let gemma = preset("gemma3-4b:q4_0");
        // 34 layers, of which 5 see everything.
        assert_eq!(gemma.window, Some(Window { layers: 29, tokens: 1024 }));
        let untied = preset("qwen3-8b:q8_0");
        assert_eq!((untied.head_weight, untied.head_math), (34.0 / 32.0, Math::Int8));
        assert_eq!(preset("qwen3-8b:bf16").layer_math, Math::Bf16);
    }

    #[test]
    fn names_are_shapes_or_files() {
        let fault = "qwen9:q4_0".parse::<ModelChoice>().unwrap_err();
        assert!(fault.contains("there is no shape"), "{fault}");
        assert!(matches!("m.gguf".parse(), Ok(ModelChoice::File(_))));
    }
}
