//! Matrix tiles, 16 rows of a matrix each, times any number of activation rows.
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

mod bf16;
#[cfg(target_arch = "x86_64")]
mod bf16_pairs;
mod float;
mod q4_0;
mod q4_k;
mod q6_k;
mod q8_0;

pub(crate) use bf16::{Bf16, matmul_widened};
#[cfg(target_arch = "x86_64")]
pub(crate) use bf16_pairs::matmul_pairs;
pub(crate) use float::{F16, F32};
pub(crate) use q4_0::Q4_0;
pub(crate) use q4_k::Q4K;
pub(crate) use q6_k::Q6K;
pub(crate) use q8_0::Q8_0;

use std::marker::PhantomData;

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
/// without prefetching, at 85 % 1 and 2 KiB ahead, at 88 to 95 % 4 and 8 KiB ahead (Q4_K 71 to 82 %,
/// 79 to 92 %, 96 %; Q4_0 86 to 90 %, 88 to 91 %, 97 %); November 2026.
const AHEAD: usize = 4096;

/// Which weights to come are fetched while others are multiplied.
#[derive(Clone, Copy)]
pub(crate) enum Fetch {
    /// Those [`AHEAD`]: a tile that is passed once comes from memory as fast as it is multiplied.
    Stream,
    /// Every `step`th line of the tile that follows, from line `first` on, into the second cache: a
    /// tile that is passed `step` times has that much time for its successor.
    Successor { first: usize, step: usize },
    /// None: another pass does it.
    Nothing,
}

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

/// Packed tiles of one matrix that lie `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct Tiles<'a> {
    bytes: &'a [u8],
    count: usize,
    len: usize,
    stride: usize,
}

impl<'a> Tiles<'a> {
    /// The tiles of `len` bytes at `bytes[0]`, `bytes[stride]`, ...
    ///
    /// # Panics
    ///
    /// If they do not fit in `bytes`, or overlap.
    pub fn new(bytes: &'a [u8], count: usize, len: usize, stride: usize) -> Self {
        let fits = count == 0
            || len <= bytes.len() && len <= stride && (bytes.len() - len) / stride >= count - 1;
        assert!(fits, "{count} tiles of {len} at a stride of {stride} in {}", bytes.len());
        Self { bytes, count, len, stride }
    }

    /// One tile.
    pub fn one(tile: &'a [u8]) -> Self {
        Self { bytes: tile, count: 1, len: tile.len(), stride: tile.len() }
    }

    /// Number of tiles.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of a tile.
    pub(crate) fn tile_len(&self) -> usize {
        self.len
    }

    /// Group `group` of tile `i`, where `together` tiles are multiplied at once.
    fn part(&self, i: usize, group: usize, together: usize) -> Part<'a> {
        let tile = &self.bytes[i * self.stride..][..self.len];
        Part { tile, group, left: self.stride, skip: (together - 1) * self.stride }
    }
}

/// As many rows of a tile as a register has lanes: group `group` of the 16.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    tile: &'a [u8],
    group: usize,
    /// Bytes from the start of `tile` to that of the next tile.
    left: usize,
    /// Bytes from there to the tile that will be multiplied in this one's place.
    skip: usize,
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
    let rows: [&[K::Act]; T] = std::array::from_fn(|i| acts.row(t + i));
    let sums = tree(Dots::<D, K>(d, fetch, PhantomData), parts, pieces, rows);
    for (i, sums) in sums.iter().enumerate() {
        let row = out.row_mut(t + i).as_chunks_mut::<TILE_ROWS>().0;
        for ((sum, part), at) in sums.iter().zip(parts).zip(at) {
            d.store(*sum, &mut row[at], part.group);
        }
    }
}

/// What the sum over pieces needs to know of the products of one piece. A trait, because closures are
/// not always inlined, and alone they lack the entry point's instruction set.
trait Products<A>: Copy {
    type F: Copy;

    /// Columns of an element of the activations.
    const ACT_COLS: usize;

    fn zero(self) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// Bytes of a tile of `cols` columns.
    fn bytes(cols: usize) -> usize;
    fn dot<const T: usize, const N: usize>(
        self,
        parts: [Part<'_>; N],
        acts: [&[A]; T],
    ) -> [[Self::F; N]; T];
}

/// The products of a [`Tile`].
struct Dots<D, K>(D, Fetch, PhantomData<K>);

impl<D: Copy, K> Clone for Dots<D, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Copy, K> Copy for Dots<D, K> {}

impl<D: Dot, K: Tile> Products<K::Act> for Dots<D, K> {
    type F = D::F;

    const ACT_COLS: usize = K::ACT_COLS;

