//! `arclight tune --ablation`: what each mechanism brings on this machine, as tables 1 to 3 of the Sandwich paper have
//! it.
//!
//! 1. *Mechanisms*, one after the other: placement with waits by node (their communication), the cores of each phase
//!    (their configuration), schedules of matrices without columns split (their kernels), and with (split-K). Then all
//!    but one, where that is no row already.
//! 2. *k*: the best k plans get their matrices tuned.
//! 3. *Window*: micro-kernels that won at so many counts of tokens are tried at the next.
//!
//! All ways are measured in turns, there and back, a load each. A ratio is of the same turn, and has its spread; what is
//! not told apart from the first way of its table is marked. Nothing is kept.
//!
//! Limits: one memory node has no traffic between nodes; `--nodes` makes virtual ones, which show waits and not links.

use super::args::TuneArgs;
use super::cores::{built, operators_of, tuner};
use super::lab;
use super::measure::Steps;
use super::requests::{STEP_TOKENS, kinds};
use super::schedules::{self, Effort, Limits, Sizes};
use super::tree::Base;
use crate::error::Error;
use crate::load;
use crate::output::{Cell, Output, figure, words};
use crate::report::{Cause, Look};
use crate::spread::{Spread, told_apart};
use crate::term::{self, note};
use crate::wrap::wrap;
use arclight_engine::{LoadOptions, ModelFile, Numa, Sync};
use serde::Serialize;
use serde_json::json;
use std::io::Write;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use topology::Machine;
use tune::schedule::TunedSchedules;
use tune::tuner::{Candidate, Outcome, Scheme, StepKind, Table, Trace, median};

/// Sequences of the larger batch, as in the paper.
const BATCH: u32 = 8;
/// Windows of table 3, as in the paper.
const WINDOWS: [usize; 4] = [5, 10, 15, 20];
/// k of table 2, as in the paper, and before them the ones that a small machine has plans for.
const BEST: [usize; 6] = [1, 2, 5, 10, 15, 20];
/// Turns of all ways: the fewest with which anything can be told apart.
const TURNS: usize = 5;
/// Steps take this long at most.
const LONGEST_STEP: Duration = Duration::from_millis(500);

/// What was measured of one way.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// The paper's table.
    table: usize,
    way: String,
    /// Seconds of searching that it takes; 0: none.
    tuning_seconds: f64,
    /// Whether the search came to its end.
    complete: bool,
    /// Milliseconds of a step of a prompt.
    prompt_ms: f64,
    /// Tokens a second of one sequence, and of eight together.
    batch_1: f64,
    batch_8: f64,
    /// Speed of one sequence over that of the first way of the table.
    ratio: Spread,
    /// Whether it is surely faster or slower than that.
    told_apart: bool,
    /// Seconds of a step: of one sequence, of eight, and of a prompt.
    seconds: [Vec<f64>; 3],
}

/// A way to serve the model.
struct Way {
    table: usize,
    name: String,
    options: LoadOptions,
    /// `None`: as it is loaded by default.
    outcome: Option<Outcome>,
    tuning: Duration,
    /// Of each of the kinds that are measured.
    times: [Vec<f64>; 3],
}

impl Way {
    fn new(table: usize, name: impl Into<String>, options: &LoadOptions) -> Way {
        let (name, options, times) = (name.into(), options.clone(), Default::default());
        Way { table, name, options, outcome: None, tuning: Duration::ZERO, times }
    }

    fn with(self, outcome: &Outcome, tuning: Duration) -> Way {
        Way { outcome: Some(outcome.clone()), tuning, ..self }
    }

