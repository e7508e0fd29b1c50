//! `arclight perplexity`: how well a model predicts a text.
//!
//! As llama.cpp's `perplexity` does it, so that figures can be compared: the text's tokens are cut
//! into chunks of one context each, a rest that fills none is left out, and every chunk is computed
//! on its own. If the vocabulary begins texts with BOS, the first token of every chunk is replaced
//! by it. Scored are the tokens of the second half of each chunk, which have at least half a
//! context before them. The result is `exp` of the mean negative log-likelihood; its standard error
//! follows from the deviation of the likelihoods, taken as independent.

use crate::args::{ModelArg, count};
use crate::error::Error;
use crate::load;
use crate::machine_args::MachineArgs;
use crate::output::{Output, OutputArgs};
use crate::term::{self, note};
use arclight_engine::{BatchEntry, Engine, LoadOptions, Outputs, Speculation};
use clap::{Args, ValueHint};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokenizer::{EncodeOptions, Tokenizer};

/// Measure how well a model predicts a text
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Text to predict
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Tokens of a chunk [default: 512, or the model's context if that is less]
    #[arg(short, long, value_name = "TOKENS", value_parser = count)]
    ctx: Option<usize>,
    /// Most chunks to compute [default: all]
    #[arg(long, value_name = "N", value_parser = count)]
    chunks: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

const EXAMPLES: &str = "\
The text is cut into chunks of --ctx tokens, each is computed on its own, and the tokens of its
second half are scored, as llama.cpp does. A rest shorter than a chunk is left out.

Examples:
  arclight perplexity model.gguf -f wiki.test.raw
  arclight perplexity model.gguf -f text.txt --ctx 2048 --chunks 10";

/// Tokens of a chunk by default, as llama.cpp has it.
const CONTEXT: usize = 512;
/// Rows of logits in a step: few, because a row is as long as the vocabulary.
const ROWS: usize = 64;

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Perplexity {
    pub(crate) perplexity: f64,
    pub(crate) standard_error: f64,
    /// Tokens scored.
    pub(crate) scored: usize,
    pub(crate) chunks: usize,
    /// Tokens of a chunk.
    pub(crate) context: usize,
}

/// Runs the command.
pub(crate) fn run(args: &PerplexityArgs) -> Result<(), Error> {
    let text = std::fs::read_to_string(&args.file).map_err(|e| Error::read(&args.file, e))?;
    let file = load::open(&args.model)?;
    let trained = load::hparams(&file)?.context;
    let context = args.ctx.unwrap_or(CONTEXT.min(trained));
    if context < 4 {
        return Err(Error::Usage(format!(
            "--ctx {context} leaves nothing to score: use 4 or more"
        )));
    }
    let options = args.machine.options(&file)?;
    let options = LoadOptions { context: Some(context), step_outputs: Some(ROWS), ..options };
    let mut loaded = load::load(&file, &options, &Speculation::Off)?;
    drop(file);
    if !args.output.format.is_data() {
        loaded.report();
    }
    let chunks = cut(&loaded.tokenizer, &args.file, &text, context, args.chunks)?;
    let bar = term::count_bar("chunks", chunks.len());
    let start = Instant::now();
    let result = measure(&mut loaded.engine, &chunks, &mut |so_far| {
        bar.set_message(format!("perplexity {:.4}", so_far.perplexity));
        bar.inc(1);
    });
    bar.finish_and_clear();
    let result = result?;
    let mut out = Output::new(args.output);
    if out.data(&result, &[])? {
        return Ok(());
    }
    let computed = result.chunks * (context - 1);
    note!(
        "scored {} tokens in {} of {context}, {} at {} tokens/s",
        result.scored,
        term::plural(result.chunks, "chunk"),
        term::seconds(start.elapsed()),
        term::rate(computed as f64 / start.elapsed().as_secs_f64()),
    );
    let Perplexity { perplexity, standard_error, .. } = result;
    Ok(writeln!(out, "perplexity {perplexity:.4} ± {standard_error:.4}")?)
}

/// The whole chunks of a file's text, each with its beginning, `most` at most.
///
/// # Errors
/// When the text cannot be encoded, or fills no chunk.
pub(crate) fn cut(
    tokenizer: &Tokenizer,
    path: &Path,
    text: &str,
    context: usize,
    most: Option<usize>,
) -> Result<Vec<Vec<u32>>, Error> {
    let encode = EncodeOptions { add_special: true, parse_special: false };
    let tokens = tokenizer.encode(text, encode)?;
    if tokens.len() < context {
        return Err(Error::Refused(format!(
            "{} has {}, fewer than one chunk of {context}: use a longer text or a smaller --ctx",
            path.display(),
            term::plural(tokens.len(), "token"),
        )));
    }
    // Texts begin with BOS if encoding nothing gives it.
    let begin = tokenizer.encode("", encode)?.first().copied();
    let begin = begin.filter(|begin| tokenizer.bos() == Some(*begin));
    let chunk = |chunk: &[u32]| {
        let mut chunk = chunk.to_vec();
        chunk[0] = begin.unwrap_or(chunk[0]);
        chunk
    };
    Ok(tokens.chunks_exact(context).take(most.unwrap_or(usize::MAX)).map(chunk).collect())
}

/// Perplexity of chunks, all of one length; tells `progress` after every one.
///
/// # Errors
/// When a step fails, or there is no chunk.
fn measure(
    engine: &mut Engine,
    chunks: &[Vec<u32>],
    progress: &mut dyn FnMut(&Perplexity),
) -> Result<Perplexity, Error> {
    let sequence = engine.new_sequence()?;
    let limits = engine.limits();
    let mut score = Score::default();
    let mut result = Err(Error::Engine(arclight_engine::Error::EmptyPrompt));
    for (at, chunk) in chunks.iter().enumerate() {
        let context = chunk.len();
        engine.truncate(sequence, 0)?;
        let first = context / 2; // the logits of this token and those after it are scored
        let mut done = 0;
        // The last token predicts one of the next chunk: it is not computed.
        while done + 1 < context {
            let scored = done >= first;
            let end = if scored { context - 1 } else { first };
            let most = if scored { limits.tokens.min(limits.outputs) } else { limits.tokens };
            let tokens = &chunk[done..end.min(done + most)];
            let outputs = if scored { Outputs::All } else { Outputs::None };
            let logits = engine.step(&[BatchEntry { sequence, tokens, outputs }])?;
            for row in 0..logits.len() {
                score.add(log_likelihood(logits.row(row), chunk[done + row + 1]));
            }
            done += tokens.len();
        }
        let so_far = score.perplexity(at + 1, context);
        progress(&so_far);
        result = Ok(so_far);
    }
    engine.free(sequence)?;
    result
}

/// `ln softmax(logits)[token]`, summed in double precision.
fn log_likelihood(logits: &[f32], token: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&l| f64::from((l - max).exp())).sum();
    f64::from(logits[token as usize]) - f64::from(max) - sum.ln()
}

