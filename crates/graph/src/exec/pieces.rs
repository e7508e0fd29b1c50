//! The pieces of states of fixed size, and how they are dealt.
//!
//! A state is pieces: channels of a convolution, slices of a head. A thread has runs of pieces of each
//! sequence of the step, about as much work as any other, and goes through all of the sequence's tokens with
//! them. No two threads have a piece in common, and a token's bits depend on the tokens before it alone.

use super::Thread;
use crate::step::{Class, StateRun};
use std::ops::Range;

/// Tokens that take as long as it takes to bring a state near, about.
const BRING: usize = 2;

/// A thread's pieces of each sequence, of which each has `pieces`: number `rank` of `size` shares.
pub(crate) fn deal_pieces(
    runs: &[StateRun],
    pieces: usize,
    rank: usize,
    size: usize,
) -> impl Iterator<Item = (&StateRun, Range<usize>)> {
    let cost = |run: &StateRun| run.tokens.len() + BRING;
    let total: usize = runs.iter().map(|run| pieces * cost(run)).sum();
    let mine = total * rank / size..total * (rank + 1) / size;
    let mut before = 0;
    runs.iter().filter_map(move |run| {
        let cost = cost(run);
        let first = |bound: usize| bound.saturating_sub(before).div_ceil(cost).min(pieces);
        let own = first(mine.start)..first(mine.end);
        before += pieces * cost;
        (!own.is_empty()).then_some((run, own))
    })
}

impl Thread<'_> {
    /// The step in the class of a state.
    pub(crate) fn class_of(&self, state: usize) -> &Class {
        &self.input.classes[self.step.tables.states[state].class]
    }
}
