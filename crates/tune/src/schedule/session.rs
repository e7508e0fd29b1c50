//! Timing on behalf of the search: asks the caller, counts, keeps the books of noise and of the time
//! that may still be spent.

use super::shape::{Kernel, Problem};
use crate::tuner::noise::median;
use graph::Schedule;

/// Who can time a product: a machine with its kernels, or a model of one.
pub trait Bench {
    /// Why the search has to end.
    type Error;

    /// The micro-kernels that can multiply this matrix with so many tokens, the default first.
    fn kernels(&self, problem: &Problem, tokens: usize) -> Vec<Kernel>;

    /// How it is multiplied without tuning, with the slice that it then has.
    fn default(&self, problem: &Problem, tokens: usize) -> Schedule;

    /// Seconds of one product; every call is a new repetition. What cannot be run takes infinitely
    /// long.
    ///
    /// # Errors
    /// Ends the search, which keeps what was proven.
    fn time(
        &mut self,
        problem: &Problem,
        tokens: usize,
        schedule: &Schedule,
    ) -> Result<f64, Self::Error>;
}

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleProgress<'a> {
    /// What it is doing.
    pub doing: &'static str,
    /// The matrix at hand.
    pub problem: &'a Problem,
    /// Tokens that it is multiplied with.
    pub tokens: usize,
    /// Seconds of that product with the default; infinite until they are known.
    pub default: f64,
    /// The fewest seconds that a schedule of it seemed to take.
    pub best: f64,
    /// Products timed.
    pub evaluations: usize,
    /// The share of the time that is spent; where time is not limited, of the counts looked at.
    pub share: f64,
}

/// Told how far the search is, once before the first evaluation and after each; gives the seconds that
/// may still be spent.
pub(super) type Left<'a> = dyn FnMut(&ScheduleProgress<'_>) -> f64 + 'a;

/// Why nothing more is timed.
#[derive(Debug, PartialEq)]
pub(super) enum Stop<E> {
    /// Time is up, or the user said so.
    Time,
    /// The caller failed.
    Failed(E),
}

pub(super) struct Session<'a, B: Bench> {
    pub(super) bench: &'a mut B,
    watch: &'a mut Left<'a>,
    pub(super) progress: ScheduleProgress<'a>,
    /// Seconds left, and what they were in the beginning.
    left: f64,
    whole: f64,
    /// Seconds of these that are for later.
    kept: f64,
    /// Of the count at hand: when it was begun, how many were timed until then, and what must be left
    /// when the next begins.
    began: (f64, usize),
    until: f64,
    /// Shares by which a repetition of the same differed, and their median.
    differences: Vec<f64>,
    noise: f64,
}

impl<'a, B: Bench> Session<'a, B> {
    pub(super) fn new(bench: &'a mut B, watch: &'a mut Left<'a>, first: &'a Problem) -> Self {
        let progress = ScheduleProgress {
            doing: "default",
            problem: first,
            tokens: 1,
            default: f64::INFINITY,
            best: f64::INFINITY,
            evaluations: 0,
            share: 0.0,
        };
        let left = watch(&progress);
        let (began, until, differences) = ((left, 0), f64::NEG_INFINITY, vec![]);
        let (whole, kept, noise) = (left, 0.0, 0.0);
        Session { bench, watch, progress, left, whole, kept, began, until, differences, noise }
    }

    pub(super) fn limited(&self) -> bool {
        self.whole.is_finite()
    }

    pub(super) fn left(&self) -> f64 {
        self.left
    }

    /// Leaves this share of all seconds for later, and no more what was kept before.
    pub(super) fn keep_back(&mut self, share: f64) {
        if self.limited() {
            let kept = share * self.whole;
            self.left += self.kept - kept;
            self.kept = kept;
        }
    }

    /// Turns to a count, which may take so many of the seconds that are left.
    pub(super) fn begin(&mut self, problem: &'a Problem, tokens: usize, seconds: f64) {
        let (default, best) = (f64::INFINITY, f64::INFINITY);
        self.progress = ScheduleProgress { problem, tokens, default, best, ..self.progress };
        self.began = (self.left, self.progress.evaluations);
        self.until = if self.limited() { self.left - seconds } else { f64::NEG_INFINITY };
    }

    /// Whether after so many more evaluations the count's seconds are used up.
    pub(super) fn enough(&self, evaluations: usize) -> bool {
        if !self.limited() {
            return false;
        }
        let (left, before) = self.began;
        let each = (left - self.left) / (self.progress.evaluations - before).max(1) as f64;
        self.left - each * evaluations as f64 <= self.until
    }

    /// Tells the share of counts looked at, which is the share of time where that is not limited.
    pub(super) fn looked_at(&mut self, share: f64) {
        if !self.limited() {
            self.progress.share = share;
        }
    }

    /// Times a product of the count at hand; infinite when it cannot be run so.
    pub(super) fn time(&mut self, schedule: &Schedule) -> Result<f64, Stop<B::Error>> {
        if self.left <= 0.0 || self.left.is_nan() {
            return Err(Stop::Time);
        }
        let ScheduleProgress { problem, tokens, .. } = self.progress;
        let seconds = self.bench.time(problem, tokens, schedule).map_err(Stop::Failed)?;
        let seconds = if seconds > 0.0 { seconds } else { f64::INFINITY };
        self.progress.evaluations += 1;
        self.progress.best = self.progress.best.min(seconds);
        if self.limited() {
            self.progress.share = (1.0 - (self.left + self.kept) / self.whole).clamp(0.0, 1.0);
        }
        self.left = (self.watch)(&self.progress) - self.kept;
        Ok(seconds)
    }

    /// Times the default, twice to learn what noise there is.
    pub(super) fn default(&mut self, schedule: &Schedule) -> Result<[f64; 2], Stop<B::Error>> {
        self.progress.doing = "default";
        let one = self.time(schedule)?;
        self.progress.default = one;
        let two = self.time(schedule)?;
        if one.max(two).is_finite() {
            self.differences.push((one - two).abs() / one.min(two));
            self.noise = median(&self.differences);
        }
        self.progress.default = (one + two) / 2.0;
        Ok([one, two])
    }

    /// The share by which a repetition usually differs. A step that gains less does not pay.
    pub(super) fn noise(&self) -> f64 {
        self.noise
    }

    /// Times products in turns, each so many times: a series for each. Every other turn goes backwards, so
    /// that what one leaves behind in caches and memory meets all alike.
    pub(super) fn series(
        &mut self,
        schedules: &[&Schedule],
        repetitions: usize,
    ) -> Result<Vec<Vec<f64>>, Stop<B::Error>> {
        let mut all = vec![vec![]; schedules.len()];
        for turn in 0..repetitions {
            for at in 0..schedules.len() {
                let at = if turn % 2 == 0 { at } else { schedules.len() - 1 - at };
                all[at].push(self.time(schedules[at])?);
            }
        }
        Ok(all)
    }
}
