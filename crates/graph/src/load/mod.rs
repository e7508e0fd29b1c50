//! Packed weights: where each tensor's tiles lie in the nodes' arenas. [`pack`] fills them.

mod low;
mod pack;
mod packed;
mod rounds;
mod table;
mod turned;

pub use pack::PackProgress;
pub(crate) use packed::{Packed, Root};
pub(crate) use table::WeightTable;

use crate::deal::Shard;
use crate::error::Error;
use crate::graph::Graph;
use crate::operators::GatedOp;
use crate::plan::{Mode, Plan};
use crate::shape::MatrixShape;
use crate::stages::Spans;
use crate::weight::{Matrix, MatrixId, SplitBy};
use kernels::{Kernels, Piece, TILE_ROWS};
use memory::{Arena, ArenaOptions};
use packed::Summed;

/// All packed weights.
pub(crate) struct Weights {
    pub weight_table: WeightTable,
    arenas: Vec<Arena>,   // [copy]
    adapters: Vec<Arena>, // [copy], or nothing
}

impl Weights {
    /// Makes the arenas and gives every tensor its place in them; nothing is written yet.
    pub(crate) fn allocate(
        graph: &Graph,
        plan: &Plan,
        spans: &Spans,
        kernels: &Kernels,
    ) -> Result<Weights, Error> {
        let homes: Vec<usize> = (0..graph.tables.matrices.len())
            .map(|m| spans.of_matrix(graph, MatrixId(m as u32)))
            .collect();
        let copies = plan.weight_copies();
        let mut arenas = Vec::with_capacity(copies);
        let paired = paired(graph);
        let mut weights = WeightTable {
            mode: plan.mode,
            matrices: graph.tables.matrices.iter().map(|_| Vec::new()).collect(),
            vectors: graph.tables.vectors.iter().map(|_| Vec::new()).collect(),
            lens: graph.tables.vectors.iter().map(|v| v.len).collect(),
            homes,
            lows: Vec::new(),
            copies,
            levels: 0,
        };
        for copy in 0..copies {
            let node = if graph.nodes() == 1 { 0 } else { copy };
            let holds = |m: usize| plan.mode != Mode::Pipeline || weights.homes[m] == copy;
            let held = graph.tables.matrices.iter().enumerate().filter(|(m, _)| holds(*m));
            let bytes = held.map(|(_, m)| m.node_bytes(node)).sum::<usize>()
                + graph.tables.vectors.iter().map(|v| padded(v.len)).sum::<usize>();
            let group = if copies == 1 { plan.threads() } else { plan.groups[copy].cpus.len() };
            let policy = plan.own_policy(copy);
            let options = ArenaOptions { policy, huge: plan.huge, name: "weights" };
            let mut arena = Arena::new(bytes, &options)?;
            for (m, matrix) in graph.tables.matrices.iter().enumerate() {
                let shard = match holds(m) {
                    false => None,
                    true => Some(Shard::new(parts(matrix, node, &mut arena)?, paired[m], group)),
                };
                weights.matrices[m].push(shard);
            }
            for (vector, blocks) in graph.tables.vectors.iter().zip(&mut weights.vectors) {
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
            for (m, matrix) in graph.tables.matrices.iter().enumerate() {
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
            for (m, matrix) in graph.tables.matrices.iter().enumerate() {
                let parts = self.matrices[m][copy].iter_mut().flat_map(|shard| &mut shard.parts);
                let cut = matrix.split == SplitBy::Cols && matrix.bank.is_none();
                for (p, part) in parts.enumerate().filter(|_| cut) {
                    part.sums = (1..=most).map(|runs| summed(matrix, p, node, runs).0).collect();
                }
            }
        }
        Ok(())
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
    let mut paired = vec![false; graph.tables.matrices.len()];
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
