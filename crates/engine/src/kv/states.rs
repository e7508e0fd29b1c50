//! Fixed states of sequences: where what they were before can be found.
//!
//! A state of fixed size is changed by every token, so a sequence can be taken back only to where a
//! *snapshot* holds a page of it. Where a step ends, snapshots are made without copying, by holding the page: the
//! next step copies it before it writes (copy on write). Others are made by the step on its way ([`Save`]), into
//! pages that it is given for them. There are those of the prefix cache, which let others begin there: at every so
//! many tokens ([`interval`](super::interval)), at the last page bound of prompts, and at the ends of sequences; and a *checkpoint*
//! of a sequence of its own, behind the last token before a guess that may be refused.

use super::KvCache;
use super::pages::Pool;
use super::slot::Snapshot;
use crate::error::Error;
use crate::sequence::SeqId;
use graph::{PageId, Save};
use kernels::KV_PAGE;

impl KvCache {
    /// Whether there are fixed states at all.
    pub(super) fn has_fixed(&self) -> bool {
        self.pools.iter().any(|pool| !pool.keep().is_paged())
    }

    /// Snapshots that the next step is to make of a sequence on its way.
    pub(crate) fn saves(&self, id: SeqId) -> Result<&[Save], Error> {
        Ok(&self.slots[self.slot(id)?].coming)
    }

    /// Takes pages for the snapshots that a sequence of then `len` tokens passes in the next step, as far as there
    /// are some that nobody needs.
    pub(super) fn plan_snapshots(&mut self, slot: usize, len: usize) {
        let entry = &self.slots[slot];
        if !self.has_fixed() || entry.known.is_none() {
            return;
        }
        let next = entry.len / self.interval + 1;
        let mut ends: Vec<usize> =
            (next..).map(|n| n * self.interval).take_while(|end| *end < len).collect();
        ends.extend((entry.len < entry.mark && entry.mark < len).then_some(entry.mark));
        ends.sort_unstable();
        ends.dedup();
        for len in ends {
            if self.slots[slot].coming.iter().any(|save| save.len == len) {
                continue;
            }
            // A page for each sequence that begins or is guessed at stays.
            let spare = self.slots.iter().filter(|slot| slot.live).count();
            let Some(pages) = self.take_fixed(spare) else { break };
            self.slots[slot].coming.push(Save { len, pages });
        }
        self.slots[slot].coming.sort_unstable_by_key(|save| save.len);
    }

    /// A page of each class of fixed states, if more than `spare` of each are free or could be.
    fn take_fixed(&mut self, spare: usize) -> Option<Vec<Option<PageId>>> {
        let fixed = |pool: &Pool| !pool.keep().is_paged();
        if self.pools.iter().any(|pool| fixed(pool) && pool.free() + pool.idle() <= spare) {
            return None;
        }
        let mut pages = vec![None; self.pools.len()];
        for (class, page) in pages.iter_mut().enumerate() {
            if fixed(&self.pools[class]) {
                while self.pools[class].free() == 0 && self.prefixes.evict(class, &mut self.pools) {
                }
                *page = self.pools[class].take();
            }
        }
        Some(pages)
    }

    /// Has the next step keep the fixed states of a sequence behind its next `tokens` tokens: it can be truncated to
    /// there until the next checkpoint. False if there is no page for them.
    pub(crate) fn checkpoint_within(&mut self, id: SeqId, tokens: usize) -> Result<bool, Error> {
        let slot = self.slot(id)?;
        if !self.has_fixed() {
            return Ok(true);
        }
        self.drop_checkpoint(slot);
        let len = self.slots[slot].len + tokens;
        if !self.slots[slot].coming.iter().any(|save| save.len == len) {
            let Some(pages) = self.take_fixed(0) else { return Ok(false) };
            let coming = &mut self.slots[slot].coming;
            coming.push(Save { len, pages });
            coming.sort_unstable_by_key(|save| save.len);
        }
        self.slots[slot].checks_at = Some(len);
        Ok(true)
    }

    /// Keeps the checkpoint that a step has made on its way.
    pub(super) fn take_checkpoint(&mut self, slot: usize) {
        let entry = &mut self.slots[slot];
        let Some(len) = entry.checks_at.take() else { return };
        let Some(save) = entry.coming.iter().find(|save| save.len == len) else { return };
        for (class, page) in save.pages.iter().enumerate() {
            page.iter().for_each(|page| self.pools[class].share(*page));
        }
        entry.checkpoint = Some(Snapshot { len, pages: save.pages.clone() });
    }

