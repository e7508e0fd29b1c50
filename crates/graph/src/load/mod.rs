//! Packed weights: where each tensor's tiles lie in the nodes' arenas. [`pack`] fills them.

mod low;
mod pack;
mod rounds;
mod turned;

pub use pack::PackProgress;

use crate::builder::Graph;
use crate::deal::{Dealt, Shard};
use crate::error::Error;
use crate::operators::GatedOp;
use crate::plan::{Mode, Plan};
use crate::schedule::MatrixShape;
use crate::stages::Spans;
use crate::weight::{Matrix, MatrixId, SplitBy, VectorId};
use gguf::TensorType;
use kernels::{Kernels, Piece, TILE_ROWS, Tiles};
use memory::{Arena, ArenaOptions, Block};
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
    sums: Vec<Summed>,
    pub tiles: usize,
    /// Tiles of each expert; all, if it is no bank.
    per_member: usize,
    tile_bytes: usize,
    block: Block,
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
    bytes: Range<usize>, // within a tile
}

impl Summed {
    /// All roots in one go, each a sum of its own, in tiles of `bytes`.
    fn together(&self, bytes: usize) -> Summed {
        let cols = 0..self.roots.last().map_or(0, |last| last.cols.end);
        let pieces = self.roots.iter().flat_map(|root| root.pieces.clone()).collect();
        let all = Root { cols, pieces, bytes: 0..bytes };
        Summed { roots_before: self.roots_before, roots: vec![all] }
    }
}

impl Packed {
    fn root_block(&self, tile: usize, root: &Root) -> Block {
        self.block.sub(tile * self.tile_bytes + root.bytes.start, root.bytes.len())
    }

