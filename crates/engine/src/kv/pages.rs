//! The pages of a class, and who holds them.
//!
//! A page is held by page tables of sequences, and by the prefix cache; sequences with a common
//! beginning hold the same pages. It is written only while one sequence alone holds it.

use graph::{Keep, PageId};

/// The pages of one class.
#[derive(Debug)]
pub(super) struct Pool {
    keep: Keep,
    pages: Vec<Held>, // [page]
    free: Vec<PageId>,
    idle: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    times: u32,
    /// One of them by the prefix cache.
    cached: bool,
}

impl Held {
    fn is_idle(self) -> bool {
        self.cached && self.times == 1
    }
}

impl Pool {
    pub(super) fn new(keep: Keep, pages: usize) -> Pool {
        // Handed out from the end: low pages first.
        let free = (0..pages as u32).rev().map(PageId).collect();
        Pool { keep, pages: vec![Held::default(); pages], free, idle: 0 }
    }

    pub(super) fn keep(&self) -> Keep {
        self.keep
    }

    /// All pages.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Those that nobody holds.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Those that the prefix cache holds and nobody else.
    pub(super) fn idle(&self) -> usize {
        self.idle
    }

    pub(super) fn is_idle(&self, page: PageId) -> bool {
        self.pages[page.0 as usize].is_idle()
    }

    /// Whether several sequences hold it.
    pub(super) fn has_others(&self, page: PageId) -> bool {
        let held = self.pages[page.0 as usize];
        held.times > 1 + u32::from(held.cached)
    }

    pub(super) fn is_shared(&self, page: PageId) -> bool {
        self.pages[page.0 as usize].times > 1
    }

    /// A page that nobody holds, held once from now on.
    pub(super) fn take(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.pages[page.0 as usize] = Held { times: 1, cached: false };
        Some(page)
    }

    /// One more holds a page that is held.
    pub(super) fn share(&mut self, page: PageId) {
        self.change(page, |held| held.times += 1);
    }

    /// The prefix cache holds a page that is held.
    pub(super) fn cache(&mut self, page: PageId) {
        self.change(page, |held| *held = Held { times: held.times + 1, cached: true });
    }

    /// One less holds a page.
    pub(super) fn release(&mut self, page: PageId) {
        self.change(page, |held| held.times -= 1);
    }

    /// The prefix cache does not hold a page any more.
    pub(super) fn forget(&mut self, page: PageId) {
        self.change(page, |held| *held = Held { times: held.times - 1, cached: false });
    }

    fn change(&mut self, page: PageId, change: impl FnOnce(&mut Held)) {
        let held = &mut self.pages[page.0 as usize];
        let before = held.is_idle();
        change(held);
        self.idle = self.idle + usize::from(held.is_idle()) - usize::from(before);
        if held.times == 0 {
            self.free.push(page);
        }
    }

    /// The first token of which the one at `position` needs what is kept.
    pub(super) fn needs(&self, position: usize) -> usize {
        self.keep.first_seen(position)
    }
}
