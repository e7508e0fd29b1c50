//! Matrix tiles: 16 rows of a matrix times any number of activation rows.
//!
//! A tile holds its rows interleaved, so that vector lanes are rows: a dot product needs no sum
//! across lanes, and every output is accumulated along the columns in one fixed order whatever else
//! is computed beside it. One layout serves one token and hundreds: weights are unpacked into
//! registers once for a register tile of tokens and meet each token's activations as broadcast
//! operands. The layout and the arithmetic of a type stand together in its file.
//!
//! Per block of 32 columns the integer sum is exact; then, in this order and each rounded once,
//! `acc = fma(f32(isum), scale * d, acc)` (Q4_0, Q8_0, Q4_K, and each half block of Q6_K), and for
//! Q4_K `acc = fma(-(dmin * min), dsum, acc)`.

#![allow(clippy::needless_range_loop, reason = "register tiles are indexed by token and group")]

mod float;
mod q4_0;
mod q4_k;
mod q6_k;
mod q8_0;

pub(crate) use float::{Bf16, F16, F32};
pub(crate) use q4_0::Q4_0;
pub(crate) use q4_k::Q4K;
pub(crate) use q6_k::Q6K;
pub(crate) use q8_0::Q8_0;

use crate::TILE_ROWS;
use crate::q8::{BLOCK as ACT_BLOCK, Q8Block};
use crate::simd::{Dot, Simd};
use crate::views::{Rows, RowsMut};

/// Some columns of a tile, whose products are summed apart.
///
/// A tile whose columns come in several pieces holds one packed piece after the other. The sums of
/// the pieces are added up as a binary tree: a stack takes each sum as it is made, and after piece
/// `i` the topmost two sums are added `folds` times. In the end one sum is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of columns, whole blocks.
    pub cols: usize,
    /// Additions after this piece.
    pub folds: usize,
}

impl Piece {
    /// All of a tile's columns in one piece.
    pub const fn whole(cols: usize) -> [Piece; 1] {
        [Piece { cols, folds: 0 }]
    }
}

/// Most sums on the stack: enough for a balanced tree of 2^7 pieces.
pub(crate) const PIECE_LEVELS: usize = 8;

/// How far ahead of the weights that are multiplied others are fetched into the first cache.
///
/// One core of a Zen 5 reads 400 MB of Q6_K with one token at 52 to 74 % of what plain loads reach
/// without prefetching, at 85 % 1 and 2 KiB ahead, at 88 to 95 % 4 and 8 KiB ahead (Q4_K 71 to 82 %, 79 to 92
/// %, 96 %; Q4_0 86 to 90 %, 88 to 91 %, 97 %); November 2026. Hints for the second cache were no better.
const AHEAD: usize = 4096;

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

    /// Gives block `b` of row `row` back, in the file's form.
    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]);

    /// Tokens of a register tile where registers are few.
    const NARROW_TOKENS: usize;

    /// Groups `g..g + G` of the 16 rows times `T` activation rows, which cover the tile's columns.
    /// Weights to come are fetched if `FETCH`.
    fn dot<D: Dot, const T: usize, const G: usize, const FETCH: bool>(
        d: D,
        tile: &[u8],
        acts: [&[Self::Act]; T],
        g: usize,
    ) -> [[D::F; G]; T];
}

/// `out[t][r] = Σ_c tile[r][c] * acts[t][c]`, summed by pieces.
#[inline(always)]
pub(crate) fn matmul<S: Simd, K: Tile>(
    s: S,
    tile: &[u8],
    pieces: &[Piece],
    acts: Rows<'_, K::Act>,
    mut out: RowsMut<'_, f32>,
) {
    let d = s.dot();
    let (tokens, mut t) = (acts.rows(), 0);
    if S::WIDE || K::NARROW_TOKENS >= 8 {
        while t + 8 <= tokens {
            step::<_, K, 8, 1>(d, tile, pieces, acts, &mut out, t);
            t += 8;
        }
    }
    while t + 4 <= tokens {
        step::<_, K, 4, 1>(d, tile, pieces, acts, &mut out, t);
        t += 4;
    }
    if t + 2 <= tokens {
        step::<_, K, 2, 1>(d, tile, pieces, acts, &mut out, t);
        t += 2;
    }
    // One token is bound by memory: all groups go together, so that the tile is read in one pass.
    if t < tokens {
        match S::Dot::GROUPS {
            1 => step::<_, K, 1, 1>(d, tile, pieces, acts, &mut out, t),
            2 => step::<_, K, 1, 2>(d, tile, pieces, acts, &mut out, t),
            groups => unreachable!("{groups} groups"),
        }
    }
}

/// One register tile: tokens `t..t + T`.
#[inline(always)]
fn step<D: Dot, K: Tile, const T: usize, const G: usize>(
    d: D,
    tile: &[u8],
    pieces: &[Piece],
    acts: Rows<'_, K::Act>,
    out: &mut RowsMut<'_, f32>,
    t: usize,
) {
    let rows: [&[K::Act]; T] = std::array::from_fn(|i| acts.row(t + i));
    for g in (0..D::GROUPS).step_by(G) {
        // Only the first pass over a tile can find it in memory.
        let fetch = t == 0 && g == 0;
        let sums = match pieces {
            [_] if fetch => K::dot::<D, T, G, true>(d, tile, rows, g),
            [_] => K::dot::<D, T, G, false>(d, tile, rows, g),
            _ if fetch => tree::<D, K, T, G, true>(d, tile, pieces, rows, g),
            _ => tree::<D, K, T, G, false>(d, tile, pieces, rows, g),
        };
        for (i, sums) in sums.iter().enumerate() {
            let row = out.row_mut(t + i).first_chunk_mut::<TILE_ROWS>();
            let row = row.expect("a row of 16 outputs");
            for (j, sum) in sums.iter().enumerate() {
                d.store(*sum, row, g + j);
            }
        }
    }
}