    /// Of tile `t`: the rows of the tensor before those of its expert, and its number among that one's
    /// tiles.
    fn member(&self, part: &crate::weight::Part, t: usize) -> (usize, usize) {
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

/// All packed weights.
pub(crate) struct Weights {
    pub weight_table: WeightTable,
    arenas: Vec<Arena>,   // [copy]
    adapters: Vec<Arena>, // [copy], or nothing
}

/// Where they lie: a shard per node, a copy per node, or one copy. Every group of threads has a
/// replica of this near.
#[derive(Clone)]
pub(crate) struct WeightTable {
    mode: Mode,
    matrices: Vec<Vec<Option<Shard>>>,   // [matrix][copy]
    vectors: Vec<Vec<Block>>,            // [vector][copy]
    lens: Vec<usize>,                    // [vector]
    homes: Vec<usize>,                   // [matrix], the stage that holds it in a pipeline
    lows: Vec<Vec<Vec<low::PackedLow>>>, // [matrix][copy], of adapters; or nothing
    copies: usize,
    levels: usize,
}

impl Weights {
    /// Makes the arenas and gives every tensor its place in them; nothing is written yet.
    pub(crate) fn allocate(
        graph: &Graph,
        plan: &Plan,
        spans: &Spans,
        kernels: &Kernels,
    ) -> Result<Weights, Error> {
        let homes: Vec<usize> =
            (0..graph.matrices.len()).map(|m| spans.of_matrix(graph, MatrixId(m as u32))).collect();
        let copies = plan.weight_copies();
        let mut arenas = Vec::with_capacity(copies);
        let paired = paired(graph);
        let mut weights = WeightTable {
            mode: plan.mode,
            matrices: graph.matrices.iter().map(|_| Vec::new()).collect(),
            vectors: graph.vectors.iter().map(|_| Vec::new()).collect(),
            lens: graph.vectors.iter().map(|v| v.len).collect(),
            homes,
            lows: Vec::new(),
            copies,
            levels: 0,
        };
        for copy in 0..copies {
            let node = if graph.nodes() == 1 { 0 } else { copy };
            let holds = |m: usize| plan.mode != Mode::Pipeline || weights.homes[m] == copy;
            let held = graph.matrices.iter().enumerate().filter(|(m, _)| holds(*m));
            let bytes = held.map(|(_, m)| m.node_bytes(node)).sum::<usize>()
                + graph.vectors.iter().map(|v| padded(v.len)).sum::<usize>();
            let group = if copies == 1 { plan.threads() } else { plan.groups[copy].cpus.len() };
            let policy = plan.own_policy(copy);
            let options = ArenaOptions { policy, huge: plan.huge, name: "weights" };
            let mut arena = Arena::new(bytes, &options)?;
            for (m, matrix) in graph.matrices.iter().enumerate() {
                let shard = match holds(m) {
                    false => None,
                    true => Some(Shard::new(parts(matrix, node, &mut arena)?, paired[m], group)),
                };
                weights.matrices[m].push(shard);
            }
            for (vector, blocks) in graph.vectors.iter().zip(&mut weights.vectors) {
                blocks.push(arena.alloc(padded(vector.len), 64)?);
            }
            arenas.push(arena);
        }
        weights.arrange(graph, plan, kernels, 1)?;
        Ok(Weights { weight_table: weights, arenas, adapters: Vec::new() })
    }

    /// The arenas, one per copy.
    pub(crate) fn arenas(&self) -> &[Arena] {
        &self.arenas
    }

    /// Those of adapters, one per copy if there are any.
    pub(crate) fn adapters(&self) -> &[Arena] {
        &self.adapters
    }

    /// Keeps the weights of adapters in place of those before.
    pub(crate) fn keep_adapters(&mut self, arenas: Vec<Arena>) {
        self.adapters = arenas;
    }
}

impl WeightTable {
    /// Deals the tiles to the threads of a plan, as its schedules say, and makes ready for sums in up to
    /// `splits` runs, or as many as schedules ask for.
    ///
    /// # Errors
    /// When columns have fewer segments than a schedule wants parts, or there is no such kernel.
    pub(crate) fn arrange(
        &mut self,
        graph: &Graph,
        plan: &Plan,
        kernels: &Kernels,
        splits: usize,
    ) -> Result<(), Error> {
        let paired = paired(graph);
        for copy in 0..self.copies {
            let (node, teams) = (if graph.nodes() == 1 { 0 } else { copy }, team_sizes(plan, copy));
            for (m, matrix) in graph.matrices.iter().enumerate() {
                let Some(shard) = &mut self.matrices[m][copy] else { continue };
                let shape = |&threads| MatrixShape::of(matrix, node, paired[m], threads);
                let segments = matrix.segments(0, node).len();
                let shapes = teams.iter().map(shape);
                shard.arrange(shapes, &teams, segments, &plan.schedules, kernels)?;
            }
        }
        self.levels = plan.levels().len();
        let most = self.splits_asked().last().map_or(1, |&most| most.max(splits));
        for copy in 0..self.copies {
            let node = if graph.nodes() == 1 { 0 } else { copy };
            for (m, matrix) in graph.matrices.iter().enumerate() {
                let parts = self.matrices[m][copy].iter_mut().flat_map(|shard| &mut shard.parts);
                let cut = matrix.split == SplitBy::Cols && matrix.bank.is_none();
                for (p, part) in parts.enumerate().filter(|_| cut) {
                    part.sums = (1..=most).map(|runs| summed(matrix, p, node, runs).0).collect();
                }
            }
        }
        Ok(())
    }

    /// All numbers of runs in which schedules want columns summed, and 1; ascending.
    pub(crate) fn splits_asked(&self) -> Vec<usize> {
        let all = (0..self.levels).flat_map(|level| self.splits(level));
        let mut asked: Vec<usize> = all.map(|(_, splits)| splits).chain([1]).collect();
        asked.sort_unstable();
        asked.dedup();
        asked
    }

    /// In how many runs columns are summed at a level, by the tokens of the step: as many as the matrix
    /// whose schedule asks for most. Each is for up to so many tokens, ascending; nothing if no columns
    /// are cut.
    pub(crate) fn splits(&self, level: usize) -> Vec<(usize, usize)> {
        let shards = || self.matrices.iter().flatten().flatten();
        let cut = |(_, dealt): &(usize, Dealt<'_>)| dealt.schedule.grid.splits > 1;
        if !shards().any(|shard| shard.rules(level).any(|rule| cut(&rule))) {
            return Vec::new();
        }
        let mut bounds: Vec<usize> =
            shards().flat_map(|s| s.rules(level)).map(|(tokens, _)| tokens).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let most = |&tokens: &usize| {
            let splits = |shard: &Shard| shard.dealt(level, tokens).schedule.grid.splits;
            (tokens, shards().map(splits).max().unwrap_or(1))
        };
        bounds.iter().map(most).collect()
    }

    /// What node `node` of the graph holds of a matrix, as threads of `group` read it.
    pub(crate) fn shard(&self, matrix: MatrixId, node: usize, group: usize) -> &Shard {
        let copy = self.copy_of(matrix, node, group);
        let shard = self.matrices[matrix.0 as usize][copy].as_ref();
        shard.expect("the copy of the one who holds it")
    }

    /// The copy that threads of `group` read for node `node` of the graph.
    fn copy_of(&self, matrix: MatrixId, node: usize, group: usize) -> usize {
        match self.mode {
            Mode::TensorParallel => node,
            Mode::Mirror => group,
            Mode::Pipeline => self.homes[matrix.0 as usize],
            Mode::Interleave | Mode::Off => 0,
        }
    }

    /// The stage that holds a matrix in a pipeline.
    pub(crate) fn home(&self, matrix: MatrixId) -> usize {
        self.homes[matrix.0 as usize]
    }

    /// A vector, as threads of `group` read it.
    pub(crate) fn vector(&self, vector: VectorId, group: usize) -> &[f32] {
        let copies = &self.vectors[vector.0 as usize];
        // SAFETY: written in `Weights::pack_all` only, before an executor is made of them.
        let padded = unsafe { copies[group.min(copies.len() - 1)].as_slice::<f32>() };
        &padded[..self.lens[vector.0 as usize]]
    }

    /// The tiles that the threads `ranks` of a team stream, who belong to `group`, in steps that all
    /// threads take.
    pub(crate) fn streamed(
        &self,
        group: usize,
        ranks: Range<usize>,
    ) -> impl Iterator<Item = Block> {
        self.streamed_but(group, ranks, &[])
    }

    /// The same of one thread, without the matrices `but`.
    pub(crate) fn others(&self, group: usize, rank: usize, but: &[MatrixId]) -> Vec<&[u8]> {
        let blocks = self.streamed_but(group, rank..rank + 1, but);
        // SAFETY: tiles are written by `Weights::pack_all` only, before an executor is made of them; the arena
        // lives as long as `self`'s owner.
        blocks.map(|block| unsafe { block.as_slice() }).collect()
    }

    fn streamed_but<'a>(
        &'a self,
        group: usize,
        ranks: Range<usize>,
        but: &'a [MatrixId],
    ) -> impl Iterator<Item = Block> {
        let (copy, all) = (if self.copies > 1 { group } else { 0 }, self.levels - 1);
        let of = |id: usize| !but.contains(&MatrixId(id as u32));
        let held = self.matrices.iter().enumerate().filter(move |(id, _)| of(*id));
        held.filter_map(move |(_, m)| m[copy].as_ref()).flat_map(move |shard| {
            let ranks = ranks.clone();
            // As dealt without a schedule.
            let bounds = shard.evenly(all);
            shard.parts.iter().enumerate().map(move |(p, part)| {
                let first = shard.tiles(bounds, ranks.start, p).start;
                let last = shard.tiles(bounds, ranks.end - 1, p).end;
                part.block.sub(first * part.tile_bytes, (last - first) * part.tile_bytes)
            })
        })
    }
}

/// Allocates what `node` holds of a matrix.
fn parts(matrix: &Matrix, node: usize, arena: &mut Arena) -> Result<Vec<Packed>, Error> {
    let mut out = 0;
    let mut parts = Vec::with_capacity(matrix.parts.len());
    for (p, part) in matrix.parts.iter().enumerate() {
        let (rows, cols) = (matrix.rows(p, node).len(), matrix.cols(p, node).len());
        let per_member = rows.div_ceil(TILE_ROWS);
        let tiles = per_member * part.count();
        let (sum, tile_bytes) = summed(matrix, p, node, 1);
        let block = arena.alloc(tiles * tile_bytes, 64)?;
        let sums = match matrix.bank {
            Some(_) if matrix.split == SplitBy::Cols => vec![sum.clone(), sum.together(tile_bytes)],
            _ => vec![sum],
        };
        let ty = part.ty;
        parts.push(Packed { ty, cols, out, sums, tiles, per_member, tile_bytes, block });
        out += rows.next_multiple_of(TILE_ROWS);
    }
    Ok(parts)
}

/// How the columns of part `p` on a node are summed in `splits` runs, and the bytes of a tile, in which
/// segments follow each other in whatever runs they are summed.
fn summed(matrix: &Matrix, p: usize, node: usize, splits: usize) -> (Summed, usize) {
    let roots_before = matrix.sum(splits).map_or(0, |s| s.slots[node].start);
    let (ty, first) = (matrix.parts[p].ty, matrix.cols(p, node).start);
    let (mut tile_bytes, mut roots, mut pieces) = (0, Vec::new(), Vec::new());
    let mut begin = (first, 0);
    let segments = matrix.segments(p, node).into_iter();
    for (segment, leaf) in segments.zip(matrix.leaves(p, node, splits)) {
        tile_bytes += kernels::tile_bytes(ty, segment.len());
        pieces.push(Piece { cols: segment.len(), folds: leaf.folds });
        if leaf.root {
            let cols = begin.0 - first..segment.end - first;
            let pieces = std::mem::take(&mut pieces);
            roots.push(Root { cols, pieces, bytes: begin.1..tile_bytes });
            begin = (segment.end, tile_bytes);
        }
    }
    (Summed { roots_before, roots }, tile_bytes)
}

/// Bytes of a vector of `len` f32, padded to whole cache lines.
fn padded(len: usize) -> usize {
    (len * size_of::<f32>()).next_multiple_of(64)
}

/// Which matrices are multiplied in pairs (gate and up).
pub(crate) fn paired(graph: &Graph) -> Vec<bool> {
    let mut paired = vec![false; graph.matrices.len()];
    for node in &graph.ops {
        if let Some(GatedOp { matrix, .. }) = node.op.get() {
            paired[matrix.0 as usize] = true;
        }
    }
    paired
}

/// Threads at each level of the team that multiplies with a copy.
fn team_sizes(plan: &Plan, copy: usize) -> Vec<usize> {
    let place = if plan.places() == 1 { 0 } else { copy };
    (0..plan.levels().len()).map(|level| plan.teams_at(level)[place].len()).collect()
}
