//! `arclight tune`: which cores serve a model fastest, for prompts and for decoding, found by measuring.
//!
//! The search is `tune::tuner`, the steps that it asks for are the engine's own (`measure`), and what it
//! finds is a profile that `run`, `chat`, `serve` and `bench` use by themselves (`stored`).

mod compare;
pub(crate) mod first;
pub(crate) mod hot;
mod lab;
mod matrices;
mod measure;
mod others;
mod schedules;
pub(crate) mod stored;

use crate::args::{KvArgs, LoadArg, ModelArg, count};
use crate::error::Error;
use crate::load;
use crate::output::{Output, OutputArgs, figure};
use crate::term::{self, note};
use crate::{interrupt, synth};
use arclight_engine::{CpuList, LoadOptions, ModelFile};
use clap::{Args, ValueHint};
use lab::Lab;
use loadgen::Lengths;
use measure::Steps;
use models::published::Published;
use schedules::Limits;
use serde_json::json;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use stored::{For, Part};
use topology::Machine;
use topology::topotree::TopoTree;
use tune::tuner::{
    Choice, Measured, Outcome, Profile, Quick, Request, Start, StepKind, Trace, TuneProgress, Tuner,
};

/// Find the cores that serve a model fastest here, and remember them
///
/// Steps of the model are timed on different groups of cores: those of its prompts and those of its
/// answers, which want other cores. What is found is kept for this model on this machine, and run, chat,
/// serve and bench use it from then on. For the cores that are found, every matrix gets the micro-kernel,
/// the blocking and the prefetch distance that are fastest, by the tokens of a step.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Tune for a model made in memory, such as qwen3-0.6b:q4_0 (arclight synth --help lists them)
    #[arg(long, value_name = "SHAPE:TYPE", conflicts_with = "model")]
    synth: Option<Published>,
    /// Ask the few questions that matter most: 20 seconds at most, the loading not counted
    #[arg(long)]
    quick: bool,
    /// Measure what the profile's ways to multiply are worth, against the default and each micro-kernel, and
    /// search nothing
    #[arg(long, conflicts_with_all = ["quick", "trace"])]
    compare: bool,
    /// Requests to tune for, a line each: {"prompt_tokens": 70, "output_tokens": 400}, or as OpenAI's API
    /// has them in `usage` [default: lengths of chats, from published quantiles]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,
    /// Requests that are served together
    #[arg(long, value_name = "N", value_parser = count, default_value = "1")]
    together: usize,
    /// Repetitions of each step in the end, 5 or more
    #[arg(short, long, value_name = "N", value_parser = repetitions, default_value = "9")]
    repetitions: usize,
    /// Most time for the matrices, once cores are found; 0 leaves them as they are
    #[arg(long, value_name = "SECONDS", default_value = "90", conflicts_with_all = ["quick", "compare"])]
    matrices: u16,
    /// Where to keep what is found [default: a file for machine and model in the cache directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    profile_file: Option<PathBuf>,
    #[command(flatten)]
    kv: KvArgs,
    /// How the model file is read, every time
    #[arg(long, value_name = "WAY", value_enum, default_value_t = LoadArg::Mapped)]
    load: LoadArg,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Ctrl-C ends the search and keeps what was found.

Examples:
  arclight tune model.gguf
  arclight tune model.gguf --quick
  arclight tune model.gguf --trace requests.jsonl --together 16   for a server's own requests
  arclight tune --synth qwen3-0.6b:q4_0 --profile-file here.toml";

/// Whose lengths the requests have, how many there are, and the golden section.
const LENGTHS: loadgen::Trace = loadgen::Trace::ShareGpt;
const REQUESTS: usize = 90;
const GOLDEN: f64 = 0.618_033_988_749_894_9;
/// Tokens in a step at most, as the engine has it unless told otherwise.
const STEP_TOKENS: u32 = 512;
/// Families that are looked at closely, and plans that are measured in the end.
const FAMILIES: usize = 3;
const FINALISTS: usize = 2;
/// Most time of a quick search.
const QUICK: Duration = Duration::from_secs(20);
/// The share of it that is for matrices, and that of the whole to take steps with and without what was found.
const MATRICES: f64 = 0.35;
const COMPARING: f64 = 0.1;
/// Steps take this long at most: some hundred are timed, in a quick search some twenty.
const LONGEST_STEP: Duration = Duration::from_millis(500);
const QUICK_STEP: Duration = Duration::from_millis(200);
/// Tokens before a step of a quick search at most: on a slow machine reading more would take all its time,
/// and the weights are what decoding reads most of.
const QUICK_DEPTH: u32 = 32;

