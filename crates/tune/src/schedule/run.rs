//! The whole search: which matrix, which count, how long, and the finals.
//!
//! Counts ascend, matrix by matrix. Where time is limited the products that the trace spends most of its
//! time on come first, each with as much of the time as its share of the trace's; then the rest. Each
//! count ends with its finals: winner and default in turns, and the default stays unless the rank-sum
//! rule says that the winner is faster, by at least a margin. So whatever was found when the search
//! ends is proven, and what is not proven is as without tuning. In the end all that was proven meets the
//! default once more: a machine's memory may be fast for a minute and slow in the next, as others use it,
//! and then another schedule is the faster one. Only what gains at both times stays.

use super::counts::{Looked, Memory, agree, planned, settled, window};
use super::search::{At, Halt};
use super::session::{Bench, ScheduleProgress, Session, Stop};
use super::shape::{Kernel, Problem, grids};
use super::table::{Compared, Tuned, TunedRow, TunedSchedules};
use crate::Error;
use crate::tuner::StepKind;
use crate::tuner::noise::{faster, median};
use graph::Schedule;
use std::collections::BTreeSet;

/// The finals' repetitions when they are made again.
const AGAIN: usize = 3;
/// The share of the trace's time whose products come first when time is limited.
const FIRST: f64 = 0.95;
/// The share of a limited time that is left for the second look at what was proven.
const CONFIRMING: f64 = 0.08;

/// What to search, and how thoroughly. [`Scheduler::new`] has good numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduler<'a> {
    /// The matrices.
    pub problems: &'a [Problem],
    /// What a trace comes down to, by ascending tokens ([`Trace::steps`](crate::tuner::Trace::steps)):
    /// what matters most when time is short. May be empty.
    pub kinds: &'a [StepKind],
    /// Most tokens in a step: the chunk of a prompt.
    pub largest: usize,
    /// Up to so many tokens each count is searched.
    pub each: usize,
    /// Of so many counts the winners are the micro-kernels that are tried at the next.
    pub window: usize,
    /// When so many counts agree, the schedule is kept for more tokens and only checked.
    pub stable: usize,
    /// Slices agree when none differs from their mean by more than this share.
    pub alike: f64,
    /// Prefetch distances to try, bytes.
    pub ahead: &'a [usize],
    /// The share of the time that a schedule must save surely to take the default's place.
    pub margin: f64,
    /// Repetitions in the finals. Below 5 nothing is ever better than the default.
    pub repetitions: usize,
}

/// What a search ends with.
#[derive(Debug)]
pub struct Found<E> {
    /// What was proven.
    pub schedules: TunedSchedules,
    /// Why the [`Bench`] ended it, if it did.
    pub failed: Option<E>,
}

/// One count of one problem, and its share of what the trace spends.
struct Item {
    problem: usize,
    tokens: usize,
    spends: f64,
}

type Ended<B> = Result<(), Stop<<B as Bench>::Error>>;

struct State<'s, 'a, B: Bench> {
    scheduler: &'s Scheduler<'a>,
    session: Session<'a, B>,
    planned: Vec<usize>,
    memory: Vec<Memory>,
    /// Of each problem the planned counts that were not looked at because the schedule is kept there.
    kept: Vec<BTreeSet<usize>>,
    /// Whether there was time for every count.
    complete: bool,
}

