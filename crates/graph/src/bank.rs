//! Banks of experts: many matrices of one shape in one tensor, of which a token is multiplied by a few.
//!
//! Nodes share every expert: rows of gate and up, and the columns of down that go with them, so that all
//! nodes work on each token whichever experts it chose. An expert's width is cut into a few *leaves* of
//! whole blocks, and a leaf is summed apart, as in any matrix whose columns nodes share ([`crate::Sum`]).
//! Experts are narrow, so leaves are few: 768 columns of K-quants are three. Two nodes would then have
//! twice as much to read as the other. Experts are therefore dealt to *classes*, expert `e` to class
//! `e mod classes`, and each class is cut elsewhere. A *position* is a leaf of a class; they are numbered
//! leaf by leaf, and a node has a run of them:
//!
//! ```text
//! leaf          0                   1                        2
//! class         0 1 2 3 4 5 6 7     0 1  2  3  4  5  6  7    0  1  2  3  4  5  6  7
//! position      0 1 2 3 4 5 6 7     8 9 10 11 12 13 14 15   16 17 18 19 20 21 22 23
//! node          0 0 0 0 0 0 0 0     0 0  0  0  1  1  1  1    1  1  1  1  1  1  1  1
//! ```
//!
//! Node 0 has two leaves of experts of classes 0 to 3, and one of the others. Over many experts both have
//! the same bytes.
//!
//! The sum of a token's experts is made at each position, in ascending order of the experts, and positions
//! are the leaves of the tree of sums. Leaves and classes do not depend on the nodes, so neither does a bit.

use crate::placement::{Cut, Shares};
use std::fmt;
use std::ops::Range;

/// Leaves of an expert at most, and what positions are a multiple of: 2, 4 and 8 nodes have equal runs. More
/// would serve 3 and 6 better, and cost every expert of every token so many more additions.
const MOST_LEAVES: usize = 8;
/// Columns of a leaf at least, where an expert has two such leaves: the sum of a leaf is added to those of
/// other experts, which is to be little beside its products.
const LEAF_COLS: usize = 192;

/// Leaves of an expert of `width` columns in units of `unit`: a power of two of about equal leaves, or else a
/// leaf for each of few units.
fn leaves(width: usize, unit: usize) -> usize {
    let units = width.div_ceil(unit.max(1)).max(1);
    let most = (width / LEAF_COLS).clamp(2, MOST_LEAVES);
    let power = 1 << most.ilog2();
    if units.is_multiple_of(power) || units >= 4 * power { power } else { units.min(MOST_LEAVES) }
}

/// How nodes share the experts of a bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bank {
    /// Experts.
    pub experts: usize,
    /// How each class is cut.
    classes: Vec<Cut>,
    /// Nodes' runs of positions.
    positions: Cut,
}

impl Bank {
    /// Shares `experts` experts of `width` columns, in units of `unit`, of which the last may be short.
    pub(crate) fn new(experts: usize, width: usize, unit: usize, shares: &Shares) -> Bank {
        let (units, leaves) = (width.div_ceil(unit.max(1)), leaves(width, unit));
        let classes =
            (1..).find(|c| (c * leaves).is_multiple_of(MOST_LEAVES)).expect("there is one");
        let classes = classes.min(experts.max(1));
        let runs = Cut::runs(leaves * classes, shares);
        let bounds: Vec<usize> =
            (0..=leaves).map(|i| (i * units / leaves * unit).min(width)).collect();
        let of_class = |class: usize| {
            // The leaves whose positions are in the run.
            let first = |position: usize| (position + classes - 1 - class) / classes;
            let own: Vec<Range<usize>> =
                runs.iter().map(|run| first(run.start)..first(run.end)).collect();
            Cut::of_segments(bounds.clone(), &own)
        };
        let positions = Cut::of_segments((0..=leaves * classes).collect(), &runs);
        Bank { experts, classes: (0..classes).map(of_class).collect(), positions }
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// How the experts of a class are cut.
    pub fn cut(&self, class: usize) -> &Cut {
        &self.classes[class]
    }

    /// Classes that are cut alike, one after the other, and the columns that each node has of their experts.
    pub fn columns(&self) -> Vec<(Range<usize>, Vec<usize>)> {
        let mut all: Vec<(Range<usize>, Vec<usize>)> = Vec::new();
        for (class, cut) in self.classes.iter().enumerate() {
            let columns: Vec<usize> = (0..cut.nodes()).map(|node| cut.len(node)).collect();
            match all.last_mut() {
                Some((classes, known)) if *known == columns => classes.end += 1,
                _ => all.push((class..class + 1, columns)),
            }
        }
        all
    }

    /// The order in which positions are summed, and who has which.
    pub fn positions(&self) -> &Cut {
        &self.positions
    }

    /// Leaf and class of a position.
    pub fn position(&self, position: usize) -> (usize, usize) {
        (position / self.classes(), position % self.classes())
    }

    /// Experts of a class.
    pub fn members(&self, class: usize) -> usize {
        (self.experts + self.classes() - 1 - class) / self.classes()
    }

    /// A class of a tensor that has so many rows for each expert.
    pub(crate) fn class(&self, class: usize, rows: usize) -> Members {
        Members { first: class, step: self.classes(), count: self.members(class), rows }
    }

    /// Class of an expert, and its number there.
    pub fn place(&self, expert: usize) -> (usize, usize) {
        (expert % self.classes(), expert / self.classes())
    }
}

impl fmt::Display for Bank {
    /// How nodes share the experts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cuts = self.columns();
        let width: usize = cuts[0].1.iter().sum();
        write!(f, "{} of {width} columns, of which nodes have ", self.experts)?;
        for (at, (classes, columns)) in cuts.iter().enumerate() {
            let columns: Vec<String> = columns.iter().map(usize::to_string).collect();
            write!(f, "{}{}", if at > 0 { ", " } else { "" }, columns.join(" | "))?;
            if cuts.len() > 1 {
                let members: usize = classes.clone().map(|class| self.members(class)).sum();
                write!(f, " of {members}")?;
            }
        }
        Ok(())
    }
}

