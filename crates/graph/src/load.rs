//! Loading: tensors of the file become packed tiles in the nodes' arenas.
//!
//! Every thread packs the tiles that it will multiply, so pages are first touched on their node
//! and nothing moves afterwards. A matrix is one job for the pool; progress is told between jobs.

use crate::builder::Graph;
use crate::error::Error;
use crate::plan::{Mode, Plan};
use crate::stages::Spans;
use crate::weight::{Matrix, MatrixId, VectorId, WeightSource, WeightView};
use gguf::TensorType;
use kernels::{Piece, TILE_ROWS, Tiles};
use memory::{Arena, ArenaOptions, Block};
use std::ops::Range;
use threads::{Pool, View, Worker};

/// A packing thread gives the file's pages back after this many bytes.
const RELEASE_BYTES: usize = 256 << 10;

/// A tensor's share on one node, packed.
#[derive(Clone)]
pub(crate) struct Packed {
    pub ty: TensorType,
    /// Columns of all segments.
    pub cols: usize,
    /// Column of the node's output row where this part begins.
    pub out: usize,
    /// Roots of the summation tree that nodes before this one hold.
    pub roots_before: usize,
    /// What a tile is made of, in order.
    pub roots: Vec<Root>,
    tile_bytes: usize,
    tiles: usize,
    block: Block,
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

impl Packed {
    fn root_block(&self, tile: usize, root: &Root) -> Block {
        self.block.sub(tile * self.tile_bytes + root.bytes.start, root.bytes.len())
    }

    /// What the tiles `range` hold of a root.
    pub(crate) fn tiles(&self, range: Range<usize>, root: &Root) -> Tiles<'_> {
        let (len, stride) = (root.bytes.len(), self.tile_bytes);
        let bytes = match range.len() {
            0 => 0,
            count => (count - 1) * stride + len,
        };
        let block = self.block.sub(range.start * stride + root.bytes.start, bytes);
        // SAFETY: tiles are written by `Weights::load` only, which holds the executor exclusively;
        // the arena lives as long as `self`'s owner.
        Tiles::new(unsafe { block.as_slice::<u8>() }, range.len(), len, stride)
    }

    /// Tile `t` of a matrix whose columns are summed in one go.
    pub(crate) fn tile(&self, t: usize) -> &[u8] {
        let [all] = self.roots.as_slice() else { unreachable!("rows are whole") };
        // SAFETY: as in `tiles`.
        unsafe { self.root_block(t, all).as_slice::<u8>() }
    }

    /// Bytes of one tile.
    pub(crate) fn tile_bytes(&self) -> usize {
        self.tile_bytes
    }
}

/// A matrix in one place and how its tiles are dealt over the threads that use it.
#[derive(Clone)]
pub(crate) struct Shard {
    pub parts: Vec<Packed>,
    deal: Vec<Vec<usize>>, // [level][threads that multiply + 1], in tiles (of the pair, when paired)
    pack: Vec<usize>,      // [threads that pack + 1]
}

impl Shard {
    /// The tiles of part `part` that thread `rank` multiplies in a step of a level ([`Plan::level`]).
    /// Tiles are numbered through all parts
    /// of the matrix, or, for a pair, alike in both.
    pub(crate) fn share(
        &self,
        level: usize,
        rank: usize,
        part: usize,
        paired: bool,
    ) -> Range<usize> {
        self.tiles(&self.deal[level], rank, part, paired)
    }

    fn tiles(&self, deal: &[usize], rank: usize, part: usize, paired: bool) -> Range<usize> {
        let all = deal[rank]..deal[rank + 1];
        if paired {
            return all;
        }
        let before: usize = self.parts[..part].iter().map(|p| p.tiles).sum();
        let clamp = |t: usize| t.saturating_sub(before).min(self.parts[part].tiles);
        clamp(all.start)..clamp(all.end)
    }
}

/// All packed weights.
pub(crate) struct Weights {
    pub shelves: Shelves,
    arenas: Vec<Arena>, // [copy]
}

/// Where they lie: a shard per node, a copy per node, or one copy. Every group of threads has a
/// replica of this near.
#[derive(Clone)]
pub(crate) struct Shelves {
    mode: Mode,
    matrices: Vec<Vec<Option<Shard>>>, // [matrix][copy]
    vectors: Vec<Vec<Block>>,          // [vector][copy]
    lens: Vec<usize>,                  // [vector]
    homes: Vec<usize>,                 // [matrix], the stage that holds it in a pipeline
    paired: Vec<bool>,
    copies: usize,
    levels: usize,
}

