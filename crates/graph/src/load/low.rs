//! Weights of adapters: packed like matrices, in arenas of their own.
//!
//! A has tiles of 16 of its rows, whose columns lie segment after segment. B has tiles of 16 rows of the matrix. A
//! node has B of its rows, and A of its columns. All of it is in memory before, and it is little, so it is packed in
//! one go, by the threads of the node.

use super::WeightTable;
use super::pack::Packer;
use super::packed::PackedLow;
use crate::adapter::{Low, LowMatrix, LowRank, Lows};
use crate::error::Error;
use crate::graph::Graph;
use crate::placement::share;
use crate::plan::Plan;
use crate::weight::{MatrixId, Part};
use kernels::TILE_ROWS;
use memory::{Arena, ArenaOptions};
use std::ops::Range;
use threads::Pool;

impl WeightTable {
    /// The pairs beside a matrix, as threads of `group` read them for node `node` of the graph.
    pub(crate) fn lows(&self, matrix: MatrixId, node: usize, group: usize) -> &[PackedLow] {
        &self.lows[matrix.0 as usize][self.copy_of(matrix, node, group)]
    }

    /// Gives the adapters of `graph` their places in new arenas; nothing is written yet.
    pub(crate) fn place_lows(&mut self, graph: &Graph, plan: &Plan) -> Result<Vec<Arena>, Error> {
        self.lows = vec![Vec::new(); graph.tables.matrices.len()];
        let mut arenas = Vec::with_capacity(self.copies);
        for copy in 0..self.copies {
            let node = self.node_of(copy);
            let held: Vec<Option<&Lows>> = (0..graph.tables.matrices.len())
                .map(|m| {
                    graph
                        .tables
                        .lows(MatrixId(m as u32))
                        .filter(|_| self.matrices[m][copy].is_some())
                })
                .collect();
            let all =
                held.iter().zip(&graph.tables.matrices).filter_map(|(lows, m)| Some(((*lows)?, m)));
            let bytes = all.flat_map(|(lows, m)| lows.bytes(m, node)).flatten();
            let bytes: usize = bytes.map(|bytes| bytes.next_multiple_of(64)).sum();
            let options =
                ArenaOptions { policy: plan.own_policy(copy), huge: plan.huge, name: "adapters" };
            let mut arena = Arena::new(bytes, &options)?;
            for (m, lows) in held.iter().enumerate() {
                let mut packed = Vec::new();
                for (low, [a, b]) in lows.iter().flat_map(|lows| {
                    lows.pairs.iter().zip(lows.bytes(&graph.tables.matrices[m], node))
                }) {
                    let lows = lows.expect("it has pairs");
                    packed.push(PackedLow {
                        a: arena.alloc(a, 64)?,
                        b: arena.alloc(b, 64)?,
                        a_tile: low.a_tile_bytes(lows, node),
                        b_tile: low.b_tile_bytes(),
                    });
                }
                self.lows[m].push(packed);
            }
            arenas.push(arena);
        }
        Ok(arenas)
    }

    /// Packs adapters into their places, on the pool's own threads.
    pub(crate) fn pack_lows(
        &self,
        graph: &Graph,
        adapters: &[&[LowRank]],
        pool: &mut Pool,
    ) -> Result<(), Error> {
        pool.run(&|worker| {
            let Packer { copy, rank } = self.packer(worker);
            let node = self.node_of(copy);
            for (m, matrix) in graph.tables.matrices.iter().enumerate() {
                let Some(lows) = graph.tables.lows(MatrixId(m as u32)) else { continue };
                for (low, packed) in lows.pairs.iter().zip(&self.lows[m][copy]) {
                    let from = &adapters[low.adapter as usize][low.pair];
                    let part = &matrix.parts[low.part];
                    for tile in share(low.tiles(), worker.size(), rank) {
                        let block = packed.a.sub(tile * packed.a_tile, packed.a_tile);
                        // SAFETY: every tile is dealt to exactly one thread, and nobody reads it before this returns.
                        let to = unsafe { block.as_mut_slice::<u8>() };
                        pack_a(low, lows, node, part, &from.a, tile, to);
                    }
                    let rows = matrix.rows(low.part, node);
                    for tile in share(rows.len().div_ceil(TILE_ROWS), worker.size(), rank) {
                        let block = packed.b.sub(tile * packed.b_tile, packed.b_tile);
                        // SAFETY: as above.
                        let to = unsafe { block.as_mut_slice::<u8>() };
                        pack_b(part, &rows, &from.b, tile, to);
                    }
                }
            }
        })?;
        Ok(())
    }
}

/// A tile of A: 16 rows, the node's segments one after the other.
fn pack_a(
    low: &Low,
    lows: &Lows,
    node: usize,
    part: &Part,
    from: &LowMatrix,
    tile: usize,
    mut to: &mut [u8],
) {
    let rows = tile * TILE_ROWS..low.rank.min((tile + 1) * TILE_ROWS);
    let each = from.ty.block_bytes();
    for segment in lows.columns.segments(lows.node(node)) {
        // Columns that lie otherwise in the file are brought together.
        let source = |col| part.columns.map_or(col, |turns| turns.source(col));
        let row = |row: usize| -> Vec<u8> {
            let of = |col| &from.data[(row * from.cols + source(col)) * each..][..each];
            segment.clone().flat_map(of).copied().collect()
        };
        let sources: Vec<Vec<u8>> = rows.clone().map(row).collect();
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let (own, rest) = to.split_at_mut(kernels::tile_bytes(from.ty, segment.len()));
        kernels::pack_tile(from.ty, &sources, segment.len(), own);
        to = rest;
    }
}

/// A tile of B: 16 of the node's rows of a part.
fn pack_b(part: &Part, own: &Range<usize>, from: &LowMatrix, tile: usize, to: &mut [u8]) {
    let first = own.start + tile * TILE_ROWS;
    let bytes = from.cols * from.ty.block_bytes();
    let row = |row: usize| &from.data[(part.first + part.layout.row(row)) * bytes..][..bytes];
    let sources: Vec<&[u8]> = (first..own.end.min(first + TILE_ROWS)).map(row).collect();
    kernels::pack_tile(from.ty, &sources, from.cols, to);
}
