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

pub(crate) mod bf16;
#[cfg(target_arch = "x86_64")]
mod bf16_pairs;
mod bits;
mod dots;
mod family;
mod five;
pub(crate) mod float;
mod halves;
pub(crate) mod iq4_nl;
pub(crate) mod iq4_xs;
pub(crate) mod mxfp4;
pub(crate) mod nvfp4;
pub(crate) mod panel;
mod parts;
mod pieces;
pub(crate) mod q2_k;
pub(crate) mod q3_k;
pub(crate) mod q4_0;
pub(crate) mod q4_1;
pub(crate) mod q4_k;
pub(crate) mod q5_0;
pub(crate) mod q5_1;
pub(crate) mod q5_k;
pub(crate) mod q6_k;
pub(crate) mod q8_0;
mod quants;
mod six;
mod steps;
pub(crate) mod tq2_0;
mod walk;
pub(crate) mod wide;

#[cfg(target_arch = "x86_64")]
pub(crate) use bf16_pairs::step_pairs;
#[cfg(target_arch = "x86_64")]
pub(crate) use family::PAIRS;
pub use family::{MicroKernel, MicroKernelError};
pub(crate) use family::{SIZES, Size, Sums, sizes};
pub use parts::Tiles;
pub use pieces::{PIECE_LEVELS, Piece};
pub(crate) use walk::{Family, Place, RegisterTile, RegisterTiles, Unpacks, Walk, step};

// What the files of the types are written with, too.
use dots::{accumulate, add_mins, dot_nibbles, dot_pair, dot_two_bits, start};
use parts::{Fetch, Part, check_acts, check_parts, fetch, part, slices, within};

use panel::{PanelKind, Sub};

use std::ops::Range;

use gguf::TensorType;

use crate::acts::ActKind;
use crate::q8::{BLOCK as ACT_BLOCK, Q8Blocks};
use crate::simd::Dot;

/// Hands the one list of matrix types to a macro. A line says how tiles are packed and multiplied
/// (the [`Tile`] of a file), with which activations, and of which types the file may be: those that
/// are unpacked to 8 bits share a line. A new type is its file, its `mod` line above, and a line
/// here.
macro_rules! for_each_type {
    ($apply:ident $($arg:tt)*) => {
        $apply! { $($arg)* [
            float::F32: F32, [F32];
            float::F16: F32, [F16];
            bf16::Bf16: Bf16, [BF16];
            q8_0::Q8_0: Q8, [Q8_0];
            q4_0::Q4_0: Q8, [Q4_0];
            q4_k::Q4K: Q8, [Q4_K];
            q6_k::Q6K: Q8, [Q6_K];
            q4_1::Q4_1: Q8, [Q4_1];
            q5_0::Q5_0: Q8, [Q5_0];
            q5_1::Q5_1: Q8, [Q5_1];
            q2_k::Q2K: Q8, [Q2_K];
            q3_k::Q3K: Q8, [Q3_K];
            q5_k::Q5K: Q8, [Q5_K];
            iq4_nl::Iq4Nl: Q8, [IQ4_NL];
            iq4_xs::Iq4Xs: Q8, [IQ4_XS];
            mxfp4::Mxfp4: Q8, [MXFP4];
            nvfp4::Nvfp4: Q8, [NVFP4];
            wide::Wide: Q8, [IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ1_S IQ1_M];
            tq2_0::Tq2_0: Q8, [TQ2_0 TQ1_0];
        ] }
    };
}
pub(crate) use for_each_type;

macro_rules! define_line {
    ([$($file:ident::$tile:ident: $acts:ident, [$($ty:ident)*];)*]) => {
        /// A line of the list, and its place in a table.
        #[derive(Clone, Copy)]
        pub(crate) enum Line {
            $($tile,)*
        }

        impl Line {
            pub(crate) const COUNT: usize = [$(Self::$tile),*].len();

            /// The line of a type.
            pub(crate) const fn of(ty: TensorType) -> Self {
                match ty {
                    $($(TensorType::$ty)|* => Self::$tile,)*
                }
            }

            /// What its matrices are multiplied with.
            pub(crate) const fn acts(self) -> ActKind {
                match self {
                    $(Self::$tile => ActKind::$acts,)*
                }
            }
        }
    };
}
for_each_type!(define_line);

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
