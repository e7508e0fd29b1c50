//! How matrices are multiplied, tuned for the cores that were found.

use super::matrices::{self, Products};
use super::measure::Steps;
use super::stored;
use crate::error::Error;
use crate::interrupt::Answering;
use crate::term::{self, note};
use std::time::{Duration, Instant};
use tune::schedule::{Problem, Progress, Scheduler, Schedules};
use tune::tuner::{Candidate, Level, Outcome, StepKind, faster, median};

/// Searches schedules for an outcome, for so long at most, and puts them into it if steps are not slower for
/// them. `largest` is the tokens of a step at most, `together` the rows of logits.
pub(super) fn find(
    steps: &mut Steps<'_>,
    outcome: &mut Outcome,
    kinds: &[StepKind],
    (largest, together): (usize, usize),
    (time, answering): (Duration, &Answering),
) -> Result<(), Error> {
    let (start, bar) = (Instant::now(), term::count_bar("matrices", 100));
    let rows = outcome.table.rows();
    let mut found = Schedules::<String>::default();
    for (at, row) in rows.iter().enumerate() {
        let most = (row.up_to as usize).min(largest);
        let from = at.checked_sub(1).map_or(0, |before| rows[before].up_to as usize);
        if most <= from {
            break; // Larger steps are not tuned.
        }
        let own: Vec<StepKind> = kinds
            .iter()
            .filter(|kind| (from + 1..=most).contains(&(kind.tokens as usize)))
            .copied()
            .collect();
        let candidate =
            Candidate { scheme: &outcome.scheme, level: &row.level, choices: &outcome.choices };
        let (engine, level) = steps.engine(&candidate)?;
        let interrupted = || answering.interrupted();
        let mut products = Products::of(engine, level, &interrupted)?;
        // A matrix that steps have fewer rows for than tokens makes logits.
        let problems = products.problems.clone();
        let known = |problem: &Problem| found.matrices.iter().any(|m| problem.is(m));
        let new: Vec<Problem> = problems.into_iter().filter(|p| !known(p)).collect();
        let (all, few): (Vec<Problem>, Vec<Problem>) =
            new.into_iter().partition(|problem| products.has(problem, most));
        for (problems, most) in [(all, most), (few, together.min(most))] {
            if problems.is_empty() {
                continue;
            }
            // What is left, by the levels that are left; logits have little of it.
            let left =
                time.saturating_sub(start.elapsed()).as_secs_f64() / (rows.len() - at) as f64;
            let share = if most == together.min(most) && most < largest { 1.0 } else { 0.85 };
            let (begun, budget) = (Instant::now(), left * share);
            let scheduler = Scheduler::new(&problems, &own, most);
            let mut told = |progress: &Progress<'_>| {
                let done = start.elapsed().as_secs_f64() / time.as_secs_f64();
                bar.set_position((100.0 * done.min(1.0)) as u64);
                let best = match progress.default / progress.best {
                    gain if gain.is_finite() && gain > 1.01 => format!(", {gain:.2} x"),
                    _ => String::new(),
                };
                let tokens = term::plural(progress.tokens, "token");
                bar.set_message(format!("{}, {tokens}{best}", progress.problem.name));
                if answering.interrupted() { 0.0 } else { budget - begun.elapsed().as_secs_f64() }
            };
            let result = scheduler.run(&mut products, &mut told);
            let result = result.map_err(|e| Error::Refused(e.to_string()))?;
            found.complete &= result.schedules.complete;
            found.evaluations += result.schedules.evaluations;
            found.matrices.extend(result.schedules.matrices);
        }
    }
    bar.finish_and_clear();
    let (mut wanted, _) = matrices::all(&found);
    if wanted != graph::Schedules::default() && !answering.interrupted() {
        let of = |kind: &StepKind| (*kind, outcome.table.level(kind.tokens).clone());
        let tuned = kinds.iter().filter(|kind| kind.tokens as usize <= largest);
        let all: Vec<(StepKind, Level)> = tuned.map(of).collect();
        wanted.usual.ahead = stored::ahead(&outcome.choices).unwrap_or(wanted.usual.ahead);
        let times = steps.compare(&outcome.scheme, &all, &wanted)?;
        if let Some(at) = times.iter().position(|[plain, tuned]| faster(plain, tuned)) {
            let tokens = term::plural(kinds[at].tokens as usize, "token");
            note!("matrices stay as they were: steps of {tokens} are slower as tuned");
            return Ok(());
        }
        for ([plain, tuned], kind) in times.iter().zip(kinds) {
            let measured = outcome.measured.iter_mut().find(|m| m.tokens == kind.tokens);
            if let Some(measured) = measured {
                measured.after *= median(plain) / median(tuned);
            }
        }
    }
    outcome.schedules = found;
    Ok(())
}
