//! Where an arena's pages are to come from, and whether there is room for them.

use std::fmt;
use std::io;

use topology::{Machine, NodeId, NodeList};

use crate::error::Error;
use crate::sys::{self, Place};

/// Which memory nodes an arena's pages come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The node of the thread that first writes to a page.
    #[default]
    Default,
    /// One node, whoever writes. When it is full the kernel does not take pages from another one,
    /// but kills the process: see [`check_room`].
    Bind(NodeId),
    /// These nodes in turn, page by page (huge page by huge page). A full node is passed over.
    Interleave(Vec<NodeId>),
}

/// Bound to the node if there is one.
impl From<Option<NodeId>> for Policy {
    fn from(node: Option<NodeId>) -> Self {
        node.map_or(Self::Default, Self::Bind)
    }
}

impl From<NodeId> for Policy {
    fn from(node: NodeId) -> Self {
        Self::Bind(node)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("placed by first touch"),
            Self::Bind(node) => write!(f, "bound to memory node {node}"),
            Self::Interleave(nodes) => {
                let nodes: NodeList = nodes.iter().copied().collect();
                write!(f, "interleaved over memory nodes {nodes}")
            }
        }
    }
}

impl Policy {
    /// The one node it binds to.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::Bind(node) => Some(*node),
            _ => None,
        }
    }

    /// Tells the kernel.
    ///
    /// # Safety
    /// The range is a mapping of the caller's, not touched yet.
    pub(crate) unsafe fn apply(&self, start: *mut u8, len: usize) -> io::Result<()> {
        // SAFETY: by this contract.
        unsafe {
            match self {
                Self::Default => Ok(()),
                Self::Bind(node) => sys::place(start, len, Place::Bound, [*node]),
                Self::Interleave(nodes) => {
                    sys::place(start, len, Place::Interleaved, nodes.iter().copied())
                }
            }
        }
    }
}

/// What usually lies behind the kernel's refusal of a policy.
pub(crate) fn refusal(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "a container's seccomp profile forbids the call; allow it with CAP_SYS_NICE"
        }
        Some(libc::ENOSYS) => "this kernel has no memory policies, or a sandbox hides them",
        Some(libc::EINVAL) => "there is no such node, it has no memory, or the cpuset excludes it",
        _ => "see mbind(2)",
    }
}

/// What [`check_room`] wants beyond `bytes`: page tables, and what the kernel and others take
/// while memory is being filled. An eighth of a huge page per huge page would be too much for small
/// nodes and nothing at all too little, so: 1/64, and 8 MiB.
pub fn margin(bytes: u64) -> u64 {
    bytes / 64 + (8 << 20)
}

/// Checks that each node has room for what is going to be written to arenas bound to it, and the
/// [`margin`], by what the machine says [is available](Machine::available) at this moment. Entries
/// for the same node are added up. Nodes of which the machine does not tell pass.
///
/// To be asked before anything is written, since a bound arena whose node is full ends the process.
/// It is no reservation.
///
/// # Errors
/// [`Error::NoRoom`] for the first node that has too little.
pub fn check_room(
    machine: &Machine,
    needs: impl IntoIterator<Item = (NodeId, u64)>,
) -> Result<(), Error> {
    let mut sums = std::collections::BTreeMap::<NodeId, u64>::new();
    for (node, bytes) in needs {
        let sum = sums.entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    }
    for (node, bytes) in sums.into_iter().filter(|&(_, bytes)| bytes > 0) {
        let needed = bytes.saturating_add(margin(bytes));
        match machine.available(node) {
            Some(available) if available < needed => {
                return Err(Error::NoRoom { node, needed, available });
            }
            _ => {}
        }
    }
    Ok(())
}
