//! Copies of KV pages, which sequences with a common beginning need before they differ.
//!
//! Each thread copies the same heads of every page, so copies that depend on each other need no
//! wait between them; threads copy what lies in their own node.

use super::Near;
use crate::cache::CacheLayout;
use crate::placement::share;
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
    let node = if graph.nodes() == 1 { 0 } else { place };
    let layers = || graph.caches.iter().enumerate();
    let held = |layer: usize| places.cache_if_held(layer, place);
    let heads = layers().filter(|(layer, _)| held(*layer).is_some());
    let own = share(heads.map(|(_, c)| c.heads.kv_len(node)).sum(), worker.size(), worker.rank());
    for copy in copies {
        let mut at = 0;
        for (layer, cache) in layers() {
            let Some(layout) = held(layer) else { continue };
            for head in 0..cache.heads.kv_len(node) {
                if own.contains(&at) && cache.class == copy.class {
                    for half in [CacheLayout::keys, CacheLayout::values] {
                        let (from, to) =
                            (half(layout, copy.from, head), half(layout, copy.to, head));
                        // SAFETY: both pages are inside of the arena (checked by the caller) and
                        // different, so the pieces do not overlap. No step is under way, and of all
                        // threads only this one touches this head.
                        unsafe { to.as_mut_slice::<u8>().copy_from_slice(from.as_slice::<u8>()) };
                    }
                }
                at += 1;
            }
        }
    }
}
