//! Sequences and the pages of what layers keep of them.
//!
//! A page holds `KV_PAGE` tokens of all layers of a class, on every node (vLLM's PagedAttention, §4).
//! Pages are handed out when a sequence grows and returned when it shrinks or ends; in a class with a
//! sliding window also when the window has left them behind. In a class of fixed states ([`Keep::Fixed`])
//! a page is the state of a sequence, and a sequence has one; what it was before is there where a
//! snapshot holds its page ([`states`]).
//!
//! Sequences that begin alike share pages: copies of a sequence ([`KvCache::fork`]) until they differ,
//! and sequences that are begun with their tokens ([`KvCache::begin`]) with all that were before,
//! as far as their pages still are in the prefix cache ([`prefix`]), or on a disk ([`disk`]). A page that is shared is copied
//! before it is written (copy on write). What is kept of a token depends on the tokens up to it, on the sequence's adapters and
//! on nothing else, bit for bit, so nobody can tell.

pub(crate) mod disk;
mod events;
mod outgoing;
mod pages;
mod prefix;
mod sizes;
mod slot;
mod states;
#[cfg(test)]
mod tests;

use crate::adapter::normal;
use crate::error::Error;
use crate::sequence::SeqId;
pub use events::CacheEvent;
use graph::{Adapted, Keep, PageCopy, PageTable};
use kernels::KV_PAGE;
use outgoing::Outgoing;
use pages::Pool;
use prefix::{NodeId, Prefixes};
use sizes::ROLLBACK;
pub(crate) use sizes::{Sizes, interval};
use slot::{Known, Slot, shared_end};

/// KV pages of all classes, by who holds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// All.
    pub total: usize,
    /// Those that nobody holds.
    pub free: usize,
    /// Those that only the prefix cache holds: as good as free.
    pub cached: usize,
}

/// All sequences and all pages.
#[derive(Debug)]
pub(crate) struct KvCache {
    slots: Vec<Slot>,
    pools: Vec<Pool>, // [class]
    prefixes: Prefixes,
    outgoing: Outgoing,
    /// Whether pages go there.
    writes: bool,
    context: usize,
    /// Tokens from one snapshot of fixed states to the next.
    interval: usize,
    copies: Vec<PageCopy>,
}

impl KvCache {
    /// Keeps in mind from now on what changes in the prefix cache.
    pub(crate) fn tell_events(&mut self) {
        self.prefixes.tell_events();
    }

    /// What has changed since this was asked.
    pub(crate) fn take_events(&mut self) -> Vec<CacheEvent> {
        self.prefixes.take_events()
    }

    /// No sequences yet; `classes` are what is kept, and numbers of pages.
    pub(crate) fn new<K: Into<Keep>>(
        sizes: Sizes,
        classes: impl IntoIterator<Item = (K, usize)>,
    ) -> KvCache {
        let Sizes { sequences, context, interval } = sizes;
        let pools: Vec<Pool> =
            classes.into_iter().map(|(keep, pages)| Pool::new(keep.into(), pages)).collect();
        let tables = vec![PageTable::default(); pools.len()];
        let slot = || Slot {
            generation: 0,
            live: false,
            len: 0,
            tables: tables.clone(),
            checkpoint: None,
            coming: Vec::new(),
            checks_at: None,
            mark: 0,
            set: Vec::new(),
            known: None,
            left: Vec::new(),
        };
        let slots = std::iter::repeat_with(slot).take(sequences).collect();
        let prefixes = Prefixes::new(pools.iter().map(Pool::keep));
        let (outgoing, copies) = (Outgoing::default(), Vec::new());
        KvCache { slots, pools, prefixes, outgoing, writes: false, context, interval, copies }
    }

    /// An empty sequence that shares nothing, and has these adapters.
    pub(crate) fn create(&mut self, set: &[Adapted]) -> Result<SeqId, Error> {
        let max = self.slots.len();
        let slot = self.slots.iter().position(|s| !s.live);
        let slot = slot.ok_or(Error::TooManySequences { max })?;
        let entry = &mut self.slots[slot];
        entry.live = true;
        entry.set = normal(set);
        entry.generation += 1;
        Ok(SeqId::new(slot, entry.generation))
    }

