//! Products of low rank beside those of matrices: adapters.
//!
//! A row of sums has, for each pair beside the matrix, those of all segments of its columns, one after the other.
//! Whoever multiplies by B adds these from left to right first, and scales them. So bits depend on the matrix
//! and the pair alone: not on nodes, threads or the rest of the step. A row has its adapters in the order of their
//! numbers. A row without adapters is not touched.

use super::Thread;
use super::access::{Source, Target};
use super::matmul::{blocks, columns, copy};
use crate::adapter::{Low, Lows};
use crate::builder::Graph;
use crate::placement::share;
use crate::step::Use;
use crate::tensor::Domain;
use crate::weight::MatrixId;
use kernels::{Acts, Piece, Rows, RowsMut, TILE_ROWS};
use std::ops::Range;

/// Rows that are multiplied by a tile of A at a time.
const A_ROWS: usize = 32;
/// Rows by tiles of B that are worked on at a time.
const B_ROWS: usize = 16;
const B_TILES: usize = 16;

/// f32 of scratch that products with adapters need besides that of others.
pub(super) fn scratch_len(graph: &Graph) -> usize {
    match graph.most_rank {
        0 => 0,
        rank => B_ROWS * (rank + B_TILES * TILE_ROWS).max(A_ROWS),
    }
}

/// What A of the adapters beside a matrix has given.
#[derive(Copy, Clone)]
pub(super) struct Sums<'a> {
    pub of: Source<'a>,
    pub matrix: MatrixId,
    pub domain: Domain,
}

impl Thread<'_> {
    /// Rows of a domain that have adapters, by adapter.
    fn uses(&self, domain: Domain) -> &[Use] {
        match domain {
            Domain::Tokens => self.input.uses[0],
            Domain::Outputs => self.input.uses[1],
            Domain::Slots(_) => unreachable!("experts have no adapters"),
        }
    }

    fn lows(&self, matrix: MatrixId) -> &Lows {
        self.step.graph.lows(matrix).expect("adapters are beside it")
    }

    /// The products with A: tiles by segments, dealt over the team.
    pub(super) fn lora_a(
        &self,
        x: Source<'_>,
        (matrix, domain): (MatrixId, Domain),
        mut out: Target<'_>,
        room: &mut [f32],
    ) {
        let (lows, uses) = (self.lows(matrix), self.uses(domain));
        let of = |low: &Low| {
            let own = uses.iter().filter(|one| one.adapter == low.adapter);
            own.map(|one| one.rows.len()).sum::<usize>()
        };
        let node = lows.node(self.node);
        let segments = lows.columns.leaves(node).len();
        let items = |low: &Low| if of(low) > 0 { low.tiles() * segments } else { 0 };
        let mine = share(lows.pairs.iter().map(items).sum(), self.size, self.rank);
        let packed = self.step.weights.lows(matrix, self.node, self.group);
        let mut before = 0;
        for (low, packed) in lows.pairs.iter().zip(packed) {
            let all = before..before + items(low);
            before = all.end;
            for item in mine.start.max(all.start)..mine.end.min(all.end) {
                let (tile, segment) =
                    ((item - all.start) / segments, (item - all.start) % segments);
                let (cols, bytes) = self.segment(lows, low, segment);
                let number = lows.columns.leaves(node).start + segment;
                let to = low.at + number * low.padded() + tile * TILE_ROWS;
                let weights = packed.a(tile, bytes);
                let own = uses.iter().filter(|one| one.adapter == low.adapter);
                for rows in own.flat_map(|one| blocks(as_usize(&one.rows), A_ROWS)) {
                    let sums = &mut room[..rows.len() * TILE_ROWS];
                    let view = RowsMut::new(sums, rows.len(), TILE_ROWS, TILE_ROWS);
                    let pieces = Piece::whole(cols.len());
                    let acts = Acts::F32(x.columns(rows.clone(), cols.clone()));
                    self.step.kernels.matmul(low.types[0], weights, &pieces, acts, view);
                    let cols = to..to + TILE_ROWS;
                    if !lows.told {
                        copy(sums, out.columns(rows, cols));
                        continue;
                    }
                    let nodes = self.step.graph.nodes();
                    for node in (0..nodes).map(|i| (self.node + i) % nodes) {
                        copy(sums, out.columns_on(self.place_of(node), rows.clone(), cols.clone()));
                    }
                }
            }
        }
    }

    /// Columns of the node's input that a segment of its own is, and where a tile of A has them.
    fn segment(&self, lows: &Lows, low: &Low, segment: usize) -> (Range<usize>, Range<usize>) {
        let node = lows.node(self.node);
        let first = lows.columns.range(node).start;
        let mut begin = 0;
        for (at, cols) in lows.columns.segments(node).enumerate() {
            let end = begin + kernels::tile_bytes(low.types[0], cols.len());
            if at == segment {
                return (cols.start - first..cols.end - first, begin..end);
            }
            begin = end;
        }
        unreachable!("a segment of the node")
    }

    /// Adds the products with B to tiles of a part: `to` has the rows `rows`.
    pub(super) fn adapt(
        &self,
        low: Sums<'_>,
        part: usize,
        (rows, tiles): (Range<usize>, &Range<usize>),
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
                    self.sum_segments(low.of, (lows, pair), (own.clone(), one.scale), sums);
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

    /// What B is multiplied by: sums of all segments, scaled.
    fn sum_segments(
        &self,
        from: Source<'_>,
        (lows, pair): (&Lows, &Low),
        (rows, scale): (Range<usize>, f32),
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

    /// The products with B beside a matrix whose columns nodes share, of tiles that are dealt over the team.
    pub(super) fn lora_b(&self, low: Sums<'_>, mut out: Target<'_>, room: &mut [f32]) {
        let all = self.step.graph.matrix(low.matrix).parts[0].rows.div_ceil(TILE_ROWS);
        let tiles = share(all, self.size, self.rank);
        if tiles.is_empty() {
            return;
        }
        for one in self.uses(low.domain) {
            for rows in blocks(as_usize(&one.rows), B_ROWS) {
                let mut to = out.columns(rows.clone(), columns(0, &tiles));
                (0..rows.len()).for_each(|row| to.row_mut(row).fill(0.0));
            }
        }
        // All adapters of a row, whoever it was that made it zero.
        let (mut first, mut last) = (usize::MAX, 0);
        for one in self.uses(low.domain) {
            let own = as_usize(&one.rows);
            (first, last) = (first.min(own.start), last.max(own.end));
        }
        for rows in blocks(first.min(last)..last, B_ROWS) {
            let mut to = out.columns(rows.clone(), columns(0, &tiles));
            self.adapt(low, 0, (rows, &tiles), &mut to, room);
        }
    }

    /// Whether a row has adapters that are beside a matrix.
    pub(super) fn is_adapted(&self, matrix: MatrixId, domain: Domain, row: usize) -> bool {
        let lows = self.lows(matrix);
        self.uses(domain).iter().any(|one| {
            one.rows.contains(&(row as u32))
                && lows.pairs.iter().any(|pair| pair.adapter == one.adapter)
        })
    }
}

fn as_usize(rows: &Range<u32>) -> Range<usize> {
    rows.start as usize..rows.end as usize
}
