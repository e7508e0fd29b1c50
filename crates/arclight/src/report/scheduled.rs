//! The products of a step that a profile has schedules for, from `tune` or from a search in idle time.

use crate::term;
use arclight_engine::Engine;
use serde::Serialize;

/// Products of a step, and those that a schedule is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Scheduled {
    /// Products of a step with as many tokens as the phase's steps have on average.
    products: usize,
    /// Of them, those that a schedule is for.
    by_schedules: usize,
    /// The names of their matrices, each once.
    matrices: Vec<String>,
}

impl Scheduled {
    /// For steps of `tokens` tokens; `None` if the engine has no schedules.
    pub(super) fn of(engine: &Engine, tokens: usize) -> Option<Scheduled> {
        let plan = engine.plan();
        if plan.schedules.is_empty() {
            return None;
        }
        let shapes = engine.matrix_shapes().swap_remove(plan.level(tokens));
        let (scheduled, others): (Vec<_>, Vec<_>) = shapes.into_iter().partition(|shape| {
            plan.schedules.of(&shape.shape).last().is_some_and(|&(up_to, _)| tokens <= up_to)
        });
        let count = |shapes: &[graph::ShapeUse]| shapes.iter().map(|shape| shape.matrices).sum();
        let (by_schedules, by_rule): (usize, usize) = (count(&scheduled), count(&others));
        let matrices = scheduled.into_iter().map(|shape| shape.name).collect();
        Some(Scheduled { products: by_schedules + by_rule, by_schedules, matrices })
    }

    /// In words.
    pub(super) fn line(&self) -> String {
        let Scheduled { products, by_schedules, matrices } = self;
        match matrices.as_slice() {
            [] => format!(
                "the profile has no schedules for {} of such a step",
                term::plural(*products, "product")
            ),
            names => format!(
                "{by_schedules} of {} of a step are multiplied by schedules of the profile: {}",
                term::plural(*products, "product"),
                names.join(", ")
            ),
        }
    }
}
