//! Model architectures as builder programs with their weight maps.
//!
//! Each architecture is a page: a file that states how its layers differ from Llama's, and the parts before
//! and after them. `decoder.rs` makes the graph of it, with the tensors that it needs. A page
//! knows nothing of nodes, threads or kernels. Adding one means adding a file and a row in
//! [`ARCHITECTURES`].
//!
//! [`build`] makes the graph of a file. [`Outline`] makes that of a model which has no file, and
//! [`published`] knows such models by name.
#![forbid(unsafe_code)]

mod apertus;
mod arcee;
mod baichuan;
mod bailingmoe2;
mod bert;
mod bitnet;
mod blocks;
mod bloom;
mod chatglm;
mod clip;
mod cohere2;
mod command_r;
mod decoder;
mod deepseek2;
mod dots1;
mod ernie4_5;
mod ernie4_5_moe;
mod error;
mod exaone;
mod exaone4;
mod facts;
mod falcon;
mod falcon_h1;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma3n;
mod gemma4;
mod gemma_embedding;
mod glm4;
mod glm4moe;
mod gpt2;
mod gpt_oss;
mod gptneox;
mod granite;
mod hparams;
mod hunyuan_dense;
mod hunyuan_moe;
mod internlm2;
mod latent;
mod lfm2;
mod llama;
mod llama4;
mod minicpm;
mod minicpm3;
mod minimax_m2;
mod mistral3;
mod modern_bert;
mod mpt;
mod nemotron;
mod nemotron_h;
mod olmo;
mod olmo2;
mod olmoe;
mod outline;
mod per_layer;
mod phi2;
mod phi3;
mod phimoe;
mod plamo;
mod pooled;
mod predict;
pub mod published;
mod qwen2;
mod qwen2moe;
mod qwen2vl;
mod qwen3;
mod qwen35;
mod qwen3moe;
mod qwen3next;
mod qwen3vl;
mod recurrent;
mod rope;
mod seed_oss;
mod smallthinker;
mod smollm3;
mod stablelm;
mod starcoder2;
mod vision;

/// What pages are written with.
mod page {
    pub(crate) use crate::Error;
    pub(crate) use crate::decoder::{
        Bias, Decoder, Ffn, Mixer, Moe, Norms, Parallel, QkNorm, Style,
    };
    pub(crate) use crate::facts::{
        ACTIVE_STREAM, ALIBI, CAUSAL, CLAMP, EXPERTS, FFN, Facts, KV_HEADS, LEADING_DENSE, NEXTN,
        PER_LAYER, SHARED_EXPERTS, SHARED_KV, SPARSITY, STREAMS, WINDOW, WINDOW_PATTERN,
    };
    pub(crate) use crate::rope::{Yarn, axes, local_rope, original_context, rope, rope_by};
    pub(crate) use graph::{
        Activation, Builder, Expert, Gate, GroupScore, Groups, NormOver, RopeStyle, Router,
        Temperature, Xielu,
    };
}

pub use error::Error;
pub use hparams::Hparams;
pub use outline::{Outline, is_vector};
pub use pooled::{Pooling, Projection, Score, Values};
pub use vision::{Vision, VisionFamily};

use facts::Facts;
use gguf::{Gguf, Metadata};
use graph::{Builder, Catalog, Graph, Shares};
use std::collections::HashSet;

/// An architecture by its name in `general.architecture`.
pub struct Architecture {
    /// The name.
    pub name: &'static str,
    /// Which published models use it.
    pub models: &'static str,
    /// Its page. It appends the whole model; most leave that to [`decoder::Decoder::build`].
    build: fn(&mut Builder<'_>, &Facts<'_>) -> Result<(), Error>,
}

