//! The one error type of the crate.

/// Why a machine, a step or a prediction could not be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A bandwidth table could not be understood.
    #[error(
        "bandwidth table: {reason}; write one row of GB/s per cpu node, one number per memory node"
    )]
    BadTable {
        /// What is wrong, with the line where there is one.
        reason: String,
    },
    /// A quantity that must be a positive finite number is not.
    #[error("{what} is {value}, not a positive number")]
    NotPositive {
        /// The quantity.
        what: String,
        /// Its value.
        value: f64,
    },
    /// The list of cores, the matrix and the step speak of different numbers of nodes.
    #[error("{what} has {got} nodes, the machine has {nodes}")]
    NodeCount {
        /// What disagrees.
        what: &'static str,
        /// Nodes that it has.
        got: usize,
        /// Nodes of the machine.
        nodes: usize,
    },
    /// A node beyond the last.
    #[error("node {node} of {nodes}: nodes are counted from 0")]
    NoSuchNode {
        /// The node.
        node: usize,
        /// How many there are.
        nodes: usize,
    },
    /// A step without threads.
    #[error("0 threads: give at least one node a thread")]
    NoThreads,
    /// A step without tokens.
    #[error("0 tokens: a step has at least one")]
    NoTokens,
    /// More threads on a node than it has cores.
    #[error("{threads} threads on node {node}, which has {cores} cores; ask for fewer threads")]
    TooManyThreads {
        /// The node.
        node: usize,
        /// Threads asked for.
        threads: usize,
        /// Its cores.
        cores: usize,
    },
    /// A node without threads has something to do.
    #[error("stage {stage:?}: node {node} has work but no threads")]
    WorksWithoutThreads {
        /// The stage.
        stage: String,
        /// The node.
        node: usize,
    },
    /// Shares of pages that are no distribution over nodes.
    #[error("shares of pages {shares:?}: each must lie in 0..=1 and their sum must be 1")]
    BadShares {
        /// The shares as given.
        shares: Vec<f64>,
    },
}

/// `value`, when it is a positive finite number.
pub(crate) fn positive(what: impl Into<String>, value: f64) -> Result<f64, Error> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(Error::NotPositive { what: what.into(), value })
    }
}
