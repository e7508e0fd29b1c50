//! Products of low rank beside those of matrices: adapters.
//!
//! A row of sums has, for each pair beside the matrix, those of all segments of its columns, one after the other.
//! Whoever multiplies by B adds these from left to right first, and scales them. So bits depend on the matrix
//! and the pair alone: not on nodes, threads or the rest of the step. A row has its adapters in the order of their
//! numbers. A row without adapters is not touched.

use super::Thread;
use super::access::Source;
use super::areas::{Area, blocks, columns};
use crate::adapter::{Low, Lows};
use crate::step::Use;
use crate::tables::Tables;
use crate::tensor::Domain;
use crate::weight::MatrixId;
use kernels::{Acts, Piece, Rows, RowsMut, TILE_ROWS};
use std::ops::Range;

/// Rows that are multiplied by a tile of A at a time.
pub(crate) const A_ROWS: usize = 32;
/// Rows by tiles of B that are worked on at a time.
pub(crate) const B_ROWS: usize = 16;
const B_TILES: usize = 16;

/// f32 of scratch that products with adapters need besides that of others.
pub(crate) fn scratch_len(tables: &Tables) -> usize {
    match tables.most_rank {
        0 => 0,
        rank => B_ROWS * (rank + B_TILES * TILE_ROWS).max(A_ROWS),
    }
}

/// What A of the adapters beside a matrix has given.
#[derive(Copy, Clone)]
pub(crate) struct LowSums<'a> {
    pub of: Source<'a>,
    pub matrix: MatrixId,
    pub domain: Domain,
}

impl Thread<'_> {
    /// Rows of a domain that have adapters, by adapter.
    pub(crate) fn uses(&self, domain: Domain) -> &[Use] {
        match domain {
            Domain::Tokens => self.input.uses[0],
            Domain::Outputs => self.input.uses[1],
            Domain::Slots(_) => unreachable!("experts have no adapters"),
        }
    }

    pub(crate) fn lows(&self, matrix: MatrixId) -> &Lows {
        self.step.tables.lows(matrix).expect("adapters are beside it")
    }

    /// Adds the products with B to tiles of a part: `to` has the rows of the area.
    pub(crate) fn adapt(
        &self,
        low: LowSums<'_>,
        part: usize,
        Area { rows, tiles }: &Area,
        to: &mut RowsMut<'_, f32>,
        room: &mut [f32],
    ) {
        let (lows, kernels) = (self.lows(low.matrix), self.step.kernels);
        let packed = self.step.weights.lows(low.matrix, self.node, self.group);
        for one in self.uses(low.domain) {
            let own = as_usize(&one.rows);
            let own = own.start.max(rows.start)..own.end.min(rows.end);
            if own.is_empty() {
                continue;
            }
            let pairs = lows.pairs.iter().zip(packed);
            for (pair, packed) in
                pairs.filter(|(pair, _)| pair.part == part && pair.adapter == one.adapter)
            {
                let (sums, products) = room.split_at_mut(B_ROWS * pair.padded());
                for own in blocks(own.clone(), B_ROWS) {
                    self.sum_segments(low.of, lows, pair, own.clone(), one.scale, sums);
                    for block in blocks(tiles.clone(), B_TILES) {
                        let width = block.len() * TILE_ROWS;
                        let products = &mut products[..own.len() * width];
                        let view = RowsMut::new(products, own.len(), width, width);
                        let acts = Rows::new(sums, own.len(), pair.rank, pair.padded());
                        let (weights, pieces) = (packed.b(block.clone()), Piece::whole(pair.rank));
                        kernels.matmul(pair.types[1], weights, &pieces, Acts::F32(acts), view);
                        let cols =
                            columns(0, &(block.start - tiles.start..block.end - tiles.start));
                        for (row, product) in own.clone().zip(products.chunks_exact(width)) {
                            let to = &mut to.row_mut(row - rows.start)[cols.clone()];
                            kernels.add_assign(to, product);
                        }
                    }
                }
            }
        }
    }

    /// The input of B: sums of all segments, scaled.
    fn sum_segments(
        &self,
        from: Source<'_>,
        lows: &Lows,
        pair: &Low,
        rows: Range<usize>,
        scale: f32,
        to: &mut [f32],
    ) {
        let (kernels, width) = (self.step.kernels, pair.padded());
        for (row, to) in rows.zip(to.chunks_exact_mut(width)) {
            let all =
                from.columns(row..row + 1, pair.at..pair.at + width * lows.columns.leaf_count());
            let mut segments = all.row(0).chunks_exact(width);
            to.copy_from_slice(segments.next().expect("a matrix has columns"));
            segments.for_each(|segment| kernels.add_assign(to, segment));
            kernels.scale(to, scale * pair.scale);
        }
    }

    /// Whether a row has adapters that are beside a matrix.
    pub(crate) fn is_adapted(&self, matrix: MatrixId, domain: Domain, row: usize) -> bool {
        let lows = self.lows(matrix);
        self.uses(domain).iter().any(|one| {
            one.rows.contains(&(row as u32))
                && lows.pairs.iter().any(|pair| pair.adapter == one.adapter)
        })
    }
}

pub(crate) fn as_usize(rows: &Range<u32>) -> Range<usize> {
    rows.start as usize..rows.end as usize
}
