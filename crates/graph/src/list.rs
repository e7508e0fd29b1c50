//! The static list: the order of execution, kept in an array ([`Graph`](crate::Graph)'s operators).
//!
//! Definition order is already a topological order, so every operator is appended to the end as it is
//! built (ArcLight §2.5 and §A.1). Its result is one tensor or one per node, and so are its operands: that makes
//! four ways to append. They decide how the pool is seen ([`Append::view`]): where that changes, lowering puts a
//! scatter or a gather into the program.

use std::fmt;
use threads::View;

/// How an operator was appended to the list.
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

impl Append {
    /// `tensors` tensors that are made of `before`: those of the operands, or, without any, of the operator before
    /// (none at the beginning).
    ///
    /// # Panics
    /// When there are none, or several follow a different number of several: both are faults of a
    /// builder operator.
    pub fn of(before: usize, tensors: usize) -> Append {
        match (before, tensors) {
            (_, 0) => panic!("an operator must produce a tensor"),
            (0 | 1, 1) => Append::Serial,
            (0 | 1, _) => Append::Scatter,
            (_, 1) => Append::Gather,
            (a, b) if a == b => Append::Parallel,
            (a, b) => panic!("cannot append {b} tensors in parallel to {a}"),
        }
    }

    /// How the pool is seen while the operator is executed: in groups if it takes or gives one tensor per node.
    pub fn view(self) -> View {
        match self {
            Append::Serial => View::One,
            Append::Scatter | Append::Parallel | Append::Gather => View::Groups,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_follows_from_how_many_tensors_there_are() {
        let modes = [(0, 1), (1, 1), (0, 3), (1, 3), (3, 3), (3, 1)].map(|(a, b)| Append::of(a, b));
        use Append::{Gather, Parallel, Scatter, Serial};
        assert_eq!(modes, [Serial, Serial, Scatter, Scatter, Parallel, Gather]);
    }

    #[test]
    fn operators_that_take_or_give_a_tensor_per_node_are_executed_in_groups() {
        let views = [(0, 1), (1, 3), (3, 3), (3, 1)].map(|(a, b)| Append::of(a, b).view());
        assert_eq!(views, [View::One, View::Groups, View::Groups, View::Groups]);
    }

    #[test]
    #[should_panic(expected = "cannot append 3 tensors in parallel to 2")]
    fn bundles_of_different_widths_do_not_chain() {
        Append::of(2, 3);
    }
}
