//! `arclight synth`: model files of real shapes with random weights.
//!
//! Speed depends on shapes and types, not on what the numbers are, so anyone can measure a model
//! without downloading it. The file is complete: metadata, vocabulary, every tensor. The text that
//! such a model writes is noise.

mod blocks;
mod vocab;

use crate::error::Error;
use crate::replace;
use crate::term;
use arclight_engine::ModelFile;
use blocks::Blocks;
use clap::{Args, ValueHint};
use gguf::Writer;
use graph::TensorSpec;
use loadgen::Rng;
use models::published::{Published, help};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Write a model of a real shape with random weights, to measure speed without a download
#[derive(Args, Debug)]
#[command(after_help = format!("{}\n{}", help(), EXAMPLES))]
pub(crate) struct SynthArgs {
    /// Shape and type of the model, such as qwen3-0.6b:q4_0
    #[arg(value_name = "SHAPE:TYPE")]
    model: Published,
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
    let bytes = tensors.iter().map(TensorSpec::bytes).sum();
    let bar = term::byte_bar("writing", bytes);
    let result = replace::file(&args.output, |out| {
        write_model(&args.model, &tensors, args.seed, out, &|n| bar.inc(n as u64))
    });
    bar.finish_and_clear();
    result?;
    let params = term::count(tensors.iter().map(TensorSpec::elements).sum());
    anstream::eprintln!(
        "wrote {}: {} {}, {params} parameters, {} in {:.1} s",
        args.output.display(),
        args.model.shape.title,
        args.model.mix.name,
        term::size(bytes),
        start.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// A model in memory.
pub(crate) fn in_memory(model: &Published, seed: u64) -> Result<ModelFile, Error> {
    let tensors = model.tensors();
    let bytes: usize = tensors.iter().map(TensorSpec::bytes).sum();
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
    model: &Published,
    tensors: &[TensorSpec],
    seed: u64,
    out: impl Write,
    made: &dyn Fn(usize),
) -> Result<(), gguf::Error> {
    let mut writer = Writer::new();
    model.write_metadata(&format!("{} (synthetic)", model.shape.title), &mut writer);
    vocab::write(&model.shape, &mut writer);
    for spec in tensors {
        writer.tensor_with(&spec.name, &spec.dims(), spec.ty, |out| {
            write_tensor(model, spec, seed, out, made)
        });
    }
    writer.write_to(out)
}

fn write_tensor(
    model: &Published,
    spec: &TensorSpec,
    seed: u64,
    out: &mut dyn Write,
    made: &dyn Fn(usize),
) -> io::Result<()> {
    let mut rng = Rng::new(seed, &spec.name);
    // A number for each head is no matrix.
    if spec.rows > 1 && spec.cols > 1 {
        // Outputs of unit variance for inputs of unit variance; what is added to the residual stream
        // is damped so that the stream does not grow with depth (as GPT-2 does).
        let damped = ["attn_output.weight", "ffn_down.weight", "ffn_down_exps.weight"];
        let damped = damped.iter().any(|end| spec.name.ends_with(end));
        let scale = if damped { (2.0 * model.shape.layers as f32).sqrt().recip() } else { 1.0 };
        let sigma = scale / (spec.cols as f32).sqrt();
        return Blocks::new(spec.ty, sigma, rng).write(spec.bytes(), out, made);
    }
    let stated = model.shape.values().into_iter().find(|(name, _)| *name == spec.name);
    let mean = match &*spec.name {
        name if name.ends_with(".bias") => 0.0,
        // States fade.
        name if name.ends_with(".ssm_a") => -1.0,
        _ => 1.0,
    };
    let floats = match stated {
        Some((_, values)) => values,
        None => (0..spec.rows * spec.cols).map(|_| mean - 0.1 + 0.2 * rng.unit_f32()).collect(),
    };
    made(spec.bytes());
    floats.iter().try_for_each(|v| out.write_all(&v.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gguf::Gguf;
    use models::published::{SHAPES, Shape, mixes};

    fn bytes(text: &str, seed: u64) -> Vec<u8> {
        let model: Published = text.parse().unwrap();
        let mut file = Vec::new();
        write_model(&model, &model.tensors(), seed, &mut file, &|_| {}).unwrap();
        file
    }

    #[test]
    fn every_type_is_a_model_that_can_be_built() {
        for mix in mixes() {
            let file = bytes(&format!("tiny:{}", mix.name), 1);
            let gguf = Gguf::parse(&file).unwrap();
            models::build(&gguf, 2).unwrap();
            assert_eq!(gguf.metadata().u32("general.file_type").unwrap(), mix.file_type);
        }
    }

    #[test]
    fn every_shape_is_a_model_that_can_be_built() {
        let mix = "tiny:q4_0".parse::<Published>().unwrap().mix;
        for shape in SHAPES {
            // As few layers and tokens as there can be: the vocabulary's special tokens move to its end.
            let model =
                Published { shape: Shape { layers: 1, vocab: 512, ..shape }, mix, predicts: false };
            let mut file = Vec::new();
            write_model(&model, &model.tensors(), 1, &mut file, &|_| {}).unwrap();
            models::build(&Gguf::parse(&file).unwrap(), 2).unwrap();
        }
    }

    #[test]
    fn states_fade() {
        for name in ["qwen3.5-0.8b", "granite4-h-tiny"] {
            let model = format!("{name}/2:q4_0").parse::<Published>().unwrap();
            let spec = model.tensors().into_iter().find(|spec| spec.name == "blk.0.ssm_a").unwrap();
            let mut bytes = Vec::new();
            write_tensor(&model, &spec, 1, &mut bytes, &|_| {}).unwrap();
            assert_eq!(bytes.len(), 4 * spec.rows * spec.cols, "{name}");
            let values = bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
            values.for_each(|a| assert!((-1.2..-0.8).contains(&a), "{name}: {a}"));
        }
    }

    #[test]
    fn the_seed_decides_every_byte() {
        assert_eq!(bytes("tiny:q4_k_m", 1), bytes("tiny:q4_k_m", 1));
        assert_ne!(bytes("tiny:q4_k_m", 1), bytes("tiny:q4_k_m", 2));
    }
}
