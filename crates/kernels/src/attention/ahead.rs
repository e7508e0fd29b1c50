//! Bringing pages near before they are read.

use super::{Cell, KvType, Tile};
use crate::isa::likes_streams;
use crate::simd::Dot;

/// How many pages lie between the page that is worked on and the one that is fetched meanwhile.
#[derive(Clone, Copy)]
struct Distance {
    /// To the first cache.
    near: usize,
    /// To the second, where fetching has two stages; from there the first is filled.
    far: Option<usize>,
}

/// Bytes to the first cache in one stage: enough to cover the memory's latency, few enough to stay there. A
/// token of Qwen3-0.6B Q4_0 at depth 8192, one thread of Zen 5, in ms (2026-11-21): f16 91 without, 57 at 4
/// and 8 KiB, 53 at 12 to 24; q8_0 55 without, 39 at 4 to 16, 42 at 24. Reading the pages and doing nothing
/// takes as long: f16 53, q8_0 37.
const ONE_STAGE: usize = 12 << 10;

/// Most bytes to the first cache in two stages. Keys of up to two pages are multiplied at once, so it is two
/// pages, and four to the second: see "At depth" in docs/performance.md.
const TWO_STAGES: usize = 16 << 10;

/// Most rows for which memory is what a tile waits for.
const MOST_ROWS: usize = 8;

impl Distance {
    fn of(kv: KvType, head_dim: usize) -> Self {
        let page = kv.page_bytes(head_dim);
        if !likes_streams() {
            return Self { near: ONE_STAGE.div_ceil(page), far: None };
        }
        let near = (TWO_STAGES / page).clamp(1, 2);
        Self { near, far: Some(2 * near) }
    }
}

impl KvType {
    /// How many pages of what a tile is followed by are worth knowing (see [`AttnTile::next`](super::AttnTile::next)).
    pub fn pages_ahead(self, head_dim: usize) -> usize {
        let Distance { near, far } = Distance::of(self, head_dim);
        far.unwrap_or(near)
    }
}

/// What is read some pages after a page of a tile: its lines are fetched while that page is worked
/// on. The order is keys, values, what comes [next](super::AttnTile::next).
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    /// None of what the rows before have brought near.
    near: Option<*const u8>,
    far: Option<*const u8>,
}

impl Ahead {
    /// While page `page` of the keys is worked on by the rows from `first`.
    #[inline(always)]
    pub(super) fn of_keys<C: Cell>(t: &Tile<'_, C>, first: usize, page: usize) -> Self {
        Self::page(t, first, page)
    }

    /// While page `page` of the values is worked on by the rows from `first`.
    #[inline(always)]
    pub(super) fn of_values<C: Cell>(t: &Tile<'_, C>, first: usize, page: usize) -> Self {
        Self::page(t, first, t.k_pages.len() + page)
    }

    /// While the weights of the rows from `first` are made. Memory would rest, so part of what the values ask
    /// for first is asked for here; where a page ends, of what follows it in memory.
    #[inline(always)]
    pub(super) fn of_weights<C: Cell>(t: &Tile<'_, C>, first: usize) -> Self {
        Self::page(t, first, t.k_pages.len())
    }

    #[inline(always)]
    fn page<C: Cell>(t: &Tile<'_, C>, first: usize, here: usize) -> Self {
        let (keys, values) = (t.k_pages.len(), t.v_pages.len());
        let page = |i: usize| {
            if i < keys {
                return t.k_pages[i].as_ptr().cast();
            }
            if i < keys + values {
                return t.v_pages[i - keys].as_ptr().cast();
            }
            // Where nothing follows, what is at hand: fetching it again costs least.
            let next = t.next.get(i - keys - values);
            next.map_or(t.k_pages[0].as_ptr().cast(), |next| next.as_ptr())
        };
        if first > 0 {
            return Self { near: None, far: None };
        }
        let Distance { near, far } = Distance::of(C::TYPE, t.head_dim);
        let far = far.filter(|_| t.limits.len() <= MOST_ROWS);
        Self { near: Some(page(here + near)), far: far.map(|far| page(here + far)) }
    }

    /// Fetches the line `offset` bytes into the page, in the first of two stages only.
    #[inline(always)]
    pub(super) fn fetch_far<D: Dot>(self, d: D, offset: usize) {
        if let Some(far) = self.far.filter(|_| self.near.is_some()) {
            d.prefetch_second(far.wrapping_add(offset));
        }
    }

    /// Fetches the line `offset` bytes into the page.
    #[inline(always)]
    pub(super) fn fetch<D: Dot>(self, d: D, offset: usize) {
        if let Some(near) = self.near {
            if let Some(far) = self.far {
                d.prefetch_second(far.wrapping_add(offset));
            }
            d.prefetch(near.wrapping_add(offset));
        }
    }
}
