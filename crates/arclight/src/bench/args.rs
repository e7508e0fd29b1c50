//! The options of `arclight bench`, and the tests that follow from them.

use super::measure::{Kind, Test};
use crate::args::{KvArgs, List, ModelArg, PlaceArgs, count, counts, numbers};
use crate::error::Error;
use crate::load;
use crate::lora::LoraArgs;
use crate::model_info::ModelInfo;
use crate::output::OutputArgs;
use crate::speculate::SpeculateArgs;
use crate::tune::apply::ProfileArgs;
use arclight_engine::{LoadOptions, ModelFile};
use clap::{Args, ValueHint};
use models::published::Published;
use std::path::PathBuf;

/// Measure the speed of a model beside what the machine could do
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(super) model: ModelArg,
    /// Measure no model but the machine: bandwidth and waits by threads, multiply peaks by
    /// instruction set
    #[arg(long, conflicts_with_all = NOT_WITH_LIMITS)]
    pub(super) limits: bool,
    /// Measure a model made in memory, such as qwen3-0.6b:q4_0 (arclight synth --help lists them)
    #[arg(long, value_name = "SHAPE:TYPE", conflicts_with = "model")]
    pub(super) synth: Option<Published>,
    /// Tokens of the prompts; 0 for no such test
    #[arg(short = 'p', long, value_name = "TOKENS,...", value_parser = numbers, default_value = "512")]
    pub(super) prompt: List,
    /// Tokens to decode; 0 for no such test
    #[arg(short = 'n', long, value_name = "TOKENS,...", value_parser = numbers, default_value = "128")]
    pub(super) tokens: List,
    /// Tokens in the cache before each test
    #[arg(short, long, value_name = "TOKENS,...", value_parser = numbers, default_value = "0")]
    pub(super) depth: List,
    /// Sequences that decode together; of more than one also the rate of prompts and decoding together, pp512+tg128
    #[arg(short, long, value_name = "N,...", value_parser = counts, default_value = "1")]
    pub(super) batch: List,
    /// Threads [default: one per physical core that may be used]
    #[arg(short, long, value_name = "N,...", value_parser = counts)]
    pub(super) threads: Option<List>,
    #[command(flatten)]
    pub(super) place: PlaceArgs,
    /// How often each test is repeated, after a warm-up
    #[arg(short, long, value_name = "N", value_parser = count, default_value = "5")]
    pub(super) repetitions: usize,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Load N copies of the model, each on nodes or cores of its own, and run every test on all of
    /// them at once; -b, -t and --nodes are for each copy
    #[arg(long, value_name = "N", value_parser = count, conflicts_with_all = ["report", "counters", "profile_file"])]
    pub(super) replicas: Option<usize>,
    /// Add where the model's memory is, what each node read, and where the time went
    #[arg(long)]
    pub(super) report: bool,
    /// Add what the machine's counters tell of each test: instructions per cycle, misses, remote loads, faults
    #[arg(long)]
    pub(super) counters: bool,
    /// Record what every thread does in the repetitions: a trace for ui.perfetto.dev goes into this
    /// file, and a table of operators is printed for each test
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "replicas")]
    pub(super) profile: Option<PathBuf>,
    /// Leave threads where the system puts them instead of pinning each to a core
    #[arg(long)]
    pub(super) no_pin: bool,
    #[command(flatten)]
    pub(super) kv: KvArgs,
    /// Text that decoding with guesses continues [default: random tokens]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) text: Option<PathBuf>,
    #[command(flatten)]
    pub(super) speculate: SpeculateArgs,
    #[command(flatten)]
    pub(super) tuned: ProfileArgs,
    #[command(flatten)]
    pub(super) lora: LoraArgs,
}

/// What needs a model.
const NOT_WITH_LIMITS: [&str; 27] = [
    "model",
    "synth",
    "prompt",
    "tokens",
    "depth",
    "batch",
    "replicas",
    "report",
    "counters",
    "profile",
    "sync_a",
    "tasks",
    "no_pin",
    "fixed_cores",
    "stack_size",
    "kv_type",
    "cache_type_k",
    "cache_type_v",
    "numa",
    "huge_pages",
    "profile_file",
    "untuned",
    "kernel",
    "text",
    "speculate",
    "draft_model",
    "adapters",
];