/// The sums of all pieces, added up.
#[inline(always)]
fn tree<D: Dot, K: Tile, const T: usize, const G: usize, const FETCH: bool>(
    d: D,
    mut tile: &[u8],
    pieces: &[Piece],
    mut acts: [&[K::Act]; T],
    g: usize,
) -> [[D::F; G]; T] {
    let mut stack = [[[d.splat(0.0); G]; T]; PIECE_LEVELS];
    let mut depth = 0;
    for piece in pieces {
        let (own, rest) = tile.split_at(K::bytes(piece.cols / K::BLOCK_COLS));
        tile = rest;
        let own_acts = acts.map(|a| &a[..piece.cols / K::ACT_COLS]);
        acts = acts.map(|a| &a[piece.cols / K::ACT_COLS..]);
        stack[depth] = K::dot::<D, T, G, FETCH>(d, own, own_acts, g);
        for _ in 0..piece.folds {
            let top = stack[depth];
            depth -= 1;
            for t in 0..T {
                for i in 0..G {
                    stack[depth][t][i] = d.add(stack[depth][t][i], top[t][i]);
                }
            }
        }
        depth += 1;
    }
    stack[0]
}

/// Asks for `LINES` cache lines that lie [`AHEAD`] of `at`. They may lie beyond the tile: the next
/// one is there, or memory that nobody will miss.
#[inline(always)]
fn fetch<D: Dot, const LINES: usize>(d: D, at: &[u8]) {
    for line in 0..LINES {
        d.prefetch(at.as_ptr().wrapping_add(AHEAD + 64 * line));
    }
}

/// The `N` bytes at `at`; with constants this costs nothing.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("parts lie within their block")
}

/// Panics unless `acts` all have `blocks` elements: what makes [`block`] sound.
#[inline(always)]
fn check_acts<A, const T: usize>(acts: [&[A]; T], blocks: usize) {
    for act in acts {
        assert!(act.len() == blocks, "activations of {} blocks, weights of {blocks}", act.len());
    }
}

/// Block `b` of a token.
///
/// # Safety
///
/// `b < acts.len()`.
#[inline(always)]
unsafe fn block(acts: &[Q8Block], b: usize) -> &Q8Block {
    debug_assert!(b < acts.len());
    // SAFETY: the caller's contract.
    unsafe { acts.get_unchecked(b) }
}

/// The integer sums of 32 columns of nibbles, each token's begun at `start` of its block. Byte
/// `64j + 4r + i` holds elements `4j + i` (low) and `16 + 4j + i` (high) of row `r`.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
unsafe fn dot_nibbles<D: Dot, const T: usize, const G: usize>(
    d: D,
    nibbles: &[u8; 256],
    acts: [&[Q8Block]; T],
    b: usize,
    g: usize,
    start: impl Fn(&Q8Block) -> i32,
) -> [[D::I; G]; T] {
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let mask = d.splat_w(0x0f);
    let mut acc = [[d.start_nibbles(0); G]; T];
    for t in 0..T {
        acc[t] = [d.start_nibbles(start(act(t))); G];
    }
    for (j, bytes) in nibbles.as_chunks::<64>().0.iter().enumerate() {
        for i in 0..G {
            let both = d.load_w(bytes, g + i);
            let (low, high) = (d.and(both, mask), d.and(d.shr4(both), mask));
            for t in 0..T {
                acc[t][i] = d.dot_nibbles(acc[t][i], low, act(t).quad(j));
            }
            for t in 0..T {
                acc[t][i] = d.dot_nibbles(acc[t][i], high, act(t).quad(4 + j));
            }
        }
    }
    let mut sums = [[d.splat_i(0); G]; T];
    for t in 0..T {
        for i in 0..G {
            sums[t][i] = d.end_nibbles(acc[t][i], start(act(t)));
        }
    }
    sums
}

/// The half floats of 16 rows, widened.
#[inline(always)]
fn load_scales<D: Dot, const G: usize>(d: D, scales: &[u8; 32], g: usize) -> [D::F; G] {
    let mut wide = [d.splat(0.0); G];
    for (i, wide) in wide.iter_mut().enumerate() {
        *wide = d.load_f16(scales, g + i);
    }
    wide
}

/// `acc[t][i] = fma(f32(sums[t][i]), scales[i] * d[t], acc[t][i])`, with `d` of block `b`.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
unsafe fn accumulate<D: Dot, const T: usize, const G: usize>(
    d: D,
    sums: [[D::I; G]; T],
    scales: [D::F; G],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; G]; T],
) {
    for t in 0..T {
        // SAFETY: the caller's contract.
        let act = d.splat(unsafe { block(acts[t], b) }.d);
        for i in 0..G {
            acc[t][i] = d.fma(d.to_f(sums[t][i]), d.mul(scales[i], act), acc[t][i]);
        }
    }
}
