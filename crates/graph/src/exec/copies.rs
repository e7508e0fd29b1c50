//! Copies of pages, which sequences with a common beginning need before they differ.
//!
//! Each thread copies the same pieces of every page, so copies that depend on each other need no
//! wait between them; threads copy what lies in their own node.

use super::Near;
use crate::placement::share;
use crate::state::StateLayout;
use crate::step::PageCopy;
use threads::{View, Worker};

/// One thread's share of `copies`, one after the other.
pub(crate) fn copy_pages(replicas: &[Near], copies: &[PageCopy], worker: &mut Worker) {
    let super::Replica { graph, plan, places, .. } = &*replicas[worker.home()];
    let mut place = 0;
    if plan.places() > 1 {
        worker.switch(View::Groups);
        place = worker.group();
    }
    let held = || graph.states.iter().zip(&places.states()[place]);
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
