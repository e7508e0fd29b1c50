//! Matrix tiles, 16 rows of a matrix each, times any number of activation rows.
//!
//! A tile holds its rows interleaved, so that vector lanes are rows: a dot product needs no sum
//! across lanes, and every output is accumulated along the columns in one fixed order whatever else
//! is computed beside it. One layout serves one token and hundreds: weights are unpacked into
//! registers once for a register tile of tokens and meet each token's activations as broadcast
//! operands. The layout and the arithmetic of a type stand together in its file.
//!
//! Per block of 32 columns the integer sum is exact; then, in this order and each rounded once,
//! `acc = fma(f32(isum), scale * d, acc)`, and for types with minima `acc = fma(min, dsum, acc)`. Half blocks
//! with scales of their own are summed first (see [`halves`]).

#![allow(clippy::needless_range_loop, reason = "register tiles are indexed by token and group")]

mod bf16;
#[cfg(target_arch = "x86_64")]
mod bf16_pairs;
mod bits;
mod dots;
mod family;
mod five;
mod float;
mod halves;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
pub(crate) mod panel;
mod parts;
mod pieces;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod quants;
mod six;
mod steps;
mod walk;
mod wide;

pub(crate) use bf16::Bf16;
#[cfg(target_arch = "x86_64")]
pub(crate) use bf16_pairs::step_pairs;
#[cfg(target_arch = "x86_64")]
pub(crate) use family::PAIRS;
pub use family::{MicroKernel, MicroKernelError};
pub(crate) use family::{SIZES, Size, Sums, exists, sizes};
pub(crate) use float::{F16, F32};
pub(crate) use iq4_nl::Iq4Nl;
pub(crate) use iq4_xs::Iq4Xs;
pub(crate) use mxfp4::Mxfp4;
pub(crate) use parts::AHEAD;
pub use parts::Tiles;
pub(crate) use pieces::PIECE_LEVELS;
pub use pieces::Piece;
pub(crate) use q2_k::Q2K;
pub(crate) use q3_k::Q3K;
pub(crate) use q4_0::Q4_0;
pub(crate) use q4_1::Q4_1;
pub(crate) use q4_k::Q4K;
pub(crate) use q5_0::Q5_0;
pub(crate) use q5_1::Q5_1;
pub(crate) use q5_k::Q5K;
pub(crate) use q6_k::Q6K;
pub(crate) use q8_0::Q8_0;
pub(crate) use walk::{Family, Place, RegisterTile, Unpacks, Walk, step, streams, usual};
pub(crate) use wide::Wide;

// What the files of the types are written with, too.
use dots::{accumulate, add_mins, block, dot_nibbles, load_scales};
use parts::{Fetch, Part, check_acts, check_parts, fetch, part, slices, within};

use panel::{PanelKind, Sub};

use std::ops::Range;

use crate::q8::BLOCK as ACT_BLOCK;
use crate::simd::Dot;

/// The packed form of one weight type.
pub(crate) trait Tile {
    /// What activations are made of.
    type Act;

    /// Columns of an element of the activations.
    const ACT_COLS: usize;

    /// Columns of a block.
    const BLOCK_COLS: usize;

    /// Bytes of a tile of `blocks` blocks a row.
    fn bytes(blocks: usize) -> usize;

    /// Puts block `b` of row `row`, in the file's form, into its places.
    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]);

    /// Puts all blocks of row `row`, `len` bytes each.
    fn put_row(tile: &mut [u8], row: usize, blocks: &[u8], len: usize) {
        for (b, block) in blocks.chunks_exact(len).enumerate() {
            Self::put(tile, b, row, block);
        }
    }

    /// Gives block `b` of row `row` back, in the file's form.
    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]);

    /// What products are summed in.
    const SUMS: Sums;

    /// Whether the whole family is compiled, and not only the sizes that walks end with: for the types
    /// that most models come in.
    const FAMILY: bool = true;

    /// The fewest tokens for which two tiles go together. One token is bound by memory, and one stream
    /// is what prefetchers like; but the sums of plain floats are one chain of additions.
    const TWO_FROM: usize = 2;

    /// How its sums are made from a panel, if weights can be unpacked into one.
    const PANEL: Option<PanelKind> = None;

    /// Unpacks sub-blocks `subs` of 32 columns of a tile's piece into a panel.
    fn unpack<D: Dot>(_d: D, _tile: &[u8], _subs: Range<usize>, _panel: &mut [Sub]) {
        unreachable!("the type has no panels")
    }

    /// The rows of `N` register columns times `T` activation rows, which cover the tiles' columns; `U`
    /// steps in one turn of the loop, 1 or 2.
    fn dot<D: Dot, const T: usize, const N: usize, const U: usize>(
        d: D,
        parts: [Part<'_>; N],
        acts: [&[Self::Act]; T],
        fetch: Fetch,
    ) -> [[D::F; N]; T];
}
