//! The cost of a program, by the units of a step.

use super::{Desk, Memory, Per, What};
use crate::compile::{Stage, count_waits};

/// What a program costs in one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    pub(super) terms: Vec<(Per, PlaceCounts)>,
    pub(super) waits: WaitCounts,
}

impl Cost {
    /// The cost of `program` at a desk.
    pub(crate) fn of(program: &[Stage], desk: &Desk<'_>) -> Cost {
        let plan = desk.plan;
        let (waits, global) = count_waits(program);
        // One team of several groups: all of its waits are for all groups.
        let local = if plan.places() == 1 && plan.groups.len() > 1 { 0 } else { waits - global };
        let waits = WaitCounts { local: local as u64, global: (waits - local) as u64 };
        let mut terms: Vec<(Per, PlaceCounts)> = Vec::new();
        let instrs = program.iter().flat_map(|stage| &stage.instrs);
        for line in instrs.flat_map(|instr| instr.lines(desk)) {
            let mut one =
                PlaceCounts { exchanged: line.exchanged(desk.place), ..PlaceCounts::default() };
            match line.what {
                What::Read(Memory::Weights(_), _) => one.weights = line.amount,
                What::Read(Memory::State(_), _) => one.kv = line.amount,
                _ => {}
            }
            if one == PlaceCounts::default() {
                continue;
            }
            match terms.iter_mut().find(|(per, _)| *per == line.per) {
                Some((_, sum)) => *sum += one,
                None => terms.push((line.per, one)),
            }
        }
        Cost { terms, waits }
    }
}

/// Waits of one thread.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// For its group.
    pub local: u64,
    /// For all groups.
    pub global: u64,
}

impl std::ops::AddAssign for WaitCounts {
    fn add_assign(&mut self, other: WaitCounts) {
        self.local += other.local;
        self.global += other.global;
    }
}

/// What the team of one place did. Bytes are those of all its threads together.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    /// Bytes of weights that were streamed.
    pub weights: u64,
    /// Bytes of keys and values that were read, once for each sequence of a step.
    pub kv: u64,
    /// Bytes that were read from or written to the memory of other places: summands, rows of the
    /// embedding, logits, the residual stream between stages.
    pub exchanged: u64,
}

impl std::ops::AddAssign for PlaceCounts {
    fn add_assign(&mut self, other: PlaceCounts) {
        self.weights += other.weights;
        self.kv += other.kv;
        self.exchanged += other.exchanged;
    }
}
