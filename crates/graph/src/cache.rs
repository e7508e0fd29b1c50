//! KV pages: where the keys and values of a token lie on each node.
//!
//! Layers that see equally far form a class: those that see everything, and those of each sliding
//! window. A page holds `KV_PAGE` tokens of all layers of a class and of the node's KV heads, so what
//! lies behind a window is given back whole. Pages of consecutive
//! numbers, [`TOGETHER`] of them, interleave: what they hold of a layer's head lies in one run of
//! keys and one of values, long enough for the memory to stream (8 KiB are not). Groups follow
//! each other, so memory is taken as sequences grow, and huge pages are filled before the next group
//! is begun.

use crate::builder::Graph;
use crate::error::Error;
use crate::op::Heads;
use crate::plan::Plan;
use crate::stages::Spans;
use crate::step::PageId;
use crate::storage::Limits;
pub use kernels::KvType;
use memory::{Arena, ArenaOptions, Block};

/// Pages that lie interleaved. Reading 940 MB of keys and values of Qwen3-0.6B in the order of
/// attention, two threads of Zen 5, median and quartiles of 40 rounds in GB/s (2026-11-21): pages by
/// themselves 42.4 (39.6, 45.6), two together 43.2 (39.2, 45.7), four 47.3 (41.1, 51.4), eight 48.2
/// (43.2, 52.9), all 48.9 (45.3, 53.4). The first page of a group touches the memory of all.
const TOGETHER: usize = 4;

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
    kv: KvType,
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
        self.block.sub(place(page.0 as usize, self.stride, before, self.half), self.half)
    }
}

/// Where a piece of `len` bytes of a page of `stride` is, `before` bytes of which come first.
fn place(page: usize, stride: usize, before: usize, len: usize) -> usize {
    let (group, within) = (page / TOGETHER, page % TOGETHER);
    TOGETHER * (group * stride + before) + within * len
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
    // Of a page, by class.
    let mut strides = [0; KV_CLASSES];
    for (_, cache) in graph.caches.iter().enumerate().filter(|(layer, _)| holds(*layer)) {
        strides[cache.class] += bytes(cache);
    }
    let sizes: Vec<usize> = strides
        .iter()
        .zip(limits.pages)
        .map(|(stride, pages)| pages.next_multiple_of(TOGETHER) * stride)
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
            Some(CacheLayout { block, stride, offset, half: half(cache), kv: limits.kv })
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
        let mut all = Vec::new();
        for page in 0..3 * TOGETHER {
            let mut before = 0;
            for len in lens {
                let at = place(page, stride, before, len);
                all.push(at..at + len);
                if page % TOGETHER > 0 {
                    assert_eq!(place(page - 1, stride, before, len) + len, at);
                }
                before += len;
            }
        }
        all.sort_by_key(|piece| piece.start);
        assert!(all.windows(2).all(|two| two[0].end == two[1].start), "{all:?}");
        assert_eq!((all[0].start, all.last().unwrap().end), (0, 3 * TOGETHER * stride));
    }
}
