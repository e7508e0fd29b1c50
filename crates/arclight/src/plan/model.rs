//! The shape of the model that is asked about: of a file, or of a shape that `synth` knows.

use crate::error::Error;
use crate::model_info::ModelInfo;
use crate::synth;
use crate::synth::shapes::{Family, Role};
use arclight_engine::{KvType, ModelFile};
use gguf::TensorType;
use kernels::{ActKind, act_kind};
use std::path::PathBuf;
use std::str::FromStr;
use tune::{Math, ModelShape, Window};

/// A shape and a type, or a file.
#[derive(Clone, Debug)]
pub(super) enum ModelChoice {
    Shape(synth::Model),
    File(PathBuf),
}

impl FromStr for ModelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<ModelChoice, String> {
        match text.parse() {
            Ok(model) => Ok(ModelChoice::Shape(model)),
            // A name with a colon is no file unless there is one.
            Err(e) if text.contains(':') && !PathBuf::from(text).exists() => Err(e),
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

/// What counts of a tensor.
struct Tensor<'a> {
    name: &'a str,
    ty: TensorType,
    rows: usize,
    elements: usize,
    bytes: usize,
}

/// Sizes that are not in the tensors.
struct Sizes {
    layers: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    ff: usize,
    vocab: usize,
    window: Option<Window>,
}

impl ModelChoice {
    /// Reads the shape, with a cache of this type.
    pub(super) fn read(&self, kv: KvType) -> Result<NamedShape, Error> {
        match self {
            ModelChoice::Shape(model) => Ok(of_preset(model, kv)),
            ModelChoice::File(path) => {
                let file = ModelFile::open(path)?;
                of_file(&file, kv)
            }
        }
    }
}

fn of_file(file: &ModelFile, kv: KvType) -> Result<NamedShape, Error> {
    let gguf = file.gguf()?;
    let fault = |source| Error::Model { path: file.path().to_owned(), source };
    let model = models::build(&gguf, 1).map_err(fault)?;
    let h = &model.hparams;
    let windows = model.graph.windows().iter().enumerate();
    let mut windowed = windows.filter_map(|(class, window)| {
        Some(Window { layers: model.graph.class_layers(class), tokens: (*window)? })
    });
    let window = windowed.next();
    if windowed.next().is_some() {
        let text =
            format!("{}: plan knows models with one window, not several", file.path().display());
        return Err(Error::Refused(text));
    }
    let sizes = Sizes {
        layers: h.layers,
        hidden: h.hidden,
        heads: h.heads,
        kv_heads: h.kv_heads,
        head_dim: h.head_dim,
        ff: h.ffn,
        vocab: h.vocab,
        window,
    };
    let tensors = gguf.tensors().iter().filter(|t| t.rows() > 1).map(|t| Tensor {
        name: t.name(),
        ty: t.ty,
        rows: t.rows(),
        elements: t.elements(),
        bytes: t.data.len(),
    });
    let info = ModelInfo::of(&gguf);
    let name = format!("{} {}", info.name, info.ty);
    Ok(NamedShape { name, shape: shape(&sizes, &tensors.collect::<Vec<_>>(), kv) })
}

fn of_preset(model: &synth::Model, kv: KvType) -> NamedShape {
    let s = model.shape;
    // Of Gemma 3's layers every sixth sees everything.
    let layers = s.layers - if s.family == Family::Gemma3 { s.layers / 6 } else { 0 };
    let sizes = Sizes {
        layers: s.layers,
        hidden: s.hidden,
        heads: s.heads,
        kv_heads: s.kv_heads,
        head_dim: s.head_dim,
        ff: s.ffn,
        vocab: s.vocab,
        window: s.window.map(|tokens| Window { layers, tokens: tokens as usize }),
    };
    let specs = model.tensors();
    let matrices = specs.iter().filter(|s| matches!(s.role, Role::Matrix { .. }));
    let tensors = matrices.map(|s| Tensor {
        name: &s.name,
        ty: s.ty,
        rows: s.dims[1],
        elements: s.elements(),
        bytes: s.bytes(),
    });
    let shape = shape(&sizes, &tensors.collect::<Vec<_>>(), kv);
    NamedShape { name: format!("{} {}", s.title, model.mix.title), shape }
}

fn shape(sizes: &Sizes, tensors: &[Tensor<'_>], kv: KvType) -> ModelShape {
    let of_layers = || tensors.iter().filter(|t| t.name.starts_with("blk."));
    let sum = |of: fn(&Tensor<'_>) -> usize| of_layers().map(of).sum::<usize>() as f64;
    let named = |name: &str| tensors.iter().find(|t| t.name == name);
    // A tied head is the embedding matrix.
    let head = named("output.weight").or_else(|| named("token_embd.weight"));
    let gated = of_layers().any(|t| {
        t.name.ends_with("ffn_gate.weight")
            || t.name.ends_with("ffn_up.weight") && t.rows == 2 * sizes.ff
    });
    let most = of_layers().max_by_key(|t| t.bytes).map_or(TensorType::F32, |t| t.ty);
    ModelShape {
        layers: sizes.layers,
        hidden: sizes.hidden,
        heads: sizes.heads,
        kv_heads: sizes.kv_heads,
        head_dim: sizes.head_dim,
        ff: sizes.ff,
        ff_inputs: if gated { 2 } else { 1 },
        vocab: sizes.vocab,
        window: sizes.window,
        layer_weight: sum(|t| t.bytes) / sum(|t| t.elements).max(1.0),
        layer_math: math(most),
        head_weight: head.map_or(4.0, |t| t.bytes as f64 / t.elements as f64),
        head_math: math(head.map_or(TensorType::F32, |t| t.ty)),
        kv_element: kv.token_bytes(sizes.head_dim) as f64 / sizes.head_dim as f64,
    }
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
            let model: synth::Model = text.parse().unwrap();
            let file = synth::in_memory(&model, 1).unwrap();
            let read = of_file(&file, KvType::F16).unwrap().shape;
            assert_eq!(read, of_preset(&model, KvType::F16).shape, "{text}");
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
