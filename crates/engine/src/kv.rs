//! Sequences and the pages of their keys and values.
//!
//! A page holds `KV_PAGE` tokens of all layers of a class, on every node (vLLM's PagedAttention, §4).
//! Pages are handed out when a sequence grows and returned when it shrinks or ends; in a class with a
//! sliding window also when the window has left them behind.

use crate::error::Error;
use graph::{PageId, PageTable};
use kernels::KV_PAGE;
use std::fmt;

/// Tokens by which a sequence can always be shortened from the longest that it was: so far its pages go
/// back behind a window. Enough for the end of an answer that the next prompt tells otherwise, and for
/// drafts that are refused.
const ROLLBACK: usize = 64;

/// The pages that a class needs for `sequences` of up to `context` tokens, in steps of up to `step`
/// tokens over all of them.
pub(crate) fn pages(window: Option<usize>, context: usize, sequences: usize, step: usize) -> usize {
    let all = context.div_ceil(KV_PAGE) * sequences;
    let Some(window) = window else { return all };
    // Between steps a sequence holds up to window + ROLLBACK - 1 tokens, which may begin at the end of
    // a page. A step adds its tokens, and a page more for each sequence that begins one.
    let held = (window + ROLLBACK - 2).div_ceil(KV_PAGE) + 1;
    all.min((held + 1) * sequences + step / KV_PAGE)
}

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

#[derive(Debug)]
struct Slot {
    generation: u32,
    live: bool,
    len: usize,
    tables: Vec<PageTable>, // [class]
}

/// The pages of a class.
#[derive(Debug)]
struct Class {
    window: Option<usize>,
    free: Vec<PageId>,
    pages: usize,
}

impl Class {
    /// The first token whose keys one at `position` needs.
    fn needs(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }
}

/// All sequences and all pages.
#[derive(Debug)]
pub(crate) struct KvCache {
    slots: Vec<Slot>,
    classes: Vec<Class>,
    context: usize,
}

