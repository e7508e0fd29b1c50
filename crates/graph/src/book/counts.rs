//! What steps have cost by the book: waits, bytes streamed, bytes exchanged between places.
//!
//! Sums follow from the programs and the extents of the steps, so they can be held against what the
//! pool, the kernel and the machine's counters have measured.

use super::{Choice, Extent, Per, PlaceCounts, RowsOf, WaitCounts};
use crate::exec::{Replica, StepPart};
use crate::plan::{Mode, Plan};
use crate::weight::MatrixId;

/// Sums over all steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps.
    pub steps: u64,
    /// Tokens in them.
    pub tokens: u64,
    /// One entry per place.
    pub places: Vec<PlaceCounts>,
    /// Waits of each thread that took part, by the level of the steps ([`Plan::level`]):
    /// `[level][place]`.
    pub waits: Vec<Vec<WaitCounts>>,
    /// Waits of each thread before other threads took the steps ([`Executor::leave_out`](crate::Executor::leave_out));
    /// empty if it was never so.
    pub earlier: Vec<WaitCounts>, // [thread]
}

impl Counts {
    /// Nothing yet.
    pub(crate) fn new(plan: &Plan) -> Counts {
        let places = vec![PlaceCounts::default(); plan.places()];
        let waits = vec![vec![WaitCounts::default(); plan.places()]; plan.levels().len()];
        Counts { places, waits, ..Counts::default() }
    }

    /// Waits of each thread of a place that takes part from a level on ([`Plan::first_level`]).
    pub fn waits_from(&self, level: usize, place: usize) -> WaitCounts {
        let mut all = WaitCounts::default();
        self.waits[level..].iter().for_each(|level| all += level[place]);
        all
    }

    /// All waits of each thread of the plan by which the last steps were taken: `[thread]`.
    pub fn waits_of_threads(&self, plan: &Plan) -> Vec<WaitCounts> {
        let sizes = plan.groups.iter().enumerate();
        let threads =
            sizes.flat_map(|(group, of)| (0..of.cpus.len()).map(move |rank| (group, rank)));
        let waits = threads.enumerate().map(|(thread, (group, rank))| {
            let place = if plan.places() == 1 { 0 } else { group };
            let mut all = self.earlier.get(thread).copied().unwrap_or_default();
            all += self.waits_from(plan.first_level(group, rank), place);
            all
        });
        waits.collect()
    }

    /// Goes on with another plan of the same groups.
    pub(crate) fn carry_on(&mut self, from: &Plan, to: &Plan) {
        self.earlier = self.waits_of_threads(from);
        self.waits = Counts::new(to).waits;
    }

    /// Adds one step that was executed in `parts` by the threads of a level.
    pub(crate) fn add(&mut self, replica: &Replica, parts: &[StepPart<'_>], level: usize) {
        let plan = &replica.plan;
        self.steps += 1;
        let several = plan.places() > 1;
        let stages = if plan.mode == Mode::Pipeline { plan.groups.len() } else { 1 };
        // The scatter or a pipeline's switch to groups, and the meetings between rounds of a pipeline.
        let meetings = u64::from(several) + (parts.len() + stages - 2) as u64;
        for to in &mut self.waits[level] {
            to.global += meetings;
        }
        for part in parts {
            let extent = Extent::of(part.input);
            self.tokens += extent.tokens;
            let costs = &replica.programs[&part.variant].costs[level];
            for (to, cost) in self.waits[level].iter_mut().zip(costs) {
                *to += cost.waits;
            }
            for (to, cost) in self.places.iter_mut().zip(costs) {
                for (per, one) in &cost.terms {
                    let units = match *per {
                        Per::Lookup(table, home) => looked_up(replica, part, table, home),
                        Per::Expert(choice) => chosen(part, choice)[0],
                        Per::Slot(choice) => chosen(part, choice)[1],
                        Per::Adapter(number) => adapted(part, number, RowsOf::Tokens).min(1),
                        Per::Adapted(number, rows) => adapted(part, number, rows),
                        per => extent.units(per),
                    };
                    to.weights += one.weights * units;
                    to.kv += one.kv * units;
                    to.exchanged += one.exchanged * units;
                }
            }
        }
    }
}

/// Experts of a class that a part of a step chose, and how often.
fn chosen(part: &StepPart<'_>, choice: Choice) -> [u64; 2] {
    part.tally.map_or([0, 0], |tally| tally.units(part.at, choice))
}

/// Rows of a part of a step that have an adapter.
fn adapted(part: &StepPart<'_>, adapter: u32, of: RowsOf) -> u64 {
    let (logits, uses) = (part.input.logits as u32, &part.input.uses);
    let (uses, rows) = match of {
        RowsOf::Tokens => (&uses[0], 0..u32::MAX),
        RowsOf::Outputs => (&uses[1], 0..u32::MAX),
        RowsOf::Logits => (&uses[1], 0..logits),
        RowsOf::Hidden => (&uses[1], logits..u32::MAX),
    };
    let own = uses.iter().filter(|one| one.adapter == adapter);
    own.map(|one| one.rows.end.min(rows.end).saturating_sub(one.rows.start.max(rows.start)))
        .map(u64::from)
        .sum()
}

/// Tokens whose rows of a table lie in a place.
fn looked_up(replica: &Replica, part: &StepPart<'_>, table: MatrixId, home: usize) -> u64 {
    let cut = &replica.graph.matrix(table).parts[0].cut;
    let tokens = part.input.tokens.iter();
    match cut.nodes() {
        1 => tokens.count() as u64,
        _ => tokens.filter(|token| cut.owner(token.id as usize) == home).count() as u64,
    }
}
