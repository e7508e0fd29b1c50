//! Which threads take which step, and how other threads come to a model that is loaded.
//!
//! A *level* is a set of threads ([`Plan::levels`]); all that depends on it is made when the model is
//! loaded, once for each level: how matrices are cut into shares, what a step costs by the book. So a
//! step of another level differs in nothing but its number. [`Executor::rearrange`] makes it anew for
//! another order of the CPUs or other phases, which takes some milliseconds: weights, pages and buffers
//! stay, because they belong to a node and not to a thread. So does [`Executor::set_schedules`], for other ways
//! to share each product.

use crate::Phase;
use crate::error::Error;
use crate::executor::Executor;
use crate::load::WeightTable;
use crate::plan::Plan;
use crate::schedule::Schedules;
use std::ops::Range;
use threads::Pool;
use topology::{Group, Machine};

/// The levels of a plan, as a step looks them up.
pub(crate) struct Levels {
    phases: Vec<(usize, usize)>,      // most tokens, level
    team_threads: Vec<usize>,         // [level], of the largest team
    splits: Vec<Vec<(usize, usize)>>, // [level], (most tokens, runs in which columns are summed)
    forced: Option<usize>,
}

impl Levels {
    pub(crate) fn of(plan: &Plan, weight_table: &WeightTable) -> Levels {
        let phase = |phase: &Phase| (phase.tokens, plan.level(phase.tokens));
        let largest = |level| plan.teams_at(level).iter().map(Range::len).max().unwrap_or(1);
        Levels {
            phases: plan.phases.iter().map(phase).collect(),
            team_threads: (0..plan.levels().len()).map(largest).collect(),
            splits: (0..plan.levels().len()).map(|level| weight_table.splits(level)).collect(),
            forced: None,
        }
    }

    /// The level of a step.
    pub(crate) fn of_step(&self, tokens: usize) -> usize {
        let planned = || self.phases.iter().find(|(most, _)| tokens <= *most);
        let all = self.team_threads.len() - 1;
        self.forced.unwrap_or_else(|| planned().map_or(all, |(_, level)| *level))
    }

    /// Forces the level that another table of the same plan's levels forces.
    pub(crate) fn keep_forced(&mut self, other: &Levels) {
        self.forced = other.forced;
    }

    /// Whether one is forced.
    pub(crate) fn is_forced(&self) -> bool {
        self.forced.is_some()
    }

    /// In how many runs a step of so many tokens sums columns.
    pub(crate) fn splits(&self, level: usize, tokens: usize) -> usize {
        let asked = self.splits[level].iter().find(|(most, _)| tokens <= *most);
        asked.map_or(1, |(_, splits)| *splits)
    }

    /// Threads of the largest team at a level.
    pub(crate) fn team_threads(&self, level: usize) -> usize {
        self.team_threads[level]
    }
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
    /// When the groups are not those of the present plan but for the CPUs, the phases are malformed, a
    /// schedule cannot be with the new teams, or a thread cannot be had; nothing is changed then.
    pub fn rearrange(
        &mut self,
        groups: Vec<Group>,
        phases: Vec<Phase>,
        machine: &Machine,
    ) -> Result<(), Error> {
        let old = self.plan();
        let alike = |(a, b): (&Group, &Group)| a.node == b.node && a.cpus.len() == b.cpus.len();
        if old.groups.len() != groups.len() || !old.groups.iter().zip(&groups).all(alike) {
            return Err(Error::OtherGroups);
        }
        let plan = Plan { groups, phases, ..old.clone() };
        plan.check()?;
        let pool = Pool::new(&plan.pool(machine))?;
        self.adopt(plan, Some(pool), 1)?;
        self.machine = machine.clone();
        Ok(())
    }

    /// Multiplies by other schedules from the next step on. Counts begin anew, a recording ends, and the
    /// last step's logits are gone; nothing else changes. (A variant that was forced and is of no use any more,
    /// because nobody asks for its splits, is forgotten.)
    ///
    /// # Errors
    /// When a schedule cannot be, or a node has too little memory for the summands that it makes; nothing
    /// is changed then.
    pub fn set_schedules(&mut self, schedules: Schedules) -> Result<(), Error> {
        let plan = Plan { schedules, ..self.plan().clone() };
        plan.check()?;
        self.adopt(plan, None, 1)
    }

    /// From how many nodes on sums over nodes of many rows are scattered ([`Plan::scatter_nodes`]), from the
    /// next step on. Counts begin anew, as by [`Executor::set_schedules`]; results are the same bits.
    ///
    /// # Errors
    /// When a node has too little memory for the buffers of another form; nothing is changed then.
    pub fn set_scatter_nodes(&mut self, nodes: usize) -> Result<(), Error> {
        let plan = Plan { scatter_nodes: nodes, ..self.plan().clone() };
        self.adopt(plan, None, 1)
    }
}
