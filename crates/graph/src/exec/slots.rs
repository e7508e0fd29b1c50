//! Slots of mixtures of experts.
//!
//! A *slot* is a token with one of its experts. Slots are sorted by expert, and by token within one, by
//! every thread for itself, so an expert's rows lie next to each other. Up: experts and their tiles are
//! dealt over the node's threads by what they cost; each thread gathers the rows of an expert's tokens and
//! multiplies as any gated product. Down: every thread has some tiles of the output for all experts and
//! adds up their products, in the order of [`Bank`]: so no two threads add to one sum.

use super::Thread;
use super::access::Source;
use crate::bank::Bank;
use crate::deal::Shard;
use crate::plan::Mode;
use crate::tables::Tables;
use crate::tally::Tally;
use crate::weight::{Matrix, MatrixId, VectorId};
use std::ops::Range;

/// Rows of an expert that are gathered and multiplied at a time.
pub(crate) const CHUNK: usize = 64;

/// u32 of scratch in which a thread sorts slots.
pub(crate) fn sorting_room(tables: &Tables, bank: MatrixId, slots: usize) -> usize {
    let experts = tables.matrix(bank).bank.as_ref().map_or(0, |bank| bank.experts);
    2 * experts + 1 + slots
}

/// The slots of a part of a step.
pub(crate) struct Slots<'a> {
    /// Where those of each expert begin, and where the last end.
    bounds: &'a [u32],
    /// Experts that have some, ascending.
    used: &'a [u32],
    /// Of each slot: its token times `count`, plus the expert's place among the token's.
    from: &'a [u32],
    count: usize,
}

impl<'a> Slots<'a> {
    pub(crate) fn sort(table: &'a mut [u32], chosen: Chosen<'_>, experts: usize) -> Slots<'a> {
        let Chosen { of: chosen, count, tokens } = chosen;
        let (bounds, rest) = table.split_at_mut(experts + 1);
        let (used, rest) = rest.split_at_mut(experts);
        let from = &mut rest[..tokens * count];
        bounds.fill(0);
        let of = |token: usize| chosen.row(token, 2 * count)[..count].iter().map(|e| *e as usize);
        (0..tokens).flat_map(of).for_each(|expert| bounds[expert] += 1);
        let (mut before, mut known) = (0, 0);
        for (expert, bound) in bounds[..experts].iter_mut().enumerate() {
            if *bound > 0 {
                used[known] = expert as u32;
                known += 1;
            }
            (*bound, before) = (before, before + *bound);
        }
        bounds[experts] = before;
        for token in 0..tokens {
            for (place, expert) in of(token).enumerate() {
                from[bounds[expert] as usize] = (token * count + place) as u32;
                bounds[expert] += 1;
            }
        }
        // Each bound has moved to where the next one was.
        bounds.copy_within(..experts, 1);
        bounds[0] = 0;
        Slots { bounds, used: &used[..known], from, count }
    }

    pub(crate) fn of(&self, expert: usize) -> Range<usize> {
        self.bounds[expert] as usize..self.bounds[expert + 1] as usize
    }

    /// Experts with slots, ascending, and their slots.
    pub(crate) fn used(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.used.iter().map(|&expert| (expert as usize, self.of(expert as usize)))
    }

    pub(crate) fn token(&self, slot: usize) -> usize {
        self.from[slot] as usize / self.count
    }

    /// The weight of a slot.
    pub(crate) fn weight(&self, slot: usize, chosen: Source<'_>) -> f32 {
        let (token, place) = (self.token(slot), self.from[slot] as usize % self.count);
        chosen.row(token, 2 * self.count)[self.count + place]
    }
}

/// A step's choice of experts.
#[derive(Copy, Clone)]
pub(crate) struct Chosen<'a> {
    /// For each token, the numbers of its experts and then their weights.
    pub of: Source<'a>,
    /// Experts of a token.
    pub count: usize,
    /// Tokens.
    pub tokens: usize,
}

impl Thread<'_> {
    /// Tells which experts a part of the step goes to; one thread does.
    pub(crate) fn note(&self, slots: &Slots<'_>, route: usize) {
        let here = self.place == 0 || self.step.plan.mode == Mode::Pipeline;
        let tally: Option<&Tally> = self.tally.filter(|_| self.rank == 0 && here);
        if let Some(tally) = tally {
            tally.note(self.part, route, slots.bounds.windows(2).map(|b| (b[1] - b[0]) as usize));
        }
    }

    /// Multiplies products by the scale of their expert's matrix.
    pub(crate) fn expert_scale(&self, scale: Option<VectorId>, expert: usize, to: &mut [f32]) {
        if let Some(scale) = scale {
            self.step.kernels.scale(to, self.step.weights.vector(scale, self.group)[expert]);
        }
    }

    /// The matrix of a bank, and what the node has of it.
    pub(crate) fn bank(&self, id: MatrixId) -> (&Shard, &Matrix, &Bank) {
        let matrix = self.step.tables.matrix(id);
        let bank = matrix.bank.as_ref().expect("a bank of experts");
        (self.step.weights.shard(id, self.node, self.group), matrix, bank)
    }
}
