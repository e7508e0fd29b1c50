//! A few questions in the time there is: for the first start of a model, when nobody asked for tuning.
//!
//! In this order, each dropped when the time left is not enough for it:
//!
//! 1. *How many CPUs does decoding want?* Half of them, half of these, as long as that is faster;
//!    then the number between that is best, by bisection. A group's list begins with CPUs that are
//!    spread evenly over caches ([`topology::layout()`]), so so are these. This supposes that time
//!    falls and then rises with the number of threads: with two valleys the one that halving falls
//!    into is found.
//! 2. *Should a core be left free?* One CPU fewer in every group, for prompts, and for decoding where
//!    that wants all.
//! 3. *Do second hardware threads help?* Where the scheme has more CPUs than it uses by default.
//! 4. *The caller's [`Choice`]s*, one after the other, each option against the value before.
//! 5. *Other groups*, each with all CPUs: only as a whole, with a load each.
//!
//! An answer other than the default's has to be better by more than noise ([`faster`]), which takes five
//! repetitions of both. The caller knows the time and says after each evaluation what is left.

use super::finals::compared;
use super::noise::{FEWEST, faster, median};
use super::scheme::{Level, Scheme};
use super::session::{Measure, Session, Stop, TuneProgress, totals};
use super::table::Table;
use super::{Outcome, StepKind};
use crate::Error;
use crate::schedule::TunedSchedules;
use std::cell::Cell;
use std::ops::ControlFlow;

/// A setting of the program that the search knows nothing about: page size, say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What it is called.
    pub name: String,
    /// Its values, the default first; at least one.
    pub options: Vec<String>,
}

/// Groups to load a model for, and how many CPUs of each are used untuned: one of each core, say, with
/// second hardware threads at the end of the groups' lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The groups.
    pub scheme: Scheme,
    /// Used untuned.
    pub level: Level,
}

/// The quick search.
#[derive(Clone, Copy, Debug)]
pub struct Quick<'a> {
    /// How the model is served untuned.
    pub default: &'a Start,
    /// Other groups that could serve it.
    pub others: &'a [Start],
    /// Steps of decoding and of a prompt.
    pub decode: StepKind,
    /// Has more tokens than `decode`.
    pub prompt: StepKind,
    /// Settings to try.
    pub choices: &'a [Choice],
}

/// Kinds of steps in the session.
const DECODE: usize = 0;
const PROMPT: usize = 1;

struct Answers {
    levels: [Level; 2],
    /// The last series of each kind of step as it is now, and as it was untuned.
    now: [Vec<f64>; 2],
    before: [Vec<f64>; 2],
    scheme: Scheme,
}

/// Seconds that are left, and what an evaluation took of them so far.
struct Clock {
    /// Left after the first evaluation, which has loaded the model.
    start: Cell<Option<f64>>,
    left: Cell<f64>,
    evaluations: Cell<usize>,
}

impl Clock {
    /// Whether there is time for so many evaluations and loads.
    fn allows(&self, evaluations: usize, loading: f64) -> bool {
        let spent = self.start.get().map_or(0.0, |start| start - self.left.get());
        let each = spent / self.evaluations.get().saturating_sub(1).max(1) as f64;
        each * evaluations as f64 + loading <= self.left.get()
    }
}