    /// Times it.
    fn visit(&mut self, bench: &Bench<'_>, repetitions: usize) -> Result<(), Error> {
        let Bench { file, machine, kinds, measured } = *bench;
        let mut steps = Steps::new(file, machine, &self.options, kinds, BATCH as usize).quietly();
        let whole;
        let outcome = match &self.outcome {
            Some(outcome) => outcome,
            None => {
                whole = untuned(steps.default_scheme()?);
                &whole
            }
        };
        for _ in 0..repetitions {
            for (kind, times) in measured.iter().zip(&mut self.times) {
                let candidate = Candidate {
                    scheme: &outcome.scheme,
                    level: outcome.table.level(kind.tokens),
                    choices: &outcome.choices,
                    schedules: Some(&outcome.schedules),
                };
                times.push(lab::Lab::time(&mut steps, &candidate, kind)?);
            }
        }
        Ok(())
    }

    /// Its figures, compared with the first way of its table.
    fn row(&self, measured: &[StepKind; 3], first: &Way) -> Row {
        let rate = |at: usize| f64::from(measured[at].tokens) / median(&self.times[at]);
        Row {
            table: self.table,
            way: self.name.clone(),
            tuning_seconds: self.tuning.as_secs_f64(),
            complete: self.outcome.as_ref().is_none_or(|outcome| outcome.complete),
            prompt_ms: 1e3 * median(&self.times[2]),
            batch_1: rate(0),
            batch_8: rate(1),
            ratio: Spread::of_ratios(&first.times[0], &self.times[0]),
            told_apart: told_apart(&first.times[0], &self.times[0]),
            seconds: self.times.clone(),
        }
    }
}

/// What ways are measured with.
#[derive(Clone, Copy)]
struct Bench<'a> {
    file: &'a ModelFile,
    machine: &'a Machine,
    kinds: &'a [StepKind],
    /// One sequence, a batch, and a prompt.
    measured: &'a [StepKind; 3],
}

/// A model as it is served without tuning.
fn untuned(scheme: Scheme) -> Outcome {
    Outcome {
        table: Table::all(&scheme),
        scheme,
        choices: vec![],
        measured: vec![],
        evaluations: 0,
        loads: 0,
        complete: true,
        schedules: TunedSchedules::default(),
    }
}

/// Measures and prints the tables.
pub(super) fn run(
    args: &TuneArgs,
    trace: &Trace,
    file: &ModelFile,
    machine: &Machine,
) -> Result<(), Error> {
    let (kv, reading, nodes) = (args.kv.types(), args.load.into(), args.nodes);
    let options = LoadOptions { kv, reading, nodes, ..LoadOptions::default() };
    let kinds = kinds(trace, BATCH as usize, load::hparams(file)?.context);
    let mut steps = Steps::new(file, machine, &options, &kinds, BATCH as usize);
    let default = steps.default_scheme()?;
    if default.groups().len() == 1 {
        note!(
            "one memory node: communication brings nothing here; --nodes 2 makes virtual nodes, which show waits"
        );
    }
    let kinds = lab::affordable(&mut steps, kinds, &default, LONGEST_STEP)?;
    let find = |tokens| kinds.iter().find(|kind| kind.tokens == tokens).copied();
    let measured = match (find(1), find(BATCH), kinds.last()) {
        (Some(one), Some(batch), Some(&prompt)) if prompt.tokens > BATCH => [one, batch, prompt],
        _ => {
            let text =
                format!("the trace has no steps of 1 and of {BATCH} tokens, or none with more");
            return Err(Error::Refused(text));
        }
    };
    let ways = Search { args, file, machine, kinds: &kinds, options: &options }
        .ways(&mut steps, &default)?;
    for fault in &steps.faults {
        note!("left out: {fault}");
    }
    drop(steps); // Its model makes room for those that are measured.
    let bench = Bench { file, machine, kinds: &kinds, measured: &measured };
    progress(&format!("measuring {} in {TURNS} turns", term::plural(ways.len(), "way")));
    let look = Look::of_machine();
    let rows = measure(ways, &bench, args.repetitions)?;
    print(args, file, machine, &measured, &rows, &look.causes_in(machine))
}

/// Says what begins, where no bar shows it.
fn progress(what: &str) {
    if !term::shows_bars() {
        note!("{what}");
    }
}