    /// Lets go of the pages that were taken for the next step's snapshots.
    pub(super) fn drop_coming(&mut self, slot: usize) {
        self.slots[slot].checks_at = None;
        for save in std::mem::take(&mut self.slots[slot].coming) {
            for (class, page) in save.pages.into_iter().enumerate() {
                page.into_iter().for_each(|page| self.pools[class].release(page));
            }
        }
    }

    /// Holds the fixed states of a sequence as they are now, until the next checkpoint: it can be
    /// truncated to here.
    pub(crate) fn checkpoint(&mut self, id: SeqId) -> Result<(), Error> {
        let slot = self.slot(id)?;
        if !self.has_fixed() {
            return Ok(());
        }
        self.drop_checkpoint(slot);
        let entry = &mut self.slots[slot];
        if entry.len == 0 {
            return Ok(());
        }
        let mut pages = Vec::with_capacity(self.pools.len());
        for (table, pool) in entry.tables.iter().zip(&mut self.pools) {
            let page = table.pages.first().copied().filter(|_| !pool.keep().is_paged());
            page.iter().for_each(|page| pool.share(*page));
            pages.push(page);
        }
        entry.checkpoint = Some(Snapshot { len: entry.len, pages });
        Ok(())
    }

    fn drop_checkpoint(&mut self, slot: usize) {
        let checkpoint = self.slots[slot].checkpoint.take();
        for (class, page) in checkpoint.iter().flat_map(|c| c.pages.iter().enumerate()) {
            page.iter().for_each(|page| self.pools[class].release(*page));
        }
    }

    /// The last snapshot after at most `len` tokens for which all that is paged is `held`.
    pub(super) fn snapshot(
        &self,
        slot: usize,
        len: usize,
        held: &dyn Fn(usize) -> bool,
    ) -> Option<Snapshot> {
        let entry = &self.slots[slot];
        let fits = |snapshot: &&Snapshot| snapshot.len <= len && held(snapshot.len);
        let own = entry.checkpoint.as_ref().filter(fits);
        let known = entry.known.as_ref().filter(|_| self.has_fixed());
        let shared = known.and_then(|known| {
            let full = known.tokens.len() / KV_PAGE;
            let mut at = self.prefixes.above(known.at, full - len / KV_PAGE);
            for page in (1..=len / KV_PAGE).rev() {
                debug_assert!(!self.prefixes.is_root(at));
                let of = |(class, page): (usize, &Option<PageId>)| {
                    page.filter(|_| !self.pools[class].keep().is_paged())
                };
                let pages: Vec<_> = self.prefixes.pages(at).iter().enumerate().map(of).collect();
                let mut fixed = self.pools.iter().zip(&pages).filter(|(p, _)| !p.keep().is_paged());
                if fixed.all(|(_, page)| page.is_some()) && held(page * KV_PAGE) {
                    return Some(Snapshot { len: page * KV_PAGE, pages });
                }
                at = self.prefixes.above(at, 1);
            }
            None
        });
        match (own, shared) {
            (Some(own), Some(shared)) if shared.len > own.len => Some(shared),
            (Some(own), _) => Some(own.clone()),
            (None, shared) => shared,
        }
    }

    /// Puts the fixed states of a sequence back to what they were after `kept` tokens: as they are if it
    /// has no more, or those of a snapshot, or none.
    pub(super) fn restore(&mut self, slot: usize, kept: usize, snapshot: Option<Snapshot>) {
        let entry = &mut self.slots[slot];
        for (class, table) in entry.tables.iter_mut().enumerate() {
            let pool = &mut self.pools[class];
            if pool.keep().is_paged() || kept == entry.len && kept > 0 {
                continue;
            }
            let page = snapshot.as_ref().filter(|_| kept > 0).and_then(|s| s.pages[class]);
            page.iter().for_each(|page| pool.share(*page));
            table.pages.drain(..).for_each(|page| pool.release(page));
            table.pages.extend(page);
        }
        if entry.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.len > kept) {
            self.drop_checkpoint(slot);
        }
    }
}
