//! How matrices are multiplied, tuned for the cores of the best plans, of which one is chosen then.

use super::lab::{self, Lab};
use super::matrices::Products;
use crate::error::Error;
use crate::term;
use indicatif::ProgressBar;
use kernels::Foreign;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use tune::schedule::{Problem, ScheduleProgress, Scheduler, Tuned, TunedSchedules};
use tune::tuner::{Candidate, Contest, Level, Matrices, Measure, Outcome, StepKind, Won};

/// Repetitions of each kind of step with and without schedules.
const REPETITIONS: usize = 7;

/// How thorough a search of schedules is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Of so many counts of tokens the winners are the micro-kernels that are tried at the next.
    pub(super) window: usize,
    /// Parts that columns are split into at most.
    pub(super) splits: usize,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { window: 16, splits: 4 }
    }
}

/// How long the search may take, and who follows it.
pub(super) struct Limits<'a> {
    /// Time for all of it.
    pub(super) time: Duration,
    /// Time that has gone by. It need not be that of the clock on the wall.
    pub(super) clock: &'a dyn Fn() -> Duration,
    /// Whether it is to end.
    pub(super) interrupted: &'a dyn Fn() -> bool,
    /// Whether bars are drawn.
    pub(super) shown: bool,
    pub(super) effort: Effort,
}

impl Limits<'_> {
    fn bar(&self, what: &str, count: usize) -> ProgressBar {
        if self.shown { term::count_bar(what, count) } else { ProgressBar::hidden() }
    }
}

/// Sizes of the steps whose matrices are tuned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Maximum number of tokens in a step.
    pub(super) largest: usize,
    /// Rows of logits.
    pub(super) together: usize,
}

/// Searches schedules for the best plans, which stand best first, and gives that which is the fastest then, with
/// what is to be told of it.
pub(super) fn find(
    lab: &mut dyn Lab,
    plans: Vec<Outcome>,
    kinds: &[StepKind],
    sizes: Sizes,
    limits: &Limits<'_>,
) -> (Outcome, Option<String>) {
    let start = (limits.clock)();
    let mut tuning = Tuning { lab, kinds, sizes, limits, start, plans: 0 };
    let contest = Contest { kinds, largest: sizes.largest, repetitions: REPETITIONS };
    let (bar, mut begun) = (limits.bar("tuned", 0), None);
    let won = contest.run(&mut tuning, plans, &mut |progress| {
        // Those who tune have a bar of their own.
        if progress.evaluations > 0 {
            let begun = begun.get_or_insert_with(Instant::now);
            bar.set_length((progress.evaluations + progress.remaining) as u64);
            bar.set_position(progress.evaluations as u64);
            let each = progress.remaining as f64 / progress.evaluations as f64;
            let left = term::seconds(begun.elapsed().mul_f64(each));
            bar.set_message(format!("{}, {left} left", progress.doing));
        }
        match (limits.interrupted)() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    bar.finish_and_clear();
    let words = words(&won);
    (won.outcome, words)
}

/// What is to be told of how it went.
fn words(won: &Won) -> Option<String> {
    let Won { was, tuned, slower, .. } = won;
    if let [before @ .., last] = slower.as_slice() {
        let before: String = before.iter().map(|kind| format!("{}, ", kind.tokens)).collect();
        let last = term::plural(last.tokens as usize, "token");
        return Some(format!(
            "matrices stay as they were for steps of about {before}{last}, which are slower as tuned"
        ));
    }
    (*was > 0).then(|| {
        format!(
            "of the {tuned} plans whose matrices were tuned, that which was number {} is the fastest now",
            was + 1
        )
    })
}

/// The engine, for a contest.
struct Tuning<'a> {
    lab: &'a mut dyn Lab,
    kinds: &'a [StepKind],
    sizes: Sizes,
    limits: &'a Limits<'a>,
    /// What the clock said when it began.
    start: Duration,
    /// Plans whose matrices were tuned.
    plans: usize,
}

/// What is to be searched at one level of a plan.
struct Work<'a> {
    level: &'a Level,
    kinds: Vec<StepKind>,
    /// Matrices, and those that make logits, each with the most tokens or rows.
    problems: [(Vec<Problem>, usize); 2],
}

impl Measure for Tuning<'_> {
    fn seconds(&mut self, candidate: &Candidate<'_>, kind: &StepKind) -> Option<f64> {
        self.lab.seconds(candidate, kind)
    }

    fn load_seconds(&self) -> f64 {
        self.lab.load_seconds()
    }
}

impl Matrices for Tuning<'_> {
    fn tune(
        &mut self,
        plan: &Outcome,
        known: &[TunedSchedules],
        share: f64,
    ) -> Option<TunedSchedules> {
        self.plans += 1;
        let bar = self.limits.bar("matrices", 100);
        let found = self.search(plan, known, share, &bar);
        bar.finish_and_clear();
        lab::told(self.lab, found)
    }
}

