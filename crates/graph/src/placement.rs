//! Where a tensor lives: placements and the cutting of a dimension over memory nodes.
//!
//! A placement is declared, never discovered: every operator states what it takes and gives, and
//! the compiler derives from it who must wait for whom (the splits are those of the
//! ArcLight paper, §3.2).

use std::fmt;
use std::ops::Range;

/// Where the data of a bundle lives and how its parts relate.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// One copy, on the home node (index into the plan's groups).
    Whole(usize),
    /// A full copy on every node.
    Replicated,
    /// Each node holds a slice of the last dimension.
    Split,
    /// Each node holds a summand of the whole width; the value is their sum.
    Partial,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Whole(node) => write!(f, "whole@{node}"),
            Placement::Replicated => f.write_str("replicated"),
            Placement::Split => f.write_str("split"),
            Placement::Partial => f.write_str("partial"),
        }
    }
}

/// How much of the work each node takes, usually its number of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares(Vec<usize>);

impl Shares {
    /// One weight per node; a node of weight 0 takes nothing.
    ///
    /// # Panics
    /// When there is no node or all weights are 0.
    pub fn new(weights: Vec<usize>) -> Shares {
        assert!(weights.iter().any(|&w| w > 0), "somebody must do the work");
        Shares(weights)
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.0.len()
    }

    /// The nodes' inner bounds on `candidates` (ascending, from 0 to the length): each as near to
    /// the exact share as there is a candidate. `[nodes + 1]`, never descending.
    fn bounds(&self, candidates: &[usize]) -> Vec<usize> {
        let len = *candidates.last().expect("at least the end") as u128;
        let total = self.0.iter().sum::<usize>() as u128;
        let mut before = 0;
        let mut bounds: Vec<usize> = self
            .0
            .iter()
            .map(|&weight| {
                let exact = len * before; // in units of 1 / total
                before += weight as u128;
                let off = |c: &&usize| (**c as u128 * total).abs_diff(exact);
                *candidates.iter().min_by_key(off).expect("not empty")
            })
            .collect();
        bounds.push(len as usize);
        bounds
    }
}

impl From<usize> for Shares {
    /// `nodes` nodes (at least one) that take equal shares.
    fn from(nodes: usize) -> Shares {
        Shares(vec![1; nodes.max(1)])
    }
}

/// A dimension shared by the nodes in whole units: node `n` holds `range(n)`, which may be empty.
///
/// A dimension that is summed over is also cut into segments, whose number and bounds do not depend
/// on the nodes; every node holds whole segments. Segments are summed apart and added up in a
/// binary tree (see [`Sum`](crate::Sum)), so any number of nodes gives the same bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    ranges: Vec<Range<usize>>, // [nodes], ascending; overlapping where elements are replicated
    segments: Vec<usize>,      // bounds, ascending; empty where nobody sums
}

/// Segments of a summed dimension of `len` columns: more of them balance odd numbers of nodes better
/// and cost more additions. Multiples of eight, so that 2, 4 and 8 nodes have equal shares, and 24
/// where the dimension is wide enough, for 3 and 6. A segment is not narrower than 256 columns then,
/// 8 blocks of weights, beside which the addition of its sum is small.
fn segments(len: usize) -> usize {
    (len / 256 / 8 * 8).clamp(8, 24)
}

impl Cut {
    /// Shares a dimension that nobody sums over in units of `unit`; the last unit may be short.
    pub fn rows(len: usize, unit: usize, shares: &Shares) -> Cut {
        let units = len.div_ceil(unit.max(1));
        let candidates: Vec<usize> = (0..=units).map(|u| (u * unit).min(len)).collect();
        Cut { ranges: windows(&shares.bounds(&candidates)), segments: Vec::new() }
    }

    /// Shares a dimension of `len` elements of `width` columns that is summed over, in units of
    /// `unit` elements; the last unit may be short.
    pub fn summed(len: usize, unit: usize, width: usize, shares: &Shares) -> Cut {
        let units = len.div_ceil(unit.max(1));
        let leaves = segments(len * width).min(units).max(1);
        // Long and short segments alternate, so that halves of their number are halves of the length.
        let segments: Vec<usize> =
            (0..=leaves).map(|i| (i * units / leaves * unit).min(len)).collect();
        Cut { ranges: windows(&shares.bounds(&segments)), segments }
    }

