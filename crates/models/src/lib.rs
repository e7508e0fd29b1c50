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
mod stages;
mod starcoder2;
mod t5encoder;
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
pub use graph::Together;
pub use hparams::Hparams;
pub use outline::{Outline, is_vector};
pub use pooled::{Pooling, Projection, Score, Values};
pub use stages::stages;
pub use vision::{Vision, VisionFamily};

use facts::Facts;
use gguf::{Gguf, Metadata};
use graph::{Builder, Catalog, Graph, Shares};
use std::collections::HashSet;
use std::ops::Range;

/// An architecture by its name in `general.architecture`.
pub struct Architecture {
    /// The name.
    pub name: &'static str,
    /// Which published models use it.
    pub models: &'static str,
    /// Its page. It appends the whole model; most leave that to [`decoder::Decoder::build`].
    build: Page,
}

type Page = fn(&mut Builder<'_>, &Facts<'_>) -> Result<(), Error>;

const fn page(name: &'static str, models: &'static str, build: Page) -> Architecture {
    Architecture { name, models, build }
}

/// Every supported architecture.
pub const ARCHITECTURES: &[Architecture] = &[
    page("llama", "Llama 2, 3, 3.1, 3.2, Mistral, Mixtral, Ministral 8B, SmolLM2", llama::build),
    page("mistral3", "Ministral 3, Mistral Small 3", mistral3::build),
    page("qwen2", "Qwen2, Qwen2.5", qwen2::build),
    page("qwen3", "Qwen3", qwen3::build),
    page("qwen2moe", "Qwen1.5 and Qwen2 with experts", qwen2moe::build),
    page("qwen3moe", "Qwen3 with experts", qwen3moe::build),
    page("qwen35", "Qwen3.5, Qwen3.6", qwen35::build),
    page("qwen35moe", "Qwen3.5 and 3.6 with experts", qwen35::build),
    page("nemotron_h", "Nemotron-H", nemotron_h::build),
    page("nemotron_h_moe", "Nemotron 3 Nano", nemotron_h::build),
    page("falcon-h1", "Falcon-H1", falcon_h1::build),
    page("qwen3next", "Qwen3-Next", qwen3next::build),
    page("lfm2", "LFM2", lfm2::build),
    page("lfm2moe", "LFM2 with experts", lfm2::build),
    page("granitehybrid", "Granite 4 (hybrid)", granite::build),
    page("granite", "Granite 3, 4 (dense)", granite::build),
    page("granitemoe", "Granite 3 with experts", granite::build),
    page("minicpm", "MiniCPM", minicpm::build),
    page("smollm3", "SmolLM3", smollm3::build),
    page("phi3", "Phi-3, Phi-4", phi3::build),
    page("gemma2", "Gemma 2", gemma2::build),
    page("gemma3", "Gemma 3", gemma3::build),
    page("gemma3n", "Gemma 3n (text)", gemma3n::build),
    page("gemma4", "Gemma 4", gemma4::build),
    page("glm4", "GLM-4-0414", glm4::build),
    page("olmo2", "OLMo 2, 3", olmo2::build),
    page("starcoder2", "StarCoder2", starcoder2::build),
    page("olmoe", "OLMoE", olmoe::build),
    page("dots1", "dots.llm1", dots1::build),
    page("glm4moe", "GLM-4.5, 4.6, 4.7", glm4moe::build),
    page("minimax-m2", "MiniMax-M2", minimax_m2::build),
    page("ernie4_5-moe", "ERNIE 4.5 with experts", ernie4_5_moe::build),
    page("deepseek2", "DeepSeek-V2, V3, R1, Kimi K2, GLM-4.7-Flash", deepseek2::build),
    page("mistral4", "Mistral 4", deepseek2::build),
    page("llama4", "Llama 4, text", llama4::build),
    page("phimoe", "Phi-3.5-MoE", phimoe::build),
    page("hunyuan-moe", "Hunyuan-A13B", hunyuan_moe::build),
    page("bailingmoe2", "Ling 2.0, Ring 2.0", bailingmoe2::build),
    page("gemma", "Gemma", gemma::build),
    page("gpt2", "GPT-2", gpt2::build),
    page("starcoder", "StarCoder, SantaCoder", gpt2::build),
    page("gptneox", "GPT-NeoX, Pythia", gptneox::build),
    page("phi2", "Phi-1, 1.5, 2", phi2::build),
    page("falcon", "Falcon", falcon::build),
    page("mpt", "MPT", mpt::build),
    page("bloom", "BLOOM", bloom::build),
    page("baichuan", "Baichuan 1, 2", baichuan::build),
    page("internlm2", "InternLM2, 2.5", internlm2::build),
    page("stablelm", "StableLM", stablelm::build),
    page("command-r", "Command R, R+", command_r::build),
    page("cohere2", "Command R7B, Command A", cohere2::build),
    page("exaone", "EXAONE 3, 3.5", exaone::build),
    page("exaone4", "EXAONE 4", exaone4::build),
    page("nemotron", "Nemotron 4, Minitron", nemotron::build),
    page("seed_oss", "Seed-OSS", seed_oss::build),
    page("hunyuan-dense", "Hunyuan (dense)", hunyuan_dense::build),
    page("ernie4_5", "ERNIE 4.5 (dense)", ernie4_5::build),
    page("apertus", "Apertus", apertus::build),
    page("arcee", "Arcee AFM", arcee::build),
    page("olmo", "OLMo, OLMo 1.7", olmo::build),
    page("chatglm", "ChatGLM 3, GLM-4 (2024)", chatglm::build),
    page("minicpm3", "MiniCPM3", minicpm3::build),
    page("plamo", "PLaMo", plamo::build),
    page("qwen2vl", "Qwen2-VL, Qwen2.5-VL", qwen2vl::build),
    page("qwen3vl", "Qwen3-VL", qwen3vl::build),
    page("qwen3vlmoe", "Qwen3-VL with experts", qwen3vl::build_experts),
    page("bitnet", "BitNet b1.58", bitnet::build),
    page("bitnet-b1.58", "BitNet b1.58 2B4T", bitnet::build),
    page("smallthinker", "SmallThinker", smallthinker::build),
    page("bert", "BERT, RoBERTa, XLM-R: MiniLM, BGE, E5, GTE, Arctic Embed", bert::build),
    page("nomic-bert", "Nomic Embed 1, 1.5", bert::build),
    page("nomic-bert-moe", "Nomic Embed 2", bert::build),
    page("jina-bert-v2", "Jina Embeddings 2", bert::build),
    page("jina-bert-v3", "Jina Embeddings 3", bert::build),
    page("modern-bert", "ModernBERT, Granite Embedding R2, GTE ModernBERT", modern_bert::build),
    page("gemma-embedding", "EmbeddingGemma", gemma_embedding::build),
    page("t5encoder", "encoders of T5: sentence-T5, GTR", t5encoder::build),
    page("gpt-oss", "gpt-oss 20B and 120B", gpt_oss::build),
];