/// What was just loaded.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// Tensors of the file that will not be read again.
    pub tensors: &'a [String],
    /// Packed bytes so far.
    pub done: usize,
    /// Packed bytes in all.
    pub total: usize,
}

impl Weights {
    /// Packs everything, on the pool's own threads.
    pub(crate) fn pack_all(
        &mut self,
        graph: &Graph,
        pool: &mut Pool,
        source: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), Error> {
        let weights = &self.shelves;
        let total = self.arenas.iter().map(Arena::used).sum();
        let mut done = 0;
        for (m, matrix) in graph.matrices.iter().enumerate() {
            let views = views(matrix, source)?;
            let id = MatrixId(m as u32);
            pool.run(&|worker| {
                let packer = weights.packer(worker);
                weights.pack(id, matrix, &views, packer, source);
            })?;
            let shards = weights.matrices[m].iter().flatten();
            done += shards.flat_map(|s| &s.parts).map(|p| p.block.len()).sum::<usize>();
            let tensors: Vec<String> = matrix.parts.iter().map(|p| p.name.clone()).collect();
            progress(Progress { tensors: &tensors, done, total });
        }
        for (v, vector) in graph.vectors.iter().enumerate() {
            let view = source
                .tensor(&vector.name)
                .ok_or_else(|| Error::MissingTensor(vector.name.clone()))?;
            let mut values = vec![0.0; vector.len];
            dequantize(view, &mut values);
            pool.run(&|worker| {
                let (copy, rank) = weights.packer(worker);
                if rank == 0 {
                    // SAFETY: the first thread of those that pack a copy is alone in writing this.
                    let to = unsafe { weights.vectors[v][copy].as_mut_slice::<f32>() };
                    to[..values.len()].copy_from_slice(&values);
                }
            })?;
        }
        progress(Progress { tensors: &[], done: total, total });
        Ok(())
    }

    /// Makes the arenas and gives every tensor its place in them; nothing is written yet.
    pub(crate) fn allocate(graph: &Graph, plan: &Plan, spans: &Spans) -> Result<Weights, Error> {
        let homes: Vec<usize> =
            (0..graph.matrices.len()).map(|m| spans.of_matrix(graph, MatrixId(m as u32))).collect();
        let copies = plan.weight_copies();
        let mut arenas = Vec::with_capacity(copies);
        let mut weights = Shelves {
            mode: plan.mode,
            matrices: graph.matrices.iter().map(|_| Vec::new()).collect(),
            vectors: graph.vectors.iter().map(|_| Vec::new()).collect(),
            lens: graph.vectors.iter().map(|v| v.len).collect(),
            paired: paired(graph),
            homes,
            copies,
            levels: plan.levels().len(),
        };
        for copy in 0..copies {
            let node = if graph.nodes() == 1 { 0 } else { copy };
            let holds = |m: usize| plan.mode != Mode::Pipeline || weights.homes[m] == copy;
            let held = graph.matrices.iter().enumerate().filter(|(m, _)| holds(*m));
            let bytes = held.map(|(_, m)| m.node_bytes(node)).sum::<usize>()
                + graph.vectors.iter().map(|v| padded(v.len)).sum::<usize>();
            let group = if copies == 1 { plan.threads() } else { plan.groups[copy].cpus.len() };
            let teams = team_sizes(plan, copy);
            let policy = plan.own_policy(copy);
            let options = ArenaOptions { policy, huge: plan.huge, name: "weights" };
            let mut arena = Arena::new(bytes, &options)?;
            for (m, matrix) in graph.matrices.iter().enumerate() {
                let shard = match holds(m) {
                    false => None,
                    true => {
                        let parts = parts(matrix, node, &mut arena)?;
                        let paired = weights.paired[m];
                        let pack = deal(&parts, paired, group);
                        let deal = deals(&parts, paired, &teams);
                        Some(Shard { parts, deal, pack })
                    }
                };
                weights.matrices[m].push(shard);
            }
            for (vector, blocks) in graph.vectors.iter().zip(&mut weights.vectors) {
                blocks.push(arena.alloc(padded(vector.len), 64)?);
            }
            arenas.push(arena);
        }
        Ok(Weights { shelves: weights, arenas })
    }

    /// The arenas, one per copy.
    pub(crate) fn arenas(&self) -> &[Arena] {
        &self.arenas
    }
}

