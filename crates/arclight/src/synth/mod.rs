//! `arclight synth`: model files of real shapes with random weights.
//!
//! Speed depends on shapes and types, not on what the numbers are, so anyone can measure a model
//! without downloading it. The file is complete: metadata, vocabulary, every tensor. The text that
//! such a model writes is noise.

mod blocks;
mod rng;
pub(crate) mod shapes;
mod vocab;

pub(crate) use rng::Rng;
pub(crate) use shapes::Model;

use crate::error::Error;
use crate::replace;
use crate::term;
use arclight_engine::ModelFile;
use blocks::Blocks;
use clap::{Args, ValueHint};
use gguf::Writer;
use shapes::{Family, Role, Shape, Spec};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Write a model of a real shape with random weights, to measure speed without a download
#[derive(Args, Debug)]
#[command(after_help = format!("{}\n{}", shapes::help(), EXAMPLES))]
pub(crate) struct SynthArgs {
    /// Shape and type of the model, such as qwen3-0.6b:q4_0
    #[arg(value_name = "SHAPE:TYPE")]
    model: Model,
    /// File to write; an existing one is replaced
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Seed of the random weights: the same seed gives the same file
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    seed: u64,
}

const EXAMPLES: &str = "\
Examples:
  arclight synth qwen3-0.6b:q4_0 -o qwen3-0.6b-q4_0.gguf
  arclight bench qwen3-0.6b-q4_0.gguf";

/// The seed unless asked otherwise.
pub(crate) const DEFAULT_SEED: u64 = 1;

