//! What of the prefix cache goes to a disk, and how sequences begin with what is there.
//!
//! When a sequence ends, the nodes that led to it are queued, the last first: that is what memory gives up first, and
//! of what is on a disk the beginning is to go last. A sequence that begins with more than memory has is *restored*: it
//! grows page by page as if the tokens were computed, with pages that are read instead. So it shares with others what
//! it shares in any case.

use super::KvCache;
use super::prefix::{NodeId, ROOT};
use crate::disk::{Key, Name};
use crate::error::Error;
use crate::sequence::SeqId;
use graph::{Keep, PageId};
use kernels::KV_PAGE;

/// A beginning that is on disk as far as memory lacks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Tokens.
    pub len: usize,
    /// What is to be read.
    pub bytes: u64,
    /// Of the pages up to there.
    names: Vec<Name>,
}

/// A page of each class that is restored.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Tokens of the sequence with it.
    end: usize,
    /// What is to be read into which pages.
    pub reads: Vec<(Key, PageId)>,
    /// By class, whether the page then holds what it should.
    filled: Vec<bool>,
}

impl KvCache {
    /// Gives pages names from now on, of which `root` is the first, with what tells of each adapter.
    pub(crate) fn name_pages(&mut self, root: Name, adapters: Vec<[u8; 16]>) {
        self.prefixes.name_nodes(root, adapters);
    }

    /// The name of the beginning, if pages have names.
    pub(crate) fn root_name(&self) -> Option<Name> {
        self.prefixes.name(ROOT)
    }

    /// Pages of ended sequences are [to be written](Self::outgoing) from now on.
    pub(crate) fn write_pages(&mut self) {
        self.writes = true;
    }

    /// Tokens of the last sequence of a slot that shared its pages.
    pub(crate) fn left(&self, slot: usize) -> &[u32] {
        &self.slots[slot].left
    }

    /// Says what they are.
    pub(crate) fn set_left(&mut self, slot: usize, tokens: Vec<u32>) {
        self.slots[slot].left = tokens;
    }

    /// The nodes that [`left`](Self::left) has in the prefix cache.
    fn nodes_left(&self, slot: usize) -> Vec<NodeId> {
        let (mut at, mut nodes) = (ROOT, Vec::new());
        for page in self.slots[slot].left.chunks(KV_PAGE) {
            let Some(next) = self.prefixes.child(at, page) else { break };
            nodes.push(next);
            at = next;
        }
        nodes
    }

    /// What the prefix cache has of [`left`](Self::left): tokens, and pages.
    pub(crate) fn pages_left(&self, slot: usize) -> (usize, Vec<(Key, PageId)>) {
        let nodes = self.nodes_left(slot);
        let len = nodes.iter().map(|id| self.prefixes.len(*id)).sum();
        (len, nodes.into_iter().flat_map(|id| self.named(id)).collect())
    }

    /// A node's pages and what they are called.
    fn named(&self, id: NodeId) -> impl Iterator<Item = (Key, PageId)> {
        let name = self.prefixes.name(id);
        let pages = self.prefixes.pages(id).iter().enumerate();
        pages.filter_map(move |(class, page)| {
            Some((Key { name: name?, class: class as u8 }, (*page)?))
        })
    }

    /// Gives up what a slot has left, from the end, as far as nobody else needs it; how many tokens it had left.
    pub(crate) fn erase_left(&mut self, slot: usize) -> usize {
        for id in self.nodes_left(slot).into_iter().rev() {
            if !self.prefixes.give_up(id, &mut self.pools) {
                break;
            }
        }
        std::mem::take(&mut self.slots[slot].left).len()
    }

    /// Queues the nodes from `at` up.
    pub(super) fn queue(&mut self, at: NodeId) {
        if !self.writes {
            return;
        }
        let mut at = at;
        while let (false, Some(name)) = (self.prefixes.is_root(at), self.prefixes.name(at)) {
            self.outgoing.push(at, name);
            at = self.prefixes.above(at, 1);
        }
        // More than all pages cannot be there any more.
        let most = self.pools.iter().map(super::Pool::len).sum();
        while self.outgoing.len() > most {
            self.outgoing.pop();
        }
    }

    /// Pages that were left by ended sequences and are still there: those with the same tokens.
    pub(crate) fn outgoing(&mut self) -> Option<Vec<(Key, PageId)>> {
        loop {
            let (id, name) = self.outgoing.pop()?;
            if self.prefixes.name(id) == Some(name) {
                return Some(self.named(id).collect());
            }
        }
    }