impl Shelves {
    /// Deals the tiles anew, to the threads of another plan with the same groups.
    pub(crate) fn deal(&mut self, plan: &Plan) {
        let teams: Vec<Vec<usize>> = (0..self.copies).map(|copy| team_sizes(plan, copy)).collect();
        for (shards, &paired) in self.matrices.iter_mut().zip(&self.paired) {
            for (shard, teams) in shards.iter_mut().zip(&teams) {
                let Some(shard) = shard else { continue };
                shard.deal = deals(&shard.parts, paired, teams);
            }
        }
        self.levels = plan.levels().len();
    }

    /// Which copy a thread helps to pack, and as which of its packers: those who will read it.
    fn packer(&self, worker: &mut Worker) -> (usize, usize) {
        if self.copies > 1 {
            worker.switch(View::Groups);
        }
        (worker.group(), worker.rank())
    }

    /// Packs the tiles of one thread.
    fn pack(
        &self,
        id: MatrixId,
        matrix: &Matrix,
        views: &[WeightView<'_>],
        (copy, rank): (usize, usize),
        source: &dyn WeightSource,
    ) {
        let Some(shard) = &self.matrices[id.0 as usize][copy] else { return };
        let node = if self.mode == Mode::TensorParallel { copy } else { 0 };
        for (p, (packed, view)) in shard.parts.iter().zip(views).enumerate() {
            let (rows, cols) = (matrix.rows(p, node), matrix.cols(p, node));
            let bytes = |cols: usize| cols / view.ty.block_len() * view.ty.block_bytes();
            let row_bytes = bytes(view.cols);
            let data = &view.data[matrix.parts[p].first * row_bytes..];
            let mut held = None; // the first row that is not released yet
            for t in shard.tiles(&shard.pack, rank, p, self.paired[id.0 as usize]) {
                let first = rows.start + t * TILE_ROWS;
                let last = (first + TILE_ROWS).min(rows.end);
                for root in &packed.roots {
                    // SAFETY: `share` gives every tile to exactly one thread, and nobody reads
                    // tiles before `load` returns.
                    let mut to = unsafe { packed.root_block(t, root).as_mut_slice::<u8>() };
                    let mut col = cols.start + root.cols.start;
                    for piece in &root.pieces {
                        let slice = bytes(col)..bytes(col + piece.cols);
                        col += piece.cols;
                        let mut sources: [&[u8]; TILE_ROWS] = [&[]; TILE_ROWS];
                        for (source, row) in sources.iter_mut().zip(first..last) {
                            *source = &data[row * row_bytes..][slice.clone()];
                        }
                        let (own, rest) = to.split_at_mut(kernels::tile_bytes(view.ty, piece.cols));
                        kernels::pack_tile(view.ty, &sources[..last - first], piece.cols, own);
                        to = rest;
                    }
                }
                let begin = *held.get_or_insert(first);
                if (last - begin) * row_bytes >= RELEASE_BYTES {
                    source.release(&data[begin * row_bytes..last * row_bytes]);
                    held = None;
                }
            }
        }
    }

    /// What node `node` of the graph holds of a matrix, as threads of `group` read it.
    pub(crate) fn shard(&self, matrix: MatrixId, node: usize, group: usize) -> &Shard {
        let copies = &self.matrices[matrix.0 as usize];
        let copy = match self.mode {
            Mode::TensorParallel => node,
            Mode::Mirror => group,
            Mode::Pipeline => self.homes[matrix.0 as usize],
            Mode::Interleave | Mode::Off => 0,
        };
        copies[copy].as_ref().expect("the copy of the one who holds it")
    }

    /// The stage that holds a matrix in a pipeline.
    pub(crate) fn home(&self, matrix: MatrixId) -> usize {
        self.homes[matrix.0 as usize]
    }

    /// A vector, as threads of `group` read it.
    pub(crate) fn vector(&self, vector: VectorId, group: usize) -> &[f32] {
        let copies = &self.vectors[vector.0 as usize];
        // SAFETY: written in `load` only, before anybody can hold `self`.
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
        let (copy, all) = (if self.copies > 1 { group } else { 0 }, self.levels - 1);
        let held = self.matrices.iter().zip(&self.paired);
        let held = held.filter_map(move |(m, paired)| Some((m[copy].as_ref()?, *paired)));
        held.flat_map(move |(shard, paired)| {
            let ranks = ranks.clone();
            shard.parts.iter().enumerate().map(move |(p, part)| {
                let first = shard.share(all, ranks.start, p, paired).start;
                let last = shard.share(all, ranks.end - 1, p, paired).end;
                part.block.sub(first * part.tile_bytes, (last - first) * part.tile_bytes)
            })
        })
    }
}

/// Allocates what `node` holds of a matrix.
fn parts(matrix: &Matrix, node: usize, arena: &mut Arena) -> Result<Vec<Packed>, Error> {
    let roots_before = matrix.sum().map_or(0, |s| s.slots[node].start);
    let mut out = 0;
    let mut parts = Vec::with_capacity(matrix.parts.len());
    for (p, part) in matrix.parts.iter().enumerate() {
        let (rows, cols) = (matrix.rows(p, node).len(), matrix.cols(p, node));
        let tiles = rows.div_ceil(TILE_ROWS);
        let mut tile_bytes = 0;
        let mut roots = Vec::new();
        let mut pieces = Vec::new();
        let mut begin = (cols.start, 0);
        for (segment, leaf) in matrix.segments(p, node).into_iter().zip(matrix.leaves(p, node)) {
            tile_bytes += kernels::tile_bytes(part.ty, segment.len());
            pieces.push(Piece { cols: segment.len(), folds: leaf.folds });
            if leaf.root {
                let own = begin.0 - cols.start..segment.end - cols.start;
                let pieces = std::mem::take(&mut pieces);
                roots.push(Root { cols: own, pieces, bytes: begin.1..tile_bytes });
                begin = (segment.end, tile_bytes);
            }
        }
        let block = arena.alloc(tiles * tile_bytes, 64)?;
        let (ty, cols) = (part.ty, cols.len());
        parts.push(Packed { ty, cols, out, roots_before, roots, tile_bytes, tiles, block });
        out += rows;
    }
    Ok(parts)
}

/// Bytes of a vector of `len` f32, padded to whole cache lines.
fn padded(len: usize) -> usize {
    (len * size_of::<f32>()).next_multiple_of(64)
}

/// Which matrices are multiplied in pairs (gate and up).
fn paired(graph: &Graph) -> Vec<bool> {
    let mut paired = vec![false; graph.matrices.len()];
    for node in &graph.ops {
        if let crate::op::Op::Gated { matrix, .. } = &node.op {
            paired[matrix.0 as usize] = true;
        }
    }
    paired
}

fn views<'a>(matrix: &Matrix, source: &'a dyn WeightSource) -> Result<Vec<WeightView<'a>>, Error> {
    let view =
        |name: &String| source.tensor(name).ok_or_else(|| Error::MissingTensor(name.clone()));
    matrix.parts.iter().map(|p| view(&p.name)).collect()
}

