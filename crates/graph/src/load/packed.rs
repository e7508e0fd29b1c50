//! Packed tensors of one place.

use gguf::TensorType;
use kernels::{Piece, Tiles};
use memory::Block;
use std::ops::Range;

/// A tensor's share on one node, packed.
#[derive(Clone)]
pub(crate) struct Packed {
    pub ty: TensorType,
    /// Columns of all segments.
    pub cols: usize,
    /// Column of the node's output row where this part begins.
    pub out: usize,
    /// How its columns are summed, by the number of runs they are cut into, from one on.
    pub(super) sums: Vec<Summed>,
    pub tiles: usize,
    /// Tiles of each expert; all, if it is no bank.
    pub(super) per_member: usize,
    pub(super) tile_bytes: usize,
    pub(super) block: Block,
}

/// How the columns of a node are summed.
#[derive(Clone)]
pub(crate) struct Summed {
    /// Roots of the summation tree that nodes before this one hold.
    pub roots_before: usize,
    /// What a tile is made of, in order.
    pub roots: Vec<Root>,
}

/// Columns of a tile that are summed up to one root of the summation tree (see [`crate::sum`]).
#[derive(Clone)]
pub(crate) struct Root {
    /// Columns of the node's input.
    pub cols: Range<usize>,
    /// Its leaves, each packed on its own.
    pub pieces: Vec<Piece>,
    pub(super) bytes: Range<usize>, // within a tile
}

impl Summed {
    /// All roots in one go, each a sum of its own, in tiles of `bytes`.
    pub(super) fn together(&self, bytes: usize) -> Summed {
        let cols = 0..self.roots.last().map_or(0, |last| last.cols.end);
        let pieces = self.roots.iter().flat_map(|root| root.pieces.clone()).collect();
        let all = Root { cols, pieces, bytes: 0..bytes };
        Summed { roots_before: self.roots_before, roots: vec![all] }
    }
}

impl Packed {
    pub(super) fn root_block(&self, tile: usize, root: &Root) -> Block {
        self.block.sub(tile * self.tile_bytes + root.bytes.start, root.bytes.len())
    }

    /// Of tile `t`: the rows of the tensor before those of its expert, and its number among that one's
    /// tiles.
    pub(super) fn member(&self, part: &crate::weight::Part, t: usize) -> (usize, usize) {
        let Some(members) = part.members else { return (0, t) };
        let (member, t) = (t / self.per_member, t % self.per_member);
        ((members.first + member * members.step) * members.rows, t)
    }

    /// Tiles of each expert.
    pub(crate) fn per_member(&self) -> usize {
        self.per_member
    }

    /// What the tiles `range` hold of a root.
    pub(crate) fn tiles(&self, range: Range<usize>, root: &Root) -> Tiles<'_> {
        let (len, stride) = (root.bytes.len(), self.tile_bytes);
        let bytes = match range.len() {
            0 => 0,
            count => (count - 1) * stride + len,
        };
        let block = self.block.sub(range.start * stride + root.bytes.start, bytes);
        // SAFETY: tiles are written by `Weights::pack_all` only, before an executor is made of them;
        // the arena lives as long as `self`'s owner.
        Tiles::new(unsafe { block.as_slice::<u8>() }, range.len(), len, stride)
    }

    /// Tile `t` of a matrix whose columns are summed in one go.
    pub(crate) fn tile(&self, t: usize) -> &[u8] {
        // SAFETY: as in `tiles`.
        unsafe { self.root_block(t, self.whole()).as_slice::<u8>() }
    }

    /// The one root of a part whose columns are summed in one go.
    pub(crate) fn whole(&self) -> &Root {
        let [all] = self.sums[0].roots.as_slice() else { unreachable!("rows are whole") };
        all
    }

    /// How columns that nodes share are summed in `splits` runs.
    pub(crate) fn summed(&self, splits: usize) -> &Summed {
        &self.sums[splits - 1]
    }

    /// Columns and bytes of a tile in those roots that are `mine` by their columns.
    pub(crate) fn share(
        &self,
        splits: usize,
        mine: impl Fn(&Range<usize>) -> bool,
    ) -> (usize, usize) {
        let roots = &self.sums[(splits - 1).min(self.sums.len() - 1)].roots;
        let mine = roots.iter().filter(|root| mine(&root.cols));
        mine.fold((0, 0), |(cols, bytes), r| (cols + r.cols.len(), bytes + r.bytes.len()))
    }

    /// A leaf of a bank's experts.
    pub(crate) fn leaf(&self, leaf: usize) -> &Root {
        &self.sums[0].roots[leaf]
    }

    /// All of them, which are summed apart.
    pub(crate) fn all_leaves(&self) -> &Root {
        &self.sums[1].roots[0]
    }

    /// Roots of the summation tree that nodes before this one hold.
    pub(crate) fn roots_before(&self) -> usize {
        self.sums[0].roots_before
    }

    /// Bytes of one tile.
    pub(crate) fn tile_bytes(&self) -> usize {
        self.tile_bytes
    }
}

/// A pair in one place.
#[derive(Clone)]
pub(crate) struct PackedLow {
    pub(super) a: Block,
    pub(super) b: Block,
    pub(super) a_tile: usize, // bytes
    pub(super) b_tile: usize,
}

impl PackedLow {
    /// Tile `tile` of A, its bytes `bytes`: a segment.
    pub(crate) fn a(&self, tile: usize, bytes: Range<usize>) -> Tiles<'_> {
        let block = self.a.sub(tile * self.a_tile + bytes.start, bytes.len());
        // SAFETY: tiles are written by `WeightTable::pack_lows` only, before an executor has them; the arena lives
        // until it has others.
        Tiles::new(unsafe { block.as_slice::<u8>() }, 1, bytes.len(), bytes.len())
    }

    /// The tiles `tiles` of B.
    pub(crate) fn b(&self, tiles: Range<usize>) -> Tiles<'_> {
        let (count, len) = (tiles.len(), self.b_tile);
        let block = self.b.sub(tiles.start * len, count * len);
        // SAFETY: as above.
        Tiles::new(unsafe { block.as_slice::<u8>() }, count, len, len)
    }
}
