//! Sequences and the pages of their keys and values.
//!
//! A page holds `KV_PAGE` tokens of all layers, on every node (vLLM's PagedAttention, §4). Pages
//! are handed out when a sequence grows and returned when it shrinks or ends.

use crate::error::Error;
use graph::PageId;
use kernels::KV_PAGE;
use std::fmt;

/// A sequence of tokens with keys and values in the cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeqId {
    slot: u32,
    generation: u32, // so that a freed id is not mistaken for its successor
}

impl fmt::Display for SeqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {}.{}", self.slot, self.generation)
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    live: bool,
    len: usize,
    pages: Vec<PageId>,
}

/// All sequences and all pages.
#[derive(Debug)]
pub(crate) struct KvCache {
    slots: Vec<Slot>,
    free: Vec<PageId>,
    pages: usize,
    context: usize,
}

impl KvCache {
    pub(crate) fn new(sequences: usize, pages: usize, context: usize) -> KvCache {
        let slots = std::iter::repeat_with(Slot::default).take(sequences).collect();
        // Handed out from the end: low pages first.
        let free = (0..pages as u32).rev().map(PageId).collect();
        KvCache { slots, free, pages, context }
    }

    pub(crate) fn create(&mut self) -> Result<SeqId, Error> {
        let max = self.slots.len();
        let slot = self.slots.iter().position(|s| !s.live);
        let slot = slot.ok_or(Error::TooManySequences { max })?;
        let entry = &mut self.slots[slot];
        entry.live = true;
        entry.generation += 1;
        Ok(SeqId { slot: slot as u32, generation: entry.generation })
    }

    fn slot(&self, id: SeqId) -> Result<usize, Error> {
        let slot = id.slot as usize;
        match self.slots.get(slot) {
            Some(s) if s.live && s.generation == id.generation => Ok(slot),
            _ => Err(Error::UnknownSequence(id)),
        }
    }

    pub(crate) fn len(&self, id: SeqId) -> Result<usize, Error> {
        Ok(self.slots[self.slot(id)?].len)
    }

    pub(crate) fn pages(&self, id: SeqId) -> Result<&[PageId], Error> {
        Ok(&self.slots[self.slot(id)?].pages)
    }

    pub(crate) fn free_pages(&self) -> usize {
        self.free.len()
    }

    /// Makes room for `more` tokens after the present ones; nothing changes on error.
    pub(crate) fn reserve(&mut self, id: SeqId, more: usize) -> Result<(), Error> {
        let slot = self.slot(id)?;
        let entry = &mut self.slots[slot];
        let len = entry.len + more;
        if len > self.context {
            return Err(Error::ContextFull { context: self.context });
        }
        let want = len.div_ceil(KV_PAGE).saturating_sub(entry.pages.len());
        if want > self.free.len() {
            return Err(Error::NoPages { pages: self.pages });
        }
        entry.pages.extend(self.free.drain(self.free.len() - want..).rev());
        Ok(())
    }

    /// The reserved tokens were computed.
    pub(crate) fn advance(&mut self, id: SeqId, more: usize) -> Result<(), Error> {
        let slot = self.slot(id)?;
        self.slots[slot].len += more;
        Ok(())
    }

    /// Forgets all tokens after the first `len`.
    pub(crate) fn truncate(&mut self, id: SeqId, len: usize) -> Result<(), Error> {
        let slot = self.slot(id)?;
        let entry = &mut self.slots[slot];
        entry.len = entry.len.min(len);
        let keep = entry.len.div_ceil(KV_PAGE);
        self.free.extend(entry.pages.drain(keep..).rev());
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: SeqId) -> Result<(), Error> {
        self.truncate(id, 0)?;
        let slot = self.slot(id)?;
        self.slots[slot].live = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_freed_id_is_not_its_successor() {
        let mut kv = KvCache::new(1, 4, 128);
        let a = kv.create().unwrap();
        assert!(matches!(kv.create(), Err(Error::TooManySequences { max: 1 })));
        kv.remove(a).unwrap();
        let b = kv.create().unwrap();
        assert!(matches!(kv.len(a), Err(Error::UnknownSequence(_))));
        assert_eq!(kv.len(b).unwrap(), 0);
    }

    #[test]
    fn a_reservation_that_fails_changes_nothing() {
        let mut kv = KvCache::new(2, 3, 1000);
        let (a, b) = (kv.create().unwrap(), kv.create().unwrap());
        kv.reserve(a, 2 * KV_PAGE).unwrap();
        assert!(matches!(kv.reserve(b, 2 * KV_PAGE), Err(Error::NoPages { pages: 3 })));
        assert_eq!((kv.free_pages(), kv.pages(b).unwrap().len()), (1, 0));
        assert!(matches!(kv.reserve(a, 1001), Err(Error::ContextFull { context: 1000 })));
    }

    proptest! {
        /// Whatever happens, every page is free or in exactly one sequence.
        #[test]
        fn pages_are_never_lost_or_shared(ops in prop::collection::vec((0usize..3, 0usize..4, 0usize..100), 1..60)) {
            let mut kv = KvCache::new(4, 12, 200);
            let ids: Vec<SeqId> = (0..4).map(|_| kv.create().unwrap()).collect();
            for (op, who, n) in ops {
                match op {
                    0 => if kv.reserve(ids[who], n).is_ok() { kv.advance(ids[who], n).unwrap() },
                    1 => kv.truncate(ids[who], n).unwrap(),
                    _ => { let _ = kv.reserve(ids[who], n); }
                }
                let mut all: Vec<u32> = ids.iter().flat_map(|i| kv.pages(*i).unwrap()).chain(&kv.free).map(|p| p.0).collect();
                all.sort_unstable();
                prop_assert_eq!(all, (0..12).collect::<Vec<u32>>());
            }
        }
    }
}