fn dequantize(view: WeightView<'_>, to: &mut [f32]) {
    view.ty.dequantize(view.data, to).expect("sizes were checked when the file was parsed");
}

/// Threads at each level of the team that multiplies with a copy.
fn team_sizes(plan: &Plan, copy: usize) -> Vec<usize> {
    let place = if plan.places() == 1 { 0 } else { copy };
    (0..plan.levels().len()).map(|level| plan.teams_at(level)[place].len()).collect()
}

/// Shares for each of several numbers of threads.
fn deals(parts: &[Packed], paired: bool, teams: &[usize]) -> Vec<Vec<usize>> {
    teams.iter().map(|&threads| deal(parts, paired, threads)).collect()
}

/// Contiguous shares of tiles with about equal bytes: bounds, `[threads + 1]`.
fn deal(parts: &[Packed], paired: bool, threads: usize) -> Vec<usize> {
    let sizes: Vec<usize> = if paired {
        let pair: usize = parts.iter().map(|p| p.tile_bytes).sum();
        vec![pair; parts[0].tiles]
    } else {
        parts.iter().flat_map(|p| std::iter::repeat_n(p.tile_bytes, p.tiles)).collect()
    };
    let total: usize = sizes.iter().sum();
    let mut bounds = vec![0];
    let (mut at, mut sum) = (0, 0);
    for rank in 1..threads {
        // A tile goes to the thread in whose share its middle lies.
        while at < sizes.len() && (sum + sizes[at] / 2) * threads < total * rank {
            sum += sizes[at];
            at += 1;
        }
        bounds.push(at);
    }
    bounds.push(sizes.len());
    bounds
}