/// The error of a file without a tensor that is needed.
pub fn missing_tensor(name: &str) -> Error {
    Error::Graph(graph::Error::MissingTensor(name.to_owned()))
}

/// Image encoders, which no one runs by themselves.
const ENCODER: &Architecture = &page("clip", "image encoders (mmproj)", clip::build);

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

/// The same of a run of layers: the part of one of several hosts ([`stages`] cuts a model into such). The first has
/// the embedding and the last the head; what goes from each to the next is the residual stream, which enters as
/// [rows](graph::Inset) in the places of tokens and leaves as hidden states. The file was seen to be whole by [`build`].
///
/// # Errors
/// As [`build`], and when more than the residual stream goes from these layers to others.
pub fn build_part(
    gguf: &Gguf<'_>,
    shares: impl Into<Shares>,
    layers: Range<usize>,
) -> Result<Model, Error> {
    let arch = architecture(gguf.metadata())?;
    let wanted = Wanted { metadata: gguf.metadata(), predicts: false, part: Some(layers) };
    program(arch, Hparams::read(gguf)?, wanted, shares.into(), gguf)
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
    let wanted = Wanted { metadata: gguf.metadata(), predicts, part: None };
    let model = program(arch, Hparams::read(gguf)?, wanted, shares, gguf)?;
    // A tensor that nobody uses means a variant of the architecture that is not implemented, and
    // its results would be wrong without notice.
    let used = model.graph.tensors().iter().map(|t| &*t.name);
    let used: HashSet<&str> = used.chain(pooled::TENSORS).collect();
    let Hparams { layers, predicting, .. } = model.hparams;
    let left_alone = layers..layers + predicting;
    let known = |name: &str| {
        used.contains(name)
            || layer_of(name).is_some_and(|layer| left_alone.contains(&layer))
            || arch.name == "clip" && clip::is_of_sound(name)
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

/// What of a model.
struct Wanted<'a> {
    metadata: &'a Metadata<'a>,
    /// Whether with the layers that predict further tokens.
    predicts: bool,
    /// The layers, if not all.
    part: Option<Range<usize>>,
}

/// Runs the architecture's page.
fn program(
    arch: &Architecture,
    hparams: Hparams,
    Wanted { metadata, predicts, part }: Wanted<'_>,
    shares: Shares,
    catalog: &dyn Catalog,
) -> Result<Model, Error> {
    let mut builder = Builder::new(shares, catalog);
    if predicts && hparams.predicting == 0 {
        return Err(Error::NothingPredicts { name: hparams.name });
    }
    let facts = Facts { hparams: &hparams, metadata, predicts, part };
    (arch.build)(&mut builder, &facts)?;
    let graph = builder.finish();
    if let Some(part) = &facts.part {
        let foreign = |node: &graph::Node| node.layer.is_some_and(|layer| !part.contains(&layer));
        if graph.ops().iter().any(foreign) {
            // The page makes its graph by itself.
            let why = "its layers share more than one stream".to_owned();
            return Err(Error::NotCut { arch: arch.name.to_owned(), why });
        }
    }
    if predicts && graph.predicting_ops().is_none() {
        return Err(Error::PredictingUnsupported { arch: arch.name });
    }
    Ok(Model { graph, hparams })
}
