//! The table of packed weights that threads look up.

use super::packed::PackedLow;
use crate::deal::{Dealt, Shard};
use crate::plan::Mode;
use crate::weight::{MatrixId, VectorId};
use memory::Block;
use std::ops::Range;

/// Where they lie: a shard per node, a copy per node, or one copy. Every group of threads has a
/// replica of this near.
#[derive(Clone)]
pub(crate) struct WeightTable {
    pub(super) mode: Mode,
    pub(super) matrices: Vec<Vec<Option<Shard>>>, // [matrix][copy]
    pub(super) vectors: Vec<Vec<Block>>,          // [vector][copy]
    pub(super) lens: Vec<usize>,                  // [vector]
    pub(super) homes: Vec<usize>,                 // [matrix], the stage that holds it in a pipeline
    pub(super) lows: Vec<Vec<Vec<PackedLow>>>,    // [matrix][copy], of adapters; or nothing
    pub(super) copies: usize,
    pub(super) levels: usize,
}

impl WeightTable {
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
    pub(super) fn copy_of(&self, matrix: MatrixId, node: usize, group: usize) -> usize {
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