/// Every supported architecture.
pub const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        name: "llama",
        models: "Llama 2, 3, 3.1, 3.2, Mistral, Mixtral, Ministral 8B, SmolLM2",
        build: llama::build,
    },
    Architecture {
        name: "mistral3",
        models: "Ministral 3, Mistral Small 3",
        build: mistral3::build,
    },
    Architecture { name: "qwen2", models: "Qwen2, Qwen2.5", build: qwen2::build },
    Architecture { name: "qwen3", models: "Qwen3", build: qwen3::build },
    Architecture {
        name: "qwen2moe",
        models: "Qwen1.5 and Qwen2 with experts",
        build: qwen2moe::build,
    },
    Architecture { name: "qwen3moe", models: "Qwen3 with experts", build: qwen3moe::build },
    Architecture { name: "qwen35", models: "Qwen3.5, Qwen3.6", build: qwen35::build },
    Architecture {
        name: "qwen35moe",
        models: "Qwen3.5 and 3.6 with experts",
        build: qwen35::build,
    },
    Architecture { name: "nemotron_h", models: "Nemotron-H", build: nemotron_h::build },
    Architecture { name: "nemotron_h_moe", models: "Nemotron 3 Nano", build: nemotron_h::build },
    Architecture { name: "falcon-h1", models: "Falcon-H1", build: falcon_h1::build },
    Architecture { name: "qwen3next", models: "Qwen3-Next", build: qwen3next::build },
    Architecture { name: "lfm2", models: "LFM2", build: lfm2::build },
    Architecture { name: "lfm2moe", models: "LFM2 with experts", build: lfm2::build },
    Architecture { name: "granitehybrid", models: "Granite 4 (hybrid)", build: granite::build },
    Architecture { name: "granite", models: "Granite 3, 4 (dense)", build: granite::build },
    Architecture { name: "granitemoe", models: "Granite 3 with experts", build: granite::build },
    Architecture { name: "minicpm", models: "MiniCPM", build: minicpm::build },
    Architecture { name: "smollm3", models: "SmolLM3", build: smollm3::build },
    Architecture { name: "phi3", models: "Phi-3, Phi-4", build: phi3::build },
    Architecture { name: "gemma2", models: "Gemma 2", build: gemma2::build },
    Architecture { name: "gemma3", models: "Gemma 3", build: gemma3::build },
    Architecture { name: "gemma3n", models: "Gemma 3n (text)", build: gemma3n::build },
    Architecture { name: "gemma4", models: "Gemma 4 (text)", build: gemma4::build },
    Architecture { name: "glm4", models: "GLM-4-0414", build: glm4::build },
    Architecture { name: "olmo2", models: "OLMo 2, 3", build: olmo2::build },
    Architecture { name: "starcoder2", models: "StarCoder2", build: starcoder2::build },
    Architecture { name: "olmoe", models: "OLMoE", build: olmoe::build },
    Architecture { name: "dots1", models: "dots.llm1", build: dots1::build },
    Architecture { name: "glm4moe", models: "GLM-4.5, 4.6, 4.7", build: glm4moe::build },
    Architecture { name: "minimax-m2", models: "MiniMax-M2", build: minimax_m2::build },
    Architecture {
        name: "ernie4_5-moe",
        models: "ERNIE 4.5 with experts",
        build: ernie4_5_moe::build,
    },
    Architecture {
        name: "deepseek2",
        models: "DeepSeek-V2, V3, R1, Kimi K2, GLM-4.7-Flash",
        build: deepseek2::build,
    },
    Architecture { name: "mistral4", models: "Mistral 4", build: deepseek2::build },
    Architecture { name: "llama4", models: "Llama 4, text", build: llama4::build },
    Architecture { name: "phimoe", models: "Phi-3.5-MoE", build: phimoe::build },
    Architecture { name: "hunyuan-moe", models: "Hunyuan-A13B", build: hunyuan_moe::build },
    Architecture { name: "bailingmoe2", models: "Ling 2.0, Ring 2.0", build: bailingmoe2::build },
    Architecture { name: "gemma", models: "Gemma", build: gemma::build },
    Architecture { name: "gpt2", models: "GPT-2", build: gpt2::build },
    Architecture { name: "starcoder", models: "StarCoder, SantaCoder", build: gpt2::build },
    Architecture { name: "gptneox", models: "GPT-NeoX, Pythia", build: gptneox::build },
    Architecture { name: "phi2", models: "Phi-1, 1.5, 2", build: phi2::build },
    Architecture { name: "falcon", models: "Falcon", build: falcon::build },
    Architecture { name: "mpt", models: "MPT", build: mpt::build },
    Architecture { name: "bloom", models: "BLOOM", build: bloom::build },
    Architecture { name: "baichuan", models: "Baichuan 1, 2", build: baichuan::build },
    Architecture { name: "internlm2", models: "InternLM2, 2.5", build: internlm2::build },
    Architecture { name: "stablelm", models: "StableLM", build: stablelm::build },
    Architecture { name: "command-r", models: "Command R, R+", build: command_r::build },
    Architecture { name: "cohere2", models: "Command R7B, Command A", build: cohere2::build },
    Architecture { name: "exaone", models: "EXAONE 3, 3.5", build: exaone::build },
    Architecture { name: "exaone4", models: "EXAONE 4", build: exaone4::build },
    Architecture { name: "nemotron", models: "Nemotron 4, Minitron", build: nemotron::build },
    Architecture { name: "seed_oss", models: "Seed-OSS", build: seed_oss::build },
    Architecture { name: "hunyuan-dense", models: "Hunyuan (dense)", build: hunyuan_dense::build },
    Architecture { name: "ernie4_5", models: "ERNIE 4.5 (dense)", build: ernie4_5::build },
    Architecture { name: "apertus", models: "Apertus", build: apertus::build },
    Architecture { name: "arcee", models: "Arcee AFM", build: arcee::build },
    Architecture { name: "olmo", models: "OLMo, OLMo 1.7", build: olmo::build },
    Architecture { name: "chatglm", models: "ChatGLM 3, GLM-4 (2024)", build: chatglm::build },
    Architecture { name: "minicpm3", models: "MiniCPM3", build: minicpm3::build },
    Architecture { name: "plamo", models: "PLaMo", build: plamo::build },
    Architecture { name: "qwen2vl", models: "Qwen2-VL (text), Qwen2.5-VL", build: qwen2vl::build },
    Architecture { name: "qwen3vl", models: "Qwen3-VL", build: qwen3vl::build },
    Architecture { name: "bitnet", models: "BitNet b1.58", build: bitnet::build },
    Architecture { name: "bitnet-b1.58", models: "BitNet b1.58 2B4T", build: bitnet::build },
    Architecture { name: "smallthinker", models: "SmallThinker", build: smallthinker::build },
    Architecture {
        name: "bert",
        models: "BERT, RoBERTa, XLM-R: MiniLM, BGE, E5, GTE, Arctic Embed",
        build: bert::build,
    },
    Architecture { name: "nomic-bert", models: "Nomic Embed 1, 1.5", build: bert::build },
    Architecture { name: "nomic-bert-moe", models: "Nomic Embed 2", build: bert::build },
    Architecture { name: "jina-bert-v2", models: "Jina Embeddings 2", build: bert::build },
    Architecture { name: "jina-bert-v3", models: "Jina Embeddings 3", build: bert::build },
    Architecture {
        name: "modern-bert",
        models: "ModernBERT, Granite Embedding R2, GTE ModernBERT",
        build: modern_bert::build,
    },
    Architecture {
        name: "gemma-embedding",
        models: "EmbeddingGemma",
        build: gemma_embedding::build,
    },
    Architecture { name: "gpt-oss", models: "gpt-oss 20B and 120B", build: gpt_oss::build },
];

