//! The place of the content that layers keep of a sequence ([`crate::Keep`]), on each node.
//!
//! Layers of a class share its *pages*. In a class of tokens a page holds `KV_PAGE` tokens of all its layers and
//! of the node's KV heads, so what lies behind a window is given back whole. In a class of fixed states a
//! page is the state of a sequence in all its layers: the live one, or a snapshot. Whoever hands out pages
//! answers what sharing, forking, truncation and preemption mean for each.
//!
//! Pages of tokens interleave in groups by consecutive numbers: what a group holds of a layer's head lies
//! in one run of keys and one of values, about [`RUN`] bytes long, which is enough for the memory to
//! stream. Groups follow each other, so memory is taken as sequences grow, and huge pages are filled
//! before the next group is begun.

use crate::error::Error;
use crate::keep::{KV_CLASSES, Keep};
use crate::op::Heads;
use crate::step::PageId;
pub use kernels::{KvType, KvTypes};
use memory::{Arena, ArenaOptions, Block};
use std::ops::Range;

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

/// What one operator keeps. An operator may have several.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub keep: Keep,
    pub shape: StateShape,
    /// Which pages it has a part of.
    pub class: usize,
}

/// How large a state is.
#[derive(Clone, Debug)]
pub enum StateShape {
    /// Keys and values of heads, or latents.
    Heads(Heads),
    /// Pieces of `len` f32 each, which threads work on one by one (heads, or runs of channels).
    Floats {
        /// Pieces on each node.
        pieces: Vec<usize>,
        /// f32 of a piece.
        len: usize,
    },
}

impl State {
    /// Heads of a state that is made of keys and values.
    pub(crate) fn heads(&self) -> Option<&Heads> {
        match &self.shape {
            StateShape::Heads(heads) => Some(heads),
            StateShape::Floats { .. } => None,
        }
    }

    /// Pieces of a page on a node; keys and values of a head are two, a latent is one.
    fn pieces(&self, node: usize, kv: KvTypes) -> Pieces {
        match &self.shape {
            StateShape::Heads(heads) => {
                let (kv, dim) = (heads.types(kv), heads.stored(kv));
                Pieces {
                    count: heads.halves() * heads.stored_len(node),
                    bytes: [kv.keys, kv.values].map(|kv| kv.page_bytes(dim)),
                }
            }
            StateShape::Floats { pieces, len } => Pieces {
                count: pieces[node],
                bytes: [(len * size_of::<f32>()).next_multiple_of(ALIGN); 2],
            },
        }
    }

    /// Bytes of a page on a node.
    pub(crate) fn page_bytes(&self, node: usize, kv: KvTypes) -> usize {
        let pieces = self.pieces(node, kv);
        pieces.before(pieces.count)
    }
}

/// The pieces that a state has in a page.
#[derive(Copy, Clone, Debug)]
struct Pieces {
    count: usize,
    /// Of those with even numbers (keys), and of those with odd ones (values).
    bytes: [usize; 2],
}

impl Pieces {
    /// Bytes of a piece.
    fn bytes(&self, piece: usize) -> usize {
        self.bytes[piece % 2]
    }

    /// Bytes of those before a piece.
    fn before(&self, piece: usize) -> usize {
        let [even, odd] = self.bytes;
        piece / 2 * (even + odd) + piece % 2 * even
    }

    /// Bytes of the shortest.
    fn shortest(&self) -> usize {
        match self.count {
            0 | 1 => self.bytes[0],
            _ => self.bytes[0].min(self.bytes[1]),
        }
    }
}

/// One state's place in the pages of one node.
#[derive(Copy, Clone, Debug)]
pub(crate) struct StateLayout {
    block: Block,
    stride: usize, // bytes of a page
    offset: usize, // of the state in a page
    pieces: Pieces,
    group: Group,
    kv: KvTypes,
}

/// How many pages lie interleaved, as a power of two.
#[derive(Copy, Clone, Debug)]
struct Group {
    shift: u32,
}

