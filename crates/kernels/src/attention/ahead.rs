//! Bringing pages near before they are read.

use super::{AttnTile, Cell, KV_CHUNK, KV_PAGE, KvType, Tile};
use crate::cpu::{PagesAhead, cpu};
use crate::simd::Dot;
use std::ptr;

/// How many pages lie between the page that is worked on and the one that is fetched meanwhile.
#[derive(Clone, Copy)]
struct Distance {
    /// To the first cache.
    near: usize,
    /// To the second, where fetching has two stages; from there the first is filled.
    far: Option<usize>,
}

/// Most rows for which memory is what a tile waits for.
const MOST_ROWS: usize = 8;

impl Distance {
    fn of(kv: KvType, head_dim: usize) -> Self {
        let page = kv.page_bytes(head_dim);
        match cpu().pages {
            PagesAhead::Near(bytes) => Self { near: bytes.div_ceil(page), far: None },
            PagesAhead::Stages(bytes) => {
                let near = (bytes / page).clamp(1, 2);
                Self { near, far: Some(2 * near) }
            }
        }
    }
}

impl KvType {
    /// How many pages of what a tile is followed by are worth knowing (see [`AttnTile::next`](super::AttnTile::next)).
    pub fn pages_ahead(self, head_dim: usize) -> usize {
        let Distance { near, far } = Distance::of(self, head_dim);
        far.unwrap_or(near)
    }
}

/// Most pages that lie between.
const MOST: usize = 24;
/// Pages of keys, or of values, of a tile.
const PAGES: usize = KV_CHUNK / KV_PAGE;

/// The pages of a tile in the order in which they are read, keys, values, what comes
/// [next](super::AttnTile::next), and how far ahead of the one at hand they are fetched.
///
/// It is made once for a tile: what a page costs beside its multiplications is not hidden by memory.
#[derive(Clone, Copy)]
pub(super) struct Order {
    /// Where nothing follows, the first page: fetching it again costs least.
    pages: [*const u8; 2 * PAGES + MOST],
    values: usize,
    near: usize,
    far: usize,
}

impl Order {
    /// Of a tile whose pages at hand are of type `kv`, with as many pages of values.
    #[inline(always)]
    pub(super) fn new(kv: KvType, tile: &AttnTile<'_>, values: usize) -> Self {
        let AttnTile { head_dim, rows, keys, next, .. } = *tile;
        let Distance { near, far } = Distance::of(kv, head_dim);
        assert!(keys.len() <= PAGES && values <= PAGES, "more pages than a chunk has");
        let first = if keys.is_empty() { ptr::null() } else { keys.start(0) };
        let mut pages = [first; 2 * PAGES + MOST];
        let of_keys = (0..keys.len()).map(|at| keys.start(at));
        let of_values = (0..values).map(|at| tile.values.start(at));
        let order = of_keys.chain(of_values).chain(next.iter().map(|page| page.as_ptr()));
        for (to, page) in pages.iter_mut().zip(order) {
            *to = page;
        }
        let far = far.filter(|_| rows <= MOST_ROWS).unwrap_or(0);
        Self { pages, values: keys.len(), near: near.min(MOST), far: far.min(MOST) }
    }
}

/// What is read some pages after a page of a tile: its lines are fetched while that page is worked on.
///
/// What is not to be fetched is the page at hand itself, whose lines are near: that costs less than to ask
/// each time.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    near: *const u8,
    far: *const u8,
}

impl Ahead {
    /// While page `page` of the keys is worked on by the rows from `first`.
    #[inline(always)]
    pub(super) fn of_keys<C: Cell>(t: &Tile<'_, C>, first: usize, page: usize) -> Self {
        Self::page(&t.order, first, page)
    }

    /// While page `page` of the values is worked on by the rows from `first`.
    #[inline(always)]
    pub(super) fn of_values<C: Cell>(t: &Tile<'_, C>, first: usize, page: usize) -> Self {
        Self::page(&t.order, first, t.order.values + page)
    }

    /// While the weights of the rows from `first` are made, if fetching has two stages. Memory would rest, so
    /// part of what the values ask for first is asked for here; where a page ends, of what follows it in memory.
    #[inline(always)]
    pub(super) fn of_weights<C: Cell>(t: &Tile<'_, C>, first: usize) -> Option<Self> {
        (first == 0 && t.order.far > 0).then(|| Self::of_values(t, first, 0))
    }

    /// The first rows of a tile bring near what the others read as well.
    #[inline(always)]
    fn page(order: &Order, first: usize, here: usize) -> Self {
        let (near, far) = if first == 0 { (order.near, order.far) } else { (0, 0) };
        Self { near: order.pages[here + near], far: order.pages[here + far] }
    }

    /// Fetches the line `offset` bytes into the page, in the first of two stages only.
    #[inline(always)]
    pub(super) fn fetch_far<D: Dot>(self, d: D, offset: usize) {
        d.prefetch_second(self.far.wrapping_add(offset));
    }

    /// Fetches the line `offset` bytes into the page.
    #[inline(always)]
    pub(super) fn fetch<D: Dot>(self, d: D, offset: usize) {
        d.prefetch_second(self.far.wrapping_add(offset));
        d.prefetch(self.near.wrapping_add(offset));
    }
}
