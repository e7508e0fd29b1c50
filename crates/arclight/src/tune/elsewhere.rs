//! `arclight tune` on a machine that is not at hand: the same search, whose steps take what the model of time
//! says, with what cores share below a memory node as far as it is known or planted.
//!
//! It shows when grouping cores and leaving some out pays, and how many steps a search times. Nothing is kept.

use super::args::TuneArgs;
use super::cores::{built, left_out, operators_of, tuner};
use super::printed::{plan, speeds};
use super::requests::{kinds, seconds};
use super::tree::{self, Base, Won};
use crate::error::Error;
use crate::output::{Output, figure};
use crate::plan::machine::{LIKE, find, not_timed, of_cores};
use crate::plan::model::{ModelChoice, NamedModel, of_file};
use crate::term::{self, note};
use crate::topo::latency;
use crate::{interrupt, load, topo};
use graph::Graph;
use serde_json::{Value, json};
use std::io::Write;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};
use topology::Machine;
use topology::topotree::{Complexity, LineTimes};
use tune::MachineModel;
use tune::simulated::{Laboratory, Sharing, Simulated};
use tune::tuner::{Objective, Outcome, Scheme, Searched, StepKind, Trace};

/// A machine that is not at hand.
pub(super) struct Target {
    title: String,
    machine: Machine,
    simulated: Simulated,
    times: Option<LineTimes>,
    notes: Vec<String>,
}

impl Target {
    /// The machine that is asked for; `None` if it is the one at hand.
    pub(super) fn of(args: &TuneArgs) -> Result<Option<Target>, Error> {
        if let Some(name) = &args.machine {
            let known = find(name)?;
            let shared = known.sharing().into_iter().collect();
            let notes = not_timed(known).into_iter().collect();
            let target = Target::new(
                known.title.to_owned(),
                known.machine(),
                known.model(),
                args,
                shared,
                notes,
            );
            return target.map(Some);
        }
        let described = topo::described(args.hwloc.as_deref(), args.synthetic.as_deref())?;
        let Some(machine) = described else {
            if args.like.is_some() || !args.contention.is_empty() {
                let text = "--contention and --like are for a machine that is not at hand: name one with \
                            --machine, --hwloc or --synthetic";
                return Err(Error::Usage(text.to_owned()));
            }
            return Ok(None);
        };
        let like = find(args.like.as_deref().unwrap_or(LIKE))?;
        let layout = topology::layout(&machine, None, None)?;
        let cores: Vec<usize> = layout.groups.iter().map(|g| g.cpus.len()).collect();
        let nodes = cores.len();
        let gb = |a, b| if a == b { like.memory.value } else { like.link.value };
        let read = (0..nodes).map(|a| (0..nodes).map(|b| gb(a, b) * 1e9).collect()).collect();
        let (core, math, waits) = of_cores(like);
        let model = MachineModel::new(cores, read, core, math, waits).map_err(Error::refused)?;
        let how = if args.like.is_some() { "as asked" } else { "assumed: see --like" };
        let title = machine.model().unwrap_or("a described machine").to_owned();
        let mut notes = vec![format!(
            "memory of a node, links, cores and waits are those of {}, {how}",
            like.name
        )];
        notes.extend(not_timed(like));
        Target::new(title, machine, model, args, vec![], notes).map(Some)
    }

    /// What is planted takes the place of what is known.
    fn new(
        title: String,
        machine: Machine,
        model: MachineModel,
        args: &TuneArgs,
        known: Vec<Sharing>,
        mut notes: Vec<String>,
    ) -> Result<Target, Error> {
        let planted = !args.contention.is_empty();
        let shared = if planted { args.contention.clone() } else { known };
        for sharing in &shared {
            let how = if planted { "planted" } else { "assumed of this machine" };
            notes.push(format!("what cores share, {how}: {sharing}"));
        }
        let simulated = Simulated::new(&machine, model, &shared).map_err(Error::usage)?;
        let times = match &args.latency {
            Some(Some(path)) => Some(latency::read(path)?),
            Some(None) => {
                let text = "latency is measured on the machine at hand alone: give --latency=FILE with what \
                            arclight topo --latency -o json printed there";
                return Err(Error::Usage(text.to_owned()));
            }
            None => None,
        };
        Ok(Target { title, machine, simulated, times, notes })
    }
}

