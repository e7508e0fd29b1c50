//! Matrix products: each thread multiplies its tiles with its rows of activations.
//!
//! Which these are is the schedule's to say ([`crate::schedule`]): mostly a share of the tiles, and all
//! rows. Blocking: where the schedule has no slice, a block of tiles that fits half of the L2 cache is
//! walked once per block of rows that stays near as well, so that both operands are read from
//! memory about once. The order of summation is the kernel's and does not depend on the blocking.

use super::Thread;
use super::access::{Source, Target};
use super::areas::{Area, BLOCK_ROWS, PANEL_PRODUCT, PRODUCT, blocks, columns, copy, pieces};
use super::grid::Own;
use super::low::LowSums;
use super::rows::keep;
use crate::claims::Operand;
use crate::load::{Packed, Root};
use crate::op::{Activation, TileSums};
use crate::plan::Plan;
use crate::weight::MatrixId;
use kernels::{ActKind, Acts, Block, How, Kernels, Rows, RowsMut, TILE_ROWS};
use std::ops::Range;

/// Packed weights and the kernel that multiplies by them.
#[derive(Copy, Clone)]
struct Factor<'a> {
    how: How,
    part: &'a Packed,
    /// Columns that are summed in one go.
    root: &'a Root,
}

impl<'a> Factor<'a> {
    /// A part of whole rows, which has tiles on this node.
    fn whole(how: How, part: &'a Packed) -> Factor<'a> {
        Factor { how, part, root: part.whole() }
    }
}

/// Scale, bias and limits of a product, applied first, tile by tile.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct Plus<'a> {
    scale: Option<f32>,
    bias: Option<&'a [f32]>,
    clamp: Option<(f32, f32)>,
}

/// Functions of a product, applied after [`Plus`], tile by tile.
#[derive(Copy, Clone)]
pub(crate) struct After {
    pub activation: Option<Activation>,
    pub scale: f32,
    pub cap: Option<f32>,
}

/// No function.
pub(crate) const NOTHING: After = After { activation: None, scale: 1.0, cap: None };

/// Work on the tiles of a product while they are in the cache.
pub(crate) struct Epilogue<'a> {
    /// Adapters whose products are added.
    pub low: Option<LowSums<'a>>,
    /// Scratch for these.
    pub room: &'a mut [f32],
    pub after: After,
    /// Sums of tiles that are sent to all nodes.
    pub tile_sums: Option<(TileSums, Target<'a>)>,
}

/// Product with two paired matrices.
pub(crate) struct Gated<'a> {
    pub matrix: MatrixId,
    pub activation: Activation,
    /// Adapters whose products are added.
    pub low: Option<LowSums<'a>>,
    /// Scratch for these.
    pub room: &'a mut [f32],
    /// Scratch for both products.
    pub scratch: &'a mut [f32],
}

/// Form of a product whose columns the nodes share.
#[derive(Copy, Clone)]
pub(crate) struct Partial {
    /// Whether summands are written to every node's copy.
    pub push: bool,
    /// Runs of a node's columns, each with a sum of its own.
    pub splits: usize,
}