    /// Shares `q` query heads of `dim` columns, in units of `unit` heads. `group` of them read one
    /// key/value head: nodes are cut between groups where that balances, within groups otherwise,
    /// and both nodes hold the key/value head then.
    pub fn heads(q: usize, group: usize, unit: usize, dim: usize, shares: &Shares) -> Cut {
        // Whole groups in whole units, and the pieces that such a run is cut into for summing.
        let coarse = lcm(unit, group);
        let runs = q.div_ceil(coarse);
        let leaves = segments(q * dim);
        let (segments, between) = if runs >= leaves {
            let cut = Cut::summed(q, coarse, dim, shares);
            (cut.segments.clone(), cut.segments)
        } else {
            let pieces = leaves.div_ceil(runs);
            let mut segments = vec![0];
            for run in 0..runs {
                let heads = run * coarse..((run + 1) * coarse).min(q);
                let units = heads.len().div_ceil(unit);
                let pieces = pieces.min(units);
                let bound = |i: usize| (heads.start + i * units / pieces * unit).min(heads.end);
                segments.extend((1..=pieces).map(bound));
            }
            (segments, (0..=runs).map(|r| (r * coarse).min(q)).collect())
        };
        let widest = |bounds: &[usize]| {
            let load = |(range, &weight): (&[usize], &usize)| {
                let heads = range[1] - range[0];
                // A node without threads must have no heads.
                if weight == 0 { heads as f64 * 1e9 } else { heads as f64 / weight as f64 }
            };
            bounds.windows(2).zip(&shares.0).map(load).fold(0.0, f64::max)
        };
        let (whole, within) = (shares.bounds(&between), shares.bounds(&segments));
        // A replicated key/value head costs memory and its projection: it must be worth a fifth.
        let bounds = if widest(&within) < 0.8 * widest(&whole) { within } else { whole };
        Cut { ranges: windows(&bounds), segments }
    }

    /// Shares a dimension that is summed over by its segments, which are given by their bounds: node `n`
    /// takes the segments `runs[n]`.
    pub(crate) fn of_segments(segments: Vec<usize>, runs: &[Range<usize>]) -> Cut {
        let range = |run: &Range<usize>| segments[run.start]..segments[run.end];
        Cut { ranges: runs.iter().map(range).collect(), segments }
    }

    /// Runs of `count` things, one for each node of `shares`.
    pub(crate) fn runs(count: usize, shares: &Shares) -> Vec<Range<usize>> {
        windows(&shares.bounds(&(0..=count).collect::<Vec<_>>()))
    }

    /// Ranges that may overlap, of a dimension that nobody sums over.
    pub fn replicated(ranges: Vec<Range<usize>>) -> Cut {
        Cut { ranges, segments: Vec::new() }
    }

    /// The same cut of a dimension in which every element of this one is `factor` long.
    pub fn scaled(&self, factor: usize) -> Cut {
        let ranges = self.ranges.iter().map(|r| r.start * factor..r.end * factor).collect();
        Cut { ranges, segments: self.segments.iter().map(|b| b * factor).collect() }
    }

    /// The segments of node `n`, in order.
    pub fn segments(&self, n: usize) -> impl Iterator<Item = Range<usize>> {
        let own = self.leaves(n);
        self.segments.windows(2).map(|w| w[0]..w[1]).skip(own.start).take(own.len())
    }

    /// Numbers of the segments of node `n`.
    pub fn leaves(&self, n: usize) -> Range<usize> {
        let at = |bound: usize| self.segments.partition_point(|&s| s < bound);
        let Range { start, end } = self.range(n);
        if start == end { at(start)..at(start) } else { at(start)..at(end) }
    }

    /// Number of segments in all.
    pub fn leaf_count(&self) -> usize {
        self.segments.len().saturating_sub(1)
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.ranges.len()
    }

    /// The part of node `n`.
    pub fn range(&self, n: usize) -> Range<usize> {
        self.ranges[n].clone()
    }

    /// The length of node `n`'s part.
    pub fn len(&self, n: usize) -> usize {
        self.ranges[n].len()
    }

    /// What node `n` holds and no node before it.
    pub fn first_held(&self, n: usize) -> Range<usize> {
        let before = self.ranges[..n].iter().map(|r| r.end).max().unwrap_or(0);
        let Range { start, end } = self.range(n);
        start.max(before).min(end)..end
    }

    /// The first node that holds element `i`.
    ///
    /// # Panics
    /// When no node does.
    pub fn owner(&self, i: usize) -> usize {
        self.ranges.iter().position(|r| r.contains(&i)).expect("an element of the dimension")
    }
}

