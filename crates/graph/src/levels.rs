//! The levels of a plan, as a step looks them up.

use crate::load::WeightTable;
use crate::plan::{Phase, Plan};
use std::ops::Range;

/// The levels of a plan, as a step looks them up.
pub(crate) struct Levels {
    phases: Vec<(usize, usize)>,      // most tokens, level
    pub team_threads: Vec<usize>,     // [level], of the largest team
    splits: Vec<Vec<(usize, usize)>>, // [level], (most tokens, runs in which columns are summed)
    pub forced: Option<usize>,
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