/// A class of a bank's experts: every `step`-th from `first` on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// The first one.
    pub first: usize,
    /// From one to the next.
    pub step: usize,
    /// How many.
    pub count: usize,
    /// Rows that the tensor has for each expert.
    pub rows: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bank_says_how_nodes_share_it() {
        let said = |experts, width, unit, nodes: usize| {
            Bank::new(experts, width, unit, &Shares::from(nodes)).to_string()
        };
        assert_eq!(said(16, 512, 64, 2), "16 of 512 columns, of which nodes have 256 | 256");
        // Three blocks of 256 over two nodes: half of the experts are cut behind the first, half behind the
        // second.
        assert_eq!(
            said(128, 768, 256, 2),
            "128 of 768 columns, of which nodes have 512 | 256 of 64, 256 | 512 of 64"
        );
    }

    /// Columns of all experts that each node has.
    fn columns(bank: &Bank, nodes: usize) -> Vec<usize> {
        let of = |node| (0..bank.classes()).map(|c| bank.members(c) * bank.cut(c).len(node)).sum();
        (0..nodes).map(of).collect()
    }

    #[test]
    fn nodes_have_equal_bytes_of_narrow_experts() {
        // Qwen3-30B-A3B in K-quants, GLM-4.5-Air, gpt-oss, OLMoE, Granite.
        for (experts, width, unit) in
            [(128, 768, 256), (128, 768, 64), (128, 1408, 64), (32, 2880, 64), (72, 512, 256)]
        {
            for nodes in [1, 2, 3, 4, 6, 8] {
                let columns = columns(&Bank::new(experts, width, unit, &nodes.into()), nodes);
                assert_eq!(columns.iter().sum::<usize>(), experts * width);
                let most = columns.iter().max().unwrap() * nodes;
                let more = most as f64 / (experts * width) as f64 - 1.0;
                // Three of eight leaves are more than a third, and leaves differ by a unit: to eight nodes
                // that is much.
                let bound = [0.0, 0.03, 0.51, 0.1, 0.0, 0.64, 0.0, 0.34][nodes - 1];
                assert!(more <= bound, "{experts} of {width} on {nodes} nodes: {columns:?}");
            }
        }
        let unequal = Bank::new(128, 768, 256, &Shares::new(vec![1, 2]));
        assert_eq!(columns(&unequal, 2), [128 * 256, 128 * 512]);
    }

    #[test]
    fn every_position_is_a_leaf_of_its_class_on_its_node() {
        for nodes in 1..9 {
            for (experts, width, unit) in [(8, 64, 16), (5, 96, 32), (128, 768, 32), (1, 256, 256)]
            {
                let bank = Bank::new(experts, width, unit, &nodes.into());
                assert_eq!((0..bank.classes()).map(|c| bank.members(c)).sum::<usize>(), experts);
                for node in 0..nodes {
                    for class in 0..bank.classes() {
                        let own = bank.positions().leaves(node).map(|p| bank.position(p));
                        let leaves: Vec<usize> =
                            own.filter(|(_, c)| *c == class).map(|(leaf, _)| leaf).collect();
                        let cut: Vec<usize> = bank.cut(class).leaves(node).collect();
                        assert_eq!(leaves, cut, "class {class} on node {node} of {nodes}");
                    }
                }
                for expert in 0..experts {
                    let (class, at) = bank.place(expert);
                    assert!(at < bank.members(class));
                }
            }
        }
    }

    #[test]
    fn leaves_and_classes_do_not_depend_on_the_nodes() {
        for (width, unit, leaves, classes) in [
            (768, 256, 3, 8),
            (768, 64, 4, 2),
            (512, 256, 2, 4),
            (1536, 256, 6, 4),
            (2880, 64, 8, 1),
        ] {
            for nodes in [1, 2, 5, 8] {
                let bank = Bank::new(128, width, unit, &nodes.into());
                assert_eq!((bank.cut(0).leaf_count(), bank.classes()), (leaves, classes));
            }
        }
    }
}
