//! The static list: the order of execution, kept in an array.
//!
//! Definition order is already a topological order, so every operator is appended to the tail as
//! it is built and each entry stores where its successors are (ArcLight §2.5 and §A.1). Bundles
//! give four ways to append: serial (one to one), scatter (one to many), parallel (many to many,
//! each to its own), gather (many to one).

use crate::tensor::TensorId;
use std::fmt;
use std::ops::Range;

/// How a bundle was appended to the list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Append {
    /// A single tensor after a single tensor.
    Serial,
    /// One tensor per node after a single tensor: the pool splits into groups.
    Scatter,
    /// One tensor per node, each after its own.
    Parallel,
    /// A single tensor after one per node: the groups join.
    Gather,
}

impl fmt::Display for Append {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Append::Serial => "serial",
            Append::Scatter => "scatter",
            Append::Parallel => "parallel",
            Append::Gather => "gather",
        })
    }
}

/// One tensor in the order of execution.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The tensor that this entry computes.
    pub tensor: TensorId,
    /// Index of the operator that computes it.
    pub op: u32,
    /// How its bundle was appended.
    pub mode: Append,
    next: Range<u32>, // successors, contiguous; empty at the tail
}

/// Array-based list of tensors in the order of execution.
#[derive(Clone, Debug, Default)]
pub struct StaticList {
    entries: Vec<Entry>,
    tail: Range<u32>,
}

impl StaticList {
    /// Appends the tensors of one operator's result; the mode follows from how many there are now
    /// and were before.
    ///
    /// # Panics
    /// When `tensors` is empty, or when several follow a different number of several: both are
    /// faults of a builder operator.
    pub fn append(&mut self, op: u32, tensors: &[TensorId]) -> Append {
        let mode = match (self.tail.len(), tensors.len()) {
            (_, 0) => panic!("an operator must produce a tensor"),
            (0 | 1, 1) => Append::Serial,
            (0 | 1, _) => Append::Scatter,
            (_, 1) => Append::Gather,
            (a, b) if a == b => Append::Parallel,
            (a, b) => panic!("cannot append {b} tensors in parallel to {a}"),
        };
        let start = self.entries.len() as u32;
        let added = start..start + tensors.len() as u32;
        for (i, at) in self.tail.clone().enumerate() {
            self.entries[at as usize].next = match mode {
                Append::Parallel => start + i as u32..start + i as u32 + 1,
                _ => added.clone(),
            };
        }
        self.entries.extend(tensors.iter().map(|&tensor| Entry { tensor, op, mode, next: 0..0 }));
        self.tail = added;
        mode
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was appended yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Walks the list as node `node` sees it: single entries are met by everybody, of a bundle's
    /// entries only the node's own.
    pub fn walk(&self, node: usize) -> impl Iterator<Item = &Entry> {
        let pick = move |r: &Range<u32>| match r.len() {
            0 => None,
            1 => Some(r.start),
            _ => Some(r.start + node as u32),
        };
        let heads = if self.entries.first().is_some_and(|e| e.mode == Append::Scatter) {
            0..self.entries.iter().take_while(|e| e.op == self.entries[0].op).count() as u32
        } else {
            0..self.entries.len().min(1) as u32
        };
        let first = pick(&heads);
        std::iter::successors(first.map(|i| &self.entries[i as usize]), move |e| {
            pick(&e.next).map(|i| &self.entries[i as usize])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(range: Range<u32>) -> Vec<TensorId> {
        range.map(TensorId).collect()
    }

    #[test]
    fn the_four_modes_chain_each_node_through_its_own_tensors() {
        let mut list = StaticList::default();
        assert_eq!(list.append(0, &ids(0..1)), Append::Serial);
        assert_eq!(list.append(1, &ids(1..4)), Append::Scatter);
        assert_eq!(list.append(2, &ids(4..7)), Append::Parallel);
        assert_eq!(list.append(3, &ids(7..8)), Append::Gather);
        assert_eq!(list.append(4, &ids(8..9)), Append::Serial);
        for node in 0..3 {
            let seen: Vec<u32> = list.walk(node).map(|e| e.tensor.0).collect();
            assert_eq!(seen, [0, 1 + node as u32, 4 + node as u32, 7, 8]);
        }
    }

    #[test]
    fn a_list_may_begin_with_a_scatter() {
        let mut list = StaticList::default();
        assert_eq!(list.append(0, &ids(0..2)), Append::Scatter);
        list.append(1, &ids(2..4));
        let seen: Vec<u32> = list.walk(1).map(|e| e.tensor.0).collect();
        assert_eq!(seen, [1, 3]);
    }

    #[test]
    #[should_panic(expected = "cannot append 3 tensors in parallel to 2")]
    fn bundles_of_different_widths_do_not_chain() {
        let mut list = StaticList::default();
        list.append(0, &ids(0..2));
        list.append(1, &ids(2..5));
    }
}