/// Runs the command.
pub(crate) fn run(args: &SynthArgs) -> Result<(), Error> {
    let start = Instant::now();
    let tensors = args.model.tensors();
    let bytes = tensors.iter().map(Spec::bytes).sum();
    let bar = term::byte_bar("writing", bytes);
    let result = replace::file(&args.output, |out| {
        write_model(&args.model, &tensors, args.seed, out, &|n| bar.inc(n as u64))
    });
    bar.finish_and_clear();
    result?;
    let params = term::count(tensors.iter().map(Spec::elements).sum());
    anstream::eprintln!(
        "wrote {}: {} {}, {params} parameters, {} in {:.1} s",
        args.output.display(),
        args.model.shape.title,
        args.model.mix.title,
        term::size(bytes),
        start.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// A model in memory.
pub(crate) fn in_memory(model: &Model, seed: u64) -> Result<ModelFile, Error> {
    let tensors = model.tensors();
    let bytes: usize = tensors.iter().map(Spec::bytes).sum();
    let bar = term::byte_bar("making", bytes);
    // Metadata and padding are a few MiB: mostly the vocabulary.
    let mut file = Vec::with_capacity(bytes + (8 << 20));
    let result = write_model(model, &tensors, seed, &mut file, &|n| bar.inc(n as u64));
    bar.finish_and_clear();
    let name = model.to_string();
    result.map_err(|source| Error::Write { path: name.clone().into(), source })?;
    Ok(ModelFile::from_bytes(&name, file))
}

fn write_model(
    model: &Model,
    tensors: &[Spec],
    seed: u64,
    out: impl Write,
    made: &dyn Fn(usize),
) -> Result<(), gguf::Error> {
    let mut writer = Writer::new();
    metadata(model, &mut writer);
    vocab::write(model.shape, &mut writer);
    for spec in tensors {
        writer.tensor_with(&spec.name, &spec.dims, spec.ty, |out| {
            write_tensor(model.shape, spec, seed, out, made)
        });
    }
    writer.write_to(out)
}

fn write_tensor(
    shape: &Shape,
    spec: &Spec,
    seed: u64,
    out: &mut dyn Write,
    made: &dyn Fn(usize),
) -> io::Result<()> {
    let mut rng = Rng::new(seed, &spec.name);
    let floats: Vec<f32> = match spec.role {
        Role::Norm => (0..spec.elements()).map(|_| 0.9 + 0.2 * rng.unit()).collect(),
        Role::RopeFactors => rope_factors(shape),
        Role::Matrix { damped } => {
            // Outputs of unit variance for inputs of unit variance; what is added to the residual
            // stream is damped so that the stream does not grow with depth (as GPT-2 does).
            let scale = if damped { (2.0 * shape.layers as f32).sqrt().recip() } else { 1.0 };
            let sigma = scale / (spec.dims[0] as f32).sqrt();
            return Blocks::new(spec.ty, sigma, rng).write(spec.bytes(), out, made);
        }
    };
    made(spec.bytes());
    floats.iter().try_for_each(|v| out.write_all(&v.to_le_bytes()))
}

/// Llama 3.1's stretching of RoPE as divisors of the frequencies: long waves by the whole factor,
/// short ones not at all, a blend between.
fn rope_factors(shape: &Shape) -> Vec<f32> {
    const TRAINED: f32 = 8192.0;
    const LOW: f32 = 1.0;
    const HIGH: f32 = 4.0;
    let factor = shape.rope_factor.unwrap_or(1.0);
    let divisor = |i: usize| {
        let wave =
            std::f32::consts::TAU * shape.rope_theta.powf(2.0 * i as f32 / shape.head_dim as f32);
        let blend = ((TRAINED / wave - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
        ((1.0 - blend) / factor + blend).recip()
    };
    (0..shape.head_dim / 2).map(divisor).collect()
}

fn metadata(model: &Model, writer: &mut Writer<'_>) {
    let Model { shape: s, mix } = model;
    let arch = match s.family {
        Family::Qwen3 => "qwen3",
        Family::Llama3 => "llama",
        Family::Olmo2 => "olmo2",
        Family::Gemma3 => "gemma3",
    };
    let key = |k: &str| format!("{arch}.{k}");
    writer
        .kv("general.architecture", arch)
        .kv("general.type", "model")
        .kv("general.name", format!("{} (synthetic)", s.title))
        .kv("general.file_type", mix.file_type)
        .kv("general.quantization_version", 2u32)
        .kv(key("block_count"), s.layers as u32)
        .kv(key("context_length"), s.context)
        .kv(key("embedding_length"), s.hidden as u32)
        .kv(key("feed_forward_length"), s.ffn as u32)
        .kv(key("attention.head_count"), s.heads as u32)
        .kv(key("attention.head_count_kv"), s.kv_heads as u32)
        .kv(key("attention.key_length"), s.head_dim as u32)
        .kv(key("attention.value_length"), s.head_dim as u32)
        .kv(key("attention.layer_norm_rms_epsilon"), s.norm_eps)
        .kv(key("rope.freq_base"), s.rope_theta);
    if let Some(window) = s.window {
        writer.kv(key("attention.sliding_window"), window);
    }
    if s.family == Family::Gemma3 {
        writer.kv(key("rope.scaling.type"), "linear").kv(key("rope.scaling.factor"), 8f32);
    }
    if s.family == Family::Llama3 {
        writer
            .kv(key("rope.dimension_count"), s.head_dim as u32)
            .kv(key("vocab_size"), s.vocab as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gguf::Gguf;

    fn bytes(text: &str, seed: u64) -> Vec<u8> {
        let model: Model = text.parse().unwrap();
        let mut file = Vec::new();
        write_model(&model, &model.tensors(), seed, &mut file, &|_| {}).unwrap();
        file
    }

    #[test]
    fn every_type_is_a_model_that_can_be_built() {
        for mix in &shapes::MIXES {
            let file = bytes(&format!("tiny:{}", mix.name), 1);
            let gguf = Gguf::parse(&file).unwrap();
            models::build(&gguf, 2).unwrap();
            assert_eq!(gguf.metadata().u32("general.file_type").unwrap(), mix.file_type);
        }
    }

    #[test]
    fn every_shape_is_a_model_that_can_be_built() {
        // As few layers and tokens as there can be: the vocabulary's special tokens move to its end.
        static SMALL: std::sync::LazyLock<Vec<Shape>> = std::sync::LazyLock::new(|| {
            shapes::SHAPES.map(|s| Shape { layers: 1, vocab: 512, ..s }).into()
        });
        let mix = "tiny:q4_0".parse::<Model>().unwrap().mix;
        for shape in SMALL.iter() {
            let model = Model { shape, mix };
            let mut file = Vec::new();
            write_model(&model, &model.tensors(), 1, &mut file, &|_| {}).unwrap();
            models::build(&Gguf::parse(&file).unwrap(), 2).unwrap();
        }
    }

    #[test]
    fn the_seed_decides_every_byte() {
        assert_eq!(bytes("tiny:q4_k_m", 1), bytes("tiny:q4_k_m", 1));
        assert_ne!(bytes("tiny:q4_k_m", 1), bytes("tiny:q4_k_m", 2));
    }

    #[test]
    fn rope_is_stretched_from_none_to_all() {
        let model: Model = "llama3.2-1b:f32".parse().unwrap();
        let factors = rope_factors(model.shape);
        assert_eq!((factors.len(), factors[0], factors[31]), (32, 1.0, 32.0));
        assert!(factors.is_sorted());
    }
}
