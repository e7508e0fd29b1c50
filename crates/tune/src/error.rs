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
    /// Shares of pages that are no distribution over nodes.
    #[error("shares of pages {shares:?}: each must lie in 0..=1 and their sum must be 1")]
    BadShares {
        /// The shares as given.
        shares: Vec<f64>,
    },
    /// A graph that cannot be executed so.
    #[error("{0}")]
    Graph(String),
    /// A line of a log of requests could not be understood.
    #[error(
        "log of requests, line {line}: {reason}; write one JSON object a line with prompt_tokens and \
         output_tokens"
    )]
    BadRequest {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A trace without requests, or with an empty one.
    #[error("the trace needs a request, and every request a token of prompt and one of answer")]
    EmptyTrace,
    /// Kinds of steps that cannot be tuned for.
    #[error(
        "kinds of steps: there must be one, and each must have more tokens than the one before"
    )]
    BadKinds,
    /// Groups of CPUs that no model can be loaded for.
    #[error("groups of cpus: {0}")]
    BadScheme(String),
    /// A machine of which no tree could be made to search.
    #[error("the machine's tree cannot be searched: {0}")]
    Tree(String),
    /// A profile that could not be understood.
    #[error("profile: {0}; delete the file and tune again")]
    BadProfile(String),
    /// A profile of a later program.
    #[error(
        "profile: it is of version {version} and this program knows {known}; use the program that \
         wrote it, or tune again"
    )]
    NewerProfile {
        /// Its version.
        version: i64,
        /// The newest that is known.
        known: i64,
    },
    /// A matrix or a table of its schedules that makes no sense.
    #[error("matrix {shape}: {reason}")]
    BadSchedule {
        /// Which.
        shape: graph::MatrixShape,
        /// What is wrong.
        reason: String,
    },
    /// What cores are to share makes no sense, or not on this machine.
    #[error("what cores share: {reason}; write words such as cores:4 fill:2 crowd:0.2")]
    BadSharing {
        /// What is wrong.
        reason: String,
    },
    /// The plain way of running could not be measured at all.
    #[error("{tokens} tokens in a step could not be measured with the default groups of cpus")]
    NotMeasured {
        /// Tokens of the kind of step.
        tokens: u32,
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
