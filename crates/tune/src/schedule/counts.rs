//! Which numbers of tokens are looked at, what is remembered of them, and when schedules have settled.
//!
//! Each count up to [`Scheduler::each`](super::Scheduler), then four in each power of two, the largest,
//! and those of the trace. Schedules change with every token while there are few of them and hardly
//! where there are many, so once they agree only counts twice as large as the last are looked at.

use super::table::Compared;
use crate::tuner::StepKind;
use graph::{Schedule, Slice};
use kernels::MatKernel;
use std::collections::BTreeMap;

/// The counts that are looked at while schedules differ, ascending.
pub(super) fn planned(largest: usize, each: usize, kinds: &[StepKind]) -> Vec<usize> {
    let mut counts: Vec<usize> = (1..=each.max(1).min(largest)).collect();
    let mut count = each.max(1);
    while count < largest {
        counts.push(count);
        count += (1 << count.ilog2() >> 2).max(1);
    }
    counts.push(largest);
    counts.extend(kinds.iter().map(|kind| kind.tokens as usize).filter(|&t| t > 0 && t < largest));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// What a count's search found.
#[derive(Clone, Debug)]
pub(super) struct Looked {
    /// The best by the search; its slices have the most tokens of a step where they took all of a part.
    pub(super) winner: Schedule,
    /// It, if it stood the finals; without it the default stays.
    pub(super) proven: Option<Schedule>,
    pub(super) compared: Compared,
    /// The seconds that the search had, if it was cut short.
    pub(super) cut: Option<f64>,
}

/// A micro-kernel, or the choice of the kernels.
type Kernel = Option<MatKernel>;

/// The counts looked at of one problem.
pub(super) type Memory = BTreeMap<usize, Looked>;

/// The micro-kernels to try with so many tokens: those that won at the last counts below; all of them
/// (`None`) while fewer counts are known, and with a window of 0.
pub(super) fn window(memory: &Memory, tokens: usize, width: usize) -> Option<Vec<Kernel>> {
    let last: Vec<Kernel> =
        memory.range(..tokens).rev().take(width).map(|(_, l)| l.winner.how.kernel).collect();
    (width > 0 && last.len() >= width).then_some(last)
}

/// Whether the last `of` counts, up to this one, agree.
pub(super) fn settled(memory: &Memory, tokens: usize, of: usize, alike: f64) -> bool {
    let last: Vec<&Schedule> =
        memory.range(..=tokens).rev().take(of).map(|(_, looked)| &looked.winner).collect();
    of > 0 && last.len() >= of && agree(&last, alike)
}

/// Whether schedules agree: the same micro-kernel and grid, and slices that differ from their mean by at
/// most the share `alike`.
pub(super) fn agree(all: &[&Schedule], alike: f64) -> bool {
    let alike = |size: fn(Slice) -> usize| {
        let sizes: Vec<f64> = all.iter().map(|s| s.slice.map_or(0, size) as f64).collect();
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        sizes.iter().all(|size| (size - mean).abs() <= alike * mean)
    };
    let same = |a: &Schedule, b: &Schedule| a.how.kernel == b.how.kernel && a.grid == b.grid;
    all.windows(2).all(|pair| same(pair[0], pair[1]))
        && alike(|slice| slice.tiles)
        && alike(|slice| slice.tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::Grid;
    use kernels::How;

    #[test]
    fn few_tokens_are_looked_at_one_by_one_and_many_by_quarters() {
        let kind = |tokens| StepKind { tokens, depth: 0, weight: 1.0 };
        assert_eq!(planned(1, 16, &[]), [1]);
        assert_eq!(planned(5, 16, &[kind(3), kind(9)]), [1, 2, 3, 4, 5]);
        let counts = planned(100, 16, &[kind(33), kind(0), kind(128)]);
        assert_eq!(counts[..16], (1..=16).collect::<Vec<_>>());
        assert_eq!(counts[16..], [20, 24, 28, 32, 33, 40, 48, 56, 64, 80, 96, 100]);
        assert_eq!(planned(512, 16, &[]).len(), 36);
        // Where quarters are no whole numbers they are ones.
        assert_eq!(planned(9, 0, &[]), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    /// Tokens, kernel, tiles of the slice and splits.
    fn memory(of: &[(usize, &str, usize, usize)]) -> Memory {
        let looked = |&(tokens, kernel, tiles, splits): &(usize, &str, usize, usize)| {
            let winner = Schedule {
                how: How { kernel: Some(kernel.parse().unwrap()), ahead: 0 },
                slice: Some(Slice { tiles, tokens: 4 }),
                grid: Grid { tokens: 1, splits },
            };
            let compared = Compared { tokens, default: 1.0, tuned: 1.0, repetitions: 2 };
            (tokens, Looked { winner, proven: None, compared, cut: None })
        };
        of.iter().map(looked).collect()
    }

    #[test]
    fn a_window_has_the_winners_below_and_opens_when_it_is_full() {
        let memory =
            memory(&[(1, "1x1", 1, 1), (2, "1x2", 1, 1), (3, "1x3", 1, 1), (64, "1x4", 1, 1)]);
        let names = |names: &[&str]| Some(names.iter().map(|n| n.parse().ok()).collect::<Vec<_>>());
        assert_eq!(window(&memory, 4, 3), names(&["1x3", "1x2", "1x1"]));
        assert_eq!(window(&memory, 4, 2), names(&["1x3", "1x2"]));
        assert_eq!(window(&memory, 3, 3), None);
        assert_eq!(window(&memory, 65, 2), names(&["1x4", "1x3"]));
        assert_eq!(window(&memory, 65, 0), None);
    }

    #[test]
    fn schedules_have_settled_when_the_last_agree() {
        let same = [
            (1, "1x2", 9, 9),
            (5, "1x1", 8, 2),
            (6, "1x1", 8, 2),
            (7, "1x1", 10, 2),
            (9, "1x3", 1, 1),
        ];
        assert!(settled(&memory(&same), 7, 3, 0.25));
        // Another kernel among the last four; slices of 8 to 10 differ; too few of them.
        assert!(!settled(&memory(&same), 7, 4, 0.25));
        assert!(!settled(&memory(&same), 7, 3, 0.1));
        assert!(!settled(&memory(&same[2..]), 7, 3, 0.25));
        assert!(!settled(&memory(&same), 9, 3, 0.25));
        let mut other = same;
        other[2].3 = 4;
        assert!(!settled(&memory(&other), 7, 3, 0.25), "another grid");
    }
}
