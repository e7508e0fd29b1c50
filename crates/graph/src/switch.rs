//! Which threads take which step, and how other threads come to a model that is loaded.
//!
//! A *level* is a set of threads ([`Plan::levels`]); all that depends on it is made when the model is
//! loaded, once for each level: how matrices are cut into shares, what a step costs by the book. So a
//! step of another level differs in nothing but its number. [`Executor::rearrange`] makes it anew for
//! another order of the CPUs or other phases, which takes some milliseconds: weights, pages and buffers
//! stay, because they belong to a node and not to a thread.

use crate::Phase;
use crate::builder::Graph;
use crate::compile::Stage;
use crate::counts::Cost;
use crate::error::Error;
use crate::exec::{Near, Replica};
use crate::executor::{Executor, replicate};
use crate::plan::{Plan, PlanGroup};
use crate::stages::Spans;
use crate::storage::Limits;
use std::ops::Range;
use threads::Pool;
use topology::Machine;

/// The levels of a plan, as a step looks them up.
pub(crate) struct Levels {
    phases: Vec<(usize, usize)>, // most tokens, level
    team_threads: Vec<usize>,    // [level], of the largest team
    forced: Option<usize>,
}

impl Levels {
    pub(crate) fn of(plan: &Plan) -> Levels {
        let phase = |phase: &Phase| (phase.tokens, plan.level(phase.tokens));
        let largest = |level| plan.teams_at(level).iter().map(Range::len).max().unwrap_or(1);
        Levels {
            phases: plan.phases.iter().map(phase).collect(),
            team_threads: (0..plan.levels().len()).map(largest).collect(),
            forced: None,
        }
    }

    /// The level of a step.
    pub(crate) fn of_step(&self, tokens: usize) -> usize {
        let planned = || self.phases.iter().find(|(most, _)| tokens <= *most);
        let all = self.team_threads.len() - 1;
        self.forced.unwrap_or_else(|| planned().map_or(all, |(_, level)| *level))
    }

    /// Threads of the largest team at a level.
    pub(crate) fn team_threads(&self, level: usize) -> usize {
        self.team_threads[level]
    }
}

/// What a program costs: `[level][place]`.
pub(crate) fn costs(
    stages: &[Vec<Stage>],
    graph: &Graph,
    plan: &Plan,
    spans: &Spans,
    limits: Limits,
) -> Vec<Vec<Cost>> {
    let cost = |level: usize, place: usize| {
        let program = &stages[place.min(stages.len() - 1)];
        Cost::of(program, graph, plan, spans, limits, (level, place))
    };
    let of_level = |level| (0..plan.places()).map(|place| cost(level, place)).collect();
    (0..plan.levels().len()).map(of_level).collect()
}

impl Executor {
    /// Makes every following step be taken by the threads of this level ([`Plan::levels`]); `None`
    /// leaves the choice to the plan again. For searches and tests: all levels give the same bits.
    ///
    /// # Panics
    /// When the plan has no such level.
    pub fn force_level(&mut self, level: Option<usize>) {
        let levels = self.levels.team_threads.len();
        assert!(level.is_none_or(|level| level < levels), "level {level:?} of {levels}");
        self.levels.forced = level;
    }

    /// Pins the threads to CPUs in another order, or changes which of them take which steps. The model
    /// stays as it is; counts begin anew and a recording ends.
    ///
    /// # Errors
    /// When the groups are not those of the present plan but for the CPUs, the phases are malformed, or a
    /// thread cannot be had; nothing is changed then.
    pub fn rearrange(
        &mut self,
        groups: Vec<PlanGroup>,
        phases: Vec<Phase>,
        machine: &Machine,
    ) -> Result<(), Error> {
        let old = self.plan();
        let alike =
            |(a, b): (&PlanGroup, &PlanGroup)| a.node == b.node && a.cpus.len() == b.cpus.len();
        if old.groups.len() != groups.len() || !old.groups.iter().zip(&groups).all(alike) {
            return Err(Error::OtherGroups);
        }
        let plan = Plan { groups, phases, ..old.clone() };
        plan.check()?;
        let spans = Spans::new(self.graph(), &plan)?;
        let mut pool = Pool::new(&plan.pool(machine))?;
        let mut first = (*self.replicas[0]).clone();
        for form in first.programs.values_mut() {
            form.costs = costs(&form.stages, &first.graph, &plan, &spans, self.limits());
        }
        first.shelves.deal(&plan);
        let levels = Levels::of(&plan);
        let replicas: Vec<Near> = replicate(Replica { plan, ..first }, &mut pool)?;
        // From here on nothing fails.
        (self.replicas, self.pool, self.levels) = (replicas, pool, levels);
        (self.recorder, self.strayed) = (None, false);
        self.reset_counts(); // Replicas were made by the threads.
        Ok(())
    }
}