impl Quick<'_> {
    /// Asks the questions. `left` is told after each evaluation how far it is and gives the seconds that
    /// may still be spent; when there are none the answers so far are the outcome.
    ///
    /// # Errors
    /// [`Error::NotMeasured`] when the default cannot be run; [`Error::BadKinds`] unless the prompt
    /// has more tokens than the step of decoding; [`Error::BadScheme`] for a level that is not one of
    /// its scheme, or a choice without options.
    pub fn run(
        &self,
        measure: &mut dyn Measure,
        left: &mut dyn FnMut(&TuneProgress) -> f64,
    ) -> Result<Outcome, Error> {
        self.check()?;
        let clock = Clock {
            start: Cell::new(None),
            left: Cell::new(f64::INFINITY),
            evaluations: Cell::new(0),
        };
        let mut watch = |progress: &TuneProgress| {
            let seconds = left(progress);
            clock.left.set(seconds);
            clock.evaluations.set(progress.evaluations);
            if clock.start.get().is_none() {
                clock.start.set(Some(seconds));
            }
            if seconds > 0.0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let kinds = [self.decode, self.prompt];
        let mut session = Session::new(measure, &mut watch, &kinds);
        session.choices =
            self.choices.iter().map(|c| (c.name.clone(), c.options[0].clone())).collect();
        let mut answers = Answers {
            levels: [self.default.level.clone(), self.default.level.clone()],
            now: Default::default(),
            before: Default::default(),
            scheme: self.default.scheme.clone(),
        };
        let complete = self.ask(&mut session, &clock, &mut answers);
        let never = |(_, times): &(&StepKind, &Vec<f64>)| median(times).is_infinite();
        if let Some((kind, _)) = kinds.iter().zip(&answers.before).find(never)
            && complete.is_ok()
        {
            return Err(Error::NotMeasured { tokens: kind.tokens });
        }
        let Answers { levels, now, before, scheme } = answers;
        let table = Table::of(&kinds, &[&levels[DECODE], &levels[PROMPT]]);
        let scheme = scheme.cut(&table.most());
        let mut measured = compared(
            &kinds,
            &before.each_ref().map(Vec::as_slice),
            &now.each_ref().map(Vec::as_slice),
        );
        measured.retain(|measured| measured.repetitions > 0);
        let TuneProgress { evaluations, loads, .. } = session.progress;
        Ok(Outcome {
            scheme,
            table,
            choices: session.choices,
            measured,
            evaluations,
            loads,
            complete: complete == Ok(true),
            schedules: TunedSchedules::default(),
        })
    }

    fn check(&self) -> Result<(), Error> {
        if self.decode.tokens >= self.prompt.tokens {
            return Err(Error::BadKinds);
        }
        for start in [self.default].into_iter().chain(self.others) {
            start.scheme.level(start.level.cpus().to_vec())?;
        }
        match self.choices.iter().find(|choice| choice.options.is_empty()) {
            Some(choice) => {
                Err(Error::BadScheme(format!("choice {:?} has no options", choice.name)))
            }
            None => Ok(()),
        }
    }

    /// Whether all questions were asked.
    fn ask(&self, session: &mut Session<'_>, clock: &Clock, a: &mut Answers) -> Result<bool, Stop> {
        session.begin("default", 2 * FEWEST, 8 * FEWEST);
        let steps = [(&self.default.level, DECODE), (&self.default.level, PROMPT)];
        a.before = session.series(&self.default.scheme, steps, FEWEST)?;
        a.now = a.before.clone();
        let mut all = true;
        let widest = a.levels[DECODE].cpus().iter().copied().max().unwrap_or(1);
        let halvings = widest.ilog2() as usize;
        if widest > 1 {
            all &= clock.allows(2 * halvings + 2 * FEWEST, 0.0) && self.fewer(session, a)?;
            for kind in [PROMPT, DECODE] {
                // Where decoding wants fewer CPUs, some are free.
                if a.levels[kind] == self.default.level {
                    let free = self.default.level.one_less();
                    all &= clock.allows(2 * FEWEST, 0.0) && try_level(session, a, kind, free)?;
                }
            }
        }
        let full = self.default.scheme.all();
        if full != self.default.level {
            for kind in [PROMPT, DECODE] {
                if a.levels[kind] == self.default.level {
                    let full = full.clone();
                    all &= clock.allows(2 * FEWEST, 0.0) && try_level(session, a, kind, full)?;
                }
            }
        }
        for at in 0..self.choices.len() {
            for option in &self.choices[at].options[1..] {
                let loading = 2.0 * session.load_seconds();
                all &= clock.allows(4 * FEWEST, loading) && self.option(session, a, at, option)?;
            }
        }
        for other in self.others {
            let loading = session.load_seconds();
            all &= clock.allows(2 * FEWEST, loading) && self.groups(session, a, other)?;
        }
        Ok(all)
    }

    /// Fewer CPUs for decoding: halving, then bisection.
    fn fewer(&self, session: &mut Session<'_>, a: &mut Answers) -> Result<bool, Stop> {
        session.begin("threads of decoding", 4 * FEWEST, 8 * FEWEST);
        let scheme = a.scheme.clone();
        let default = self.default.level.clone();
        let mut time = |n: usize| session.once(&scheme, &Level::at_most(&default, n), DECODE);
        let mut most = default.cpus().iter().copied().max().unwrap_or(1);
        let (mut best, mut least) = ((time(most)?, most), most / 2);
        while least > 0 {
            let seconds = time(least)?;
            if seconds >= best.0 {
                break;
            }
            (most, best) = (best.1, (seconds, least));
            least /= 2;
        }
        // The best is between `least`, which is slower, and `most`.
        while best.1 - least > 1 || most - best.1 > 1 {
            let below = best.1 - least >= most - best.1;
            let n = if below { (least + best.1) / 2 } else { (best.1 + most).div_ceil(2) };
            let seconds = time(n)?;
            match (seconds < best.0, below) {
                (true, true) => (most, best) = (best.1, (seconds, n)),
                (true, false) => (least, best) = (best.1, (seconds, n)),
                (false, true) => least = n,
                (false, false) => most = n,
            }
        }
        let level = Level::at_most(&default, best.1);
        if level == default { Ok(true) } else { try_level(session, a, DECODE, level) }
    }

    /// Another value of a choice, against the one before, over both kinds of steps.
    fn option(
        &self,
        session: &mut Session<'_>,
        a: &mut Answers,
        at: usize,
        option: &str,
    ) -> Result<bool, Stop> {
        session.begin("settings", 4 * FEWEST, 2 * FEWEST);
        let old = session.choices[at].1.clone();
        let (scheme, levels) = (a.scheme.clone(), a.levels.clone());
        let steps = [(&levels[DECODE], DECODE), (&levels[PROMPT], PROMPT)];
        let mut times: [[Vec<f64>; 2]; 2] = Default::default();
        // A choice may cost a load: so not in turns, but the old value before the new one and after it.
        let before = FEWEST.div_ceil(2);
        for (of, repetitions) in [(0, before), (1, FEWEST), (0, FEWEST - before)] {
            let value = [old.as_str(), option][of];
            value.clone_into(&mut session.choices[at].1);
            let series = session.series(&scheme, steps, repetitions);
            old.clone_into(&mut session.choices[at].1);
            times[of].iter_mut().zip(series?).for_each(|(all, new)| all.extend(new));
        }
        let [old_times, new_times] = times;
        if better(session, &new_times, &old_times) {
            option.clone_into(&mut session.choices[at].1);
            a.now = new_times;
        }
        Ok(true)
    }

    /// Other groups, as they are untuned, against the answers so far.
    fn groups(
        &self,
        session: &mut Session<'_>,
        a: &mut Answers,
        other: &Start,
    ) -> Result<bool, Stop> {
        session.begin("groups", 2 * FEWEST, 0);
        let steps = [(&other.level, DECODE), (&other.level, PROMPT)];
        let series = session.series(&other.scheme, steps, FEWEST)?;
        if better(session, &series, &a.now) {
            a.scheme = other.scheme.clone();
            a.levels = [other.level.clone(), other.level.clone()];
            a.now = series;
        }
        Ok(true)
    }
}

/// Whether decoding and prompts together, each by its weight, are surely faster.
fn better(session: &Session<'_>, new: &[Vec<f64>; 2], old: &[Vec<f64>; 2]) -> bool {
    let both = |times: &[Vec<f64>; 2]| totals(session.kinds, &times.each_ref().map(Vec::as_slice));
    faster(&both(new), &both(old))
}

/// Another level for a kind of step, if it is faster than the one it has.
fn try_level(
    session: &mut Session<'_>,
    a: &mut Answers,
    kind: usize,
    level: Level,
) -> Result<bool, Stop> {
    session.begin("threads", 2 * FEWEST, 4 * FEWEST);
    let scheme = a.scheme.clone();
    let old = a.levels[kind].clone();
    let [old, new] = session.series(&scheme, [(&old, kind), (&level, kind)], FEWEST)?;
    if faster(&new, &old) {
        a.levels[kind] = level;
        a.now[kind] = new;
    }
    Ok(true)
}
