//! `arclight bench`: how fast a model is here, and how fast this machine could be.
//!
//! Like llama-bench: `pp` tests take a prompt, `tg` tests decode token by token, both after a given
//! number of tokens in the cache (depth). With several sequences there is a test of both together, as in
//! llama-batched-bench (its `S t/s`). Tokens are random, and nothing is sampled. Beside each
//! figure stands the machine's limit for the same work, from its memory bandwidth and multiply
//! peak as measured in the same run (see [`limits`]). Repetitions of different tests take turns,
//! so that a change of the machine's mood shows in all of them.

mod guesses;
pub(crate) mod limits;
pub(crate) mod measure;
mod replicas;
mod report;

use self::measure::{Bench, Measured, Test};
use crate::args::{KvArgs, List, ModelArg, PlaceArgs, count, counts, numbers};
use crate::error::Error;
use crate::load;
use crate::lora::LoraArgs;
use crate::model_info::ModelInfo;
use crate::output::{Output, OutputArgs};
use crate::profile::{self, Recorder};
use crate::speculate::SpeculateArgs;
use crate::synth;
use crate::term::{self, note};
use crate::tune::apply::{self, ProfileArgs};
use arclight_engine::{LoadOptions, ModelFile, Speculation};
use clap::{Args, ValueHint};
use models::published::Published;
use report::{Found, Report};
use std::io::Write;
use std::path::PathBuf;
use topology::Machine;

/// Measure the speed of a model beside what the machine could do
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Measure no model but the machine: bandwidth and waits by threads, multiply peaks by
    /// instruction set
    #[arg(long, conflicts_with_all = NOT_WITH_LIMITS)]
    limits: bool,
    /// Measure a model made in memory, such as qwen3-0.6b:q4_0 (arclight synth --help lists them)
    #[arg(long, value_name = "SHAPE:TYPE", conflicts_with = "model")]
    synth: Option<Published>,
    /// Tokens of the prompts; 0 for no such test
    #[arg(short = 'p', long, value_name = "TOKENS,...", value_parser = numbers, default_value = "512")]
    prompt: List,
    /// Tokens to decode; 0 for no such test
    #[arg(short = 'n', long, value_name = "TOKENS,...", value_parser = numbers, default_value = "128")]
    tokens: List,
    /// Tokens in the cache before each test
    #[arg(short, long, value_name = "TOKENS,...", value_parser = numbers, default_value = "0")]
    depth: List,
    /// Sequences that decode together; of more than one also the rate of prompts and decoding together, pp512+tg128
    #[arg(short, long, value_name = "N,...", value_parser = counts, default_value = "1")]
    batch: List,
    /// Threads [default: one per physical core that may be used]
    #[arg(short, long, value_name = "N,...", value_parser = counts)]
    threads: Option<List>,
    #[command(flatten)]
    place: PlaceArgs,
    /// How often each test is repeated, after a warm-up
    #[arg(short, long, value_name = "N", value_parser = count, default_value = "5")]
    repetitions: usize,
    #[command(flatten)]
    output: OutputArgs,
    /// Load N copies of the model, each on nodes or cores of its own, and run every test on all of
    /// them at once; -b, -t and --nodes are for each copy
    #[arg(long, value_name = "N", value_parser = count, conflicts_with_all = ["report", "counters", "profile_file"])]
    replicas: Option<usize>,
    /// Add where the model's memory is, what each node read, and where the time went
    #[arg(long)]
    report: bool,
    /// Add what the machine's counters tell of each test: instructions per cycle, misses, remote loads, faults
    #[arg(long)]
    counters: bool,
    /// Record what every thread does in the repetitions: a trace for ui.perfetto.dev goes into this
    /// file, and a table of operators is printed for each test
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "replicas")]
    profile: Option<PathBuf>,
    /// Leave threads where the system puts them instead of pinning each to a core
    #[arg(long)]
    no_pin: bool,
    #[command(flatten)]
    kv: KvArgs,
    /// Text that decoding with guesses continues [default: random tokens]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    text: Option<PathBuf>,
    #[command(flatten)]
    speculate: SpeculateArgs,
    #[command(flatten)]
    tuned: ProfileArgs,
    #[command(flatten)]
    lora: LoraArgs,
}

