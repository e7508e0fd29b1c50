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
use crate::q8::Q8Block;
use crate::simd::Simd;
use crate::views::{Rows, RowsMut};

/// The packed form of one weight type.
pub(crate) trait Tile {
    /// What activations are made of.
    type Act;

    /// Bytes of a tile of `blocks` blocks a row.
    fn bytes(blocks: usize) -> usize;

    /// Puts block `b` of row `row`, in the file's form, into its places.
    fn put(tile: &mut [u8], b: usize, row: usize, block: &[u8]);

    /// Gives block `b` of row `row` back, in the file's form.
    fn get(tile: &[u8], b: usize, row: usize, block: &mut [u8]);

    /// The 16 rows times `T` activation rows. Every activation row covers the tile's columns.
    fn dot<S: Simd, const T: usize>(s: S, tile: &[u8], acts: [&[Self::Act]; T]) -> [S::F; T];
}

/// `out[t][r] = Σ_c tile[r][c] * acts[t][c]`.
#[inline(always)]
pub(crate) fn matmul<S: Simd, K: Tile>(
    s: S,
    tile: &[u8],
    acts: Rows<'_, K::Act>,
    mut out: RowsMut<'_, f32>,
) {
    let (tokens, mut t) = (acts.rows(), 0);
    if S::WIDE {
        while t + 8 <= tokens {
            step::<S, K, 8>(s, tile, acts, &mut out, t);
            t += 8;
        }
        if t + 4 <= tokens {
            step::<S, K, 4>(s, tile, acts, &mut out, t);
            t += 4;
        }
    }
    while t + 2 <= tokens {
        step::<S, K, 2>(s, tile, acts, &mut out, t);
        t += 2;
    }
    if t < tokens {
        step::<S, K, 1>(s, tile, acts, &mut out, t);
    }
}

/// One register tile: tokens `t..t + T`.
#[inline(always)]
fn step<S: Simd, K: Tile, const T: usize>(
    s: S,
    tile: &[u8],
    acts: Rows<'_, K::Act>,
    out: &mut RowsMut<'_, f32>,
    t: usize,
) {
    let sums = K::dot::<S, T>(s, tile, std::array::from_fn(|i| acts.row(t + i)));
    for (i, sum) in sums.iter().enumerate() {
        let row = out.row_mut(t + i).first_chunk_mut::<TILE_ROWS>();
        s.store(*sum, row.expect("a row of 16 outputs"));
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
unsafe fn dot_nibbles<S: Simd, const T: usize>(
    s: S,
    nibbles: &[u8; 256],
    acts: [&[Q8Block]; T],
    b: usize,
    start: impl Fn(&Q8Block) -> i32,
) -> [S::I; T] {
    let mask = s.splat_w(0x0f);
    let mut acc = [s.start_nibbles(0); T];
    for t in 0..T {
        // SAFETY: the caller's contract.
        acc[t] = s.start_nibbles(start(unsafe { block(acts[t], b) }));
    }
    for (j, bytes) in nibbles.as_chunks::<64>().0.iter().enumerate() {
        let both = s.load_w(bytes);
        let (low, high) = (s.and(both, mask), s.and(s.shr4(both), mask));
        for t in 0..T {
            // SAFETY: the caller's contract.
            acc[t] = s.dot_nibbles(acc[t], low, unsafe { block(acts[t], b) }.quad(j));
        }
        for t in 0..T {
            // SAFETY: the caller's contract.
            acc[t] = s.dot_nibbles(acc[t], high, unsafe { block(acts[t], b) }.quad(4 + j));
        }
    }
    let mut sums = [s.splat_i(0); T];
    for t in 0..T {
        // SAFETY: the caller's contract.
        sums[t] = s.end_nibbles(acc[t], start(unsafe { block(acts[t], b) }));
    }
    sums
}