/// The error of a file without a tensor that is needed.
pub fn missing_tensor(name: &str) -> Error {
    Error::Graph(graph::Error::MissingTensor(name.to_owned()))
}

/// Image encoders, which no one runs by themselves.
const ENCODER: &Architecture =
    &Architecture { name: "clip", models: "image encoders (mmproj)", build: clip::build };

/// A model definition made from a file's metadata.
#[derive(Debug)]
pub struct Model {
    /// Sizes and names.
    pub hparams: Hparams,
    /// The graph, built for a number of nodes.
    pub graph: Graph,
}

/// Builds the graph of the model in `gguf` for the memory nodes of `shares`: a number of equal ones,
/// or the weights of their shares.
///
/// # Errors
/// When the architecture or one of its features is not supported, metadata is missing or
/// implausible, or tensors are missing, of the wrong shape, or unknown to the architecture.
pub fn build(gguf: &Gguf<'_>, shares: impl Into<Shares>) -> Result<Model, Error> {
    build_file(gguf, shares.into(), false)
}

/// The same with operators that [predict further tokens](Graph::predicting_ops), for the memory nodes of `shares`.
///
/// # Errors
/// As [`build`], and when the model has no layers that do so, or its family's are not implemented.
pub fn build_predicting(gguf: &Gguf<'_>, shares: impl Into<Shares>) -> Result<Model, Error> {
    build_file(gguf, shares.into(), true)
}

fn build_file(gguf: &Gguf<'_>, shares: Shares, predicts: bool) -> Result<Model, Error> {
    let arch = architecture(gguf.metadata())?;
    let wanted = (gguf.metadata(), predicts);
    let model = program(arch, Hparams::read(gguf)?, wanted, shares, gguf)?;
    // A tensor that nobody uses means a variant of the architecture that is not implemented, and
    // its results would be wrong without notice.
    let used = model.graph.tensors().iter().map(|t| &*t.name);
    let used: HashSet<&str> = used.chain(pooled::TENSORS).collect();
    let Hparams { layers, predicting, .. } = model.hparams;
    let left_alone = layers..layers + predicting;
    let known = |name: &str| {
        used.contains(name) || layer_of(name).is_some_and(|layer| left_alone.contains(&layer))
    };
    if let Some(t) = gguf.tensors().iter().find(|t| !known(t.name())) {
        return Err(Error::UnusedTensor { name: t.name().to_owned(), arch: arch.name });
    }
    Ok(model)
}

/// The layer of a tensor.
fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// The architecture that metadata name.
fn architecture(metadata: &Metadata<'_>) -> Result<&'static Architecture, Error> {
    let name = metadata.str("general.architecture")?;
    if name == ENCODER.name {
        return Ok(ENCODER);
    }
    ARCHITECTURES.iter().find(|a| a.name == name).ok_or_else(|| {
        let known: Vec<&str> = ARCHITECTURES.iter().map(|a| a.name).collect();
        Error::UnsupportedArchitecture { name: name.to_owned(), known: known.join(", ") }
    })
}

/// Runs the architecture's page.
fn program(
    arch: &Architecture,
    hparams: Hparams,
    (metadata, predicts): (&Metadata<'_>, bool),
    shares: Shares,
    catalog: &dyn Catalog,
) -> Result<Model, Error> {
    let mut builder = Builder::new(shares, catalog);
    if predicts && hparams.predicting == 0 {
        return Err(Error::NothingPredicts { name: hparams.name });
    }
    (arch.build)(&mut builder, &Facts { hparams: &hparams, metadata, predicts })?;
    let graph = builder.finish();
    if predicts && graph.predicting_ops().is_none() {
        return Err(Error::PredictingUnsupported { arch: arch.name });
    }
    Ok(Model { graph, hparams })
}