fn windows(bounds: &[usize]) -> Vec<Range<usize>> {
    bounds.windows(2).map(|w| w[0]..w[1]).collect()
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// The contiguous share of `rank` when `items` are dealt over `size` workers; at `rank == size` an
/// empty range at the end.
pub fn share(items: usize, size: usize, rank: usize) -> Range<usize> {
    let (each, more) = (items / size, items % size);
    let start = |r: usize| r * each + r.min(more);
    start(rank)..start((rank + 1).min(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(nodes: usize) -> Shares {
        Shares::from(nodes)
    }

    fn ranges(cut: &Cut) -> Vec<Range<usize>> {
        (0..cut.nodes()).map(|n| cut.range(n)).collect()
    }

    #[test]
    fn shares_cover_all_items_once_in_order() {
        for items in [0, 1, 5, 16, 17] {
            for size in 1..7 {
                let mut next = 0;
                for rank in 0..size {
                    let r = share(items, size, rank);
                    assert_eq!(r.start, next);
                    assert!(r.len() <= items.div_ceil(size));
                    next = r.end;
                }
                assert_eq!(next, items);
            }
        }
    }

    #[test]
    fn cuts_respect_units_and_remainders() {
        let cut = Cut::rows(1000, 256, &even(3));
        assert_eq!(ranges(&cut), [0..256, 256..768, 768..1000]);
        assert_eq!([0, 255, 256, 999].map(|i| cut.owner(i)), [0, 0, 1, 2]);
        assert_eq!(ranges(&Cut::rows(512, 256, &even(3))), [0..256, 256..256, 256..512]);
    }

    #[test]
    fn unequal_nodes_take_unequal_shares() {
        let shares = Shares::new(vec![1, 2, 3]);
        let cut = Cut::summed(9728, 32, 1, &shares);
        let widths: Vec<usize> = (0..3).map(|n| cut.len(n)).collect();
        // 24 segments of about 405 columns: 4, 8 and 12 of them.
        assert_eq!((0..3).map(|n| cut.leaves(n).len()).collect::<Vec<_>>(), [4, 8, 12]);
        assert!(widths.iter().all(|w| w % 32 == 0) && widths.iter().sum::<usize>() == 9728);
        assert_eq!(Cut::rows(96, 16, &Shares::new(vec![0, 1])).range(0), 0..0);
    }

    #[test]
    fn segments_do_not_depend_on_the_number_of_nodes() {
        let whole: Vec<_> = Cut::summed(9728, 256, 1, &even(1)).segments(0).collect();
        assert_eq!(whole.len(), 24);
        for nodes in 2..12 {
            let cut = Cut::summed(9728, 256, 1, &even(nodes));
            let all: Vec<_> =
                (0..nodes).flat_map(|n| cut.segments(n).collect::<Vec<_>>()).collect();
            assert_eq!(all, whole, "{nodes} nodes");
            let (min, max) = (0..nodes)
                .map(|n| cut.leaves(n).len())
                .fold((99, 0), |(lo, hi), n| (lo.min(n), hi.max(n)));
            assert!(max - min <= 1 && (24 % nodes != 0 || max == min), "{nodes}: {min} to {max}");
        }
        // Fewer units than nodes leave nodes empty-handed.
        let few = Cut::summed(2, 1, 128, &even(4));
        assert_eq!((0..4).map(|n| few.len(n)).sum::<usize>(), 2);
    }

    #[test]
    fn heads_stay_with_their_keys_unless_that_is_lopsided() {
        // Qwen3-4B: 32 query heads in groups of 4. 2, 4 and 8 nodes cut between groups.
        for nodes in [1, 2, 4, 8] {
            let cut = Cut::heads(32, 4, 1, 128, &even(nodes));
            assert!(ranges(&cut).iter().all(|r| r.len() == 32 / nodes && r.start % 4 == 0));
            assert_eq!(cut.leaf_count(), 16);
        }
        // Six nodes: whole groups would give two nodes 8 heads and four nodes 4.
        let cut = Cut::heads(32, 4, 1, 128, &even(6));
        assert!(ranges(&cut).iter().all(|r| (4..=6).contains(&r.len())), "{cut:?}");
        assert_eq!(cut.leaf_count(), 16);
        // More nodes than key/value heads.
        let cut = Cut::heads(8, 4, 1, 64, &even(4));
        assert_eq!(ranges(&cut), [0..2, 2..4, 4..6, 6..8]);
        // Units of 256 columns hold two heads of 128: at most as many pieces as units.
        let cut = Cut::heads(14, 7, 2, 128, &even(2));
        assert_eq!(ranges(&cut).len(), 2);
        assert!(ranges(&cut).iter().all(|r| r.start % 2 == 0), "{cut:?}");
    }
}