impl<'a> Scheduler<'a> {
    /// The search for steps of up to `largest` tokens.
    pub fn new(problems: &'a [Problem], kinds: &'a [StepKind], largest: usize) -> Scheduler<'a> {
        Scheduler {
            problems,
            kinds,
            largest,
            each: 16,
            window: 16,
            stable: 3,
            alike: 0.25,
            ahead: &[0, 1024, 2048, 4096, 8192],
            margin: 0.01,
            repetitions: 5,
        }
    }

    /// Searches. `left` is told how far it is, before the first evaluation and after each, and gives
    /// the seconds that may still be spent, infinitely many if time is not limited. When there are
    /// none, or the bench fails, what was proven by then is the outcome.
    ///
    /// # Errors
    /// [`Error::BadSchedule`] for a problem without tiles, threads, calls or the split 1, or one like
    /// another.
    pub fn run<B: Bench>(
        &self,
        bench: &mut B,
        left: &mut dyn FnMut(&ScheduleProgress<'_>) -> f64,
    ) -> Result<Found<B::Error>, Error> {
        self.check()?;
        let Some(first) = self.problems.first() else {
            return Ok(Found { schedules: TunedSchedules::default(), failed: None });
        };
        let mut state = State {
            scheduler: self,
            session: Session::new(bench, left, first),
            planned: planned(self.largest, self.each, self.kinds),
            memory: vec![Memory::new(); self.problems.len()],
            kept: vec![BTreeSet::new(); self.problems.len()],
            complete: true,
        };
        state.session.keep_back(CONFIRMING);
        let mut ended = state.all();
        let cut = state.memory.iter().flat_map(|m| m.values()).any(|looked| looked.cut.is_some());
        let complete = state.complete && ended.is_ok() && !cut;
        if !matches!(ended, Err(Stop::Failed(_))) {
            state.session.keep_back(0.0);
            ended = state.confirm();
        }
        let failed = match ended {
            Err(Stop::Failed(error)) => Some(error),
            Ok(()) | Err(Stop::Time) => None,
        };
        let matrices = (0..self.problems.len()).map(|problem| state.table(problem));
        let schedules = TunedSchedules {
            matrices: matrices.collect::<Result<_, _>>()?,
            evaluations: state.session.progress.evaluations,
            complete,
            foreign: vec![], // Who times knows what it has.
        };
        Ok(Found { schedules, failed })
    }

    fn check(&self) -> Result<(), Error> {
        for (at, problem) in self.problems.iter().enumerate() {
            let Problem { shape, splits, calls } = problem;
            let same = |p: &Problem| p.shape == *shape;
            let reason = if shape.tiles() == 0 || shape.threads == 0 || *calls == 0 {
                "it has no tiles, no threads or no calls"
            } else if !splits.contains(&1) {
                "its columns may always be in one part, so its splits must have 1"
            } else if self.problems[..at].iter().any(same) {
                "it is there twice"
            } else if self.largest == 0 {
                "0 tokens are the most of a step"
            } else {
                continue;
            };
            return Err(Error::BadSchedule { shape: shape.clone(), reason: reason.into() });
        }
        Ok(())
    }
}

