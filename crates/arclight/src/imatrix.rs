//! `arclight imatrix`: how much each column of each matrix matters, measured on text.
//!
//! As llama.cpp's `llama-imatrix` does it: the text's tokens are cut into chunks, a rest that fills none is left out, and
//! every chunk is computed on its own, with its first token replaced by BOS if the vocabulary begins texts with it. What
//! goes into each matrix of the layers is squared and summed by column.

use crate::args::{ModelArg, count};
use crate::error::Error;
use crate::machine_args::MachineArgs;
use crate::term::{self, note};
use crate::{load, perplexity, replace};
use arclight_engine::{BatchEntry, Engine, LoadOptions, Outputs, Speculation};
use clap::{Args, ValueHint};
use gguf::{ImportanceSums, Sums};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Measure which columns of a model's matrices matter, for quantize and convert
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImatrixArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Text to measure on; may be given several times
    #[arg(short, long = "file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Importance matrix to write, in GGUF form; an existing one is replaced
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Importance matrix of the same model to add to, in GGUF form; may be given several times
    #[arg(long = "add", value_name = "FILE", value_hint = ValueHint::FilePath)]
    others: Vec<PathBuf>,
    /// Tokens of a chunk [default: 512, or the model's context if that is less]
    #[arg(short, long, value_name = "TOKENS", value_parser = count)]
    ctx: Option<usize>,
    /// Most chunks to compute of each text [default: all]
    #[arg(long, value_name = "N", value_parser = count)]
    chunks: Option<usize>,
    #[command(flatten)]
    machine: MachineArgs,
}

const EXAMPLES: &str = "\
Take the model as exact as there is memory for: F16 or BF16. Of a quantised one, what goes into its
matrices is rounded to 8 bits first. A few hundred chunks of varied text are enough for a dense
model; one with experts wants more, so that all of them have tokens.

Examples:
  arclight imatrix model-f16.gguf -f calibration.txt -o model.imatrix.gguf
  arclight imatrix model-f16.gguf -f more.txt --add model.imatrix.gguf -o model.imatrix.gguf
  arclight quantize model-f16.gguf small.gguf --type iq2_xs --imatrix model.imatrix.gguf";

/// Tokens of a chunk by default, as llama.cpp has it.
const CONTEXT: usize = 512;
/// Rows of the last layer in a step: few, as room for so many rows of logits is made, too.
const ROWS: usize = 128;

/// Runs the command.
pub(crate) fn run(args: &ImatrixArgs) -> Result<(), Error> {
    if args.files.is_empty() && args.others.is_empty() {
        return Err(Error::Usage("there is nothing to measure: name a text with -f".to_owned()));
    }
    let mut all = ImportanceSums::default();
    for path in &args.others {
        all.add(&read(path)?).map_err(|e| refused(path, &e))?;
    }
    if args.files.is_empty() {
        return write(&all, &args.output);
    }
    let texts = args.files.iter().map(|path| {
        std::fs::read_to_string(path).map_err(|e| Error::read(path, e)).map(|text| (path, text))
    });
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    let file = load::open(&args.model)?;
    let trained = load::hparams(&file)?.context;
    let context = args.ctx.unwrap_or(CONTEXT.min(trained));
    let options = args.machine.options(&file)?;
    let options = LoadOptions { context: Some(context), step_outputs: Some(ROWS), ..options };
    let mut loaded = load::load(&file, &options, &Speculation::Off)?;
    drop(file);
    loaded.report();
    let mut chunks = Vec::new();
    for (path, text) in &texts {
        chunks.extend(perplexity::cut(&loaded.tokenizer, path, text, context, args.chunks)?);
    }
    let bar = term::count_bar("chunks", chunks.len());
    let start = Instant::now();
    loaded.engine.begin_squares();
    let result = measure(&mut loaded.engine, &chunks, &mut || bar.inc(1));
    bar.finish_and_clear();
    result?;
    let mut own = ImportanceSums {
        datasets: texts.iter().map(|(path, _)| path.display().to_string()).collect(),
        chunks: u32::try_from(chunks.len()).unwrap_or(u32::MAX),
        chunk_size: u32::try_from(context).unwrap_or(u32::MAX),
        ..ImportanceSums::default()
    };
    // Embeddings and head are not in such files.
    let squares = loaded.engine.take_squares();
    for tensor in squares.into_iter().filter(|tensor| tensor.name.starts_with("blk.")) {
        let sums = Sums {
            squares: tensor.sums.iter().map(|sum| *sum as f32).collect(),
            counts: tensor.counts.iter().map(|count| *count as f32).collect(),
        };
        if let Some(at) = sums.squares.iter().position(|sum| !sum.is_finite()) {
            return Err(Error::Refused(format!(
                "{}: what goes into column {at} is not finite: a wider type of the model may help",
                tensor.name
            )));
        }
        own.entries.insert(tensor.name, sums);
    }
    unreached(&own);
    let tokens = chunks.len() * context;
    let rate = term::rate(tokens as f64 / start.elapsed().as_secs_f64());
    note!(
        "measured {} matrices on {} in {} of {context}, {} at {rate} tokens/s",
        own.entries.len(),
        term::plural(tokens, "token"),
        term::plural(chunks.len(), "chunk"),
        term::seconds(start.elapsed()),
    );
    own.add(&all)
        .map_err(|e| Error::Refused(format!("the file to add is of another model: {e}")))?;
    write(&own, &args.output)
}

fn read(path: &Path) -> Result<ImportanceSums, Error> {
    let bytes = std::fs::read(path).map_err(|e| Error::read(path, e))?;
    ImportanceSums::parse(&bytes).map_err(|e| refused(path, &e))
}

fn refused(path: &Path, why: &gguf::Error) -> Error {
    Error::Refused(format!("{}: {why}", path.display()))
}

fn write(all: &ImportanceSums, path: &Path) -> Result<(), Error> {
    replace::file(path, |out| all.write_to(out))?;
    note!(
        "wrote {}: {} matrices, {}",
        path.display(),
        all.entries.len(),
        term::plural(all.chunks as usize, "chunk")
    );
    Ok(())
}

/// Computes chunks, all their tokens up to the last layer's end.
fn measure(
    engine: &mut Engine,
    chunks: &[Vec<u32>],
    progress: &mut dyn FnMut(),
) -> Result<(), Error> {
    let sequence = engine.new_sequence()?;
    let limits = engine.limits();
    for chunk in chunks {
        engine.truncate(sequence, 0)?;
        for tokens in chunk.chunks(limits.tokens.min(limits.outputs)) {
            engine.step(&[BatchEntry { sequence, tokens, outputs: Outputs::AllHidden }])?;
        }
        progress();
    }
    engine.free(sequence)?;
    Ok(())
}

/// Tells of experts that no token reached: their columns will count alike.
fn unreached(own: &ImportanceSums) {
    let none = |sums: &Sums| sums.counts.iter().filter(|count| **count == 0.0).count();
    let most = own.entries.values().map(|sums| (none(sums), sums.counts.len())).max();
    if let Some((none, all)) = most.filter(|(none, _)| *none > 0) {
        note!("{none} of {all} experts of a layer have had no token: more text would reach them");
    }
}