    /// The longest beginning of `tokens`, without the last of them, that memory and disk have together for a sequence
    /// which has begun, if that is more than `have`. `bytes` tells how large a file is.
    pub(crate) fn find_on_disk(
        &mut self,
        id: SeqId,
        tokens: &[u32],
        have: usize,
        bytes: &dyn Fn(Key) -> Option<u64>,
    ) -> Option<Found> {
        let slot = self.slot(id).ok()?;
        let first = self.prefixes.root(&self.slots[slot].set);
        let root = self.prefixes.name(first)?;
        let tokens = &tokens[..tokens.len().saturating_sub(1)];
        let keeps: Vec<Keep> = self.pools.iter().map(super::Pool::keep).collect();
        let read = |name, class: usize| bytes(Key { name, class: class as u8 });
        let mut names = vec![root];
        let mut missing = Vec::new(); // [page][class]: bytes to read, if it is anywhere
        let mut at = Some(first);
        for page in tokens.chunks_exact(KV_PAGE) {
            let name = names[names.len() - 1].then(page);
            at = at.and_then(|at| self.prefixes.child(at, page));
            let in_memory =
                |class: usize| at.is_some_and(|at| self.prefixes.pages(at)[class].is_some());
            let of = |class| if in_memory(class) { Some(0) } else { read(name, class) };
            let found: Vec<Option<u64>> = (0..keeps.len()).map(of).collect();
            if found.iter().zip(&keeps).any(|(found, keep)| *keep == Keep::All && found.is_none()) {
                break;
            }
            missing.push(found);
            names.push(name);
        }
        // All that is needed of whole pages before `len`, which is at most a page after them.
        let before = |pages: usize, len: usize| {
            let class = |class: usize| match keeps[class] {
                // The last token's.
                Keep::Fixed if len > pages * KV_PAGE => Some(0),
                Keep::Fixed => missing[pages - 1][class],
                keep => {
                    let first = (keep.first_seen(len) / KV_PAGE).max(have / KV_PAGE);
                    (first..pages).map(|page| missing[page][class]).sum()
                }
            };
            (0..keeps.len()).map(class).sum::<Option<u64>>()
        };
        for pages in (have / KV_PAGE..=missing.len()).rev() {
            let after = &tokens[pages * KV_PAGE..];
            // The end of a sequence.
            for more in (1..=after.len().min(KV_PAGE - 1)).rev() {
                let len = pages * KV_PAGE + more;
                let name = names[pages].then(&after[..more]);
                let last = (0..keeps.len()).map(|class| read(name, class)).sum::<Option<u64>>();
                if let (true, Some(last), Some(before)) = (len > have, last, before(pages, len)) {
                    let names = names[1..=pages].iter().copied().chain([name]).collect();
                    return Some(Found { len, bytes: before + last, names });
                }
            }
            let len = pages * KV_PAGE;
            if len > have
                && let Some(bytes) = before(pages, len)
            {
                return Some(Found { len, bytes, names: names[1..=pages].to_vec() });
            }
        }
        None
    }

    /// Makes room for the next page of what was found, and tells what is to be read for it; `None` when the sequence
    /// has all of it. Copies are to be made first.
    pub(crate) fn next_piece(
        &mut self,
        id: SeqId,
        tokens: &[u32],
        found: &Found,
    ) -> Result<Option<Piece>, Error> {
        let slot = self.slot(id)?;
        let len = self.slots[slot].len;
        if len >= found.len {
            return Ok(None);
        }
        let page = len / KV_PAGE;
        let end = ((page + 1) * KV_PAGE).min(found.len);
        self.reserve(id, end - len)?;
        let entry = &self.slots[slot];
        let known = entry.known.as_ref();
        let node =
            known.and_then(|known| self.prefixes.child(known.at, &tokens[page * KV_PAGE..end]));
        let (mut reads, mut filled) = (Vec::new(), Vec::new());
        for (class, (table, pool)) in entry.tables.iter().zip(&self.pools).enumerate() {
            // Of a state there is a page for all tokens: what it is before the last is nobody's.
            let (at, needed) = match pool.keep() {
                Keep::Fixed => (0, end == found.len),
                keep => (page - table.first, page >= keep.first_seen(found.len) / KV_PAGE),
            };
            let paged = pool.keep().is_paged();
            let is_there = paged && node.is_some_and(|id| self.prefixes.pages(id)[class].is_some());
            if needed && !is_there {
                let name = found.names[page];
                reads.push((Key { name, class: class as u8 }, table.pages[at]));
            }
            filled.push(paged && (needed || is_there));
        }
        Ok(Some(Piece { end, reads, filled }))
    }

    /// The pages of a piece hold what they should. `firsts` is by class the first page from which on there is
    /// everything.
    pub(crate) fn take_piece(
        &mut self,
        id: SeqId,
        tokens: &[u32],
        piece: &Piece,
        firsts: &mut [usize],
    ) -> Result<(), Error> {
        let len = self.len(id)?;
        for (first, _) in firsts.iter_mut().zip(&piece.filled).filter(|(_, filled)| !**filled) {
            *first = len / KV_PAGE + 1;
        }
        self.advance_by(id, &tokens[len..piece.end], Some(&piece.filled))
    }

    /// All that was to be restored of a sequence is there, of class `c` from page `firsts[c]` on. Others may begin with
    /// it from now on.
    pub(crate) fn restored(&mut self, id: SeqId, firsts: &[usize]) -> Result<(), Error> {
        let slot = self.slot(id)?;
        let tables = self.slots[slot].tables.iter_mut().zip(&mut self.pools).zip(firsts);
        for ((table, pool), &first) in tables.filter(|((_, pool), _)| pool.keep().is_paged()) {
            if first > table.first {
                let lacking = table.pages.drain(..first - table.first);
                lacking.rev().for_each(|page| pool.release(page));
                table.first = first;
            }
        }
        self.publish(slot);
        Ok(())
    }

    /// Ends a sequence whose state is not what its tokens say; its pages are.
    pub(crate) fn discard(&mut self, id: SeqId) -> Result<(), Error> {
        self.truncate(id, 0)?;
        self.remove(id)
    }
}