/// Runs the command.
pub(crate) fn run(args: &TuneArgs) -> Result<(), Error> {
    let trace = trace(args)?;
    let file = match &args.synth {
        Some(model) => synth::in_memory(model, synth::DEFAULT_SEED)?,
        None => load::open(&args.model)?,
    };
    let machine = Machine::read()?;
    let owner = For::of(&machine, &file.gguf()?)?;
    let path = match args.profile_file.clone().or_else(|| owner.path()) {
        Some(path) => path,
        None => {
            let text = "there is no home directory to keep the profile in: give --profile-file";
            return Err(Error::Usage(text.to_owned()));
        }
    };
    if args.compare {
        // No step is taken: a small context leaves the memory to the weights.
        let context = Some(load::hparams(&file)?.context.min(STEP_TOKENS as usize));
        let reading = args.load.into();
        let options = LoadOptions { context, reading, ..Default::default() };
        return compare::run(&file, &path, options, args.output);
    }
    // What takes minutes to find must not fail to be kept.
    let part = Part::create(&path)?;
    interrupt::install();
    let (kv, reading) = (args.kv.types(), args.load.into());
    let options = LoadOptions { kv, reading, ..LoadOptions::default() };
    let start = Instant::now();
    let most = Duration::from_secs(args.matrices.into());
    let depth = if args.quick { Depth::Quick } else { Depth::Whole(args.repetitions, most) };
    let outcome = search(depth, &trace, args.together, &file, &machine, &options)?;
    let profile = owner.profile(outcome, start.elapsed());
    part.keep(&profile.text())?;
    print(&profile, &path, args.output)
}

/// Fewer never show anything: see `docs/tuning.md`.
fn repetitions(text: &str) -> Result<usize, String> {
    count(text).and_then(|n| match n {
        5.. => Ok(n),
        _ => Err("it must be at least 5: fewer cannot tell a gain from noise".to_owned()),
    })
}

/// What the machine is tuned for.
fn trace(args: &TuneArgs) -> Result<Trace, Error> {
    match &args.trace {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| Error::read(path, e))?;
            Trace::from_log(&text).map_err(|e| Error::in_file(path, e))
        }
        None => Trace::new(requests()).map_err(Error::refused),
    }
}

/// Requests as long as those of chats. No chance is involved: prompts stand at equal distances in their
/// distribution, and answers are dealt to them by the golden section.
fn requests() -> Vec<Request> {
    let (prompts, outputs) = (Lengths::Inputs(LENGTHS), Lengths::Outputs(LENGTHS));
    let at = |lengths: Lengths, share: f64| lengths.at(share) as u32;
    let request = |i: usize| Request {
        prompt: at(prompts, (i as f64 + 0.5) / REQUESTS as f64),
        output: at(outputs, (i as f64 * GOLDEN + 0.5).fract()),
    };
    (0..REQUESTS).map(request).collect()
}

/// Steps of the trace that a context has room for.
fn kinds(trace: &Trace, together: usize, context: usize) -> Vec<StepKind> {
    let room = context.saturating_sub(measure::SPARE) as u32;
    let kinds = trace.steps(together, STEP_TOKENS).into_iter();
    let fits = |kind: &StepKind| kind.tokens <= room;
    let cut = |kind: StepKind| StepKind { depth: kind.depth.min(room - kind.tokens), ..kind };
    kinds.filter(fits).map(cut).collect()
}

/// How thorough a search is.
#[derive(Clone, Copy)]
enum Depth {
    Quick,
    /// With so many repetitions in the end, and so much time for the matrices.
    Whole(usize, Duration),
}

