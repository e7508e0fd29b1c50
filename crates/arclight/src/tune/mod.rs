//! `arclight tune`: which cores serve a model fastest, for prompts and for decoding, found by measuring.
//!
//! The search is `tune::tuner`, the steps that it asks for are the engine's own (`measure`), and what it
//! finds is a profile that `run`, `chat`, `serve` and `bench` use by themselves (`apply`).

mod ablation;
pub(crate) mod apply;
mod args;
mod compare;
mod cores;
mod elsewhere;
mod expected;
pub(crate) mod few;
pub(crate) mod first;
pub(crate) mod hot;
mod lab;
mod matrices;
mod measure;
mod neighbours;
mod others;
mod printed;
mod questions;
mod requests;
mod schedules;
pub(crate) mod stored;
mod tree;

use self::measure::Steps;
use crate::error::Error;
use crate::load;
use crate::term::{self, note};
use crate::topo::latency;
use crate::{interrupt, synth};
use arclight_engine::{LoadOptions, ModelFile};
pub(crate) use args::TuneArgs;
use cores::{built, left_out, operators_of, tuner};
use expected::Expectation;
use graph::Plan;
use neighbours::{Among, Neighbour};
use printed::{Kept, print};
use questions::{QUICK, Questions};
use requests::{STEP_TOKENS, kinds, seconds, trace};
use schedules::{Effort, Limits, Sizes};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stored::{For, GATHER, GATHERS};
use topology::Machine;
use topology::topotree::LineTimes;
use tree::{Base, Searching};
use tune::tuner::{
    Choice, Objective, Outcome, Profile, Searched, Setting, Start, StepKind, Trace, TuneProgress,
};

/// Repetitions of each way in which two nodes exchange sums.
const EXCHANGES: usize = 9;
/// The share of a limited time that matrices may take.
const OF_BUDGET: f64 = 0.4;
/// Steps take this long at most: some hundred are timed, in a quick search some twenty.
const LONGEST_STEP: Duration = Duration::from_millis(500);
const QUICK_STEP: Duration = Duration::from_millis(200);
/// Tokens before a step of a quick search at most: on a slow machine reading more would take all its time,
/// and the weights are what decoding reads most of.
const QUICK_DEPTH: u32 = 32;

/// Runs the command.
pub(crate) fn run(args: &TuneArgs) -> Result<(), Error> {
    let trace = trace(args)?;
    if let Some(target) = elsewhere::Target::of(args)? {
        return elsewhere::run(args, &target, &trace);
    }
    // Before a model is loaded, as they may be refused.
    args.kernels.load()?;
    let file = match &args.synth {
        Some(model) => synth::in_memory(model, synth::DEFAULT_SEED)?,
        None => load::open(&args.model)?,
    };
    let machine = Machine::read()?;
    if args.compare {
        let path = args.path(&For::of(&machine, 1, &file.gguf()?)?)?;
        // No step is taken: a small context leaves the memory to the weights.
        let context = Some(load::hparams(&file)?.context.min(STEP_TOKENS as usize));
        let reading = args.load.into();
        let options = LoadOptions { context, reading, ..Default::default() };
        return compare::run(&file, &path, options, args.output);
    }
    if args.ablation {
        return ablation::run(args, &trace, &file, &machine);
    }
    if args.profile_file.is_some() && args.replicas.0.len() > 1 {
        let text = "--profile-file is one file: give one number of --replicas with it";
        return Err(Error::Usage(text.to_owned()));
    }
    let objective: Objective = args.objective.into();
    if objective == Objective::Energy && args.replicas.0 != [1] {
        let text =
            "--objective energy: meters count all replicas together; tune one (--replicas 1)";
        return Err(Error::Usage(text.to_owned()));
    }
    // Before anything is measured, as there may be none.
    measure::meters(objective)?;
    interrupt::install();
    let file = Arc::new(file);
    let found: Result<Vec<Kept>, Error> = args
        .replicas
        .0
        .iter()
        .map(|&replicas| tune(args, &trace, &file, &machine, replicas))
        .collect();
    print(args, &found?)
}