impl KvCache {
    /// No sequences yet; `classes` are windows and numbers of pages.
    pub(crate) fn new(
        sequences: usize,
        context: usize,
        classes: impl IntoIterator<Item = (Option<usize>, usize)>,
    ) -> KvCache {
        let class = |(window, pages)| {
            // Handed out from the end: low pages first.
            let free = (0..pages as u32).rev().map(PageId).collect();
            Class { window, free, pages }
        };
        let classes: Vec<Class> = classes.into_iter().map(class).collect();
        let tables = vec![PageTable::default(); classes.len()];
        let slot = || Slot { generation: 0, live: false, len: 0, tables: tables.clone() };
        let slots = std::iter::repeat_with(slot).take(sequences).collect();
        KvCache { slots, classes, context }
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

    /// The sequence's pages, by class.
    pub(crate) fn tables(&self, id: SeqId) -> Result<&[PageTable], Error> {
        Ok(&self.slots[self.slot(id)?].tables)
    }

    pub(crate) fn free_pages(&self) -> usize {
        self.classes.iter().map(|c| c.free.len()).sum()
    }

    /// Makes room for `more` tokens after the present ones; nothing changes on error.
    pub(crate) fn reserve(&mut self, id: SeqId, more: usize) -> Result<(), Error> {
        let slot = self.slot(id)?;
        let entry = &mut self.slots[slot];
        let len = entry.len + more;
        if len > self.context {
            return Err(Error::ContextFull { context: self.context });
        }
        let want = |table: &PageTable| len.saturating_sub(table.room()).div_ceil(KV_PAGE);
        for (table, class) in entry.tables.iter().zip(&self.classes) {
            if want(table) > class.free.len() {
                return Err(Error::NoPages { pages: class.pages });
            }
        }
        for (table, class) in entry.tables.iter_mut().zip(&mut self.classes) {
            let left = class.free.len() - want(table);
            table.pages.extend(class.free.drain(left..).rev());
        }
        Ok(())
    }

    /// The reserved tokens were computed. Pages that windows have left behind are returned.
    pub(crate) fn advance(&mut self, id: SeqId, more: usize) -> Result<(), Error> {
        let slot = self.slot(id)?;
        let entry = &mut self.slots[slot];
        entry.len += more;
        for (table, class) in entry.tables.iter_mut().zip(&mut self.classes) {
            let first = class.needs(entry.len).saturating_sub(ROLLBACK) / KV_PAGE;
            if first > table.first {
                let behind = table.pages.drain(..first - table.first);
                class.free.extend(behind.rev());
                table.first = first;
            }
        }
        Ok(())
    }

    /// Forgets all tokens after the first `len`, or all of them if the next one would need keys that
    /// have been left behind. Returns how many are kept.
    pub(crate) fn truncate(&mut self, id: SeqId, len: usize) -> Result<usize, Error> {
        let slot = self.slot(id)?;
        let entry = &mut self.slots[slot];
        let len = len.min(entry.len);
        let mut held = entry.tables.iter().zip(&self.classes);
        let held = held.all(|(table, class)| table.first * KV_PAGE <= class.needs(len));
        entry.len = if held { len } else { 0 };
        for (table, class) in entry.tables.iter_mut().zip(&mut self.classes) {
            let keep = entry.len.div_ceil(KV_PAGE).saturating_sub(table.first);
            class.free.extend(table.pages.drain(keep..).rev());
            if entry.len == 0 {
                table.first = 0;
            }
        }
        Ok(entry.len)
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
        let mut kv = KvCache::new(1, 128, [(None, 4)]);
        let a = kv.create().unwrap();
        assert!(matches!(kv.create(), Err(Error::TooManySequences { max: 1 })));
        kv.remove(a).unwrap();
        let b = kv.create().unwrap();
        assert!(matches!(kv.len(a), Err(Error::UnknownSequence(_))));
        assert_eq!(kv.len(b).unwrap(), 0);
    }

    #[test]
    fn a_reservation_that_fails_changes_nothing() {
        // The first class has room, the second has not.
        for pages in [[3, 3], [9, 3]] {
            let classes = [None, Some(40)].into_iter().zip(pages);
            let mut kv = KvCache::new(2, 1000, classes);
            let (a, b) = (kv.create().unwrap(), kv.create().unwrap());
            kv.reserve(a, 2 * KV_PAGE).unwrap();
            let free = kv.free_pages();
            assert!(matches!(kv.reserve(b, 2 * KV_PAGE), Err(Error::NoPages { pages: 3 })));
            assert_eq!(kv.free_pages(), free);
            assert!(kv.tables(b).unwrap().iter().all(|t| t.pages.is_empty()));
            assert!(matches!(kv.reserve(a, 1001), Err(Error::ContextFull { context: 1000 })));
        }
    }

    #[test]
    fn what_a_window_has_left_behind_is_given_back_but_for_a_few_tokens() {
        let context = 4000;
        let of = |window| pages(window, context, 1, 512);
        let windows = [None, Some(100)];
        let mut kv = KvCache::new(1, context, windows.map(|w| (w, of(w))));
        let a = kv.create().unwrap();
        for _ in 0..5 {
            kv.reserve(a, 500).unwrap();
            kv.advance(a, 500).unwrap();
        }
        // The next token sees 2401 to 2500; 64 tokens before, one would see 2337 to 2436.
        let first = 2337 / KV_PAGE;
        let [all, windowed] = kv.tables(a).unwrap() else { panic!("two classes") };
        assert_eq!((all.first, all.pages.len()), (0, 79));
        assert_eq!((windowed.first, windowed.pages.len()), (first, 79 - first));
        // A page begins at 2336, which the token at 2435 needs.
        assert_eq!(kv.truncate(a, 2435).unwrap(), 2435);
        assert_eq!(kv.len(a).unwrap(), 2435);
        assert_eq!(kv.truncate(a, 2434).unwrap(), 0);
        assert_eq!((kv.len(a).unwrap(), kv.free_pages()), (0, of(None) + of(Some(100))));
        kv.reserve(a, 10).unwrap();
        assert_eq!(kv.tables(a).unwrap()[1].first, 0);
    }

    #[test]
    fn windows_need_no_more_than_they_span() {
        assert_eq!(pages(None, 4096, 3, 512), 3 * 128);
        // 4096 + 64 - 1 tokens lie in 131 pages at most; a sequence begins one, a step fills 16.
        assert_eq!(pages(Some(4096), 1 << 17, 2, 512), 2 * 132 + 16);
        assert_eq!(pages(Some(4096), 4100, 1, 512), 129);
    }

    #[derive(Clone, Debug)]
    enum Do {
        /// A step with so many tokens of each sequence.
        Step([usize; 3]),
        /// One that fails.
        Fail([usize; 3]),
        Truncate(usize, usize),
        Renew(usize),
    }

    fn any() -> impl Strategy<Value = Do> {
        let few = || prop_oneof![3 => 0usize..2, 1 => 0usize..STEP + 1];
        let step = || (few(), few(), few()).prop_map(|(a, b, c)| [a, b, c]);
        prop_oneof![
            8 => step().prop_map(Do::Step),
            1 => step().prop_map(Do::Fail),
            2 => (0usize..3, 0usize..CONTEXT).prop_map(|(who, len)| Do::Truncate(who, len)),
            1 => (0usize..3).prop_map(Do::Renew),
        ]
    }

    const CONTEXT: usize = 400;
    const STEP: usize = 90;

    proptest! {
        /// Whatever happens, in every class a page is free or in exactly one sequence, no sequence
        /// lacks what its next token sees, and no step within the limits lacks pages.
        #[test]
        fn pages_are_never_lost_shared_missed_or_short(
            actions in prop::collection::vec(any(), 1..60)
        ) {
            let windows = [Some(40), None, Some(1), Some(100), Some(CONTEXT + 1)];
            let classes = windows.map(|w| (w, pages(w, CONTEXT, 3, STEP)));
            let mut kv = KvCache::new(3, CONTEXT, classes);
            let mut ids: Vec<SeqId> = (0..3).map(|_| kv.create().unwrap()).collect();
            let mut longest = [0; 3]; // that each was since it was empty
            for action in actions {
                match action {
                    Do::Step(tokens) | Do::Fail(tokens) => {
                        let mut left = STEP;
                        let tokens = tokens.map(|n| {
                            let n = n.min(left);
                            left -= n;
                            n
                        });
                        let mut reserved = Vec::new();
                        for (&id, n) in ids.iter().zip(tokens) {
                            match kv.reserve(id, n) {
                                Ok(()) => reserved.push((id, n)),
                                Err(Error::ContextFull { .. }) => {}
                                Err(e) => prop_assert!(false, "{e}"),
                            }
                        }
                        for (id, n) in reserved {
                            let len = kv.len(id).unwrap();
                            match action {
                                Do::Step(_) => kv.advance(id, n).unwrap(),
                                _ => prop_assert_eq!(kv.truncate(id, len).unwrap(), len),
                            }
                        }
                    }
                    Do::Truncate(who, len) => {
                        let before = kv.len(ids[who]).unwrap();
                        let kept = kv.truncate(ids[who], len).unwrap();
                        prop_assert!(kept == len.min(before) || kept == 0);
                        prop_assert!(kept == len.min(before) || len + ROLLBACK < longest[who]);
                    }
                    Do::Renew(who) => {
                        kv.remove(ids[who]).unwrap();
                        ids[who] = kv.create().unwrap();
                    }
                }
                for (longest, id) in longest.iter_mut().zip(&ids) {
                    let len = kv.len(*id).unwrap();
                    *longest = if len == 0 { 0 } else { len.max(*longest) };
                }
                for (c, class) in kv.classes.iter().enumerate() {
                    let tables = ids.iter().map(|id| &kv.tables(*id).unwrap()[c]);
                    let held = tables.clone().flat_map(|t| &t.pages);
                    let mut all: Vec<u32> = held.chain(&class.free).map(|p| p.0).collect();
                    all.sort_unstable();
                    prop_assert_eq!(all, (0..class.pages as u32).collect::<Vec<u32>>());
                    for (table, id) in tables.zip(&ids) {
                        let len = kv.len(*id).unwrap();
                        prop_assert!(table.first * KV_PAGE <= class.needs(len));
                        prop_assert_eq!(table.room(), len.next_multiple_of(KV_PAGE));
                    }
                }
            }
        }
    }
}
