//! Copies of pages: into others, which sequences with a common beginning need before they differ, and out of
//! memory and back.
//!
//! Each thread copies the same pieces of every page, so copies that depend on each other need no
//! wait between them; threads copy what lies in their own node.

use super::LocalReplica;
use crate::placement::share;
use crate::state::StateLayout;
use crate::step::{PageCopy, PageId};
use memory::Block;
use threads::{View, Worker};

/// One thread's share of `copies`, one after the other.
pub(crate) fn copy_pages(replicas: &[LocalReplica], copies: &[PageCopy], worker: &mut Worker) {
    let super::Replica { graph, plan, places, .. } = &*replicas[worker.home()];
    let mut place = 0;
    if plan.places() > 1 {
        worker.switch(View::Groups);
        place = worker.group();
    }
    let held = || graph.tables.states.iter().zip(&places.states()[place]);
    let held = || held().filter_map(|(state, layout)| Some((state.class, layout.as_ref()?)));
    // Keys and values of a head go together.
    let runs = |layout: &StateLayout| layout.pieces().div_ceil(2);
    let own = share(held().map(|(_, l)| runs(l)).sum(), worker.size(), worker.rank());
    for copy in copies {
        let mut at = 0;
        for (class, layout) in held() {
            for run in 0..runs(layout) {
                at += 1;
                if class != copy.class || !own.contains(&(at - 1)) {
                    continue;
                }
                for piece in (2 * run..2 * run + 2).take_while(|piece| *piece < layout.pieces()) {
                    let (from, to) = (layout.piece(copy.from, piece), layout.piece(copy.to, piece));
                    // SAFETY: both pages are inside of the arena (checked by the caller) and
                    // different, so the pieces do not overlap. No step is under way, and of all
                    // threads only this one touches this piece.
                    unsafe { to.as_mut_slice::<u8>().copy_from_slice(from.as_slice::<u8>()) };
                }
            }
        }
    }
}

/// The pieces of a page in all places, in a fixed order.
fn pieces(replica: &super::Replica, class: usize, page: PageId) -> impl Iterator<Item = Block> {
    let states = &replica.graph.tables.states;
    let held = replica.places.states().iter().flat_map(move |layouts| states.iter().zip(layouts));
    let of_class = held.filter(move |(state, _)| state.class == class);
    of_class
        .filter_map(|(_, layout)| layout.as_ref())
        .flat_map(move |layout| (0..layout.pieces()).map(move |piece| layout.piece(page, piece)))
}

/// Bytes of a page of a class in all places.
pub(crate) fn page_bytes(replica: &super::Replica, class: usize) -> usize {
    pieces(replica, class, PageId(0)).map(|block| block.len()).sum()
}

/// What a page holds: the pieces of all places, one after the other.
pub(crate) fn read_page(replica: &super::Replica, class: usize, page: PageId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(page_bytes(replica, class));
    for block in pieces(replica, class, page) {
        // SAFETY: the page is inside of the arena (checked by the caller), and no step is under way.
        bytes.extend_from_slice(unsafe { block.as_slice::<u8>() });
    }
    bytes
}

/// Replaces what a page holds by what [`read_page`] gave.
pub(crate) fn write_page(replica: &super::Replica, class: usize, page: PageId, from: &[u8]) {
    let mut rest = from;
    for block in pieces(replica, class, page) {
        let (piece, after) = rest.split_at(block.len());
        // SAFETY: as above, and of all threads only this one touches the page.
        unsafe { block.as_mut_slice::<u8>() }.copy_from_slice(piece);
        rest = after;
    }
}