impl Thread<'_> {
    /// Product with a matrix whose rows the nodes share, its bias, and the epilogue.
    pub(crate) fn matmul(
        &self,
        own: &Own<'_>,
        acts: Operand<Source<'_>>,
        matrix: MatrixId,
        epilogue: &mut Epilogue<'_>,
        out: &mut Target<'_>,
    ) {
        let kernels = self.step.kernels;
        // The logits of all nodes lie in one row: this node's begin at its first vocabulary row.
        let (base, below) = match out.is_host() {
            true => (self.step.tables.matrix(matrix).rows(0, self.node).start, self.logits_before),
            false => (0, 0),
        };
        for (p, part) in own.shard().parts.iter().enumerate() {
            let how = self.how(own, part);
            let rows = own.rows().start + below..own.rows().end + below;
            out.claim(rows, columns(base + part.out, &own.tiles(p)));
            for tiles in self.tile_blocks(own, own.tiles(p), part.tile_bytes()) {
                let factor = Factor::whole(how, part);
                for rows in self.row_blocks(own, part) {
                    let to_rows = rows.start + below..rows.end + below;
                    let area = Area { rows, tiles: tiles.clone() };
                    let cols = columns(base + part.out, &area.tiles);
                    let to = out.columns(to_rows.clone(), cols.clone());
                    self.product(factor, acts, &area, to);
                    let mut plus = self.plus(matrix, p, &area.tiles);
                    let mut done = out.columns(to_rows, cols);
                    if let Some(low) = epilogue.low {
                        let scaled = Plus { scale: plus.scale.take(), ..Plus::default() };
                        finish(kernels, scaled, NOTHING, &mut done);
                        self.adapt(low, p, &area, &mut done, epilogue.room);
                    }
                    finish(kernels, plus, epilogue.after, &mut done);
                    let sums = epilogue.tile_sums.as_mut();
                    if let Some((sums, to)) = sums.filter(|(sums, _)| p < sums.parts()) {
                        self.send_tile_sums(*sums, matrix, p, to, &area, &mut done);
                    }
                }
            }
        }
    }

    /// Sends sums of the tiles of a part to every node. If several nodes have a tile, the first sends its sums.
    fn send_tile_sums(
        &self,
        sums: TileSums,
        matrix: MatrixId,
        part: usize,
        to: &mut Target<'_>,
        Area { rows, tiles }: &Area,
        done: &mut RowsMut<'_, f32>,
    ) {
        let matrix = self.step.tables.matrix(matrix);
        let before: usize = matrix.parts[..part].iter().map(|p| p.rows).sum();
        let (own, first) =
            (matrix.rows(part, self.node), matrix.parts[part].cut.first_held(self.node));
        // Heads are whole tiles, and so is all that is cut by heads, or in whole blocks.
        let mine = tiles.start.max((first.start - own.start) / TILE_ROWS)..tiles.end;
        if mine.is_empty() {
            return;
        }
        let (at, each) = ((before + own.start) / TILE_ROWS, sums.numbers());
        for node in 0..self.step.tables.nodes() {
            let cols = (at + mine.start) * each..(at + mine.end) * each;
            let mut to = to.columns_on(self.place_of(node), rows.clone(), cols);
            for row in 0..rows.len() {
                let products = &done.row_mut(row)[(mine.start - tiles.start) * TILE_ROWS..];
                let tiles = products.chunks_exact(TILE_ROWS);
                for (to, tile) in to.row_mut(row).chunks_exact_mut(each).zip(tiles) {
                    let squares = self.step.kernels.square_sum(tile);
                    match sums {
                        TileSums::Squares => to[0] = squares,
                        TileSums::Moments => {
                            to.copy_from_slice(&[self.step.kernels.sum(tile), squares]);
                        }
                    }
                }
            }
        }
    }

    /// What the products of tiles of a part go through first.
    fn plus(&self, matrix: MatrixId, part: usize, tiles: &Range<usize>) -> Plus<'_> {
        let clamp = self.step.tables.matrix(matrix).parts[part].clamp;
        Plus {
            scale: self.scale(matrix, part),
            bias: self.bias(matrix, part, tiles),
            clamp: clamp.map(|clamp| self.limits_of(clamp)),
        }
    }

    /// What the products of a part are multiplied by.
    fn scale(&self, matrix: MatrixId, part: usize) -> Option<f32> {
        let scale = self.step.tables.matrix(matrix).parts[part].scale?;
        Some(self.step.weights.vector(scale, self.group)[0])
    }

    /// The bias of the rows that tiles of a part have, without the padding of the last tile.
    fn bias(&self, matrix: MatrixId, part: usize, tiles: &Range<usize>) -> Option<&[f32]> {
        let matrix = self.step.tables.matrix(matrix);
        let bias = self.step.weights.vector(matrix.parts[part].bias?, self.group);
        let own = &bias[matrix.rows(part, self.node)];
        let rows = columns(0, tiles);
        Some(&own[rows.start..rows.end.min(own.len())])
    }

    /// Product with two paired matrices whose rows the nodes share.
    pub(crate) fn gated(
        &self,
        own: &Own<'_>,
        acts: Operand<Source<'_>>,
        gated: &mut Gated<'_>,
        out: &mut Target<'_>,
    ) {
        let [gate, up] = own.shard().parts.as_slice() else { unreachable!("a pair of matrices") };
        let hows = [gate, up].map(|part| self.how(own, part));
        let bytes = gate.tile_bytes() + up.tile_bytes();
        out.claim(own.rows(), columns(0, &own.tiles(0)));
        for tiles in self.tile_blocks(own, own.tiles(0), bytes) {
            let pair = [Factor::whole(hows[0], gate), Factor::whole(hows[1], up)];
            for rows in self.row_blocks(own, gate) {
                for area in pieces(rows, &tiles, own.block) {
                    self.gated_piece(gated, pair, acts, &area, out);
                }
            }
        }
    }

    /// An area of a pair's product, which fits in the scratch.
    fn gated_piece(
        &self,
        gated: &mut Gated<'_>,
        [gate, up]: [Factor<'_>; 2],
        acts: Operand<Source<'_>>,
        area: &Area,
        out: &mut Target<'_>,
    ) {
        let Gated { matrix, activation, low, room, scratch } = gated;
        let (rows, width, len) = (area.rows.len(), area.width(), area.len());
        let kernels = self.step.kernels;
        let (to_gate, to_up) = scratch.split_at_mut(PANEL_PRODUCT);
        let (g, u) = (&mut to_gate[..len], &mut to_up[..len]);
        // The output comes from memory during the products, if it is small.
        if rows > 1 && len <= PRODUCT {
            kernels.prefetch_write(out.columns(area.rows.clone(), columns(0, &area.tiles)));
        }
        let view = |s| RowsMut::new(s, rows, width, width);
        self.product(gate, acts, area, view(&mut *g));
        self.product(up, acts, area, view(&mut *u));
        for (p, products) in [&mut *g, &mut *u].into_iter().enumerate() {
            let plus = self.plus(*matrix, p, &area.tiles);
            if plus != Plus::default() {
                let mut products = RowsMut::new(products, rows, width, width);
                finish(kernels, plus, NOTHING, &mut products);
            }
        }
        if let Some(low) = *low {
            for (part, products) in [&mut *g, &mut *u].into_iter().enumerate() {
                let mut to = RowsMut::new(products, rows, width, width);
                self.adapt(low, part, area, &mut to, room);
            }
        }
        let view = |s| Rows::new(s, rows, width, width);
        let to = out.columns(area.rows.clone(), columns(0, &area.tiles));
        kernels.gated(*activation, view(g), view(u), to);
    }

    /// Product with a matrix whose columns the nodes share, this node's in `splits` runs: every root of
    /// the summation tree goes to its slot of this node's copy or, to `push`, of every node's.
    pub(crate) fn matmul_partial(
        &self,
        own: &Own<'_>,
        acts: Operand<Source<'_>>,
        matrix: MatrixId,
        Partial { push, splits }: Partial,
        out: &mut Target<'_>,
        scratch: &mut [f32],
    ) {
        let [part] = own.shard().parts.as_slice() else { unreachable!("one matrix") };
        if part.cols == 0 {
            return; // a node without any columns
        }
        let (nodes, here) = (self.step.tables.nodes(), self.node);
        let slot = self.step.tables.matrix(matrix).parts[0].rows.next_multiple_of(TILE_ROWS);
        let how = self.how(own, part);
        let sum = part.summed(splits);
        for tiles in self.tile_blocks(own, own.tiles(0), part.tile_bytes()) {
            for rows in self.row_blocks(own, part) {
                for (i, root) in sum.roots.iter().enumerate() {
                    if !own.has(&root.cols, part.cols) {
                        continue;
                    }
                    let place = if push { sum.roots_before + i } else { i } * slot;
                    out.claim(own.rows(), columns(place, &own.tiles(0)));
                    let factor = Factor { how, part, root };
                    if !push || nodes == 1 {
                        let area = Area { rows: rows.clone(), tiles: tiles.clone() };
                        let to = out.columns(rows.clone(), columns(place, &tiles));
                        self.product(factor, acts, &area, to);
                        continue;
                    }
                    for area in pieces(rows.clone(), &tiles, own.block) {
                        let (rows, width) = (area.rows.len(), area.width());
                        let sum = &mut scratch[..area.len()];
                        let view = RowsMut::new(sum, rows, width, width);
                        self.product(factor, acts, &area, view);
                        for i in 0..nodes {
                            let to = self.place_of((here + i) % nodes);
                            let cols = columns(place, &area.tiles);
                            copy(sum, out.columns_on(to, area.rows.clone(), cols));
                        }
                    }
                }
            }
        }
    }

    /// How the thread multiplies a part: as the schedule says, or as is usual for all of its rows, of which
    /// kernels see some at a time.
    pub(crate) fn how(&self, own: &Own<'_>, part: &Packed) -> How {
        let how = self.step.plan.schedules.resolve(own.schedule.how, part.ty);
        self.step.kernels.usual(how, part.ty, own.rows().len(), self.size)
    }

    /// The tiles of an area, as far as they belong to the factor's root, times the area's rows of activations.
    fn product(
        &self,
        Factor { how, part, root }: Factor<'_>,
        acts: Operand<Source<'_>>,
        area: &Area,
        to: RowsMut<'_, f32>,
    ) {
        let input = self.acts(acts, part, area.rows.clone(), root.cols.clone());
        let weights = part.tiles(area.tiles.clone(), root);
        self.step.kernels.matmul_by(how, part.ty, weights, &root.pieces, input, to);
    }

    /// The tiles `tiles`, of `bytes` each, in blocks: the schedule's, or those that stay in the cache
    /// while rows go by, as many as kernels take at a time or a multiple, and at least two.
    fn tile_blocks(
        &self,
        own: &Own<'_>,
        tiles: Range<usize>,
        bytes: usize,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let fit = || tiles_that_fit(self.step.plan, own.block, bytes);
        blocks(tiles, own.schedule.slice.map_or_else(fit, |slice| slice.tiles))
    }

    /// The activations that `part` multiplies: rows `rows`, columns `cols`.
    pub(crate) fn acts<'s>(
        &self,
        acts: Operand<Source<'s>>,
        part: &Packed,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> Acts<'s> {
        let kind = kernels::act_kind(part.ty);
        let from = acts.of(kind);
        let bytes = || {
            let at = |cols| self.step.kernels.row_bytes(kind, cols);
            let (begin, width) = (at(cols.start), at(cols.len()));
            from.bytes(rows.clone(), begin..begin + width)
        };
        match kind {
            ActKind::F32 => Acts::F32(from.columns(rows, cols)),
            ActKind::Bf16 => Acts::Bf16(bytes()),
            ActKind::Q8 => Acts::Q8(bytes()),
        }
    }

    /// The thread's rows of activations in blocks, as `part` takes them: the schedule's, or those that
    /// stay in the cache.
    pub(crate) fn row_blocks(
        &self,
        own: &Own<'_>,
        part: &Packed,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let fit = || {
            let bytes = self.step.kernels.row_bytes(kernels::act_kind(part.ty), part.cols);
            tokens_that_fit(self.step.plan, own.block, bytes)
        };
        blocks(own.rows(), own.schedule.slice.map_or_else(fit, |slice| slice.tokens))
    }
}

