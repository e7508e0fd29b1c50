//! `arclight quantize`: a model file in another type.
//!
//! Tensors are converted one after the other, the rows of each by all threads, and written as they are
//! made: memory holds a few rows of them. The vocabulary and everything else is copied.

mod importance;
pub(crate) mod making;
pub(crate) mod mixes;
mod rows;

use crate::error::Error;
use crate::hub::named::{self, Missing};
use crate::model_file;
use clap::{Args, ValueHint};
use making::{Making, Rule};
use mixes::{Mix, mixes};
use std::path::PathBuf;

/// Write a model file with its matrices in another type
#[derive(Args, Debug)]
#[command(after_help = help())]
pub(crate) struct QuantizeArgs {
    /// Model file in F32, F16 or BF16 (of a series: its first part), or the name of one on this machine
    #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
    input: PathBuf,
    /// File to write; an existing one is replaced
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Type of the file, such as Q4_K_M; see below
    #[arg(long = "type", value_name = "TYPE")]
    mix: Mix,
    /// Type of the matrices whose names contain a match of this regular expression, as in
    /// 'ffn_down=Q6_K'; may be given several times, the first that matches counts
    #[arg(long, value_name = "PATTERN=TYPE")]
    tensor_type: Vec<Rule>,
    /// Importance matrix, made by `arclight imatrix` or llama-imatrix: errors become smaller where the model's inputs are
    /// large. Types below 3.1 bits need one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    imatrix: Option<PathBuf>,
    /// Give every matrix the main type of the mix, the vocabulary too
    #[arg(long)]
    pure: bool,
    /// Take matrices that are quantised already: errors add up, so the result is worse than one made
    /// from the original
    #[arg(long)]
    allow_requantize: bool,
    /// Number of threads [default: one per processor]
    #[arg(short, long, value_name = "N")]
    threads: Option<std::num::NonZeroUsize>,
    /// Only tell which tensor would get which type
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  arclight quantize model-f16.gguf model-q4_k_m.gguf --type q4_k_m
  arclight quantize model-bf16.gguf small.gguf --type q4_0 --tensor-type 'attn_v=q8_0'
  arclight quantize model-f16.gguf small.gguf --type iq2_xs --imatrix model.imatrix.gguf
  arclight quantize model-f16.gguf x.gguf --type q3_k_m --dry-run";

fn help() -> String {
    format!("{}\n{EXAMPLES}", types_help())
}

/// All types, for the help of commands that take one.
pub(crate) fn types_help() -> String {
    let names: Vec<&str> = mixes().iter().map(|mix| mix.name).collect();
    let lines = names.chunks(8).map(|line| format!("  {}\n", line.join(", ")));
    format!(
        "Types, by the bits of most matrices:\n{}  (_S, _M, _L: some matrices have a better type, \
         few to many)\n",
        lines.collect::<String>()
    )
}

/// Runs the command.
pub(crate) fn run(args: &QuantizeArgs) -> Result<(), Error> {
    let file = model_file::open(named::file(&args.input, Missing::Refuse)?)?;
    let making = Making {
        file: &file,
        output: Some(&args.output),
        mix: Some(args.mix),
        rules: &args.tensor_type,
        pure: args.pure,
        allow_requantize: args.allow_requantize,
        imatrix: args.imatrix.as_deref(),
        threads: args.threads,
        dry_run: args.dry_run,
    };
    making.make("quantizing")
}
