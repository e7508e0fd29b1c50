//! `arclight tune --compare`: what a profile's schedules are worth, product by product, measured again.
//!
//! Every product is timed by each micro-kernel of the family as the only one, and then, anew and in turns,
//! without schedules, by the profile's, and by the micro-kernel that was best: the best of many noisy times
//! looks better than it is. Turns go on, within a bound, until it is sure which is faster, or that none is
//! by much. Ratios are of times in the same turn, which what disturbs the machine changes least.

use super::lab::Task;
use super::matrices::Products;
use super::schedules::Effort;
use super::stored::{self, For};
use crate::error::Error;
use crate::load;
use crate::output::{Cell, Output, OutputArgs, figure, words};
use crate::spread::Spread;
use crate::term;
use arclight_engine::{LoadOptions, ModelFile, Schedule};
use kernels::How;
use serde_json::{Value, json};
use std::fmt;
use std::io::Write;
use std::path::Path;
use topology::Machine;
use tune::schedule::{Bench, Kernel, Problem};
use tune::tuner::{faster, median};

/// Turns of all micro-kernels, of which the best is kept.
const CHOICE: usize = 3;
/// Turns of the ways that are compared, before it is asked whether the outcome is sure, and at most.
const TURNS: usize = 9;
const MOST_TURNS: usize = 36;
/// What is slower by no more than this is no loss.
const MARGIN: f64 = 0.02;
/// Counts of tokens.
const TOKENS: [usize; 10] = [1, 2, 4, 8, 12, 16, 32, 64, 128, 512];

/// One product.
struct Row {
    tokens: usize,
    /// Seconds, by turn.
    default: Vec<f64>,
    tuned: Vec<f64>,
    /// Of the micro-kernel that is fastest as the only one.
    fixed: (String, Vec<f64>),
    /// Whether the profile has a schedule for it.
    scheduled: bool,
}

/// What all comparisons came to.
#[derive(Default)]
struct Counts {
    all: usize,
    ahead: usize,
    lost: usize,
    open: usize,
}

impl Counts {
    /// Counts one, and says how it is marked.
    fn add(&mut self, other: &[f64], tuned: &[f64]) -> &'static str {
        self.all += 1;
        self.ahead += usize::from(faster(tuned, other));
        if lost(other, tuned) {
            self.lost += 1;
            " !"
        } else if settled(other, tuned) {
            ""
        } else {
            self.open += 1;
            " ?"
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { all, ahead, lost, open } = self;
        write!(
            f,
            "Of {all} comparisons the tuned product is surely the faster one in {ahead}, surely slower by \
             more than {:.0} % in {lost} (!), and whether it is that is not sure in {open} (?).",
            100.0 * MARGIN
        )
    }
}

/// Compares, and prints a table for each matrix.
pub(super) fn run(
    file: &ModelFile,
    path: &Path,
    options: LoadOptions,
    output: OutputArgs,
) -> Result<(), Error> {
    let machine = Machine::read()?;
    let profile = stored::read(path, true)?.expect("an error if there is none");
    let owner = For::of(&machine, 1, &file.gguf()?)?;
    let applies = profile.applies(&owner.machine, &owner.model, &owner.program);
    applies.map_err(|stale| Error::in_file(path, stale))?;
    let mut options = options;
    stored::put(&profile, &[], &mut options);
    let mut engine = load::load_engine(file, &options)?;
    // The level of most threads: that of prompts.
    let level = engine.plan().levels().len() - 1;
    let going = || false;
    let run = |task: Task| {
        task(&mut engine, level);
        Ok(())
    };
    let mut products = Products::of(Box::new(run), &going, Effort::default().splits)?;
    let mut out = Output::new(output);
    let mut found = Vec::new();
    let mut counts = Counts::default();
    let bar = term::count_bar("comparing", products.problems.len() * TOKENS.len());
    for problem in products.problems.clone() {
        let matrix = profile.outcome.schedules.matrices.iter().find(|m| problem.is(m));
        let mut rows = Vec::new();
        for tokens in TOKENS {
            bar.inc(1);
            if !products.has(&problem, tokens) {
                continue;
            }
            let schedule = matrix.and_then(|m| m.schedule(tokens));
            rows.push(row(&mut products, &problem, tokens, schedule)?);
        }
        writeln!(out, "\n{}\n", problem.shape)?;
        found.extend(rows.iter().map(|row| row.json(&problem.shape.to_string())));
        out.table(rows.iter().map(|row| row.cells(&mut counts)))?;
    }
    bar.finish_and_clear();
    writeln!(out, "\n{counts}")?;
    out.data(&json!({ "products": found }), &["/products"])?;
    Ok(())
}