/// Sums over scored tokens.
#[derive(Default)]
struct Score {
    n: usize,
    sum: f64,
    squares: f64,
}

impl Score {
    fn add(&mut self, log_likelihood: f64) {
        self.n += 1;
        self.sum -= log_likelihood;
        self.squares += log_likelihood * log_likelihood;
    }

    fn perplexity(&self, chunks: usize, context: usize) -> Perplexity {
        let n = self.n as f64;
        let mean = self.sum / n;
        let variance = (self.squares / n - mean * mean).max(0.0);
        let perplexity = mean.exp();
        // The error of the mean, carried through exp.
        let standard_error = perplexity * (variance / (n - 1.0)).sqrt();
        Perplexity { perplexity, standard_error, scored: self.n, chunks, context }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likelihood_is_that_of_the_softmax() {
        let logits = [1.0, 3.0, 2.0];
        let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        for (token, &logit) in logits.iter().enumerate() {
            let want = f64::from(logit) - sum.ln();
            // Each term is an f32 exponential: 6e-8 relative.
            assert!((log_likelihood(&logits, token as u32) - want).abs() < 2e-7);
        }
        // Large logits do not overflow.
        assert!(log_likelihood(&[1000.0, 0.0], 0).abs() < 1e-12);
    }

    #[test]
    fn the_result_is_the_exponential_of_the_mean_with_its_error() {
        let mut score = Score::default();
        [0.5f64, 0.25, 0.125].iter().for_each(|p| score.add(p.ln()));
        let got = score.perplexity(1, 6);
        assert!((got.perplexity - 4.0).abs() < 1e-12, "{got:?}");
        // Likelihoods of -1, -2, -3 times ln 2: variance 2/3 ln² 2, over n - 1 = 2.
        let want = 4.0 * (2.0f64 / 3.0 / 2.0).sqrt() * 2f64.ln();
        assert!((got.standard_error - want).abs() < 1e-12, "{got:?}");
    }
}