    /// A sequence that shares its pages with others. It holds the longest beginning of `tokens` that
    /// the prefix cache has, without the last token: whose logits are wanted must be computed. Also
    /// how many tokens that is. Sequences with other adapters have computed something else of the same tokens, and
    /// are not looked at.
    pub(crate) fn begin(
        &mut self,
        tokens: &[u32],
        set: &[Adapted],
    ) -> Result<(SeqId, usize), Error> {
        let id = self.create(set)?;
        let root = self.prefixes.root(&self.slots[id.slot()].set);
        let path = self.prefixes.find(root, &tokens[..tokens.len().saturating_sub(1)]);
        let agree: usize = path.iter().map(|(_, same)| same).sum();
        let boundaries = (0..agree).rev().filter(|len| len.is_multiple_of(KV_PAGE));
        let usable = |len: &usize| self.firsts(&path, *len).is_some();
        let len = std::iter::once(agree).chain(boundaries).find(usable).unwrap_or(0);
        let firsts = self.firsts(&path, len).unwrap_or_default();
        let used = &path[..len.div_ceil(KV_PAGE)];
        self.prefixes.touch(used.iter().map(|(node, _)| *node));
        let entry = &mut self.slots[id.slot()];
        for (class, &first) in firsts.iter().enumerate() {
            let page = |(node, _): &(NodeId, usize)| self.prefixes.pages(*node)[class];
            let table = &mut entry.tables[class];
            table.first = if self.pools[class].keep().is_paged() { first } else { 0 };
            table.pages.extend(used[first.min(used.len())..].iter().filter_map(page));
            table.pages.iter().for_each(|page| self.pools[class].share(*page));
        }
        entry.len = len;
        let at = (len / KV_PAGE).checked_sub(1).map_or(root, |last| path[last].0);
        self.prefixes.pin(at);
        entry.known = Some(Known { tokens: tokens[..len].to_vec(), at });
        // The last page that another prompt which begins alike can use whole.
        entry.mark = tokens.len().saturating_sub(1) / KV_PAGE * KV_PAGE;
        Ok((id, len))
    }

    /// By class, the first page of `path` that a sequence has which goes on after `len` of its tokens;
    /// `None` if one that it needs is gone.
    fn firsts(&self, path: &[(NodeId, usize)], len: usize) -> Option<Vec<usize>> {
        let class = |(class, pool): (usize, &Pool)| {
            let pages = len.div_ceil(KV_PAGE);
            let has = |page: &usize| self.prefixes.pages(path[*page].0)[class].is_some();
            if !pool.keep().is_paged() {
                // The state after exactly so many tokens.
                let Some(last) = pages.checked_sub(1) else { return Some(0) };
                let end = last * KV_PAGE + self.prefixes.len(path[last].0);
                return (end == len && has(&last)).then_some(last);
            }
            let need = pool.needs(len) / KV_PAGE;
            let most = pool.needs(len).saturating_sub(ROLLBACK) / KV_PAGE;
            (need..pages).all(|page| has(&page)).then(|| {
                let more = (most..need.min(pages)).rev().take_while(has).count();
                if need < pages { need - more } else { need.min(pages) }
            })
        };
        self.pools.iter().enumerate().map(class).collect()
    }

    /// A copy of a sequence, which shares all its pages.
    pub(crate) fn fork(&mut self, id: SeqId) -> Result<SeqId, Error> {
        let slot = self.slot(id)?;
        let set = self.slots[slot].set.clone();
        let copy = self.create(&set)?;
        let Slot { len, ref tables, ref known, .. } = self.slots[slot];
        let (tables, known) = (tables.clone(), known.clone());
        for (table, pool) in tables.iter().zip(&mut self.pools) {
            table.pages.iter().for_each(|page| pool.share(*page));
        }
        known.iter().for_each(|known| self.prefixes.pin(known.at));
        let entry = &mut self.slots[copy.slot()];
        (entry.len, entry.tables, entry.known) = (len, tables, known);
        Ok(copy)
    }

