//! KV pages: where the keys and values of a token lie on each node.
//!
//! Layers that see equally far form a class: those that see everything, and those of each sliding
//! window. A page holds `KV_PAGE` tokens of all layers of a class and of the node's KV heads, so what
//! lies behind a window is given back whole. Pages of consecutive numbers interleave in groups: what a
//! group holds of a layer's head lies in one run of keys and one of values, about [`RUN`] bytes long, which
//! is enough for the memory to stream. Groups follow each other, so memory is taken as sequences grow, and
//! huge pages are filled before the next group is begun.

use crate::builder::Graph;
use crate::error::Error;
use crate::op::Heads;
use crate::plan::Plan;
use crate::stages::Spans;
use crate::step::PageId;
use crate::storage::Limits;
pub use kernels::KvType;
use memory::{Arena, ArenaOptions, Block};

/// Bytes of a run, about: a group is a power of two of pages. Reading 940 MB of keys and values of Qwen3-0.6B
/// in the order of attention, two threads of Zen 5, median and quartiles of 40 rounds in GB/s (2026-11-21): runs
/// of 8 KiB 42.4 (39.6, 45.6), 16 KiB 43.2 (39.2, 45.7), 32 KiB 47.3 (41.1, 51.4), 64 KiB 48.2 (43.2, 52.9), all
/// in one 48.9 (45.3, 53.4). Two of an Emerald Rapids, 1.5 GiB, with the multiplications of four rows
/// (2026-11-24): 16 KiB 26.6, 32 KiB 28.3, 64 KiB 29.0, 512 KiB 30.2. The first page of a group touches the memory
/// of all.
const RUN: usize = 64 << 10;

/// Most pages of a group, as a power of two: a thousand tokens.
const MOST_SHIFT: u32 = 5;

const ALIGN: usize = 64;

/// The most KV classes that a graph can have. Families have one window beside full attention.
pub const KV_CLASSES: usize = 4;

/// The cache of one layer.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    pub heads: Heads,
    /// Which pages it has a part of.
    pub class: usize,
}

/// One layer's place in the KV pages of one node.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CacheLayout {
    block: Block,
    stride: usize, // bytes of a page
    offset: usize, // of the layer in a page
    half: usize,   // bytes of one KV head's keys (or values) in a page
    group: Group,
    kv: KvType,
}

/// How many pages lie interleaved, as a power of two.
#[derive(Copy, Clone, Debug)]
struct Group {
    shift: u32,
}

impl Group {
    /// For pages of which the shortest piece has `half` bytes.
    fn of(half: usize) -> Group {
        let pages = (RUN / half.max(1)).next_power_of_two();
        Group { shift: pages.ilog2().min(MOST_SHIFT) }
    }

    fn pages(self) -> usize {
        1 << self.shift
    }

    /// Where a piece of `len` bytes of a page of `stride` is, `before` bytes of which come first.
    fn place(self, page: usize, stride: usize, before: usize, len: usize) -> usize {
        let (group, within) = (page >> self.shift, page & (self.pages() - 1));
        ((group * stride + before) << self.shift) + within * len
    }
}

impl CacheLayout {
    /// How it stores them.
    pub(crate) fn kv(&self) -> KvType {
        self.kv
    }

    /// Keys of one KV head of a page.
    pub(crate) fn keys(&self, page: PageId, head: usize) -> Block {
        self.at(page, 2 * head)
    }

    /// Values of one KV head of a page.
    pub(crate) fn values(&self, page: PageId, head: usize) -> Block {
        self.at(page, 2 * head + 1)
    }

    fn at(&self, page: PageId, half: usize) -> Block {
        let before = self.offset + half * self.half;
        let at = self.group.place(page.0 as usize, self.stride, before, self.half);
        self.block.sub(at, self.half)
    }
}

/// Reserves the pages of `place` for the layers that it holds, by layer; memory is taken when they
/// are written.
pub(crate) fn allocate(
    graph: &Graph,
    plan: &Plan,
    spans: &Spans,
    place: usize,
    limits: Limits,
) -> Result<(Arena, Vec<Option<CacheLayout>>), Error> {
    let node = if graph.nodes() == 1 { 0 } else { place };
    let holds = |layer: usize| spans.len() == 1 || spans.holds_cache(graph, layer, place);
    let half = |cache: &Cache| limits.kv.page_bytes(cache.heads.dim);
    let odd = |cache: &&Cache| !cache.heads.dim.is_multiple_of(limits.kv.head_multiple());
    if let Some(cache) = graph.caches.iter().find(odd) {
        return Err(Error::KvHead { kv: limits.kv, dim: cache.heads.dim });
    }
    let bytes = |cache: &Cache| cache.heads.kv_len(node) * 2 * half(cache);
    // Of a page, by class; and its shortest piece.
    let (mut strides, mut shortest) = ([0; KV_CLASSES], [RUN; KV_CLASSES]);
    for (_, cache) in graph.caches.iter().enumerate().filter(|(layer, _)| holds(*layer)) {
        strides[cache.class] += bytes(cache);
        shortest[cache.class] = shortest[cache.class].min(half(cache));
    }
    let groups = shortest.map(Group::of);
    let sizes: Vec<usize> = (0..KV_CLASSES)
        .map(|class| limits.pages[class].next_multiple_of(groups[class].pages()) * strides[class])
        .collect();
    let policy = plan.shared_policy(place);
    let options = ArenaOptions { policy, huge: plan.huge, name: "KV pages" };
    let mut arena = Arena::new(sizes.iter().map(|size| size + ALIGN).sum(), &options)?;
    let mut blocks = Vec::with_capacity(sizes.len());
    for size in sizes {
        blocks.push(arena.alloc(size, ALIGN)?);
    }
    let mut offsets = [0; KV_CLASSES];
    let layers = graph
        .caches
        .iter()
        .enumerate()
        .map(|(at, cache)| {
            if !holds(at) {
                return None;
            }
            let Cache { class, .. } = *cache;
            let (block, stride, offset) = (blocks[class], strides[class], offsets[class]);
            offsets[class] += bytes(cache);
            let (half, group) = (half(cache), groups[class]);
            Some(CacheLayout { block, stride, offset, half, group, kv: limits.kv })
        })
        .collect();
    Ok((arena, layers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_pages_fill_memory_and_a_group_is_one_run() {
        let lens = [24, 24, 8, 8];
        let stride = lens.iter().sum::<usize>();
        for shift in [0, 2, 5] {
            let group = Group { shift };
            let mut all = Vec::new();
            for page in 0..3 * group.pages() {
                let mut before = 0;
                for len in lens {
                    let at = group.place(page, stride, before, len);
                    all.push(at..at + len);
                    if page % group.pages() > 0 {
                        assert_eq!(group.place(page - 1, stride, before, len) + len, at);
                    }
                    before += len;
                }
            }
            all.sort_by_key(|piece| piece.start);
            assert!(all.windows(2).all(|two| two[0].end == two[1].start), "{all:?}");
            let ends = (all[0].start, all.last().unwrap().end);
            assert_eq!(ends, (0, 3 * group.pages() * stride));
        }
    }

    #[test]
    fn runs_are_long_and_groups_bounded() {
        let pages = |kv: KvType, dim| Group::of(kv.page_bytes(dim)).pages();
        assert_eq!((pages(KvType::F16, 128), pages(KvType::F16, 64)), (8, 16));
        assert_eq!((pages(KvType::Q8_0, 128), pages(KvType::Q4_0, 64)), (16, 32));
        assert_eq!(pages(KvType::F32, 1024), 1, "longer than a run by itself");
    }
}