/// The searches that the tables need.
struct Search<'a> {
    args: &'a TuneArgs,
    file: &'a ModelFile,
    machine: &'a Machine,
    kinds: &'a [StepKind],
    options: &'a LoadOptions,
}

impl Search<'_> {
    fn ways(&self, steps: &mut Steps<'_>, default: &Scheme) -> Result<Vec<Way>, Error> {
        let Search { args, options, .. } = *self;
        let start = Instant::now();
        progress("searching cores");
        let plans = self.cores(steps, default)?;
        let cores = start.elapsed();
        let plain = untuned(default.clone());
        let tuned = &plans[0];
        let all_wait = LoadOptions { sync: Sync::Global, ..options.clone() };
        let nowhere = LoadOptions { numa: Numa::Off, nodes: None, ..all_wait.clone() };
        let (whole, of) = (Effort::default(), |plan: &Outcome| vec![plan.clone()]);
        progress("searching schedules of matrices");
        let (kernels, without) = self.find(steps, of(tuned), Effort { splits: 1, ..whole })?;
        let (split, with) = self.find(steps, of(tuned), whole)?;
        let mut ways = vec![
            Way::new(1, "no placement, all wait", &nowhere),
            Way::new(1, "+ communication", options),
            Way::new(1, "+ configuration", options).with(tuned, cores),
            Way::new(1, "+ kernels", options).with(&kernels, cores + without),
            Way::new(1, "+ split-K", options).with(&split, cores + with),
            Way::new(1, "all but communication", &all_wait).with(&split, cores + with),
        ];
        if tuned.scheme != plain.scheme || tuned.table != plain.table {
            let (best, took) = self.find(steps, of(&plain), whole)?;
            ways.push(Way::new(1, "all but configuration", options).with(&best, took));
        }
        for k in best_k(args.top_k.min(plans.len())) {
            progress(&format!("searching schedules of the best {k}"));
            let (best, took) = self.find(steps, plans[..k].to_vec(), whole)?;
            ways.push(Way::new(2, format!("k = {k}"), options).with(&best, cores + took));
        }
        if plans.len() < args.top_k {
            note!(
                "no more than {} cut matrices in other ways: k ends there",
                term::plural(plans.len(), "plan")
            );
        }
        for window in WINDOWS {
            progress(&format!("searching schedules with a window of {window}"));
            let (best, took) = self.find(steps, of(tuned), Effort { window, ..whole })?;
            ways.push(Way::new(3, format!("window = {window}"), options).with(&best, took));
        }
        Ok(ways)
    }

    /// The search for cores.
    fn cores(&self, steps: &mut Steps<'_>, default: &Scheme) -> Result<Vec<Outcome>, Error> {
        let Search { args, file, machine, kinds, .. } = *self;
        let base = Base::new(machine, None)?;
        let operators = operators_of(|groups| built(file, groups), default);
        let permit = |configuration: &_| operators.permit(configuration);
        let tuner = tuner(args, &base, default, kinds, &permit);
        let bar = term::count_bar("tuning", 0);
        let searched = tuner.best(steps, &mut |progress| {
            bar.set_length((progress.evaluations + progress.remaining) as u64);
            bar.set_position(progress.evaluations as u64);
            ControlFlow::Continue(())
        });
        bar.finish_and_clear();
        Ok(searched.map_err(Error::refused)?.plans)
    }

    /// Schedules for some plans, the best of which is given with the time that it took.
    fn find(
        &self,
        steps: &mut Steps<'_>,
        plans: Vec<Outcome>,
        effort: Effort,
    ) -> Result<(Outcome, Duration), Error> {
        let start = Instant::now();
        let clock = || start.elapsed();
        // Nothing is kept, so Ctrl-C may end the program.
        let interrupted = || false;
        let limits = Limits {
            time: Duration::from_secs(self.args.matrices.into()),
            clock: &clock,
            interrupted: &interrupted,
            shown: true,
            effort,
        };
        let sizes = Sizes { largest: STEP_TOKENS as usize, together: BATCH as usize };
        let (mut outcome, _) = schedules::find(steps, plans, self.kinds, sizes, &limits);
        outcome.complete &= outcome.schedules.complete;
        Ok((outcome, start.elapsed()))
    }
}