/// Searches until it is done, time is up or Ctrl-C is pressed.
fn search(
    depth: Depth,
    trace: &Trace,
    together: usize,
    file: &ModelFile,
    machine: &Machine,
    options: &LoadOptions,
) -> Result<Outcome, Error> {
    let mut kinds = kinds(trace, together, load::hparams(file)?.context);
    if matches!(depth, Depth::Quick) {
        kinds.iter_mut().for_each(|kind| kind.depth = kind.depth.min(QUICK_DEPTH));
    }
    if kinds.len() < 2 {
        return Err(Error::Refused(
            "all steps are of one kind, so there is nothing to choose between: tune for requests with \
             longer prompts and answers, and for a model with room for them"
                .to_owned(),
        ));
    }
    let mut steps = Steps::new(file, machine, options, &kinds, together);
    let default = steps.default_scheme()?;
    let start = Instant::now();
    let most = match depth {
        Depth::Quick => QUICK_STEP,
        Depth::Whole(..) => LONGEST_STEP,
    };
    let kinds = lab::affordable(&mut steps, kinds, &default, most)?;
    let bar = term::count_bar("tuning", 0);
    let answering = interrupt::Answering::begin();
    let interrupted = || answering.interrupted();
    let mut told = |progress: &TuneProgress| {
        let TuneProgress { doing, evaluations, remaining, gain, .. } = *progress;
        bar.set_length((evaluations + remaining) as u64);
        bar.set_position(evaluations as u64);
        let left = start.elapsed().mul_f64(remaining as f64 / evaluations.max(1) as f64);
        let best = if gain > 1.0 {
            format!(", {:.0} % faster so far", 100.0 * (gain - 1.0))
        } else {
            String::new()
        };
        bar.set_message(format!("{doing}, {} left{best}", term::seconds(left)));
    };
    let clock = || start.elapsed();
    let found = match depth {
        Depth::Quick => {
            let choices = steps.choices();
            let default = Start { level: default.all(), scheme: default };
            let others = others::others(machine, &default.scheme);
            let quick = Questions { default, others, choices, kinds };
            let limits =
                Limits { time: QUICK, clock: &clock, interrupted: &interrupted, shown: true };
            quick.ask(&mut steps, &limits, &mut told, &|| bar.finish_and_clear())
        }
        Depth::Whole(repetitions, time) => {
            let tuner = Tuner {
                tree: &TopoTree::of(machine),
                default: &default,
                kinds: &kinds,
                permit: &|_| true,
                families: FAMILIES,
                finalists: FINALISTS,
                repetitions,
                choices: &[], // Page sizes are the engine's to choose, by its own measurement.
            };
            let plans = tuner.best(&mut steps, &mut |progress| {
                told(progress);
                match interrupted() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            bar.finish_and_clear();
            plans.map(|mut plans| {
                if time.is_zero() || interrupted() {
                    return (plans.swap_remove(0), None);
                }
                let limits = Limits { time, clock: &clock, interrupted: &interrupted, shown: true };
                let sizes = (STEP_TOKENS as usize, together);
                schedules::find(&mut steps, plans, &kinds, sizes, &limits)
            })
        }
    };
    for fault in &steps.faults {
        note!("left out: {fault}");
    }
    let (outcome, words) = found.map_err(|e| match steps.faults.first() {
        Some(fault) => Error::Refused(format!("{e}: {fault}")),
        None => Error::refused(e),
    })?;
    words.iter().for_each(|words| note!("{words}"));
    Ok(outcome)
}

/// What a quick search is about.
struct Questions {
    default: Start,
    others: Vec<Start>,
    choices: Vec<Choice>,
    /// By ascending tokens, two at least.
    kinds: Vec<StepKind>,
}

impl Questions {
    /// Asks them, within the time that the limits give: first for cores, and `then` what is left is for the one
    /// product that every answer waits for, that with a single token. Also what is to be told.
    fn ask(
        &self,
        lab: &mut dyn Lab,
        limits: &Limits<'_>,
        told: &mut dyn FnMut(&TuneProgress),
        then: &dyn Fn(),
    ) -> Result<(Outcome, Option<String>), tune::Error> {
        let Questions { default, others, choices, kinds } = self;
        let (decode, prompt) = ends(kinds);
        let (clock, interrupted) = (limits.clock, limits.interrupted);
        let left = |kept| limits.time.saturating_sub(clock() + limits.time.mul_f64(kept));
        let quick = Quick { default, others, decode, prompt, choices };
        let found = quick.run(lab, &mut |progress| {
            told(progress);
            if interrupted() { 0.0 } else { left(MATRICES).as_secs_f64() }
        })?;
        then();
        let time = left(COMPARING);
        if time.is_zero() || interrupted() {
            return Ok((found, None));
        }
        Ok(schedules::find(lab, vec![found], kinds, (1, 1), &Limits { time, ..*limits }))
    }
}

/// The kind of step that stands for decoding, on which most of the trace's steps are, and that of most
/// tokens, for prompts.
fn ends(kinds: &[StepKind]) -> (StepKind, StepKind) {
    let (prompt, others) = kinds.split_last().expect("a trace has steps");
    let most = others.iter().max_by(|a, b| a.weight.total_cmp(&b.weight));
    (*most.unwrap_or(prompt), *prompt)
}

impl For {
    /// A profile of theirs.
    fn profile(self, outcome: Outcome, took: Duration) -> Profile {
        let For { machine, model, program } = self;
        let seconds = took.as_secs_f64();
        Profile { machine, model, program, date: today(), seconds, outcome }
    }
}

/// The day, in UTC, as people write it.
fn today() -> String {
    tokenizer::strftime(SystemTime::now(), "%F").expect("a known directive")
}

/// What was found, for people.
fn print(profile: &Profile, path: &Path, output: OutputArgs) -> Result<(), Error> {
    let mut out = Output::new(output);
    let outcome = &profile.outcome;
    let of = |m: &Measured| {
        json!({
            "tokens": m.tokens, "depth": m.depth, "default_tokens_per_second": m.before,
            "tuned_tokens_per_second": m.after,
        })
    };
    out.data(
        &json!({
            "profile": path, "complete": outcome.complete, "steps_timed": outcome.evaluations,
            "seconds": profile.seconds, "results": outcome.measured.iter().map(of).collect::<Vec<_>>(),
        }),
        &["/results"],
    )?;
    writeln!(out, "{} on {}", profile.model.words, profile.machine.words)?;
    for (at, group) in outcome.scheme.groups().iter().enumerate() {
        let cpus: CpuList = group.cpus.iter().copied().collect();
        let node = group.node.map_or(String::new(), |node| format!(" on node {node}"));
        writeln!(out, "group {at}: cpus {cpus}{node}")?;
    }
    let mut from = 1;
    for row in outcome.table.rows() {
        let steps = match row.up_to {
            u32::MAX if from == 1 => "all steps".to_owned(),
            u32::MAX => format!("steps of {from} tokens and more"),
            1 => "steps of 1 token".to_owned(),
            up_to => format!("steps of {from} to {up_to} tokens"),
        };
        let parts: Vec<String> = row.level.cpus().iter().map(ToString::to_string).collect();
        writeln!(
            out,
            "{steps}: {} ({})",
            term::plural(row.level.threads(), "thread"),
            parts.join(" + ")
        )?;
        from = row.up_to.saturating_add(1);
    }
    if !outcome.measured.is_empty() {
        writeln!(out)?;
    }
    let row = |&Measured { tokens, depth, before, after, .. }: &Measured| {
        [
            figure("tokens in a step", 16, tokens),
            figure("after", 5, depth),
            figure("default, tokens/s", 17, term::rate(before)),
            figure("tuned, tokens/s", 15, term::rate(after)),
            figure("ratio", 5, format_args!("{:.2}", after / before)),
        ]
    };
    out.table(outcome.measured.iter().map(row))?;
    out.flush()?;
    let stopped = if outcome.complete { "" } else { ", stopped before its end" };
    note!(
        "{} timed in {}{stopped}; kept in {}",
        term::plural(outcome.evaluations, "step"),
        term::seconds(Duration::from_secs_f64(profile.seconds)),
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_requests_are_chats() {
        let requests = requests();
        let mut prompts: Vec<u32> = requests.iter().map(|r| r.prompt).collect();
        let mut outputs: Vec<u32> = requests.iter().map(|r| r.output).collect();
        prompts.sort_unstable();
        outputs.sort_unstable();
        // The medians of the published quantiles, to within what 90 requests resolve.
        let near =
            |got: u32, want: usize| f64::from(got.abs_diff(want as u32)) <= 0.1 * want as f64;
        assert!(near(prompts[45], Lengths::Inputs(LENGTHS).at(0.5)), "{}", prompts[45]);
        assert!(near(outputs[45], Lengths::Outputs(LENGTHS).at(0.5)), "{}", outputs[45]);
    }

    #[test]
    fn decoding_is_what_most_steps_are() {
        let kind = |tokens, weight| StepKind { tokens, depth: 9, weight };
        let kinds = [kind(1, 3.0), kind(2, 9.0), kind(64, 1.0)];
        let (decode, prompt) = ends(&kinds);
        assert_eq!((decode.tokens, prompt.tokens), (2, 64));
    }
}