impl Tuning<'_> {
    fn search(
        &mut self,
        plan: &Outcome,
        known: &[TunedSchedules],
        share: f64,
        bar: &ProgressBar,
    ) -> Result<TunedSchedules, Error> {
        let mut found = TunedSchedules::default();
        let work = self.work(plan, known, &mut found)?;
        let Tuning { lab, limits, start, plans, .. } = self;
        let &Limits { time, clock, interrupted, effort, .. } = *limits;
        let elapsed = || clock() - *start;
        let end = elapsed() + time.saturating_sub(elapsed()).mul_f64(share);
        for (at, Work { level, kinds, problems }) in work.iter().enumerate() {
            let candidate = candidate(plan, level);
            let run = Box::new(|task| lab.run(&candidate, task));
            let mut products = Products::of(run, interrupted, effort.splits)?;
            for (which, (problems, most)) in problems.iter().enumerate() {
                if problems.is_empty() {
                    continue;
                }
                // What is left, by the levels that are left; logits have little of it.
                let left = end.saturating_sub(elapsed()).as_secs_f64();
                let logits_wait = which == 0 && !work[at].problems[1].0.is_empty();
                let part = if logits_wait { 0.85 } else { 1.0 };
                let budget = left / (work.len() - at) as f64 * part;
                let begun = elapsed();
                let mut told = |progress: &ScheduleProgress<'_>| {
                    let done = elapsed().as_secs_f64() / time.as_secs_f64();
                    bar.set_position((100.0 * done.min(1.0)) as u64);
                    bar.set_message(message(*plans, progress));
                    let left = budget - (elapsed() - begun).as_secs_f64();
                    if interrupted() { 0.0 } else { left }
                };
                let Effort { window, .. } = effort;
                let scheduler = Scheduler { window, ..Scheduler::new(problems, kinds, *most) };
                let result = scheduler.run(&mut products, &mut told);
                let result = result.map_err(Error::refused)?;
                found.complete &= result.schedules.complete;
                found.evaluations += result.schedules.evaluations;
                found.matrices.extend(result.schedules.matrices);
            }
        }
        let candidate = |kernel: &&Foreign| {
            let parts = found.matrices.iter().flat_map(|matrix| &matrix.shape().parts);
            parts.into_iter().any(|(ty, _)| kernel.multiplies(*ty))
        };
        found.foreign = Foreign::loaded().into_iter().filter(candidate).collect();
        Ok(found)
    }

    /// What is to be searched for a plan. What is known for as many tokens is put into `found`.
    fn work<'p>(
        &mut self,
        plan: &'p Outcome,
        known: &[TunedSchedules],
        found: &mut TunedSchedules,
    ) -> Result<Vec<Work<'p>>, Error> {
        let (mut all, mut from): (Vec<Work<'p>>, _) = (Vec::new(), 0);
        let going = || false;
        for row in plan.table.rows() {
            let most = (row.up_to as usize).min(self.sizes.largest);
            if most <= from {
                break; // Larger steps are not tuned.
            }
            let own = |kind: &&StepKind| (from + 1..=most).contains(&(kind.tokens as usize));
            let kinds = self.kinds.iter().filter(own).copied().collect();
            let candidate = candidate(plan, &row.level);
            let run = Box::new(|task| self.lab.run(&candidate, task));
            let mut products = Products::of(run, &going, self.limits.effort.splits)?;
            let mut problems = [(Vec::new(), most), (Vec::new(), self.sizes.together.min(most))];
            for problem in products.problems.clone() {
                // A matrix that steps have fewer rows for than tokens makes logits.
                let (of, most) = &mut problems[usize::from(!products.has(&problem, most))];
                let planned = all.iter().flat_map(|work| &work.problems).flat_map(|(p, _)| p);
                let same = |p: &Problem| p.shape == problem.shape;
                if found.matrices.iter().any(|m| problem.is(m)) || planned.into_iter().any(same) {
                    continue;
                }
                let enough = |m: &&Tuned| {
                    problem.is(m) && m.rows().last().is_some_and(|row| row.up_to >= *most)
                };
                match known.iter().find_map(|k| Some((k, k.matrices.iter().find(enough)?))) {
                    Some((of, matrix)) => {
                        found.complete &= of.complete;
                        found.matrices.push(matrix.clone());
                    }
                    None => of.push(problem),
                }
            }
            if problems.iter().any(|(of, _)| !of.is_empty()) {
                all.push(Work { level: &row.level, kinds, problems });
            }
            from = most;
        }
        Ok(all)
    }
}

/// What goes on at the plan of a number, for the bar.
fn message(plan: usize, progress: &ScheduleProgress<'_>) -> String {
    let best = match progress.default / progress.best {
        gain if gain.is_finite() && gain > 1.01 => format!(", {gain:.2} x"),
        _ => String::new(),
    };
    let plan = if plan > 1 { format!("plan {plan}: ") } else { String::new() };
    let tokens = term::plural(progress.tokens, "token");
    format!("{plan}{}, {tokens}{best}", progress.problem.shape)
}

fn candidate<'a>(plan: &'a Outcome, level: &'a Level) -> Candidate<'a> {
    Candidate { scheme: &plan.scheme, level, choices: &plan.choices, schedules: None }
}