/// A model whose graph can be built for any nodes.
struct Model {
    named: NamedModel,
    /// Most tokens of a sequence.
    context: usize,
}

impl Model {
    fn of(args: &TuneArgs) -> Result<Model, Error> {
        let kv = args.kv.types();
        if let Some(published) = &args.synth {
            let named = ModelChoice::Shape(Box::new(*published)).read(kv)?;
            return Ok(Model { named, context: usize::from(u16::MAX) });
        }
        let file = load::open(&args.model)?;
        let context = load::hparams(&file)?.context;
        built(&file, 1).map_err(Error::refused)?;
        Ok(Model { named: of_file(file, kv)?, context })
    }

    fn built(&self, nodes: usize) -> Result<Rc<Graph>, tune::Error> {
        Ok(self.named.model.for_nodes(nodes))
    }
}

/// A search and how it went.
struct Found {
    replicas: usize,
    kinds: Vec<StepKind>,
    searched: Searched,
    won: Option<Won>,
    /// The tree that was searched.
    tree: String,
    space: Complexity,
    /// Time that it took here, and that its steps would have taken there.
    took: Duration,
    there: f64,
    refused: Vec<(usize, String)>,
}

impl Found {
    fn outcome(&self) -> &Outcome {
        &self.searched.plans[0]
    }

    /// Seconds of the trace, of which each replica has its share: by default and as tuned.
    fn trace(&self) -> (f64, f64) {
        let measured = &self.outcome().measured;
        let of = |rate| seconds(&self.kinds, measured, rate) / self.replicas as f64;
        (of(|m| m.before), of(|m| m.after))
    }

    fn value(&self) -> Value {
        let (outcome, (default, tuned)) = (self.outcome(), self.trace());
        let refused = self.refused.iter().map(|(n, of)| json!({ "groups": n, "operator": of }));
        json!({
            "replicas": self.replicas,
            "tree": self.tree,
            "complexity": tree::complexity(&self.space),
            "complete": outcome.complete,
            "steps_timed": outcome.evaluations,
            "loads": outcome.loads,
            "seconds": self.took.as_secs_f64(),
            "seconds_of_steps_there": self.there,
            "trace_seconds": { "default": default, "tuned": tuned },
            "decoding_won": self.won,
            "refused": refused.collect::<Vec<_>>(),
            "groups": outcome.scheme.groups(),
            "branches": self.searched.trail.branches,
        })
    }
}

/// Searches, and prints what comes of it.
pub(super) fn run(args: &TuneArgs, target: &Target, trace: &Trace) -> Result<(), Error> {
    let model = Model::of(args)?;
    interrupt::install();
    let found = args.replicas.0.iter().map(|&n| search(args, target, &model, trace, n));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    print(args, target, &model, &found)
}