    #[inline(always)]
    fn zero(self) -> D::F {
        self.0.splat(0.0)
    }
    #[inline(always)]
    fn add(self, a: D::F, b: D::F) -> D::F {
        self.0.add(a, b)
    }
    #[inline(always)]
    fn bytes(cols: usize) -> usize {
        K::bytes(cols / K::BLOCK_COLS)
    }
    #[inline(always)]
    fn dot<const T: usize, const N: usize>(
        self,
        parts: [Part<'_>; N],
        acts: [&[K::Act]; T],
    ) -> [[D::F; N]; T] {
        K::dot::<D, T, N>(self.0, parts, acts, self.1)
    }
}

/// The sums of all pieces, added up.
#[inline(always)]
fn tree<A, P: Products<A>, const T: usize, const N: usize>(
    products: P,
    mut parts: [Part<'_>; N],
    pieces: &[Piece],
    mut acts: [&[A]; T],
) -> [[P::F; N]; T] {
    if let [_] = pieces {
        return products.dot(parts, acts);
    }
    let mut stack = [[[products.zero(); N]; T]; PIECE_LEVELS];
    let mut depth = 0;
    for piece in pieces {
        let (len, cols) = (P::bytes(piece.cols), piece.cols / P::ACT_COLS);
        let (mut own, mut own_acts) = (parts, acts);
        for n in 0..N {
            (own[n].tile, parts[n].tile) = parts[n].tile.split_at(len);
            parts[n].left -= len;
        }
        for t in 0..T {
            (own_acts[t], acts[t]) = acts[t].split_at(cols);
        }
        stack[depth] = products.dot(own, own_acts);
        for _ in 0..piece.folds {
            let top = stack[depth];
            depth -= 1;
            for t in 0..T {
                for n in 0..N {
                    stack[depth][t][n] = products.add(stack[depth][t][n], top[t][n]);
                }
            }
        }
        depth += 1;
    }
    stack[0]
}

/// Asks for what is to come while `LINES` cache lines at `at` of each part are multiplied. It may lie
/// beyond the last tile, which nobody will mind.
#[inline(always)]
fn fetch<D: Dot, const N: usize, const LINES: usize>(
    d: D,
    parts: [Part<'_>; N],
    at: usize,
    what: Fetch,
) {
    for n in 0..N {
        let Part { tile, left, skip, .. } = parts[n];
        match what {
            Fetch::Stream => {
                let ahead = at + AHEAD;
                let ahead = if ahead >= left { ahead + skip } else { ahead };
                for line in 0..LINES {
                    d.prefetch(tile.as_ptr().wrapping_add(ahead + 64 * line));
                }
            }
            Fetch::Successor { first, step } => {
                let mut line = first;
                while line < LINES {
                    d.prefetch_second(tile.as_ptr().wrapping_add(at + left + skip + 64 * line));
                    line += step;
                }
            }
            Fetch::Nothing => {}
        }
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

/// Panics unless the tiles of all `parts` have `bytes`.
#[inline(always)]
fn check_parts<const N: usize>(parts: [Part<'_>; N], bytes: usize) {
    for part in parts {
        assert!(part.tile.len() == bytes, "{} bytes for a tile of {bytes}", part.tile.len());
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
unsafe fn dot_nibbles<D: Dot, const T: usize, const N: usize>(
    d: D,
    nibbles: [&[u8; 256]; N],
    groups: [usize; N],
    acts: [&[Q8Block]; T],
    b: usize,
    start: impl Fn(&Q8Block) -> i32,
) -> [[D::I; N]; T] {
    // SAFETY: the caller's contract.
    let act = |t: usize| unsafe { block(acts[t], b) };
    let mask = d.splat_w(0x0f);
    let mut acc = [[d.start_nibbles(0); N]; T];
    for t in 0..T {
        acc[t] = [d.start_nibbles(start(act(t))); N];
    }
    for j in 0..4 {
        let (mut low, mut high) = ([mask; N], [mask; N]);
        for n in 0..N {
            let both = d.load_w(part(nibbles[n], 64 * j), groups[n]);
            (low[n], high[n]) = (d.and(both, mask), d.and(d.shr4(both), mask));
        }
        for t in 0..T {
            for n in 0..N {
                acc[t][n] = d.dot_nibbles(acc[t][n], low[n], act(t).quad(j));
            }
        }
        for t in 0..T {
            for n in 0..N {
                acc[t][n] = d.dot_nibbles(acc[t][n], high[n], act(t).quad(4 + j));
            }
        }
    }
    let mut sums = [[d.splat_i(0); N]; T];
    for t in 0..T {
        for n in 0..N {
            sums[t][n] = d.end_nibbles(acc[t][n], start(act(t)));
        }
    }
    sums
}

/// The half floats of 16 rows, widened, of each part.
#[inline(always)]
fn load_scales<D: Dot, const N: usize>(
    d: D,
    scales: [&[u8; 32]; N],
    groups: [usize; N],
) -> [D::F; N] {
    let mut wide = [d.splat(0.0); N];
    for n in 0..N {
        wide[n] = d.load_f16(scales[n], groups[n]);
    }
    wide
}

/// `acc[t][n] = fma(f32(sums[t][n]), scales[n] * d[t], acc[t][n])`, with `d` of block `b`.
///
/// # Safety
///
/// `b` is below the length of every element of `acts`.
#[inline(always)]
unsafe fn accumulate<D: Dot, const T: usize, const N: usize>(
    d: D,
    sums: [[D::I; N]; T],
    scales: [D::F; N],
    acts: [&[Q8Block]; T],
    b: usize,
    acc: &mut [[D::F; N]; T],
) {
    for t in 0..T {
        // SAFETY: the caller's contract.
        let act = d.splat(unsafe { block(acts[t], b) }.d);
        for n in 0..N {
            acc[t][n] = d.fma(d.to_f(sums[t][n]), d.mul(scales[n], act), acc[t][n]);
        }
    }
}