/// Tunes a model that so many replicas serve at the same time, each on its part of the machine, and keeps what is
/// found.
fn tune(
    args: &TuneArgs,
    trace: &Trace,
    file: &Arc<ModelFile>,
    machine: &Machine,
    replicas: usize,
) -> Result<Kept, Error> {
    let owner = For::of(machine, replicas, &file.gguf()?)?;
    let path = args.path(&owner)?;
    // What takes minutes to find must not fail to be kept.
    stored::prepare(&path)?;
    let start = Instant::now();
    let effort = Effort { window: args.window, ..Effort::default() };
    let parts = machine.divide(replicas).map_err(Error::usage)?;
    let depth = if args.quick { Depth::Quick } else { Depth::Whole(args.thorough(&parts[0])?) };
    let objective: Objective = args.objective.into();
    // Before threads are pinned. A quick search has no time for it, and it expects times.
    let expectation = (replicas == 1 && !args.quick && objective == Objective::Time)
        .then(Expectation::measure)
        .transpose()?;
    let together = args.together.div_ceil(replicas);
    let (kv, reading) = (args.kv.types(), args.load.into());
    let options = LoadOptions { kv, reading, ..LoadOptions::default() };
    let site = Site { file, parts: &parts, together, options };
    if replicas > 1 {
        note!("{replicas} replicas, {together} at a time on each");
    }
    let Ended { outcome, kinds, searching } = search(depth, effort, trace, &site)?;
    let default = topology::layout(&parts[0], None, None)?.threads();
    let threads = expectation
        .map(|e| e.threads(file, kv, &outcome, &kinds, together, default))
        .transpose()?;
    let trace = seconds(&kinds, &outcome.measured, |m| m.after) / replicas as f64;
    let profile = Profile { objective, ..owner.profile(outcome, start.elapsed()) };
    stored::keep(&path, &profile.text())?;
    Ok(Kept { replicas, profile, path, trace, searching, threads })
}

impl TuneArgs {
    /// Where a profile is kept.
    fn path(&self, owner: &For) -> Result<PathBuf, Error> {
        self.profile_file.clone().or_else(|| owner.path()).ok_or_else(|| {
            let text = "there is no home directory to keep the profile in: give --profile-file";
            Error::Usage(text.to_owned())
        })
    }
}

/// How thorough a search is.
enum Depth<'a> {
    Quick,
    Whole(Thorough<'a>),
}

/// What a whole search takes.
struct Thorough<'a> {
    args: &'a TuneArgs,
    /// Most time for the matrices.
    matrices: Duration,
    /// Most time for all.
    budget: Duration,
    /// Times between CPUs, which show a level of the tree.
    times: Option<LineTimes>,
}

impl TuneArgs {
    fn thorough(&self, machine: &Machine) -> Result<Thorough<'_>, Error> {
        let budget = self.budget.map_or(Duration::MAX, |n| Duration::from_secs(n as u64));
        let matrices = Duration::from_secs(self.matrices.into());
        let matrices = match self.budget {
            Some(_) => matrices.min(budget.mul_f64(OF_BUDGET)),
            None => matrices,
        };
        let times = match &self.latency {
            None => None,
            Some(Some(path)) => Some(latency::read(path)?),
            Some(None) => {
                let mut warnings = BTreeSet::new();
                let times = latency::times(machine, &mut warnings)?;
                warnings.iter().for_each(|words| note!("{words}"));
                Some(times)
            }
        };
        Ok(Thorough { args: self, matrices, budget, times })
    }
}

/// The outcome with the way in which its two nodes exchange the sums of many rows, if the other one is surely
/// faster.
fn exchange(
    steps: &mut Among<'_>,
    outcome: Outcome,
    kinds: &[StepKind],
    hidden: usize,
    over: &dyn Fn() -> bool,
) -> Outcome {
    let from = Plan::new(vec![]).scatter_elements;
    let large = |kind: &&StepKind| kind.tokens as usize * hidden >= from;
    let kinds: Vec<StepKind> = kinds.iter().filter(large).copied().collect();
    if outcome.scheme.groups().len() != 2 || kinds.is_empty() || over() {
        return outcome;
    }
    let options = GATHERS.map(str::to_owned).to_vec();
    let choice = Choice { name: GATHER.to_owned(), options };
    let setting = Setting { choice: &choice, kinds: &kinds, repetitions: EXCHANGES };
    setting.run(steps, outcome, &mut |_| match over() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })
}

/// A model, and the parts of the machine on each of which a replica serves so many at a time.
struct Site<'a> {
    file: &'a Arc<ModelFile>,
    parts: &'a [Machine],
    together: usize,
    options: LoadOptions,
}

impl Site<'_> {
    /// What times steps of the first replica, while the others work.
    fn steps(&self, kinds: &[StepKind]) -> Result<Among<'_>, Error> {
        let Site { file, parts, together, options } = self;
        let (first, others) = parts.split_first().expect("a machine has a part");
        if others.is_empty() {
            let own = Steps::new(file, first, options, kinds, *together);
            return Ok(Among { own, neighbours: Vec::new() });
        }
        let start = |part: &Machine| {
            let file = file.for_another()?;
            Neighbour::start(file, part.clone(), options.clone(), kinds.to_vec(), *together)
        };
        let neighbours = others.iter().map(start).collect::<Result<Vec<_>, Error>>()?;
        let groups = Some(topology::layout(first, None, None)?.groups);
        let options = LoadOptions { groups, ..options.clone() };
        let own = Steps::new(file, first, &options, kinds, *together);
        Ok(Among { own, neighbours })
    }
}