/// The search for each of so many replicas, which all do the same.
fn search(
    args: &TuneArgs,
    target: &Target,
    model: &Model,
    trace: &Trace,
    replicas: usize,
) -> Result<Found, Error> {
    let start = Instant::now();
    let part = target.machine.divide(replicas).map_err(Error::usage)?.swap_remove(0);
    let together = args.together.div_ceil(replicas);
    let kinds = kinds(trace, together, model.context);
    if kinds.len() < 2 {
        return Err(Error::Refused(
            "all steps are of one kind: give a trace with longer ones".into(),
        ));
    }
    // As many as there are on each node share its memory.
    let nodes = target.simulated.model().nodes();
    let simulated = target.simulated.clone().with_replicas(replicas.div_ceil(nodes));
    let default = topology::layout(&part, None, None)?.groups;
    let default = Scheme::new(default).map_err(Error::refused)?;
    let mut laboratory =
        Laboratory::new(&simulated, &model.named.model, together).map_err(Error::refused)?;
    let operators = operators_of(|nodes| model.built(nodes), &default);
    let base = Base::new(&part, target.times.as_ref())?;
    let permit = |configuration: &_| operators.permit(configuration);
    let tuner = tuner(args, &base, &default, &kinds, &permit);
    let answering = interrupt::Answering::begin();
    let most = args.budget.map_or(Duration::MAX, |n| Duration::from_secs(n as u64));
    let bar = term::count_bar("tuning", 0);
    let searched = tuner.best(&mut laboratory, &mut |progress| {
        bar.set_length((progress.evaluations + progress.remaining) as u64);
        bar.set_position(progress.evaluations as u64);
        match answering.interrupted() || start.elapsed() >= most {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    bar.finish_and_clear();
    let searched = searched.map_err(|e| match laboratory.fault() {
        Some(fault) => Error::Refused(format!("{e}: {fault}")),
        None => Error::refused(e),
    })?;
    base.note.iter().for_each(|words| note!("{words}"));
    let won = Won::of(&searched.trail, &searched.plans[0]);
    let (tree, there, refused) = (base.tree.to_string(), laboratory.spent(), operators.refused());
    let took = start.elapsed();
    let space = base.space;
    Ok(Found { replicas, kinds, searched, won, tree, space, took, there, refused })
}

fn print(args: &TuneArgs, target: &Target, model: &Model, all: &[Found]) -> Result<(), Error> {
    let mut out = Output::new(args.output);
    let mut whole = json!({
        "machine": target.title,
        "model": model.named.name,
        "notes": target.notes,
        "together": args.together,
    });
    let rows = match all {
        [one] => {
            if let (Value::Object(whole), Value::Object(one)) = (&mut whole, one.value()) {
                whole.extend(one);
            }
            "/branches"
        }
        _ => {
            whole["numbers"] = all.iter().map(Found::value).collect();
            "/numbers"
        }
    };
    if out.data(&whole, &[rows])? {
        return Ok(());
    }
    writeln!(out, "{} on {}, predicted", model.named.name, target.title)?;
    for found in all {
        one(&mut out, args, found)?;
    }
    if let [_, _, ..] = all {
        writeln!(out)?;
        let row = |found: &Found| {
            let outcome = found.outcome();
            let decode = outcome.table.level(found.searched.trail.decode.tokens);
            [
                figure("replicas", 8, found.replicas),
                figure("groups of each", 14, outcome.scheme.groups().len()),
                figure("threads for decoding", 20, decode.threads()),
                figure("trace, s", 8, format_args!("{:.1}", found.trace().1)),
                figure("ratio", 5, format_args!("{:.2}", all[0].trace().1 / found.trace().1)),
            ]
        };
        out.table(all.iter().map(row))?;
    }
    out.flush()?;
    target.notes.iter().for_each(|words| note!("{words}"));
    for found in all {
        left_out(&found.refused);
        let outcome = found.outcome();
        let stopped = if outcome.complete { "" } else { ", stopped before its end" };
        note!(
            "{} and {} in {}{stopped}; the steps would have taken {} there",
            term::plural(outcome.evaluations, "step"),
            term::plural(outcome.loads, "load"),
            term::seconds(found.took),
            term::seconds(Duration::from_secs_f64(found.there)),
        );
    }
    Ok(())
}

/// One search.
fn one(out: &mut Output, args: &TuneArgs, found: &Found) -> Result<(), Error> {
    if found.replicas > 1 {
        writeln!(out, "\nEach of {} replicas:", found.replicas)?;
    }
    writeln!(out, "{}\n", found.tree)?;
    if args.tree {
        writeln!(out, "{}\n", found.space)?;
    }
    let StepKind { tokens, depth, .. } = found.searched.trail.decode;
    let prompt = found.searched.trail.prompt;
    writeln!(
        out,
        "Decoding is a step of {} after {depth}, prompts are steps of {} after {}.",
        term::plural(tokens as usize, "token"),
        prompt.tokens,
        prompt.depth
    )?;
    out.table(tree::rows(&found.searched.trail))?;
    writeln!(out)?;
    plan(out, found.outcome())?;
    if let Some(Won { cut, remove, group }) = found.won {
        writeln!(
            out,
            "decoding: other groups {cut:.2} x, cores left out {remove:.2} x, of supposed groups {group:.2} x"
        )?;
    }
    let (before, after) = found.trace();
    writeln!(
        out,
        "trace: {before:.1} s by default, {after:.1} s as tuned, {:.2} x",
        before / after
    )?;
    writeln!(out)?;
    speeds(out, &found.outcome().measured, Objective::Time)
}
