//! The items of attention and how they are dealt to threads.

use super::Thread;
use crate::placement::share;
use crate::step::Seen;
use std::ops::Range;
use threads::{Homes, Worker};

impl Thread<'_> {
    /// Runs `item` for this thread's items: every `size`-th, or as tasks under the policy of
    /// [`Plan::tasks`]. A wait follows before anybody reads what items write
    /// ([`Deal::Items`]).
    ///
    /// [`Plan::tasks`]: crate::Plan::tasks
    /// [`Deal::Items`]: crate::claims::Deal::Items
    pub(crate) fn each_in_turn(&self, items: usize, worker: &mut Worker, item: impl FnMut(usize)) {
        match self.step.plan.tasks {
            Some(policy) => worker.tasks(policy, Homes::None(items), item),
            None => (self.rank..items).step_by(self.size).for_each(item),
        }
    }
}

/// Items (KV head, range) of split attention: those of a token, one KV head after the other and each
/// from its first range to its last. A thread's share is a run of items, so that consecutive ones
/// need the same queries.
#[derive(Copy, Clone)]
pub(crate) struct Items {
    pub(crate) kv_heads: usize,
    pub(crate) all: usize,
    pub(crate) threads: usize,
}

impl Items {
    /// The items of `rank`.
    pub(crate) fn of(&self, rank: usize) -> Range<usize> {
        share(self.all, self.threads, rank)
    }

    /// The first item of a KV head of a token.
    pub(crate) fn first(&self, t: &Seen, kv: usize) -> usize {
        t.states as usize * self.kv_heads + kv * t.ranges()
    }

    /// How many ranges, from the first, the thread with `run` folds into one state: all that it has
    /// of them if it has the first one. None otherwise.
    pub(crate) fn folded(&self, t: &Seen, kv: usize, run: &Range<usize>) -> usize {
        let first = self.first(t, kv);
        if run.contains(&first) { t.ranges().min(run.end - first) } else { 0 }
    }
}

/// The order in which items (query tile, KV head) are dealt to threads in turn. Within a band of tiles
/// it goes from head to head, so that a thread's next items find the head's keys and values in its
/// cache; bands are small parts of the whole, because late tiles see more keys than early ones.
#[derive(Copy, Clone)]
pub(crate) struct TileOrder {
    kv_heads: usize,
    /// Tiles of a band.
    band: usize,
    /// Items in whole bands; the others go tile by tile.
    banded: usize,
}

impl TileOrder {
    /// Tiles of a band that a thread has one after the other.
    const RUN: usize = 4;
    /// The fewest bands.
    const BANDS: usize = 4;

    pub(crate) fn new(tiles: usize, kv_heads: usize, threads: usize) -> TileOrder {
        let band = threads * Self::RUN;
        let bands = if tiles < Self::BANDS * band { 0 } else { tiles / band };
        TileOrder { kv_heads, band, banded: bands * band * kv_heads }
    }

    /// Tile and KV head of an item.
    pub(crate) fn at(&self, item: usize) -> (usize, usize) {
        let Some(rest) = item.checked_sub(self.banded) else {
            let (before, within) =
                (item / self.band / self.kv_heads, item % (self.band * self.kv_heads));
            let (kv, tile) = (within / self.band, within % self.band);
            // There and back, so that no thread always has the last tiles.
            let tile = if kv % 2 == 0 { tile } else { self.band - 1 - tile };
            return (before * self.band + tile, kv);
        };
        (self.banded / self.kv_heads + rest / self.kv_heads, rest % self.kv_heads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_of_every_tile_is_dealt_once_and_evenly() {
        for (tiles, kv_heads, threads) in [(64, 8, 2), (70, 3, 4), (5, 2, 8), (64, 1, 3), (1, 8, 2)]
        {
            let order = TileOrder::new(tiles, kv_heads, threads);
            let items = tiles * kv_heads;
            let mut seen = vec![0; items];
            let mut keys = vec![0; threads];
            for item in 0..items {
                let (tile, kv) = order.at(item);
                seen[tile * kv_heads + kv] += 1;
                keys[item % threads] += tile + 1;
            }
            assert!(seen.iter().all(|&n| n == 1), "{tiles} tiles, {kv_heads} heads: {seen:?}");
            // Late tiles are long: nobody has more than its share and two of the longest.
            let share = keys.iter().sum::<usize>() / threads;
            let most = *keys.iter().max().unwrap();
            assert!(most <= share + 2 * tiles, "{tiles} tiles, {threads} threads: {keys:?}");
        }
    }
}
