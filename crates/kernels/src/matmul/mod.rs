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
mod five;
mod float;
mod halves;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
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
mod wide;

pub(crate) use bf16::{Bf16, matmul_widened};
#[cfg(target_arch = "x86_64")]
pub(crate) use bf16_pairs::matmul_pairs;
pub(crate) use float::{F16, F32};
pub(crate) use iq4_nl::Iq4Nl;
pub(crate) use iq4_xs::Iq4Xs;
pub(crate) use mxfp4::Mxfp4;
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
pub(crate) use wide::Wide;

// What the files of the types are written with, too.
use dots::{accumulate, add_mins, block, dot_nibbles, load_scales};
use parts::{Fetch, Part, check_acts, check_parts, fetch, part, rows, slices, within};
use pieces::{Dots, Products, tree};

use crate::TILE_ROWS;
use crate::q8::BLOCK as ACT_BLOCK;
use crate::simd::{Dot, Simd};
use crate::views::{Rows, RowsMut};

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

    /// Tokens of a register tile where registers are few.
    const NARROW_TOKENS: usize;

    /// The fewest tokens for which two tiles go together. One token is bound by memory, and one stream
    /// is what prefetchers like; but the sums of plain floats are one chain of additions.
    const TWO_FROM: usize = 2;

    /// The rows of `N` register columns times `T` activation rows, which cover the tiles' columns.
    fn dot<D: Dot, const T: usize, const N: usize>(
        d: D,
        parts: [Part<'_>; N],
        acts: [&[Self::Act]; T],
        fetch: Fetch,
    ) -> [[D::F; N]; T];
}

/// `out[t][16i + r] = Σ_c tiles[i][r][c] * acts[t][c]`, summed by pieces.
///
/// Where registers are many, a register tile is 2 matrix tiles by 4 tokens, so that one load of
/// activations serves two products: multiply units and load ports are then about equally busy (79 % of the
/// peak of `vpdpbusd` on Zen 5 with Q4_0, 4 for 5 tokens 80 %, 1 tile by 8 or 12 tokens 70 to 76 %; November
/// 2026). Each block's scales cost two of ten instructions of the multiply units: 80 % is the most.
#[inline(always)]
pub(crate) fn matmul<S: Simd, K: Tile>(
    s: S,
    tiles: Tiles<'_>,
    pieces: &[Piece],
    acts: Rows<'_, K::Act>,
    mut out: RowsMut<'_, f32>,
) {
    let d = s.dot();
    let mut i = 0;
    if S::WIDE {
        while i + 2 <= tiles.count() && acts.rows() >= K::TWO_FROM {
            let parts = [tiles.part(i, 0, 2), tiles.part(i + 1, 0, 2)];
            wide::<_, K, 2>(d, parts, pieces, acts, &mut out, i);
            i += 2;
        }
        while i < tiles.count() {
            wide::<_, K, 1>(d, [tiles.part(i, 0, 1)], pieces, acts, &mut out, i);
            i += 1;
        }
        return;
    }
    for i in 0..tiles.count() {
        match S::Dot::GROUPS {
            1 => narrow::<_, K, 1>(d, [tiles.part(i, 0, 1)], pieces, acts, &mut out, i),
            2 => {
                let groups = [tiles.part(i, 0, 1), tiles.part(i, 1, 1)];
                narrow::<_, K, 2>(d, groups, pieces, acts, &mut out, i);
            }
            groups => unreachable!("{groups} groups"),
        }
    }
}

/// Tile `i`, or tiles `i` and `i + 1`, times all activation rows.
#[inline(always)]
fn wide<D: Dot, K: Tile, const N: usize>(
    d: D,
    parts: [Part<'_>; N],
    pieces: &[Piece],
    acts: Rows<'_, K::Act>,
    out: &mut RowsMut<'_, f32>,
    i: usize,
) {
    let mut at = [i; N];
    for n in 0..N {
        at[n] += n;
    }
    let (tokens, mut t) = (acts.rows(), 0);
    let fetch = |t: usize| match tokens.div_ceil(4) {
        1 => Fetch::Stream,
        step => Fetch::Successor { first: t / 4, step },
    };
    while t + 4 <= tokens {
        step::<_, K, 4, N>(d, parts, at, pieces, acts, out, t, fetch(t));
        t += 4;
    }
    match tokens - t {
        3 => step::<_, K, 3, N>(d, parts, at, pieces, acts, out, t, fetch(t)),
        2 => step::<_, K, 2, N>(d, parts, at, pieces, acts, out, t, fetch(t)),
        1 => step::<_, K, 1, N>(d, parts, at, pieces, acts, out, t, fetch(t)),
        _ => {}
    }
}

/// Tile `i`, whose groups are `parts`, times all activation rows.
#[inline(always)]
fn narrow<D: Dot, K: Tile, const G: usize>(
    d: D,
    parts: [Part<'_>; G],
    pieces: &[Piece],
    acts: Rows<'_, K::Act>,
    out: &mut RowsMut<'_, f32>,
    i: usize,
) {
    let (tokens, mut t) = (acts.rows(), 0);
    // Only the first pass over a tile can find it in memory.
    let first = |t: usize, part: &Part<'_>| match t == 0 && part.group == 0 {
        true => Fetch::Stream,
        false => Fetch::Nothing,
    };
    if K::NARROW_TOKENS >= 8 {
        while t + 8 <= tokens {
            for part in parts {
                step::<_, K, 8, 1>(d, [part], [i], pieces, acts, out, t, first(t, &part));
            }
            t += 8;
        }
    }
    while t + 4 <= tokens {
        for part in parts {
            step::<_, K, 4, 1>(d, [part], [i], pieces, acts, out, t, first(t, &part));
        }
        t += 4;
    }
    if t + 2 <= tokens {
        for part in parts {
            step::<_, K, 2, 1>(d, [part], [i], pieces, acts, out, t, first(t, &part));
        }
        t += 2;
    }
    // One token is bound by memory: all groups go together, so that the tile is read in one pass.
    if t < tokens {
        step::<_, K, 1, G>(d, parts, [i; G], pieces, acts, out, t, first(t, &parts[0]));
    }
}

/// One register tile: tokens `t..t + T` and the parts of the tiles `at`.
#[expect(clippy::too_many_arguments, reason = "a loop's body")]
#[inline(always)]
fn step<D: Dot, K: Tile, const T: usize, const N: usize>(
    d: D,
    parts: [Part<'_>; N],
    at: [usize; N],
    pieces: &[Piece],
    acts: Rows<'_, K::Act>,
    out: &mut RowsMut<'_, f32>,
    t: usize,
    fetch: Fetch,
) {
    let sums = tree(Dots::<D, K>::new(d, fetch), parts, pieces, rows::<_, T>(acts, t));
    for i in 0..T {
        let row = out.row_mut(t + i).as_chunks_mut::<TILE_ROWS>().0;
        for n in 0..N {
            d.store(sums[i][n], &mut row[at[n]], parts[n].group);
        }
    }
}
