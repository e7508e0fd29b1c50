//! Which pages the remote accesses go to: to find out what should lie elsewhere.
//!
//! Pages are virtual, so that `/proc/PID/maps` says what they are.

use std::collections::HashMap;
use std::fmt::Write as _;

const PAGE_BITS: u32 = 12;

/// Bytes of remote accesses by virtual page and node.
#[derive(Debug, Default)]
pub(crate) struct Pages(HashMap<(u64, usize), u64>);

impl Pages {
    /// Counts an access.
    pub(crate) fn add(&mut self, address: u64, node: usize, bytes: u64) {
        *self.0.entry((address >> PAGE_BITS, node)).or_default() += bytes;
    }

    /// Both.
    pub(crate) fn with(mut self, other: &Pages) -> Pages {
        for (page, bytes) in &other.0 {
            *self.0.entry(*page).or_default() += bytes;
        }
        self
    }

    /// A line for each of the `count` pages with most bytes.
    pub(crate) fn report(&self, count: usize) -> String {
        let mut pages: Vec<_> = self.0.iter().map(|(page, bytes)| (bytes, page)).collect();
        pages.sort_unstable_by(|a, b| b.cmp(a));
        let mut text = String::new();
        for (bytes, (page, node)) in pages.into_iter().take(count) {
            let address = page << PAGE_BITS;
            let _ = writeln!(text, "numacount page {address:#x} node {node} remote_bytes {bytes}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_pages_come_first() {
        let mut pages = Pages::default();
        pages.add(0x1008, 1, 8);
        pages.add(0x2000, 1, 4);
        let mut other = Pages::default();
        other.add(0x2fff, 1, 8);
        other.add(0x3000, 0, 2);
        assert_eq!(
            pages.with(&other).report(2),
            "numacount page 0x2000 node 1 remote_bytes 12\n\
             numacount page 0x1000 node 1 remote_bytes 8\n"
        );
    }
}