/// Tiles of `bytes` each that stay in a thread's cache while rows go by, in multiples of a block's.
pub(crate) fn tiles_that_fit(plan: &Plan, block: Block, bytes: usize) -> usize {
    let unit = 2usize.next_multiple_of(block.tiles);
    (plan.weight_block_bytes / bytes / unit * unit).max(unit)
}

/// Tokens of `bytes` of activations each that stay near while tiles go by: whole register tiles, so that only the
/// last block has a remainder. Those that are laid out anew need not stay so.
pub(crate) fn tokens_that_fit(plan: &Plan, block: Block, bytes: usize) -> usize {
    if block.panel {
        return block.tokens;
    }
    let tile = 8usize.next_multiple_of(block.tokens);
    let most = (BLOCK_ROWS / tile * tile).max(tile);
    (plan.act_block_bytes / bytes).next_multiple_of(tile).clamp(tile, most)
}

/// Multiplies every row by the part's scale, adds the bias, keeps it between the limits and does what is to follow.
fn finish(kernels: &Kernels, plus: Plus<'_>, after: After, to: &mut RowsMut<'_, f32>) {
    for row in 0..to.rows() {
        let row = to.row_mut(row);
        if let Some(scale) = plus.scale {
            kernels.scale(row, scale);
        }
        if let Some(bias) = plus.bias {
            kernels.add_assign(&mut row[..bias.len()], bias);
        }
        if let Some(limits) = plus.clamp {
            keep(limits, row);
        }
        if let Some(activation) = after.activation {
            kernels.activate(activation, row);
        }
        if after.scale != 1.0 {
            kernels.scale(row, after.scale);
        }
        if let Some(cap) = after.cap {
            kernels.soft_cap(row, cap);
        }
    }
}
