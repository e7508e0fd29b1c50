//! The order of summation over a dimension that nodes share.
//!
//! The segments of a [`Cut`] are the leaves of a binary tree that halves their number at every
//! level. A node that holds a run of leaves can add up the largest subtrees in it, its *roots*; who
//! reads the roots of all nodes in order adds up the rest of the tree. Whatever the run, the tree
//! is the same, and so are the bits of the sum.
//!
//! A node's run may be cut further, into *splits*, so that threads can share its columns
//! ([`crate::Grid::splits`]): each has its own roots, and again it is the reader who adds up the rest.

use crate::placement::{Cut, share};
use std::ops::Range;

/// How a node sums its segments.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Additions of the two topmost sums of the stack after this segment's sum was pushed.
    pub folds: usize,
    /// Whether the stack then holds exactly one sum, a root, which is taken.
    pub root: bool,
}

/// How the roots of all nodes are summed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// For every root, in order: additions after it was pushed.
    pub folds: Vec<usize>,
    /// Roots of each node.
    pub slots: Vec<Range<usize>>,
}

impl Sum {
    /// The sum over a cut dimension, each node's part of it in `splits` runs, as far as it has leaves.
    pub fn over(cut: &Cut, splits: usize) -> Sum {
        let leaves = cut.leaf_count();
        let (mut folds, mut slots) = (Vec::new(), Vec::new());
        for node in 0..cut.nodes() {
            let before = folds.len();
            for root in own_roots(cut, node, splits) {
                folds.push(closed(0..leaves, &root));
            }
            slots.push(before..folds.len());
        }
        Sum { folds, slots }
    }

    /// Number of roots.
    pub fn roots(&self) -> usize {
        self.folds.len()
    }
}

/// The steps in which a node adds up its leaves of `cut`, in `splits` runs.
pub(crate) fn leaves(cut: &Cut, node: usize, splits: usize) -> Vec<Leaf> {
    own_roots(cut, node, splits)
        .iter()
        .flat_map(|root| {
            root.clone().map(|leaf| Leaf {
                folds: closed(root.clone(), &(leaf..leaf + 1)),
                root: leaf + 1 == root.end,
            })
        })
        .collect()
}

/// The roots of a node whose leaves are cut into `splits` runs, in order.
fn own_roots(cut: &Cut, node: usize, splits: usize) -> Vec<Range<usize>> {
    let own = cut.leaves(node);
    let runs = splits.clamp(1, own.len().max(1));
    let run = |i| {
        let run = share(own.len(), runs, i);
        own.start + run.start..own.start + run.end
    };
    (0..runs).flat_map(|i| roots(cut.leaf_count(), &run(i))).collect()
}

fn middle(tree: &Range<usize>) -> usize {
    tree.start + tree.len().div_ceil(2)
}

/// The largest subtrees of a tree of `leaves` that lie within `own`, in order.
fn roots(leaves: usize, own: &Range<usize>) -> Vec<Range<usize>> {
    fn walk(tree: Range<usize>, own: &Range<usize>, out: &mut Vec<Range<usize>>) {
        if tree.start >= own.end || tree.end <= own.start {
            return;
        }
        if own.start <= tree.start && tree.end <= own.end {
            out.push(tree);
        } else {
            let middle = middle(&tree);
            walk(tree.start..middle, own, out);
            walk(middle..tree.end, own, out);
        }
    }
    let mut out = Vec::new();
    if !own.is_empty() {
        walk(0..leaves, own, &mut out);
    }
    out
}

/// How many subtrees of `tree`, itself included, end with their proper subtree `part`.
fn closed(tree: Range<usize>, part: &Range<usize>) -> usize {
    if tree == *part {
        return 0;
    }
    let ends = usize::from(tree.end == part.end);
    let middle = middle(&tree);
    let child = if part.end <= middle { tree.start..middle } else { middle..tree.end };
    ends + closed(child, part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Shares;

    /// Sums `values`, one per segment, as the nodes of `cut` and their reader would.
    fn run(cut: &Cut, splits: usize, values: &[f32]) -> f32 {
        let sum = Sum::over(cut, splits);
        let fold = |stack: &mut Vec<f32>, folds| {
            for _ in 0..folds {
                let (b, a) = (stack.pop().unwrap(), stack.pop().unwrap());
                stack.push(a + b);
            }
        };
        let mut partials = Vec::new();
        for node in 0..cut.nodes() {
            let mut stack = Vec::new();
            for (leaf, at) in leaves(cut, node, splits).iter().zip(cut.leaves(node)) {
                stack.push(values[at]);
                fold(&mut stack, leaf.folds);
                if leaf.root {
                    assert_eq!(stack.len(), 1, "a root is all there is");
                    partials.push(stack.pop().unwrap());
                }
            }
            assert!(stack.is_empty());
            assert_eq!(partials.len(), sum.slots[node].end);
        }
        let mut stack = Vec::new();
        for (partial, &folds) in partials.iter().zip(&sum.folds) {
            stack.push(*partial);
            fold(&mut stack, folds);
        }
        assert_eq!(stack.len(), 1);
        stack[0]
    }

    #[test]
    fn every_sharing_gives_the_same_bits() {
        for len in [1, 2, 3, 7, 8, 13, 24] {
            // Summands whose sum depends on the order.
            let values: Vec<f32> =
                (0..len).map(|i| [1e8, 1.0, -1e8, 0.1][i % 4] * (1.0 + i as f32)).collect();
            let cut = |shares: &Shares| Cut::summed(len, 1, 1024, shares);
            let one = run(&cut(&1.into()), 1, &values);
            for splits in [1, 2, 3, 4, 7, 99] {
                for nodes in 1..10 {
                    let got = run(&cut(&nodes.into()), splits, &values);
                    assert_eq!(got, one, "{len} over {nodes} nodes in {splits}");
                }
                for weights in [vec![1, 2, 3], vec![5, 1], vec![0, 3, 1, 0, 9]] {
                    let got = run(&cut(&Shares::new(weights.clone())), splits, &values);
                    assert_eq!(got, one, "{len} over {weights:?} in {splits}");
                }
            }
        }
    }

    #[test]
    fn equal_shares_of_a_power_of_two_of_nodes_are_one_root_each() {
        for (len, nodes) in [(24, 2), (24, 4), (24, 8), (16, 8), (8, 4)] {
            let sum = Sum::over(&Cut::summed(len, 1, 1024, &nodes.into()), 1);
            assert_eq!(sum.roots(), nodes, "{len} leaves: {sum:?}");
            // As many runs on one node are the same roots.
            let alone = Sum::over(&Cut::summed(len, 1, 1024, &1.into()), nodes);
            assert_eq!(alone.folds, sum.folds);
        }
        assert_eq!(Sum::over(&Cut::summed(24, 1, 1024, &3.into()), 1).roots(), 2 + 4 + 3);
    }
}