    fn slot(&self, id: SeqId) -> Result<usize, Error> {
        let slot = id.slot();
        match self.slots.get(slot) {
            Some(s) if s.live && s.generation == id.generation() => Ok(slot),
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

    /// The sequence's adapters.
    pub(crate) fn adapters(&self, id: SeqId) -> Result<&[Adapted], Error> {
        Ok(&self.slots[self.slot(id)?].set)
    }

    /// The first token of a sequence from which on no other sequence holds its pages.
    pub(crate) fn own_from(&self, id: SeqId) -> Result<usize, Error> {
        let tables = &self.slots[self.slot(id)?].tables;
        let paged = tables.iter().zip(&self.pools).filter(|(_, pool)| pool.keep().is_paged());
        let own = paged.map(|(table, pool)| {
            let last = table.pages.iter().rposition(|page| pool.has_others(*page));
            last.map_or(0, |at| (table.first + at + 1) * KV_PAGE)
        });
        Ok(own.max().unwrap_or(0))
    }

    pub(crate) fn counts(&self) -> PageCounts {
        let sum = |of: fn(&Pool) -> usize| self.pools.iter().map(of).sum();
        PageCounts { total: sum(Pool::len), free: sum(Pool::free), cached: sum(Pool::idle) }
    }

    /// Whether [`reserve`](Self::reserve) would succeed, and leave `spare` pages in every class.
    pub(crate) fn has_room(&self, id: SeqId, more: usize, spare: usize) -> Result<bool, Error> {
        let entry = &self.slots[self.slot(id)?];
        let mut classes = entry.tables.iter().zip(&self.pools);
        Ok(entry.len + more <= self.context
            && classes.all(|(table, pool)| {
                entry.want(table, pool, more) + spare <= pool.free() + pool.idle()
            }))
    }

    /// Whether [`reserve`](Self::reserve) would succeed with pages that nobody holds.
    pub(crate) fn has_free(&self, id: SeqId, more: usize) -> Result<bool, Error> {
        let entry = &self.slots[self.slot(id)?];
        let mut classes = entry.tables.iter().zip(&self.pools);
        Ok(entry.len + more <= self.context
            && classes.all(|(table, pool)| entry.want(table, pool, more) <= pool.free()))
    }

    /// Makes room for `more` tokens after the present ones; nothing changes on error. Pages of the
    /// prefix cache are given up where none is free.
    pub(crate) fn reserve(&mut self, id: SeqId, more: usize) -> Result<(), Error> {
        let slot = self.slot(id)?;
        let entry = &mut self.slots[slot];
        let len = entry.len + more;
        if len > self.context {
            return Err(Error::ContextFull { context: self.context });
        }
        for (table, pool) in entry.tables.iter().zip(&self.pools) {
            if entry.want(table, pool, more) > pool.free() + pool.idle() {
                return Err(Error::NoPages { pages: pool.len() });
            }
        }
        for class in 0..self.pools.len() {
            let want = entry.want(&entry.tables[class], &self.pools[class], more);
            while self.pools[class].free() < want && self.prefixes.evict(class, &mut self.pools) {}
            let (table, pool) = (&mut entry.tables[class], &mut self.pools[class]);
            let keep = pool.keep();
            if let Some(at) = shared_end(entry.len, table, pool).filter(|_| more > 0)
                && let Some(to) = pool.take()
            {
                let from = std::mem::replace(&mut table.pages[at], to);
                pool.release(from);
                self.copies.push(PageCopy { class, from, to });
            }
            let short = |table: &PageTable| match keep.is_paged() {
                true => table.room() < len,
                false => more > 0 && table.pages.is_empty(),
            };
            while short(table) {
                let Some(page) = pool.take() else {
                    // Counted above; what windows share could only be counted too high.
                    return Err(Error::NoPages { pages: pool.len() });
                };
                table.pages.push(page);
            }
        }
        self.plan_snapshots(slot, len);
        Ok(())
    }

    /// Pages to be copied before the next step, in this order.
    pub(crate) fn copies(&self) -> &[PageCopy] {
        &self.copies
    }

    /// All of them are copied.
    pub(crate) fn copied(&mut self) {
        self.copies.clear();
    }

    /// The reserved `tokens` were computed. Pages that windows have left behind are returned.
    pub(crate) fn advance(&mut self, id: SeqId, tokens: &[u32]) -> Result<(), Error> {
        self.advance_by(id, tokens, None)
    }

    /// The same, if only the pages of some classes hold what they should.
    pub(crate) fn advance_by(
        &mut self,
        id: SeqId,
        tokens: &[u32],
        filled: Option<&[bool]>,
    ) -> Result<(), Error> {
        let slot = self.slot(id)?;
        let entry = &mut self.slots[slot];
        entry.len += tokens.len();
        if let Some(known) = &mut entry.known {
            let full = known.tokens.len() / KV_PAGE;
            known.tokens.extend_from_slice(tokens);
            for page in full..entry.len / KV_PAGE {
                // Of a state there is what it is now, and what was kept on the way.
                let end = (page + 1) * KV_PAGE;
                let now =
                    end == entry.len && (end.is_multiple_of(self.interval) || end == entry.mark);
                let kept = entry.coming.iter().find(|save| save.len == end);
                let own = |(class, (table, pool)): (usize, (&PageTable, &Pool))| match pool
                    .keep()
                    .is_paged()
                {
                    _ if filled.is_some_and(|filled| !filled[class]) => None,
                    true => {
                        let at = page.checked_sub(table.first);
                        at.and_then(|at| table.pages.get(at).copied())
                    }
                    false if now => table.pages.first().copied(),
                    false => kept.and_then(|save| save.pages[class]),
                };
                let pages: Vec<_> =
                    entry.tables.iter().zip(&self.pools).enumerate().map(own).collect();
                let tokens = &known.tokens[page * KV_PAGE..][..KV_PAGE];
                let pools = &mut self.pools;
                let Some(node) = self.prefixes.insert(known.at, tokens, &pages, pools) else {
                    continue; // not of full pages
                };
                // What another has computed meanwhile is as good.
                let theirs = self.prefixes.pages(node);
                for (class, table) in entry.tables.iter_mut().enumerate() {
                    if let (Some(theirs), Some(own)) = (theirs[class], pages[class])
                        && theirs != own
                        && (now || self.pools[class].keep().is_paged())
                    {
                        self.pools[class].share(theirs);
                        self.pools[class].release(own);
                        let at = if self.pools[class].keep().is_paged() {
                            page - table.first
                        } else {
                            0
                        };
                        table.pages[at] = theirs;
                    }
                }
                self.prefixes.pin(node);
                self.prefixes.unpin(known.at, &mut self.pools);
                known.at = node;
            }
        }
        let entry = &self.slots[slot];
        if entry.len - tokens.len() < entry.mark && entry.mark <= entry.len {
            self.see_window(slot, entry.mark);
        }
        self.take_checkpoint(slot);
        self.drop_coming(slot);
        let entry = &mut self.slots[slot];
        let paged = entry.tables.iter_mut().zip(&mut self.pools);
        for (table, pool) in paged.filter(|(_, pool)| pool.keep().is_paged()) {
            let first = pool.needs(entry.len).saturating_sub(ROLLBACK) / KV_PAGE;
            if first > table.first {
                let behind = table.pages.drain(..first - table.first);
                behind.rev().for_each(|page| pool.release(page));
                table.first = first;
            }
        }
        Ok(())
    }

    /// A sequence that goes on behind the first `len` tokens of this one, which end a page, is likely: what it will see
    /// of them behind a window stays longer than other pages.
    fn see_window(&mut self, slot: usize, len: usize) {
        let Some(known) = &self.slots[slot].known else { return };
        let (full, pages) = (known.tokens.len() / KV_PAGE, len / KV_PAGE);
        let mut at = self.prefixes.above(known.at, full - pages);
        let needs = |pool: &Pool| pool.keep().window().map_or(pages, |_| pool.needs(len) / KV_PAGE);
        let firsts: Vec<usize> = self.pools.iter().map(needs).collect();
        for page in (firsts.iter().copied().min().unwrap_or(pages)..pages).rev() {
            for (class, _) in firsts.iter().enumerate().filter(|(_, first)| **first <= page) {
                self.prefixes.see(at, class);
            }
            at = self.prefixes.above(at, 1);
        }
    }

    /// Forgets the tokens after the first `len`, and as many before as it takes to find all that the next
    /// one needs: keys may have been left behind by a window, and a fixed state is what it was only where
    /// there is a snapshot. Returns how many are kept.
    pub(crate) fn truncate(&mut self, id: SeqId, len: usize) -> Result<usize, Error> {
        let slot = self.slot(id)?;
        self.drop_coming(slot);
        let entry = &self.slots[slot];
        let (len, before) = (len.min(entry.len), entry.len);
        let paged = || entry.tables.iter().zip(&self.pools).filter(|(_, p)| p.keep().is_paged());
        let held = |len: usize| paged().all(|(table, p)| table.first * KV_PAGE <= p.needs(len));
        let snapshot = if len == before { None } else { self.snapshot(slot, len, &held) };
        let kept = match &snapshot {
            Some(snapshot) => snapshot.len,
            None if (len == before || !self.has_fixed()) && held(len) => len,
            None => 0,
        };
        self.restore(slot, kept, snapshot);
        let entry = &mut self.slots[slot];
        entry.len = kept;
        let paged = entry.tables.iter_mut().zip(&mut self.pools);
        for (table, pool) in paged.filter(|(_, pool)| pool.keep().is_paged()) {
            let keep = entry.len.div_ceil(KV_PAGE).saturating_sub(table.first);
            table.pages.drain(keep..).rev().for_each(|page| pool.release(page));
            if entry.len == 0 {
                table.first = 0;
            }
        }
        if let Some(known) = &mut entry.known {
            let back = known.tokens.len() / KV_PAGE - entry.len / KV_PAGE;
            let at = self.prefixes.above(known.at, back);
            self.prefixes.pin(at);
            self.prefixes.unpin(known.at, &mut self.pools);
            known.at = at;
            known.tokens.truncate(entry.len);
        }
        Ok(entry.len)
    }

    /// Ends a sequence. What it shares stays in the prefix cache, to the last token.
    pub(crate) fn remove(&mut self, id: SeqId) -> Result<(), Error> {
        let slot = self.slot(id)?;
        if let Some(last) = self.publish(slot) {
            self.queue(last);
        }
        let whole = self.slots[slot].len / KV_PAGE * KV_PAGE;
        self.see_window(slot, whole);
        // Who may ask for it, gives pages names. With adapters it is not to be saved.
        if let (Some(known), Some(_)) = (&self.slots[slot].known, self.root_name()) {
            let plain = self.slots[slot].set.is_empty();
            self.slots[slot].left = if plain { known.tokens.clone() } else { Vec::new() };
        }
        self.truncate(id, 0)?;
        let known = self.slots[slot].known.take();
        known.iter().for_each(|known| self.prefixes.unpin(known.at, &mut self.pools));
        self.slots[slot].live = false;
        self.slots[slot].mark = 0;
        Ok(())
    }
}

impl KvCache {
    /// Puts what a sequence is now into the prefix cache, to the last token. Where it ends there.
    fn publish(&mut self, slot: usize) -> Option<NodeId> {
        let entry = &self.slots[slot];
        let known = entry.known.as_ref()?;
        let rest = &known.tokens[entry.len / KV_PAGE * KV_PAGE..];
        let last = |(table, pool): (&PageTable, &Pool)| match pool.keep().is_paged() {
            true if rest.is_empty() => None,
            true => table.pages.get(entry.len / KV_PAGE - table.first).copied(),
            false => table.pages.first().copied(),
        };
        let pages: Vec<_> = entry.tables.iter().zip(&self.pools).map(last).collect();
        if !rest.is_empty() {
            let leaf = self.prefixes.insert(known.at, rest, &pages, &mut self.pools);
            // Another has all of it, and more.
            return Some(leaf.unwrap_or(known.at));
        }
        if !self.prefixes.is_root(known.at) {
            self.prefixes.complete(known.at, &pages, &mut self.pools);
        }
        Some(known.at)
    }
}