/// The k to measure, `most` the last of them.
fn best_k(most: usize) -> impl Iterator<Item = usize> {
    BEST.into_iter().filter(move |k| *k < most).chain([most])
}

/// Ways in turns, there and back.
fn measure(mut ways: Vec<Way>, bench: &Bench<'_>, repetitions: usize) -> Result<Vec<Row>, Error> {
    let bar = term::count_bar("measuring", TURNS * ways.len());
    for turn in 0..TURNS {
        let count = ways.len();
        for at in 0..count {
            let at = if turn % 2 == 1 { count - 1 - at } else { at };
            ways[at].visit(bench, repetitions.div_ceil(TURNS))?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let first = |way: &Way| ways.iter().find(|other| other.table == way.table).expect("itself");
    Ok(ways.iter().map(|way| way.row(bench.measured, first(way))).collect())
}

fn print(
    args: &TuneArgs,
    file: &ModelFile,
    machine: &Machine,
    [one, batch, prompt]: &[StepKind; 3],
    rows: &[Row],
    causes: &[Cause],
) -> Result<(), Error> {
    let mut out = Output::new(args.output);
    let kind = |kind: &StepKind| json!({ "tokens": kind.tokens, "depth": kind.depth });
    let whole = json!({
        "model": file.path(),
        "machine": machine.model(),
        "cores": machine.usable_cores(),
        "repetitions": TURNS * args.repetitions.div_ceil(TURNS),
        "batch_of_1": kind(one), "batch_of_8": kind(batch), "prompt": kind(prompt),
        "rows": rows, "causes": causes,
    });
    if out.data(&whole, &["/rows"])? {
        return Ok(());
    }
    // The first row is compared with itself.
    let unsure = |row: &Row| {
        let first = rows.iter().find(|first| first.table == row.table);
        !row.told_apart && first.is_some_and(|first| first.way != row.way)
    };
    for table in 1..=3 {
        let of: Vec<&Row> = rows.iter().filter(|row| row.table == table).collect();
        if of.is_empty() {
            continue;
        }
        if table > 1 {
            writeln!(out)?;
        }
        let cells = |row: &&Row| -> [Cell; 7] {
            let cut = if row.complete { "" } else { "+" };
            let unsure = if unsure(row) { " ?" } else { "" };
            [
                figure("table", 5, row.table),
                words("way", 22, &row.way),
                figure("tuning, s", 9, format_args!("{:.1}{cut}", row.tuning_seconds)),
                figure("prompt, ms", 10, format_args!("{:.2}", row.prompt_ms)),
                figure("1 sequence, tokens/s", 20, term::rate(row.batch_1)),
                figure("8 sequences, tokens/s", 21, term::rate(row.batch_8)),
                words("ratio (least-greatest)", 22, format_args!("{}{unsure}", row.ratio)),
            ]
        };
        out.table(of.iter().map(cells))?;
    }
    writeln!(
        out,
        "\nThe ratio is the speed of one sequence over that of the table's first row, in the same of {TURNS} turns."
    )?;
    if rows.iter().any(unsure) {
        writeln!(out, "With ? it is not told apart from the first row: their times overlap.")?;
    }
    writeln!(out, "Times with + ended with the time that matrices had (--matrices).")?;
    writeln!(out, "A prompt is a step of {} tokens after {}.", prompt.tokens, prompt.depth)?;
    for line in causes.iter().flat_map(|cause| wrap(&cause.to_string())) {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_is_as_in_the_paper_as_far_as_there_are_plans() {
        let of = |most| best_k(most).collect::<Vec<_>>();
        assert_eq!([of(1), of(2), of(7)], [vec![1], vec![1, 2], vec![1, 2, 5, 7]]);
        assert_eq!(of(20), [1, 2, 5, 10, 15, 20]);
    }
}
