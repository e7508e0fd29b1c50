//! The one error type of the crate.

use crate::{CpuList, NodeList};
use std::io;
use std::path::PathBuf;

/// Why a machine could not be described or laid out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A list such as `0-3,8` could not be understood.
    #[error("{what} list {text:?}: {reason}; write it like 0-3,8,10-11")]
    BadList {
        /// `cpu` or `node`.
        what: &'static str,
        /// The list as given, shortened when very long.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The machine has no CPU that this process may run on, or none could be found.
    #[error("no usable cpu under {}: {reason}", root.display())]
    NoCpus {
        /// The root that was read.
        root: PathBuf,
        /// What was looked for.
        reason: String,
    },
    /// CPUs or nodes were asked for that the machine does not have.
    #[error("no {what} {ids}: this machine has {what}s {available}")]
    Missing {
        /// `cpu` or `node`.
        what: &'static str,
        /// Those that do not exist, as a list.
        ids: String,
        /// Those that do, as a list.
        available: String,
    },
    /// CPUs were asked for that are offline.
    #[error("cpu {cpus} is offline; online are {online}")]
    Offline {
        /// Those that are offline.
        cpus: CpuList,
        /// Those that are not.
        online: CpuList,
    },
    /// CPUs or nodes were asked for that this process may not use.
    #[error("{what} {ids}: not allowed by the {by}; allowed are {available}")]
    NotAllowed {
        /// `cpu` or `node`.
        what: &'static str,
        /// Those that are not allowed, as a list.
        ids: String,
        /// What forbids them.
        by: &'static str,
        /// Those that are allowed, as a list; `none` without any.
        available: String,
    },
    /// CPUs were asked for that belong to none of the nodes asked for.
    #[error("cpu {cpus}: not on node {nodes}, which was asked for too; name cpus of these nodes")]
    Elsewhere {
        /// The CPUs.
        cpus: CpuList,
        /// The nodes asked for.
        nodes: NodeList,
    },
    /// Only nodes without CPUs were asked for.
    #[error("node {nodes}: no cpu to run on; add a node that has some: {available}")]
    MemoryOnly {
        /// The nodes asked for.
        nodes: NodeList,
        /// Nodes with allowed CPUs.
        available: NodeList,
    },
    /// Zero threads were asked for.
    #[error("0 threads: ask for at least one, or leave the number out to use every usable core")]
    ZeroThreads,
    /// Zero groups (nodes) were asked for.
    #[error("0 nodes: ask for at least one, or leave the number out to use every usable node")]
    ZeroGroups,
    /// Fewer threads than groups.
    #[error(
        "{groups} nodes need at least {groups} threads, one each, not {threads}; \
         ask for more threads or fewer nodes"
    )]
    TooFewThreads {
        /// Threads asked for.
        threads: usize,
        /// Groups asked for.
        groups: usize,
    },
    /// More threads or groups than any machine can run.
    #[error("{asked} {what}: at most {limit} are supported")]
    TooMany {
        /// `threads` or `nodes`.
        what: &'static str,
        /// The number asked for.
        asked: usize,
        /// The largest number accepted.
        limit: usize,
    },
    /// A number of parts (replicas) that the machine cannot be divided into.
    #[error(
        "{parts} replicas: {cores} usable cores make from 1 to {cores}, one core each at least"
    )]
    BadParts {
        /// Parts asked for.
        parts: usize,
        /// Cores that may be used.
        cores: usize,
    },
    /// A document that should be hwloc's is not well-formed XML, or too large.
    #[error("hwloc document: {reason}; export one with `lstopo machine.xml`")]
    HwlocXml {
        /// What is wrong, and where.
        reason: String,
    },
    /// An element of an hwloc document lacks something or has what it cannot have.
    #[error("hwloc document, line {line}, <{element}>: {fault}")]
    Hwloc {
        /// The line the element begins in, counted from 1.
        line: u32,
        /// Its name, and its `type` if it has one.
        element: String,
        /// What is wrong with it.
        fault: String,
    },
    /// A word of a synthetic description of a machine cannot be understood.
    #[error("synthetic machine: {word:?}: {reason}; write it like `numa:4 l3:2 core:8 pu:2`")]
    Synthetic {
        /// The word.
        word: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Times between CPUs that make no sense.
    #[error("times between CPUs: {reason}")]
    BadTimes {
        /// What is wrong.
        reason: String,
    },
    /// A tree is not symmetric, which transformations need.
    #[error(
        "the tree is not symmetric: a {level} has from {fewest} to {most} parts; even it out first"
    )]
    Uneven {
        /// What has them.
        level: String,
        /// Least parts of one.
        fewest: usize,
        /// Most parts of one.
        most: usize,
    },
    /// A tree has no level that can be transformed at this depth.
    #[error("no level to transform at depth {depth}: this tree has depths {first} to {last}")]
    NoLevel {
        /// The depth asked for.
        depth: usize,
        /// The first that can be transformed so.
        first: usize,
        /// The last; less than the first when there is none.
        last: usize,
    },
    /// The vertices of a level cannot be grouped so.
    #[error(
        "groups of {n} with stride {stride} do not tile {children} children: their product must \
         divide that, and the groups be larger than one and smaller than all"
    )]
    CannotGroup {
        /// Members of a group.
        n: usize,
        /// How far apart they are.
        stride: usize,
        /// Children of each parent.
        children: usize,
    },
    /// As many children were to be removed as there are, or more.
    #[error("cannot remove {k} of {children} children: one at least must stay")]
    CannotRemove {
        /// To be removed.
        k: usize,
        /// Children of each vertex.
        children: usize,
    },
    /// The files of a fake machine could not be written.
    #[error("cannot write fake machine file {}: {source}", path.display())]
    FakeWrite {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}
