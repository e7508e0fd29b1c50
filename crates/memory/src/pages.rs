//! Where pages really are: the kernel's answer, not the plan's.

use std::collections::BTreeMap;

use topology::NodeId;

use crate::block::Block;
use crate::error::Error;
use crate::sys;

/// The pages of a block, counted by where they are. A huge page counts as its base pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Pages on each memory node.
    pub by_node: BTreeMap<NodeId, usize>,
    /// Pages that have no memory yet: never written.
    pub absent: usize,
    /// Pages about which the kernel gave another answer, by its error number.
    pub failed: BTreeMap<i32, usize>,
}

impl Pages {
    /// All pages of the block.
    pub fn total(&self) -> usize {
        self.present() + self.absent + self.failed.values().sum::<usize>()
    }

    /// Pages that have memory.
    pub fn present(&self) -> usize {
        self.by_node.values().sum()
    }

    /// Present pages on other nodes than `node`.
    pub fn elsewhere(&self, node: NodeId) -> usize {
        self.present() - self.by_node.get(&node).copied().unwrap_or(0)
    }
}

/// Asks the kernel for the memory node of every page that the block touches: about 0.1 µs each,
/// so some seconds for a hundred gigabytes.
///
/// # Errors
/// The kernel does not answer: it is built without NUMA, or a container forbids the question.
pub fn pages_by_node(block: Block) -> Result<Pages, Error> {
    const BATCH: usize = 4096;
    let page = sys::page_size();
    let mut pages = Pages::default();
    if block.is_empty() {
        return Ok(pages);
    }
    let first = block.addr() - block.addr() % page;
    let mut addresses = (first..block.addr() + block.len()).step_by(page);
    let mut batch = Vec::with_capacity(BATCH);
    let mut status = vec![0; BATCH];
    loop {
        batch.clear();
        batch.extend(addresses.by_ref().take(BATCH).map(std::ptr::without_provenance::<u8>));
        if batch.is_empty() {
            return Ok(pages);
        }
        let status = &mut status[..batch.len()];
        sys::nodes_of(&batch, status).map_err(Error::PageQuery)?;
        for &answer in &*status {
            match u32::try_from(answer) {
                Ok(node) => *pages.by_node.entry(NodeId(node)).or_default() += 1,
                // The second is the answer for a page that was read but never written: it shares
                // the kernel's one page of zeros.
                Err(_) if answer == -libc::ENOENT || answer == -libc::EFAULT => pages.absent += 1,
                Err(_) => *pages.failed.entry(-answer).or_default() += 1,
            }
        }
    }
}
