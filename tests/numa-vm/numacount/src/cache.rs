//! A model of private caches: 8 ways, least recently used goes first, lines of 64 bytes, coherent.
//!
//! It answers which accesses would have left the processor. A line that another processor has
//! written since is gone from the cache, as under MESI: so an exchange between nodes counts each
//! time, not only the first. Every line of memory has a version, which each store raises; a cached
//! line is valid while its version is still the memory's.
//!
//! Limits: no shared level, no prefetcher, no write-backs; a line that is filled because another
//! processor wrote it counts for the node of its memory, wherever the newest copy is.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const WAYS: usize = 8;
const LINE_BITS: u32 = 6;

/// Bytes of a line.
pub(crate) const LINE: u64 = 1 << LINE_BITS;

/// How often each line of the guest's memory was written.
pub(crate) struct Versions(Box<[AtomicU32]>);

impl Versions {
    /// For memory up to the address `end`: a sixteenth of it.
    pub(crate) fn new(end: u64) -> Versions {
        let lines = (end >> LINE_BITS) as usize;
        Versions(std::iter::repeat_with(AtomicU32::default).take(lines).collect())
    }
}

#[derive(Clone, Copy, Default)]
struct Way {
    /// Line number plus one; 0: empty.
    tag: u64,
    version: u32,
}

/// One processor's cache.
pub(crate) struct Cache {
    sets: Vec<[Way; WAYS]>,
}

impl Cache {
    /// Of at least `kib`: the number of sets is a power of two.
    pub(crate) fn new(kib: usize) -> Cache {
        let sets = (kib * 1024 / LINE as usize / WAYS).max(1).next_power_of_two();
        Cache { sets: vec![[Way::default(); WAYS]; sets] }
    }

    /// Takes one access; true when the line had to be fetched. Addresses beyond the memory are
    /// not cached.
    pub(crate) fn access(&mut self, address: u64, store: bool, versions: &Versions) -> bool {
        let line = address >> LINE_BITS;
        let Some(newest) = versions.0.get(line as usize) else { return true };
        let before = newest.load(Relaxed);
        let version = if store { newest.fetch_add(1, Relaxed).wrapping_add(1) } else { before };
        let index = line as usize & (self.sets.len() - 1);
        let set = &mut self.sets[index];
        let found = set.iter().position(|w| w.tag == line + 1);
        let fetched = found.is_none_or(|i| set[i].version != before);
        // The most recently used comes first.
        set[..=found.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = Way { tag: line + 1, version };
        fetched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_line_goes_first() {
        let versions = Versions::new(1 << 20);
        let mut cache = Cache::new(1); // two sets
        let line = |i: u64| i * 2 * LINE; // all of the first set
        assert!((0..8).all(|i| cache.access(line(i), false, &versions)));
        assert!((0..8).all(|i| !cache.access(line(i) + 63, false, &versions)));
        assert!(cache.access(line(8), false, &versions), "the ninth does not fit");
        assert!(!cache.access(line(1), false, &versions));
        assert!(cache.access(line(0), false, &versions), "it was the oldest");
        assert!(cache.access(1 << 20, false, &versions), "no memory");
    }

    #[test]
    fn what_another_processor_wrote_is_fetched_again() {
        let versions = Versions::new(1 << 12);
        let (mut a, mut b) = (Cache::new(64), Cache::new(64));
        assert!(a.access(0, true, &versions), "empty");
        assert!(!a.access(0, false, &versions), "its own line");
        assert!(!a.access(8, true, &versions));
        assert!(b.access(0, false, &versions), "never had it");
        assert!(!a.access(0, false, &versions), "reading takes it from nobody");
        assert!(!a.access(0, true, &versions), "it still has it");
        assert!(b.access(0, false, &versions), "written since");
        assert!(b.access(64, true, &versions) && !a.access(0, false, &versions), "another line");
    }
}
