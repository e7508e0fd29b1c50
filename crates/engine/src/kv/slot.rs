//! A sequence in the cache: its pages by class, and its snapshots.

use super::pages::Pool;
use super::prefix::NodeId;
use graph::{Adapted, PageId, PageTable, Save};
use kernels::KV_PAGE;

/// A place for a sequence, with the state of the one that is there.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) live: bool,
    pub(super) len: usize,
    pub(super) tables: Vec<PageTable>, // [class]
    /// What fixed states were before the last guess.
    pub(super) checkpoint: Option<Snapshot>,
    /// Snapshots that the next step makes on its way.
    pub(super) coming: Vec<Save>,
    /// Tokens behind which one of them is to be the checkpoint.
    pub(super) checks_at: Option<usize>,
    /// Where the prompt ends, but for some tokens: there is to be a snapshot.
    pub(super) mark: usize,
    /// Its adapters.
    pub(super) set: Vec<Adapted>,
    /// Of a sequence that shares its pages.
    pub(super) known: Option<Known>,
    /// Tokens of the last one that did.
    pub(super) left: Vec<u32>,
}

/// What a sequence that shares its pages is made of.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) tokens: Vec<u32>,
    /// Where its last full page stands in the prefix cache.
    pub(super) at: NodeId,
}

/// Fixed states after some tokens.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) len: usize,
    /// By class; none in classes of tokens.
    pub(super) pages: Vec<Option<PageId>>,
}

impl Slot {
    /// Pages of a class that `more` tokens need, a copy of the last one included.
    pub(super) fn want(&self, table: &PageTable, pool: &Pool, more: usize) -> usize {
        let copy = usize::from(more > 0 && shared_end(self.len, table, pool).is_some());
        if !pool.keep().is_paged() {
            return copy + usize::from(more > 0 && table.pages.is_empty());
        }
        (self.len + more).saturating_sub(table.room()).div_ceil(KV_PAGE) + copy
    }
}

/// Which page of a table the token at `len` is written to, if that is shared.
pub(super) fn shared_end(len: usize, table: &PageTable, pool: &Pool) -> Option<usize> {
    let at = if pool.keep().is_paged() { len / KV_PAGE - table.first } else { 0 };
    table.pages.get(at).is_some_and(|page| pool.is_shared(*page)).then_some(at)
}