/// What a search ended with.
struct Ended {
    outcome: Outcome,
    kinds: Vec<StepKind>,
    /// How a whole search went.
    searching: Option<Searching>,
}

/// Searches until it is done, time is up or Ctrl-C is pressed.
fn search(
    depth: Depth<'_>,
    effort: Effort,
    trace: &Trace,
    site: &Site<'_>,
) -> Result<Ended, Error> {
    let Site { file, together, .. } = *site;
    let machine = &site.parts[0];
    let models::Hparams { context, hidden, .. } = load::hparams(file)?;
    let mut kinds = kinds(trace, together, context);
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
    let mut steps = site.steps(&kinds)?;
    let default = steps.own.default_scheme()?;
    let start = Instant::now();
    let most = match &depth {
        Depth::Quick => QUICK_STEP,
        Depth::Whole(_) => LONGEST_STEP,
    };
    let kinds = lab::affordable(&mut steps, kinds, &default, most)?;
    if let Depth::Whole(Thorough { args, .. }) = &depth {
        steps.own.objective = args.objective.into();
    }
    let energy = steps.own.objective == Objective::Energy;
    let bar = term::count_bar("tuning", 0);
    let answering = interrupt::Answering::begin();
    let interrupted = || answering.interrupted();
    let mut told = |progress: &TuneProgress| {
        let TuneProgress { doing, evaluations, remaining, gain, .. } = *progress;
        bar.set_length((evaluations + remaining) as u64);
        bar.set_position(evaluations as u64);
        let left = start.elapsed().mul_f64(remaining as f64 / evaluations.max(1) as f64);
        let best = if gain > 1.0 {
            let what = if energy { "more tokens a joule" } else { "faster" };
            format!(", {:.0} % {what} so far", 100.0 * (gain - 1.0))
        } else {
            String::new()
        };
        bar.set_message(format!("{doing}, {} left{best}", term::seconds(left)));
    };
    let clock = || start.elapsed();
    let mut searching = None;
    let found = match depth {
        Depth::Quick => {
            let choices = steps.own.choices();
            let default = Start { level: default.all(), scheme: default };
            let others = others::others(machine, &default.scheme);
            let quick = Questions { default, others, choices, kinds: kinds.clone() };
            let limits = Limits {
                time: QUICK,
                clock: &clock,
                interrupted: &interrupted,
                shown: true,
                effort,
            };
            quick.ask(&mut steps, &limits, &mut told, &|| bar.finish_and_clear())
        }
        Depth::Whole(Thorough { args, matrices, budget, times }) => {
            let base = Base::new(machine, times.as_ref())?;
            base.note.iter().for_each(|words| note!("{words}"));
            let operators = operators_of(|groups| built(file, groups), &default);
            let permit = |configuration: &_| operators.permit(configuration);
            let tuner = tuner(args, &base, &default, &kinds, &permit);
            let over = |most: Duration| interrupted() || start.elapsed() >= most;
            let plans = tuner.best(&mut steps, &mut |progress| {
                told(progress);
                match over(budget.saturating_sub(matrices)) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            bar.finish_and_clear();
            left_out(&operators.refused());
            let found = plans.map(|Searched { mut plans, trail: went }| {
                searching = Some(Searching { trail: went, space: base.space });
                plans.truncate(args.top_k);
                if matrices.is_zero() || interrupted() {
                    return (plans.swap_remove(0), None);
                }
                let time = matrices.min(budget.saturating_sub(start.elapsed()));
                let interrupted = || over(budget);
                let limits =
                    Limits { time, clock: &clock, interrupted: &interrupted, shown: true, effort };
                let sizes = Sizes { largest: STEP_TOKENS as usize, together };
                schedules::find(&mut steps, plans, &kinds, sizes, &limits)
            });
            found.map(|(outcome, words)| {
                let over = || over(budget);
                (exchange(&mut steps, outcome, &kinds, hidden, &over), words)
            })
        }
    };
    for fault in &steps.own.faults {
        note!("left out: {fault}");
    }
    let (outcome, words) = found.map_err(|e| match steps.own.faults.first() {
        Some(fault) => Error::Refused(format!("{e}: {fault}")),
        None => Error::refused(e),
    })?;
    words.iter().for_each(|words| note!("{words}"));
    Ok(Ended { outcome, kinds, searching })
}