impl Row {
    fn cells(&self, counts: &mut Counts) -> [Cell; 5] {
        let Row { tokens, default, tuned, fixed: (name, times), scheduled } = self;
        let micros = |times: &[f64]| format!("{:.0}", 1e6 * median(times));
        let own = if *scheduled { "" } else { " (as default)" };
        let marks = [default, times].map(|other| counts.add(other, tuned));
        let of_fixed = Spread::of_ratios(times, tuned);
        [
            figure("tokens", 6, tokens),
            figure("default, µs", 11, micros(default)),
            figure("tuned, µs", 9, format_args!("{}{own}", micros(tuned))),
            words(
                "default/tuned",
                18,
                format_args!("{}{}", Spread::of_ratios(default, tuned), marks[0]),
            ),
            words("fixed/tuned", 18, format_args!("{of_fixed} {name}{}", marks[1])),
        ]
    }

    fn json(&self, product: &str) -> Value {
        json!({
            "product": product, "tokens": self.tokens, "scheduled": self.scheduled,
            "default_seconds": self.default, "tuned_seconds": self.tuned,
            "fixed": self.fixed.0, "fixed_seconds": self.fixed.1,
        })
    }
}

/// Times a product in all ways.
fn row(
    products: &mut Products<'_>,
    problem: &Problem,
    tokens: usize,
    schedule: Option<Schedule>,
) -> Result<Row, Error> {
    let default = products.default(problem, tokens);
    let scheduled = schedule.is_some();
    let tuned = schedule.unwrap_or(default);
    // The first is the default's.
    let kernels = products.kernels(problem, tokens).into_iter().skip(1);
    let alone = |Kernel { kernel, .. }| Schedule { how: How { kernel, ..default.how }, ..default };
    let fixed: Vec<_> = kernels.map(alone).collect();
    let mut times = vec![Vec::new(); fixed.len()];
    turns(products, problem, tokens, &fixed, &mut times, CHOICE)?;
    let best = (0..fixed.len()).min_by(|&a, &b| median(&times[a]).total_cmp(&median(&times[b])));
    let best = best.map_or(&default, |at| &fixed[at]);
    let ways = [default, tuned, *best];
    let mut times = vec![Vec::new(); ways.len()];
    while times[0].len() < MOST_TURNS {
        turns(products, problem, tokens, &ways, &mut times, TURNS)?;
        if settled(&times[0], &times[1]) && settled(&times[2], &times[1]) {
            break;
        }
    }
    let name = best.how.kernel.map_or("usual".to_owned(), |kernel| kernel.to_string());
    let fixed = (name, times.pop().expect("three ways"));
    let tuned = times.pop().expect("three ways");
    let default = times.pop().expect("three ways");
    Ok(Row { tokens, default, tuned, fixed, scheduled })
}

/// Times all ways in so many turns, every other one backwards.
fn turns(
    products: &mut Products<'_>,
    problem: &Problem,
    tokens: usize,
    ways: &[Schedule],
    times: &mut [Vec<f64>],
    turns: usize,
) -> Result<(), Error> {
    for turn in 0..turns {
        for at in 0..ways.len() {
            let at = if turn % 2 == 0 { at } else { ways.len() - 1 - at };
            times[at].push(products.time(problem, tokens, &ways[at])?);
        }
    }
    Ok(())
}

/// Whether it is sure that `other` is faster than `tuned` by more than the margin, or sure that it is not.
fn settled(other: &[f64], tuned: &[f64]) -> bool {
    lost(other, tuned) || faster(tuned, &slower(other))
}

/// Whether `other` is surely faster than `tuned` by more than the margin.
fn lost(other: &[f64], tuned: &[f64]) -> bool {
    faster(&slower(other), tuned)
}

/// Times that are longer by the margin.
fn slower(times: &[f64]) -> Vec<f64> {
    times.iter().map(|time| time * (1.0 + MARGIN)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slower_by_the_margin_is_no_loss() {
        let times =
            |by: f64| (0..9).map(|i| by * (100.0 + f64::from(i) / 10.0)).collect::<Vec<_>>();
        let tuned = times(1.0);
        let mut counts = Counts::default();
        // Faster by 4 %: lost. By 1 %, and slower: not. By 2 %: nobody knows.
        let others = [0.96, 0.99, 1.1, 0.98].map(times);
        assert_eq!(others.map(|other| counts.add(&other, &tuned)), [" !", "", "", " ?"]);
        let Counts { all, ahead, lost, open } = counts;
        assert_eq!((all, ahead, lost, open), (4, 1, 1, 1));
    }
}
