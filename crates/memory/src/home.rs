//! Bringing a thread's own memory to its node.
//!
//! The thread that loads a model has lived before it was pinned: its stack, and what it has
//! allocated, lie on whatever node it was then. Other threads are made where they run.

use std::fs;
use std::io;
use std::ops::Range;

use topology::NodeId;

use crate::sys;

/// Moves the pages of the calling thread's stack and of the process's heap to `node`: the pages
/// that are there now. It helps and changes nothing else, so what the kernel does not move stays.
/// How many pages are on the node afterwards.
///
/// # Errors
/// `/proc/self/maps` cannot be read, or the kernel refuses (a container without `move_pages`).
pub fn bring_home(node: NodeId) -> io::Result<usize> {
    let on_stack = 0_u8;
    let here = (&raw const on_stack).addr();
    let maps = fs::read_to_string("/proc/self/maps")?;
    let page = sys::page_size();
    let mut moved = 0;
    for line in maps.lines() {
        let Some(range) = range(line) else { continue };
        // All of the stack: frames below this one have touched pages that others will use again.
        if !range.contains(&here) && !line.ends_with("[heap]") {
            continue;
        }
        let pages: Vec<*const u8> =
            range.step_by(page).map(std::ptr::without_provenance::<u8>).collect();
        for pages in pages.chunks(4096) {
            let mut status = vec![0; pages.len()];
            sys::move_to(pages, node, &mut status)?;
            moved += status.iter().filter(|&&s| s == node.0 as i32).count();
        }
    }
    Ok(moved)
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
    fn the_stack_and_heap_come_to_the_only_node() {
        // A kernel or container without the call says so; one with it finds at least a page.
        match bring_home(NodeId(0)) {
            Ok(pages) => assert!(pages > 0),
            Err(e) => assert!(e.raw_os_error().is_some(), "{e}"),
        }
    }
}