/// What needs a model.
const NOT_WITH_LIMITS: [&str; 26] = [
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

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Error> {
    if args.limits {
        return limits::run(args);
    }
    let tests = tests(args)?;
    let speculation = args.speculate.speculation(args.model.offline)?;
    let file = match &args.synth {
        Some(model) => synth::in_memory(model, synth::DEFAULT_SEED)?,
        None => load::open(&args.model)?,
    };
    match speculation {
        Speculation::Off if args.text.is_some() => {
            let why = "--text is continued with guesses: say which with --speculate";
            return Err(Error::Usage(why.to_owned()));
        }
        Speculation::Off => {}
        speculation => return guesses::run(args, &file, &speculation),
    }
    let info = check(&file, &tests)?;
    let mut recorder = args.profile.as_deref().map(Recorder::create).transpose()?;
    let mut tables = Vec::new();
    let machine = Machine::read()?;
    let setups = setups(args);
    let bar = term::count_bar("testing", setups.len() * tests.len() * (args.repetitions + 1));
    let mut out = Output::new(args.output);
    let mut report = Report::new(info, &machine, args.repetitions);
    for threads in setups {
        let mut options = options(&tests, threads, args);
        args.lora.add(&file, &mut options)?;
        apply::apply(&file, &args.tuned, args.replicas.unwrap_or(1), &mut options)?;
        if let Some(replicas) = args.replicas {
            let told = |test: &Test| {
                bar.set_message(test.to_string());
                bar.inc(1);
            };
            let on = (&machine, replicas);
            for f in replicas::run(&file, on, &options, &tests, args.repetitions, &told)? {
                report.add(
                    &f.setup,
                    &f.test,
                    &f.seconds,
                    f.floor,
                    f.limits,
                    Found { causes: &f.causes, ..Found::default() },
                );
            }
            bar.suspend(|| report.print_new(&mut out))?;
            continue;
        }
        let engine = load::load_engine(&file, &options)?;
        let mut bench = Bench::new(engine, &machine, &tests, args.counters)?;
        if let Some(recorder) = &mut recorder {
            recorder.engine(bench.engine())?;
            profile::begin(bench.engine())?;
        }
        let setup = bench.setup();
        for depth in &args.depth.0 {
            let here: Vec<Test> = tests.iter().filter(|t| t.depth == *depth).copied().collect();
            let measured =
                bench.measure(&here, args.repetitions, recorder.as_mut(), &mut |test| {
                    bar.set_message(test.to_string());
                    bar.inc(1);
                })?;
            let limits = bench.limits();
            let reports = args.report.then(|| bench.reports(&here, &measured));
            let mut reports = reports.into_iter().flatten();
            for (test, measured) in here.iter().zip(&measured) {
                let Measured { seconds, joules, .. } = measured;
                let (reads, report_of) = (bench.reads(measured), reports.next());
                let causes = bench.causes();
                let found = Found { causes, joules: *joules, reads, report: report_of };
                report.add(&setup, test, seconds, bench.floor(test), limits, found);
                if args.counters {
                    report.count(measured.figures(test, setup.threads));
                }
            }
            bar.suspend(|| report.print_new(&mut out))?;
        }
        tables.extend(recorder.iter().flat_map(|recorder| recorder.tables(&bench.limits())));
    }
    bar.finish_and_clear();
    report.finish(&mut out)?;
    if let Some(recorder) = recorder {
        for table in &tables {
            match args.output.format.is_data() {
                true => anstream::eprintln!("\n{table}"),
                false => writeln!(out).and_then(|()| out.block(table))?,
            }
        }
        note!("{}", recorder.finish()?);
    }
    Ok(())
}

/// All tests, by depth: prompts first.
fn tests(args: &BenchArgs) -> Result<Vec<Test>, Error> {
    let mut tests = Vec::new();
    for &depth in &args.depth.0 {
        let some = |of: &List| of.0.iter().copied().filter(|&n| n > 0).collect::<Vec<_>>();
        let (prompts, lengths) = (some(&args.prompt), some(&args.tokens));
        tests.extend(prompts.iter().map(|&tokens| Test::prompt(tokens, depth)));
        for &tokens in &lengths {
            tests.extend(args.batch.0.iter().map(|&batch| Test::decode(tokens, depth, batch)));
        }
        // As llama-batched-bench: the rate of all of it.
        for &batch in args.batch.0.iter().filter(|&&batch| batch > 1) {
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
fn setups(args: &BenchArgs) -> Vec<Option<usize>> {
    match &args.threads {
        Some(List(all)) => all.iter().copied().map(Some).collect(),
        None => vec![None],
    }
}

fn options(tests: &[Test], threads: Option<usize>, args: &BenchArgs) -> LoadOptions {
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

/// What the model is; refuses tests that it has no room for.
fn check(file: &ModelFile, tests: &[Test]) -> Result<ModelInfo, Error> {
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
