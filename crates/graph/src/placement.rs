//! Where a tensor lives: placements and the cutting of a dimension over memory nodes.
//!
//! A placement is declared, never discovered: every operator states what it takes and gives, and
//! the compiler derives from it who must wait for whom (DESIGN 2.2; the splits are those of the
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

/// Most segments that a summed dimension is cut into.
const SEGMENTS: usize = 8;

/// A dimension cut over the nodes in whole units: node `n` holds `range(n)`.
///
/// A dimension that is summed over is first cut into segments, whose number does not depend on the
/// number of nodes: a power of two. Segments are summed one by one and added up in a binary tree.
/// When the number of nodes is a power of two as well, every node holds a subtree, so 1, 2, 4 and 8
/// nodes give the same bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    bounds: Vec<usize>,   // [nodes + 1], ascending
    segments: Vec<usize>, // ascending, every bound among them
}

impl Cut {
    /// Cuts `len` over `nodes` in whole units of `unit`; the last unit may be short.
    ///
    /// The first nodes get one unit more when the units do not divide evenly. `None` when there
    /// are fewer units than nodes.
    pub fn even(len: usize, unit: usize, nodes: usize) -> Option<Cut> {
        let units = len.div_ceil(unit.max(1));
        if nodes == 0 || units < nodes {
            return None;
        }
        let cut = |n: usize| -> Vec<usize> {
            (0..=n).map(|i| (share(units, n, i).start * unit).min(len)).collect()
        };
        let leaves = SEGMENTS.min(1 << units.ilog2());
        if nodes.is_power_of_two() && nodes <= leaves {
            let segments = cut(leaves);
            let bounds = segments.iter().step_by(leaves / nodes).copied().collect();
            Some(Cut { bounds, segments })
        } else {
            Some(Cut { bounds: cut(nodes), segments: cut(nodes) })
        }
    }

    /// The same cut of a dimension in which every element of this one is `factor` long.
    pub fn scaled(&self, factor: usize) -> Cut {
        let scale = |v: &[usize]| v.iter().map(|b| b * factor).collect();
        Cut { bounds: scale(&self.bounds), segments: scale(&self.segments) }
    }

    /// The segments of node `n`, in order.
    pub fn segments(&self, n: usize) -> impl Iterator<Item = Range<usize>> {
        let own = self.range(n);
        let all = self.segments.windows(2).map(|w| w[0]..w[1]);
        all.filter(move |s| own.start <= s.start && s.end <= own.end)
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.bounds.len() - 1
    }

    /// The part of node `n`.
    pub fn range(&self, n: usize) -> Range<usize> {
        self.bounds[n]..self.bounds[n + 1]
    }

    /// The length of node `n`'s part.
    pub fn len(&self, n: usize) -> usize {
        self.bounds[n + 1] - self.bounds[n]
    }

    /// The node that holds element `i`.
    pub fn owner(&self, i: usize) -> usize {
        self.bounds.partition_point(|&b| b <= i) - 1
    }
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
        let cut = Cut::even(1000, 256, 3).unwrap();
        assert_eq!((0..3).map(|n| cut.range(n)).collect::<Vec<_>>(), [0..512, 512..768, 768..1000]);
        assert_eq!(cut.owner(0), 0);
        assert_eq!(cut.owner(511), 0);
        assert_eq!(cut.owner(512), 1);
        assert_eq!(cut.owner(999), 2);
        assert!(Cut::even(512, 256, 3).is_none(), "two units cannot serve three nodes");
    }

    #[test]
    fn segments_do_not_depend_on_the_number_of_nodes() {
        // 38 units: eight segments of five or four.
        let whole: Vec<_> = Cut::even(9728, 256, 1).unwrap().segments(0).collect();
        assert_eq!(whole.len(), 8);
        for nodes in [2, 4, 8] {
            let cut = Cut::even(9728, 256, nodes).unwrap();
            let all: Vec<_> =
                (0..nodes).flat_map(|n| cut.segments(n).collect::<Vec<_>>()).collect();
            assert_eq!(all, whole, "{nodes} nodes");
            assert!((0..nodes).all(|n| cut.segments(n).count() == 8 / nodes));
        }
        // Three nodes have a cut of their own, and few units few segments.
        assert_eq!(Cut::even(9728, 256, 3).unwrap().segments(1).count(), 1);
        assert_eq!(Cut::even(5, 1, 2).unwrap().segments(0).count(), 2);
    }
}