impl<'a, B: Bench> State<'_, 'a, B> {
    fn problem(&self, at: usize) -> &'a Problem {
        &self.scheduler.problems[at]
    }

    fn all(&mut self) -> Ended<B> {
        let mut order: Vec<(usize, f64)> =
            (0..self.scheduler.problems.len()).map(|problem| (problem, 1.0)).collect();
        if self.session.limited() {
            let items = self.items()?;
            for (problem, spends) in &mut order {
                let own = items.iter().filter(|item| item.problem == *problem);
                *spends = own.map(|item| item.spends).sum();
            }
            order.sort_by(|a, b| b.1.total_cmp(&a.1));
            self.first(&items)?;
        }
        for at in 0..order.len() {
            let share = order[at].1 / order[at..].iter().map(|(_, spends)| spends).sum::<f64>();
            let until = self.session.left() * (1.0 - share);
            self.ascend(order[at].0, until)?;
        }
        Ok(())
    }

    /// The products of the trace's steps, with one token and with the most, those on which it spends
    /// most first.
    fn items(&mut self) -> Result<Vec<Item>, Stop<B::Error>> {
        let Scheduler { problems, kinds, largest, .. } = *self.scheduler;
        let mut weights: Vec<(usize, f64)> =
            kinds.iter().map(|kind| (kind.tokens as usize, kind.weight)).collect();
        weights.retain(|&(tokens, weight)| (1..=largest).contains(&tokens) && weight > 0.0);
        let least = weights.iter().map(|&(_, weight)| weight).reduce(f64::min).unwrap_or(1.0);
        for always in [1, largest] {
            if !weights.iter().any(|&(tokens, _)| tokens == always) {
                weights.push((always, least));
            }
        }
        let mut items = vec![];
        for (at, problem) in problems.iter().enumerate() {
            for &(tokens, weight) in &weights {
                self.session.begin(problem, tokens, f64::INFINITY);
                let default = self.session.bench.default(problem, tokens);
                let seconds = self.session.time(&default)?;
                let seconds = if seconds.is_finite() { seconds } else { 0.0 };
                let spends = problem.calls as f64 * weight * seconds;
                items.push(Item { problem: at, tokens, spends });
            }
        }
        items.sort_by(|a, b| b.spends.total_cmp(&a.spends));
        Ok(items)
    }

    /// Looks at what matters most.
    fn first(&mut self, items: &[Item]) -> Ended<B> {
        let all: f64 = items.iter().map(|item| item.spends).sum();
        let mut before = 0.0;
        for item in items {
            let ahead = all - before;
            before += item.spends;
            let end = [1, self.scheduler.largest].contains(&item.tokens);
            if !end && ahead <= (1.0 - FIRST) * all {
                continue;
            }
            let seconds = self.session.left() * (item.spends / ahead).clamp(0.0, 1.0);
            self.look(item.problem, item.tokens, None, seconds)?;
        }
        Ok(())
    }

    /// Looks at the counts of a problem that were not looked at, ascending, while more than `until`
    /// seconds are left.
    fn ascend(&mut self, problem: usize, until: f64) -> Ended<B> {
        let Scheduler { each, stable, alike, largest, .. } = *self.scheduler;
        // Since which index the schedule is kept, and from how many tokens it is checked next.
        let mut kept: Option<(usize, usize)> = None;
        // A check that failed: until there nothing is kept again.
        let mut failed = 0;
        let mut at = 0;
        while at < self.planned.len() {
            let tokens = self.planned[at];
            if self.session.limited() && self.session.left() <= until {
                self.complete = false;
                return Ok(());
            }
            let seconds = if self.session.limited() {
                // As much as each of the counts to come.
                (self.session.left() - until) / (self.planned.len() - at) as f64
            } else {
                f64::INFINITY
            };
            if let Some((since, next)) = kept {
                if tokens < next && tokens < largest {
                    self.kept[problem].insert(tokens);
                    at += 1;
                    continue;
                }
                let fixed = self.memory[problem][&self.planned[since]].winner;
                let holds = match self.memory[problem].get(&tokens) {
                    Some(looked) => agree(&[&looked.winner, &fixed], alike),
                    None => self.look(problem, tokens, Some(&fixed), seconds)?,
                };
                if holds {
                    kept = Some((since, 2 * tokens));
                    at += 1;
                } else {
                    // What was left out on the way is looked at now.
                    self.kept[problem].retain(|&left_out| left_out < self.planned[since]);
                    (kept, failed, at) = (None, tokens, since + 1);
                }
                continue;
            }
            // What was cut short is looked at again when there is more time for it now.
            let known = self.memory[problem].get(&tokens);
            if known.is_none_or(|looked| looked.cut.is_some_and(|had| had < seconds)) {
                self.look(problem, tokens, None, seconds)?;
            }
            let settled = settled(&self.memory[problem], tokens, stable, alike);
            if settled && tokens >= each && tokens >= failed {
                kept = Some((at, 2 * tokens));
            }
            at += 1;
            self.looked_at(problem, at);
        }
        Ok(())
    }

    /// Tells how far it is where time is not limited.
    fn looked_at(&mut self, problem: usize, counts: usize) {
        let (of, planned) = (self.scheduler.problems.len() as f64, self.planned.len() as f64);
        self.session.looked_at((problem as f64 + counts as f64 / planned) / of);
    }

    /// Looks at a count: searches, and ends with the finals. A schedule of fewer tokens that is supposed
    /// to be the best is checked first, and nothing is searched if it is; says whether.
    fn look(
        &mut self,
        at: usize,
        tokens: usize,
        fixed: Option<&Schedule>,
        seconds: f64,
    ) -> Result<bool, Stop<B::Error>> {
        let Scheduler { largest, window: width, repetitions, margin, .. } = *self.scheduler;
        let problem = self.problem(at);
        self.session.begin(problem, tokens, seconds);
        let mut kernels = self.session.bench.kernels(problem, tokens);
        if let Some(window) = window(&self.memory[at], tokens, width) {
            let of_window = |kernel: &&Kernel| window.contains(&kernel.kernel);
            let few: Vec<_> = kernels.iter().filter(of_window).copied().collect();
            // None where those that won cannot do this count.
            if !few.is_empty() {
                kernels = few;
            }
        }
        // The best of fewer tokens may be none here: it left threads out that there were too few tokens
        // for, say, or it was the caller's default, which may be any.
        let grids = grids(problem, tokens);
        let possible = |schedule: &Schedule| {
            kernels.iter().any(|kernel| kernel.kernel == schedule.how.kernel)
                && grids.contains(&schedule.grid)
                && schedule.fits(&problem.shape, tokens).is_ok()
        };
        let like = self.memory[at].range(..tokens).next_back().map(|(_, l)| l.winner);
        let here = |schedule: &Schedule| schedule.at(&problem.shape, tokens);
        let like = like.map(|like| here(&like)).filter(possible);
        let fixed = fixed.map(here).filter(possible);
        let mut search = At::new(&mut self.session, self.scheduler.ahead, 2 * repetitions)?;
        let mut kept = None;
        let result = match &fixed {
            Some(fixed) => match search.holds(fixed, &kernels) {
                Ok(true) => {
                    kept = Some(*fixed);
                    Ok(())
                }
                Ok(false) => search.search(&kernels, like.as_ref()),
                Err(halt) => Err(halt),
            },
            None => search.search(&kernels, like.as_ref()),
        };
        let cut = match result {
            Ok(()) => None,
            Err(Halt::Enough) => Some(seconds),
            Err(Halt::Stopped(stop)) => return Err(stop),
        };
        let holds = kept.is_some();
        let winner = kept.unwrap_or_else(|| search.winner(like.as_ref()));
        let plain = search.plain;
        let default = search.into_default();
        let mut compared = Compared {
            tokens,
            default: median(&plain),
            tuned: median(&plain),
            repetitions: plain.len() as u32,
        };
        // A slice of all that a part has is meant as that, with more tokens too.
        let mut open = winner;
        let share = problem.shape.share(open.grid, tokens);
        if let Some(slice) = open.slice.as_mut().filter(|slice| slice.tokens >= share.tokens) {
            slice.tokens = largest;
        }
        let mut proven = None;
        if winner != default {
            self.session.progress.doing = "finals";
            // A gain that is no larger than noise wants more turns. They are all new, because what only
            // looks better does so again among the old.
            for turns in [repetitions, AGAIN * repetitions] {
                let series = self.session.series(&[&winner, &default], turns)?;
                let (tuned, plain) = (&series[0], &series[1]);
                let handicapped: Vec<f64> = tuned.iter().map(|t| t / (1.0 - margin)).collect();
                let (sure, promising) =
                    (faster(&handicapped, plain), median(&handicapped) < median(plain));
                compared.default = median(plain);
                compared.tuned = if sure { median(tuned) } else { compared.default };
                compared.repetitions = turns as u32;
                proven = sure.then_some(open);
                if sure || !promising {
                    break;
                }
            }
        }
        let again = self.memory[at].get(&tokens).is_some_and(|looked| looked.proven.is_some());
        if !(again && proven.is_none()) {
            self.memory[at].insert(tokens, Looked { winner: open, proven, compared, cut });
        }
        Ok(holds)
    }

    /// Times what was proven again, now that time has passed: what gains no more is as without tuning. What
    /// there is no time for stays proven.
    fn confirm(&mut self) -> Ended<B> {
        let Scheduler { repetitions, margin, .. } = *self.scheduler;
        if self.session.noise() == 0.0 {
            return Ok(()); // Time changes nothing.
        }
        for at in 0..self.memory.len() {
            let problem = self.problem(at);
            let proven = |(&tokens, looked): (&usize, &Looked)| {
                Some((tokens, looked.proven?.at(&problem.shape, tokens)))
            };
            let proven: Vec<_> = self.memory[at].iter().filter_map(proven).collect();
            for (tokens, schedule) in proven {
                self.session.begin(problem, tokens, f64::INFINITY);
                self.session.progress.doing = "second look";
                let default = self.session.bench.default(problem, tokens);
                let series = self.session.series(&[&schedule, &default], repetitions)?;
                let (tuned, plain) = (median(&series[0]), median(&series[1]));
                if tuned > plain * (1.0 - margin) {
                    let looked = self.memory[at].get_mut(&tokens).expect("it was proven");
                    looked.proven = None;
                    looked.compared.tuned = looked.compared.default;
                }
            }
        }
        Ok(())
    }

    /// A row for every count: that of the nearest count looked at below it, or at it. What was to be
    /// looked at and was not, because time was up, is as without tuning; so is a count that the kernel
    /// cannot do.
    fn table(&self, at: usize) -> Result<Tuned, Error> {
        let (problem, memory) = (self.problem(at), &self.memory[at]);
        let mut rows: Vec<TunedRow> = vec![];
        let mut schedule: Option<Schedule> = None;
        for tokens in 1..=self.scheduler.largest {
            if let Some(looked) = memory.get(&tokens) {
                schedule = looked.proven;
            } else if self.planned.binary_search(&tokens).is_ok()
                && !self.kept[at].contains(&tokens)
            {
                schedule = None;
            }
            let can = |schedule: &Schedule| {
                let kernels = self.session.bench.kernels(problem, tokens);
                kernels.iter().any(|kernel| kernel.kernel == schedule.how.kernel)
            };
            let here = schedule.filter(can);
            match rows.last_mut() {
                Some(row) if row.schedule == here => row.up_to = tokens,
                _ => rows.push(TunedRow { up_to: tokens, schedule: here }),
            }
        }
        let known = memory.values().map(|looked| looked.compared);
        let compared = known.filter(|c| c.default.is_finite()).collect();
        Tuned::new(problem.shape.clone(), rows, compared)
    }
}