const EXAMPLES: &str = "\
The limit of a test is the work it cannot avoid (weights and cache to read, products to multiply)
over what the machine does at best, measured in the same run on the same threads.

Examples:
  arclight bench model.gguf
  arclight bench --synth qwen3-0.6b:q4_0           no download needed
  arclight bench model.gguf -t 1,2,4,8 -n 64 -p 0  how decoding scales with threads
  arclight bench model.gguf --replicas 2 -b 8      two copies beside each other
  arclight bench model.gguf -p 0 --report          which node or thread decoding waits for
  arclight bench model.gguf --report --counters    what tells prompts from decoding
  arclight bench model.gguf -n 64 --profile out.json   which operators take the time
  arclight bench model.gguf -d 0,4096 -b 1,8 -o csv
  arclight bench model.gguf --speculate lookup --text edit.txt   what guesses gain
  arclight bench --limits                          what the machine does at best";

/// All tests, by depth: prompts first.
pub(super) fn tests(args: &BenchArgs) -> Result<Vec<Test>, Error> {
    let mut tests = Vec::new();
    for &depth in &args.depth.0 {
        let some = |of: &List| of.0.iter().copied().filter(|&n| n > 0).collect::<Vec<_>>();
        let (prompts, lengths) = (some(&args.prompt), some(&args.tokens));
        tests.extend(prompts.iter().map(|&tokens| Test::prompt(tokens, depth)));
        for &tokens in &lengths {
            tests.extend(args.batch.0.iter().map(|&batch| Test::decode(tokens, depth, batch)));
        }
        // As llama-batched-bench: the rate of all of it. Steps of one sequence are in a profile already.
        for &batch in args.batch.0.iter().filter(|&&b| b > 1 || args.profile.is_none()) {
            for &prompt in &prompts {
                let all = lengths.iter().map(|&n| Test::combined(prompt, n, depth, batch));
                tests.extend(all);
            }
        }
    }
    match tests.is_empty() {
        true => Err(Error::Usage("-p 0 and -n 0 leave nothing to measure".to_owned())),
        false => Ok(tests),
    }
}

/// Threads to load with, `None` for the default.
pub(super) fn setups(args: &BenchArgs) -> Vec<Option<usize>> {
    match &args.threads {
        Some(List(all)) => all.iter().copied().map(Some).collect(),
        None => vec![None],
    }
}

pub(super) fn options(tests: &[Test], threads: Option<usize>, args: &BenchArgs) -> LoadOptions {
    let most = |of: fn(&Test) -> usize| tests.iter().map(of).max();
    let mut options = LoadOptions {
        threads,
        no_pin: args.no_pin,
        kv: args.kv.types(),
        context: most(Test::context),
        sequences: most(|t| t.batch),
        stats: args.report,
        ..LoadOptions::default()
    };
    args.place.apply(&mut options);
    options
}

/// The tests without those of one sequence's prompt and decoding together that the model has no room for: they come with
/// the tests of both.
pub(super) fn fitting(file: &ModelFile, mut tests: Vec<Test>) -> Result<Vec<Test>, Error> {
    let trained = load::hparams(file)?.context;
    tests.retain(|t| t.kind != Kind::Combined || t.batch > 1 || t.context() <= trained);
    Ok(tests)
}

/// What the model is; refuses tests that it has no room for.
pub(super) fn check(file: &ModelFile, tests: &[Test]) -> Result<ModelInfo, Error> {
    let trained = load::hparams(file)?.context;
    match tests.iter().find(|t| t.context() > trained) {
        Some(test) => Err(Error::Usage(format!(
            "test {test} needs a context of {} tokens, but the model was trained for {trained}: \
             use a smaller -p, -n or -d",
            test.context()
        ))),
        None => Ok(ModelInfo::of(&file.gguf()?)),
    }
}
