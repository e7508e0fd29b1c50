//! A setting of a plan that was found: each option against the first, in turns, on the steps that it changes.
//!
//! The whole search leaves settings of the program alone; this asks about one that concerns the plan, such as how
//! its groups exchange sums. The first option stays unless another is surely faster in the sum over the kinds of
//! steps ([`faster`]).

use super::noise::{faster, median};
use super::quick::Choice;
use super::session::{Measure, Session, Stop, TuneProgress, totals};
use super::{Measured, Outcome, StepKind};
use std::ops::ControlFlow;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Its name and options, that of the plan first.
    pub choice: &'a Choice,
    /// The kinds of steps that it changes.
    pub kinds: &'a [StepKind],
    /// Repetitions of each. Below 5 nothing is ever better.
    pub repetitions: usize,
}

impl Setting<'_> {
    /// The plan with the option that is surely faster than the first, of several the fastest; as it is if none
    /// is, or `watch` stops it.
    pub fn run(
        &self,
        measure: &mut dyn Measure,
        mut plan: Outcome,
        watch: &mut dyn FnMut(&TuneProgress) -> ControlFlow<()>,
    ) -> Outcome {
        let mut session = Session::new(measure, watch, self.kinds);
        session.choices.clone_from(&plan.choices);
        session.schedules = Some(plan.schedules.clone());
        session.loaded = Some(plan.scheme.clone());
        let rounds = self.choice.options.len() * self.kinds.len() * self.repetitions;
        session.begin("settings", rounds, 0);
        let timed = self.times(&mut session, &plan);
        plan.evaluations += session.progress.evaluations;
        let Ok(times) = timed else { return plan };
        let total = |at: usize| {
            let series: Vec<&[f64]> = times[at].iter().map(Vec::as_slice).collect();
            totals(self.kinds, &series)
        };
        let first = total(0);
        let ahead = (1..times.len()).filter(|&at| faster(&total(at), &first));
        let best = ahead.min_by(|&a, &b| median(&total(a)).total_cmp(&median(&total(b))));
        if let Some(best) = best {
            let Choice { name, options } = self.choice;
            plan.choices.push((name.clone(), options[best].clone()));
            for (at, kind) in self.kinds.iter().enumerate() {
                let gain = median(&times[0][at]) / median(&times[best][at]);
                let own = |m: &&mut Measured| m.tokens == kind.tokens;
                plan.measured.iter_mut().filter(own).for_each(|m| m.after *= gain);
            }
        }
        plan
    }

    /// The times of each option and kind.
    fn times(&self, session: &mut Session<'_>, plan: &Outcome) -> Result<Vec<Vec<Vec<f64>>>, Stop> {
        let Choice { name, options } = self.choice;
        let mut times = vec![vec![vec![]; self.kinds.len()]; options.len()];
        for turn in 0..self.repetitions {
            for at in 0..options.len() {
                // There and back, so that what drifts is the same to all.
                let at = if turn % 2 == 0 { at } else { options.len() - 1 - at };
                session.choices.clone_from(&plan.choices);
                session.choices.push((name.clone(), options[at].clone()));
                for (kind, of) in self.kinds.iter().enumerate() {
                    let level = plan.table.level(of.tokens);
                    times[at][kind].push(session.time(&plan.scheme, level, kind)?);
                }
            }
        }
        Ok(times)
    }
}
