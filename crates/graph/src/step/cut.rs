//! Parts of a step, which follow each other through a pipeline.

use super::{Outputs, SeqInput};
use std::ops::Range;

/// Each sequence with those of its tokens that are among tokens `range` of the step.
pub(crate) fn within<'s>(
    sequences: impl Iterator<Item = SeqInput<'s>> + Clone,
    range: Range<usize>,
) -> impl Iterator<Item = (SeqInput<'s>, Range<usize>)> + Clone {
    let mut next = 0;
    sequences.map(move |s| {
        let first = next;
        next += s.tokens.len();
        let [begin, end] = [range.start, range.end].map(|at| at.clamp(first, next) - first);
        (s, begin..end)
    })
}

/// The pieces of `sequences` that hold tokens `range` of the step.
pub(crate) fn cut<'s>(
    sequences: impl Iterator<Item = SeqInput<'s>> + Clone,
    range: Range<usize>,
) -> impl Iterator<Item = SeqInput<'s>> + Clone {
    within(sequences, range).filter_map(|(s, own)| {
        if own.is_empty() {
            return None;
        }
        let len = s.tokens.len();
        let outputs = match s.outputs {
            Outputs::Last | Outputs::LastHidden if own.end < len => Outputs::None,
            // Of the tail what lies in this piece.
            Outputs::Tail(n) => match (own.end + n).saturating_sub(len) {
                0 => Outputs::None,
                n => Outputs::Tail(n),
            },
            outputs => outputs,
        };
        Some(SeqInput { tokens: &s.tokens[own.clone()], past: s.past + own.start, outputs, ..s })
    })
}
