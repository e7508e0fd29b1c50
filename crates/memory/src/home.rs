//! Bringing a thread's own memory to its node.
//!
//! The thread that loads a model has lived before it was pinned: its stack, and what it has
//! allocated, lie on whatever node it was then. Other threads are made where they run.

use std::fs;
use std::io;
use std::ops::Range;

use topology::NodeId;

use crate::sys::{self, Place};

/// Prefers `node` for the calling thread's stack, and for the process's heap if it is the first thread,
/// and moves what is there now.
/// The policy also keeps the kernel's automatic balancing from moving pages of the stack to those who
/// read a job's data on it.
///
/// It helps and changes nothing else: pages that the kernel does not move stay.
///
/// # Errors
/// `/proc/self/maps` cannot be read, or the kernel refuses (a container without `mbind`).
pub fn bring_home(node: NodeId) -> io::Result<()> {
    let on_stack = 0_u8;
    let here = (&raw const on_stack).addr();
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mappings = || maps.lines().filter_map(|line| Some((line, range(line)?)));
    let stack = mappings().find(|(_, range)| range.contains(&here));
    // The heap is the first thread's; others allocate elsewhere.
    let first = stack.as_ref().is_some_and(|(line, _)| line.ends_with("[stack]"));
    let heap = mappings().find(|(line, _)| first && line.ends_with("[heap]"));
    // All of the stack: frames below this one have touched pages that others will use again.
    for (_, range) in stack.into_iter().chain(heap) {
        let start = std::ptr::without_provenance_mut(range.start);
        // SAFETY: a whole mapping of this process, of which only the policy and the place of pages
        // change.
        unsafe {
            sys::place(start, range.len(), Place::Moved, [node])?;
        }
    }
    Ok(())
}

/// `55d0c000-55d0d000 rw-p …`
fn range(line: &str) -> Option<Range<usize>> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_ranges() {
        assert_eq!(range("1000-2fff rw-p 0 0:0 0 [heap]"), Some(0x1000..0x2fff));
        assert_eq!(range("nonsense"), None);
    }

    #[test]
    fn stack_and_heap_prefer_the_node() {
        // A kernel or container without the call says so.
        match bring_home(NodeId(0)) {
            Ok(()) => {
                let maps = fs::read_to_string("/proc/self/numa_maps").unwrap();
                assert!(maps.lines().any(|l| l.contains("prefer:0")), "{maps}");
            }
            Err(e) => assert!(e.raw_os_error().is_some(), "{e}"),
        }
    }
}
