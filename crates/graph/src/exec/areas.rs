//! Areas: the parts of a product, rows of activations by tiles of a matrix.

use kernels::{Block, RowsMut, TILE_ROWS};
use std::ops::Range;

/// The most rows of a block whose activations stay near.
pub(super) const BLOCK_ROWS: usize = 32;
/// f32 of a product that is worked on before it goes to its place: 16 KiB, so that gate and up stay near, and a
/// call multiplies 16 tiles by 16 tokens. (With 4 KiB prompts are 1 to 2 % slower on a Zen 5; November 2026.)
pub(super) const PRODUCT: usize = 8 * BLOCK_ROWS * TILE_ROWS;
/// The same where activations are copied for many tiles: 192 KiB, so that they serve as many.
pub(crate) const PANEL_PRODUCT: usize = 48 << 10;
/// f32 of scratch: gate and up, or a product that goes to several nodes.
pub(crate) const SCRATCH: usize = 2 * PANEL_PRODUCT;

/// A thread's tiles end where a cache line does, so no two threads write to one.
const _: () = assert!((TILE_ROWS * size_of::<f32>()).is_multiple_of(64));

/// Part of a product: rows of activations by tiles of a matrix.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    pub rows: Range<usize>,
    pub tiles: Range<usize>,
}

impl Area {
    /// Columns of its tiles.
    pub(super) fn width(&self) -> usize {
        self.tiles.len() * TILE_ROWS
    }

    /// f32 of a product of this size.
    pub(super) fn len(&self) -> usize {
        self.rows.len() * self.width()
    }
}

/// The columns of an output, which begins at `first`, that tiles give.
pub(crate) fn columns(first: usize, tiles: &Range<usize>) -> Range<usize> {
    first + tiles.start * TILE_ROWS..first + tiles.end * TILE_ROWS
}

/// Rows, one after the other, to their places.
pub(crate) fn copy(from: &[f32], mut to: RowsMut<'_, f32>) {
    let width = to.width();
    for (row, from) in from.chunks_exact(width).enumerate() {
        to.row_mut(row).copy_from_slice(from);
    }
}

/// `range` in pieces of `size`, at least one element each.
pub(crate) fn blocks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    let size = size.max(1);
    range.step_by(size).map(move |start| start..start.saturating_add(size).min(end))
}

/// Rows by tiles in pieces whose product fits in the scratch, if they can be of whole blocks.
pub(crate) fn pieces(
    rows: Range<usize>,
    tiles: &Range<usize>,
    block: Block,
) -> impl Iterator<Item = Area> {
    let tiles = tiles.clone();
    let (product, most) =
        if block.panel { (PANEL_PRODUCT, block.tokens) } else { (PRODUCT, BLOCK_ROWS) };
    let most = (product / TILE_ROWS / block.tiles).clamp(1, most);
    let whole = most / block.tokens * block.tokens;
    blocks(rows, if whole > 0 { whole } else { most }).flat_map(move |rows| {
        let fit = product / (rows.len() * TILE_ROWS);
        blocks(tiles.clone(), fit).map(move |tiles| Area { rows: rows.clone(), tiles })
    })
}