impl Group {
    /// For pages of which the shortest piece has `bytes` bytes.
    fn of(bytes: usize) -> Group {
        let pages = (RUN / bytes.max(1)).next_power_of_two();
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

impl StateLayout {
    /// How it stores keys and values.
    pub(crate) fn kv(&self) -> KvTypes {
        self.kv
    }

    /// Pieces of a page.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.count
    }

    /// Pieces of a page that lie one after the other: of a state of fixed size, whose pages do not
    /// interleave.
    pub(crate) fn run(&self, page: PageId, pieces: Range<usize>) -> Block {
        assert!(self.group.shift == 0 && pieces.end <= self.pieces.count, "pieces {pieces:?}");
        let [start, end] = [pieces.start, pieces.end].map(|piece| self.pieces.before(piece));
        let at = self.group.place(page.0 as usize, self.stride, self.offset + start, end - start);
        self.block.sub(at, end - start)
    }

    /// A piece of a page: of heads, keys and values take turns.
    pub(crate) fn piece(&self, page: PageId, piece: usize) -> Block {
        let (before, len) = (self.offset + self.pieces.before(piece), self.pieces.bytes(piece));
        let at = self.group.place(page.0 as usize, self.stride, before, len);
        self.block.sub(at, len)
    }
}

/// Reserves the pages of a place for the states that it holds, by state, as its `node` has them; memory is taken when
/// they are written.
pub(crate) fn allocate(
    states: &[State],
    holds: impl Fn(usize) -> bool,
    node: usize,
    kv: KvTypes,
    pages: [usize; KV_CLASSES],
    options: &ArenaOptions,
) -> Result<(Arena, Vec<Option<StateLayout>>), Error> {
    // Of a page, by class; and its shortest piece.
    let (mut strides, mut shortest) = ([0; KV_CLASSES], [RUN; KV_CLASSES]);
    for (_, state) in states.iter().enumerate().filter(|(at, _)| holds(*at)) {
        strides[state.class] += state.page_bytes(node, kv);
        if state.keep.is_paged() {
            shortest[state.class] = shortest[state.class].min(state.pieces(node, kv).shortest());
        }
    }
    let groups = shortest.map(Group::of);
    let sizes: Vec<usize> = (0..KV_CLASSES)
        .map(|class| pages[class].next_multiple_of(groups[class].pages()) * strides[class])
        .collect();
    let mut arena = Arena::new(sizes.iter().map(|size| size + ALIGN).sum(), options)?;
    let mut blocks = Vec::with_capacity(sizes.len());
    for size in sizes {
        blocks.push(arena.alloc(size, ALIGN)?);
    }
    let mut offsets = [0; KV_CLASSES];
    let layout = |(at, state): (usize, &State)| {
        let class = state.class;
        let (pieces, group) = (state.pieces(node, kv), groups[class]);
        let (block, stride, offset) = (blocks[class], strides[class], offsets[class]);
        let kv = state.heads().map_or(kv, |heads| heads.types(kv));
        let layout = StateLayout { block, stride, offset, pieces, group, kv };
        holds(at).then(|| {
            offsets[class] += pieces.before(pieces.count);
            layout
        })
    };
    let layouts = states.iter().enumerate().map(layout).collect();
    Ok((arena, layouts))
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
    fn keys_and_values_may_be_of_different_lengths() {
        let pieces = Pieces { count: 4, bytes: [24, 8] };
        let ends: Vec<_> = (0..4).map(|p| (pieces.before(p), pieces.bytes(p))).collect();
        assert_eq!(ends, [(0, 24), (24, 8), (32, 24), (56, 8)]);
        assert_eq!((pieces.before(4), pieces.shortest()), (64, 8));
        let latent = Pieces { count: 1, bytes: [24, 8] };
        assert_eq!((latent.before(1), latent.shortest()), (24, 24));
    }

    #[test]
    fn runs_are_long_and_groups_bounded() {
        let pages = |kv: KvType, dim| Group::of(kv.page_bytes(dim)).pages();
        assert_eq!((pages(KvType::F16, 128), pages(KvType::F16, 64)), (8, 16));
        assert_eq!((pages(KvType::Q8_0, 128), pages(KvType::Q4_0, 64)), (16, 32));
        assert_eq!(pages(KvType::F32, 1024), 1, "longer than a run by itself");
    }
}
