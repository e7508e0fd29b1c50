//! `arclight bench --speculate`: what guessing tokens ahead gains on a text.
//!
//! The model continues the text greedily, with guesses and without in turn. Both write the same tokens.

use super::args::{BenchArgs, check, options, setups};
use crate::bench::measure::Test;
use crate::error::Error;
use crate::load::{self, Loaded};
use crate::model_info::ModelInfo;
use crate::output::{Cell, Output, OutputArgs, figure, words};
use crate::term;
use crate::tune::apply;
use arclight_engine::{Helpers, ModelFile, Request, SamplerParams, Speculation, Timings};
use loadgen::Rng;
use serde::Serialize;
use std::io::Write;
use tokenizer::EncodeOptions;

/// Random tokens that are continued where there is no text.
const RANDOM: usize = 64;

/// One test: `tokens` tokens behind the text.
#[derive(Clone, Debug, Serialize)]
struct Row {
    tokens: usize,
    prompt: usize,
    threads: usize,
    /// Tokens per second of every repetition.
    without: Vec<f64>,
    with: Vec<f64>,
    /// Tokens that were guessed in all repetitions, and those that came true.
    guessed: usize,
    right: usize,
}

/// Everything that is found out.
#[derive(Debug, Serialize)]
struct Results {
    version: &'static str,
    model: ModelInfo,
    repetitions: usize,
    results: Vec<Row>,
}

/// Runs the tests.
pub(super) fn run(
    args: &BenchArgs,
    file: &ModelFile,
    speculation: &Speculation,
) -> Result<(), Error> {
    let usual =
        args.batch.0 == [1] && args.depth.0 == [0] && matches!(args.prompt.0[..], [512 | 0]);
    if !usual || args.replicas.is_some() || args.report || args.profile.is_some() {
        let why = "with --speculate one text is continued (--text, -n): leave -p, -d, -b, --replicas, \
                   --report and --profile out";
        return Err(Error::Usage(why.to_owned()));
    }
    let read = |path: &std::path::Path| {
        std::fs::read_to_string(path).map_err(|source| Error::read(path, source))
    };
    let text = args.text.as_deref().map(read).transpose()?;
    let lengths: Vec<usize> = args.tokens.0.iter().copied().filter(|&n| n > 0).collect();
    let Some(most) = lengths.iter().copied().max() else {
        return Err(Error::Usage("-n 0 leaves nothing to measure".to_owned()));
    };
    let info = ModelInfo::of(&file.gguf()?);
    let mut rows = Vec::new();
    for threads in setups(args) {
        // A text has no more tokens than bytes, and one before them.
        let prompt = text.as_ref().map_or(RANDOM, |text| text.len() + 1);
        let trained = load::hparams(file)?.context;
        let context = (prompt + most + 1).min(trained);
        let test = Test::decode(most + 1, 0, 1);
        check(file, &[test])?;
        let mut options = options(&[test], threads, args);
        args.lora.add(file, &mut options)?;
        options.context = Some(context);
        apply::apply(file, &args.tuned, 1, &mut options)?;
        let mut loaded = load::load(file, &options, speculation)?;
        let prompt = prompt_of(&loaded, text.as_deref())?;
        for &tokens in &lengths {
            rows.push(measure(&mut loaded, &prompt, tokens, args.repetitions)?);
        }
    }
    let (version, repetitions) = (env!("CARGO_PKG_VERSION"), args.repetitions);
    print(&Results { version, model: info, repetitions, results: rows }, args.output)
}

fn prompt_of(loaded: &Loaded, text: Option<&str>) -> Result<Vec<u32>, Error> {
    let vocab = loaded.engine.hparams().vocab;
    let Some(text) = text else {
        let mut rng = Rng::new(1, "bench");
        return Ok((0..RANDOM).map(|_| rng.below(vocab) as u32).collect());
    };
    let encoding = EncodeOptions { add_special: true, parse_special: true };
    Ok(loaded.tokenizer.encode(text, encoding)?)
}

fn measure(
    loaded: &mut Loaded,
    prompt: &[u32],
    tokens: usize,
    repetitions: usize,
) -> Result<Row, Error> {
    let threads = loaded.engine.plan().threads();
    let mut row = Row {
        tokens,
        prompt: prompt.len(),
        threads,
        without: Vec::new(),
        with: Vec::new(),
        guessed: 0,
        right: 0,
    };
    // The first one of each warms up.
    for repetition in 0..=repetitions {
        let plain = write(loaded, prompt, tokens, false)?;
        let ahead = write(loaded, prompt, tokens, true)?;
        if plain.0 != ahead.0 {
            return Err(Error::Refused(
                "guesses have changed the text: this is a fault".to_owned(),
            ));
        }
        let rate = |timings: &Timings| timings.tokens as f64 / timings.generation.as_secs_f64();
        if repetition > 0 {
            row.without.push(rate(&plain.1));
            row.with.push(rate(&ahead.1));
            row.guessed += ahead.1.guessed;
            row.right += ahead.1.right;
        }
    }
    Ok(row)
}

/// Continues the prompt: what is written, and how long it took.
fn write(
    loaded: &mut Loaded,
    prompt: &[u32],
    tokens: usize,
    guesses: bool,
) -> Result<(Vec<u32>, Timings), Error> {
    let request = Request {
        sampler: SamplerParams::greedy(),
        limit: Some(tokens + 1),
        ..Request::new(prompt.to_vec())
    };
    let speculator = loaded.speculator.as_mut().filter(|_| guesses);
    let helpers = Helpers { speculator, encoder: None };
    let (written, outcome) = loaded.engine.generate(request, helpers)?.wait()?;
    Ok((written, outcome.timings))
}

/// The middle, the least and the most.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn print(found: &Results, output: OutputArgs) -> Result<(), Error> {
    let mut out = Output::new(output);
    if out.data(found, &["/results"])? {
        return Ok(());
    }
    let ModelInfo { name, ty, .. } = &found.model;
    let repetitions = term::plural(found.repetitions, "repetition");
    writeln!(out, "{name} {ty}, with guesses and without in turn, {repetitions}\n")?;
    Ok(out.table(found.results.iter().map(Row::cells))?)
}

impl Row {
    fn ratios(&self) -> Vec<f64> {
        self.with.iter().zip(&self.without).map(|(with, without)| with / without).collect()
    }

    fn cells(&self) -> [Cell; 7] {
        let (ratio, least, most) = spread(self.ratios());
        let share = 100.0 * self.right as f64 / self.guessed.max(1) as f64;
        [
            figure("threads", 7, self.threads),
            words("test", 16, format_args!("tg{} @ d{}", self.tokens, self.prompt)),
            figure("without", 8, term::rate(spread(self.without.clone()).0)),
            figure("with", 8, term::rate(spread(self.with.clone()).0)),
            figure("ratio", 18, format_args!("{ratio:.2} ({least:.2}–{most:.2})")),
            figure("guessed", 7, self.guessed),
            figure("came true", 9, format_args!("{share:.0} %")),
        ]
    }
}
