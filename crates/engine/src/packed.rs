//! Which parts of a file are packed already.

use std::collections::BTreeMap;
use std::ops::Range;

/// The kernel keeps pages of a file together, up to 2 MiB of them, and gives up all or none.
const TOGETHER: u64 = 4 << 20;

/// Between tensors there is padding that nobody packs.
const PADDING: u64 = 4096;

/// Parts of a file, those that touch as one.
#[derive(Debug, Default)]
pub(crate) struct Packed(BTreeMap<u64, u64>); // begin, end

impl Packed {
    /// Adds a part that is packed now. What can be given up with it: also what lies around it, as far as
    /// that is packed, but not beyond what the kernel may keep together with it.
    pub(crate) fn add(&mut self, part: Range<u64>) -> Range<u64> {
        let mut all = part.clone();
        let reach = part.end.saturating_add(PADDING);
        while let Some((&begin, &end)) = self.0.range(..=reach).next_back()
            && end.saturating_add(PADDING) >= part.start
        {
            self.0.remove(&begin);
            all = all.start.min(begin)..all.end.max(end);
        }
        self.0.insert(all.start, all.end);
        let (first, last) =
            (part.start.saturating_sub(TOGETHER), part.end.saturating_add(TOGETHER));
        all.start.max(first)..all.end.min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_together() {
        let mut packed = Packed::default();
        let mib = |begin: u64, end: u64| begin << 20..end << 20;
        assert_eq!(packed.add(mib(10, 12)), mib(10, 12));
        assert_eq!(packed.add(mib(14, 15)), mib(14, 15), "apart");
        assert_eq!(packed.add(mib(12, 14)), mib(10, 15), "between");
        assert_eq!(packed.0.len(), 1);
        assert_eq!(packed.add(mib(15, 20)), mib(11, 20), "not all that is behind");
        assert_eq!(packed.add(mib(8, 10)), mib(8, 14), "nor before");
        assert_eq!(packed.add(mib(9, 11)), mib(8, 15), "what was packed already");
        // Padding.
        let part = (20 << 20) + 32..(21 << 20) - 64;
        assert_eq!(packed.add(part.clone()), (16 << 20) + 32..part.end);
        assert_eq!(packed.add(mib(21, 22)), mib(17, 22));
        assert_eq!(packed.add((22 << 20) + PADDING + 1..23 << 20).start, (22 << 20) + PADDING + 1);
    }
}
