//! KV pages: where the keys and values of a token lie on each node.
//!
//! A page holds `KV_PAGE` tokens of all layers and of the node's KV heads in one piece, so a sequence
//! takes memory as it grows, a page at a time, and huge pages are filled before the next is begun.

use crate::builder::Graph;
use crate::error::Error;
use crate::op::Heads;
use crate::plan::Plan;
use crate::stages::Spans;
use crate::step::PageId;
use crate::storage::Limits;
pub use kernels::KvType;
use memory::{Arena, ArenaOptions, Block};

/// One layer's place in the KV pages of one node.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CacheLayout {
    block: Block,
    stride: usize, // from page to page
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
        let at = page.0 as usize * self.stride + self.offset + half * self.half;
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
    let half = |heads: &Heads| limits.kv.page_bytes(heads.dim);
    let odd = |heads: &&Heads| !heads.dim.is_multiple_of(limits.kv.head_multiple());
    if let Some(heads) = graph.caches.iter().find(odd) {
        return Err(Error::KvHead { kv: limits.kv, dim: heads.dim });
    }
    let held = graph.caches.iter().enumerate().filter(|(layer, _)| holds(*layer));
    let stride = held.map(|(_, heads)| heads.kv_len(node) * 2 * half(heads)).sum::<usize>();
    let policy = plan.shared_policy(place);
    let options = ArenaOptions { policy, huge: plan.huge, name: "KV pages" };
    let mut arena = Arena::new(limits.pages * stride, &options)?;
    let block = arena.alloc(limits.pages * stride, 64)?;
    let mut offset = 0;
    let layers = graph
        .caches
        .iter()
        .enumerate()
        .map(|(at, heads)| {
            if !holds(at) {
                return None;
            }
            let half = half(heads);
            let layer = CacheLayout { block, stride, offset, half, kv: limits.kv };
            offset += heads.kv_len(node) * 2 * half;
            Some(layer)
        })
        .collect();
    Ok((arena, layers))
}
