//! Attention of query rows over one chunk of keys, and the joining of chunks.
//!
//! The context is cut into chunks of [`KV_CHUNK`] keys that are attended apart (by whichever
//! thread) and joined from left to right by the log-sum-exp rule, so the bits of a result depend on
//! the chunk size and on nothing else. A chunk is scores, softmax weights, weighted values; how keys
//! and values lie in a page, and what is multiplied with what, belongs to the type they are stored
//! in: [`float`] and [`quantised`].
//!
//! A chunk lies in pages, few of which follow each other in memory, which no hardware prefetcher
//! follows: while one page is worked on, the lines of a later one are fetched by instruction (see
//! [`Ahead`]).

#![allow(clippy::needless_range_loop, reason = "register tiles are indexed by row and block alike")]

mod ahead;
mod float;
mod kv;
mod latents;
mod q4_0;
mod q8_0;
mod quantised;
mod state;

pub use kv::{KvPageMut, KvPages, KvQueries, KvType, KvTypes};

pub(crate) use float::{Bf16, F16, F32};
pub(crate) use latents::attend_latents;
pub(crate) use q4_0::Q4_0;
pub(crate) use q8_0::Q8_0;
pub(crate) use quantised::Blocks;
pub(crate) use state::{finish, fold, merge};

use ahead::{Ahead, Order};

use crate::exp::{exp_negative, soft_cap};
use crate::simd::{LANES, Simd};
use crate::views::Rows;

/// Token slots of one page; a page holds the keys, or the values, of one KV head.
pub const KV_PAGE: usize = 32;
/// Keys of one chunk.
pub const KV_CHUNK: usize = 256;

/// Floats that hold the attention of one query row so far: `o[head_dim]`, the greatest score `m`,
/// the sum of weights `l`, padding.
pub const fn attn_state_len(head_dim: usize) -> usize {
    (head_dim + 2).next_multiple_of(LANES)
}

/// Floats that hold the values of a chunk of latents of `head_dim` elements, whatever type they are stored in.
pub const fn attn_turned_len(head_dim: usize) -> usize {
    KV_CHUNK * head_dim
}

/// Floats of scratch that [`crate::Kernels::attend_chunk`] needs for `rows` query rows.
pub const fn attn_scratch_len(rows: usize) -> usize {
    rows * KV_CHUNK
}

/// Query rows and the chunk of keys and values that they attend.
#[derive(Clone, Copy, Debug)]
pub struct AttnTile<'a> {
    /// Number of query rows.
    pub rows: usize,
    /// Elements of a head, a multiple of [`KvType::head_multiple`].
    pub head_dim: usize,
    /// The first key that each row sees, counted from the first key of the pages. `[rows]`
    pub starts: &'a [u32],
    /// The key after the last that it sees, `start + 1..=KV_CHUNK`. `[rows]`
    pub limits: &'a [u32],
    /// Scores `s` become `cap * tanh(s / cap)`; infinity leaves them as they are.
    pub soft_cap: f32,
    /// What is added to scores by the distance of their key.
    pub added: ByDistance<'a>,
    /// The queries of the rows.
    pub queries: KvQueries<'a>,
    /// Keys of the chunk, or of as much of it as any row sees.
    pub keys: KvPages<'a>,
    /// The values of these.
    pub values: KvPages<'a>,
    /// What the caller reads after this tile: [`KvType::pages_ahead`] pages, or none. They are
    /// brought near meanwhile.
    pub next: &'a [&'a [u8]],
}

/// What is added to the scores of rows by the distance of their key: `[rows]` of one kind.
#[derive(Clone, Copy, Debug)]
pub enum ByDistance<'a> {
    /// Nothing.
    Nothing,
    /// Straight lines (ALiBi).
    Lines(&'a [Slope]),
    /// Numbers of tables (T5).
    Tables(&'a [Biases<'a>]),
}

impl ByDistance<'_> {
    /// Rows for which something is added.
    fn rows(&self) -> Option<usize> {
        match self {
            ByDistance::Nothing => None,
            ByDistance::Lines(lines) => Some(lines.len()),
            ByDistance::Tables(tables) => Some(tables.len()),
        }
    }
}

/// A number for each distance, which is added to a row's scores (relative position biases; arXiv:1910.10683).
#[derive(Clone, Copy, Debug)]
pub struct Biases<'a> {
    /// [`bias_table_len`] numbers: that of a key at the row's own place is in the middle, and those of keys behind it
    /// follow. The first 16 are alike, and so are the last 16, which keys that are farther have too.
    pub table: &'a [f32],
    /// The number of the row's own key, counted from the first key of the pages.
    pub own: i64,
}

/// Numbers of a table of biases for distances up to `reach` to either side, beyond which all are alike.
pub const fn bias_table_len(reach: usize) -> usize {
    2 * (reach + LANES - 1) + 1
}

/// A straight line that is added to a row's scores: `slope * (key - own)` for the keys of the tile, by number
/// (ALiBi; arXiv:2108.12409).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// Growth from a key to the next.
    pub slope: f32,
    /// The number of the row's own key, a whole one below 2^24.
    pub own: f32,
}

/// An [`AttnTile`] over pages of type `C`.
pub(crate) struct Tile<'a, C: Cell> {
    q: Rows<'a, C::Query>,
    head_dim: usize,
    starts: &'a [u32],
    limits: &'a [u32],
    soft_cap: f32,
    added: ByDistance<'a>,
    k_pages: &'a [&'a [C::Unit]],
    v_pages: &'a [&'a [C::Unit]],
    order: Order,
}

impl<'a> AttnTile<'a> {
    /// The tile over pages of one type, of which one kind may be left out: that of another type, or values where
    /// the keys are the values. Panics unless all shapes agree.
    pub(crate) fn over<C: Cell>(
        &self,
        q: Rows<'a, C::Query>,
        k_pages: Option<&'a [&'a [C::Unit]]>,
        v_pages: Option<&'a [&'a [C::Unit]]>,
        latents: bool,
    ) -> Tile<'a, C> {
        let Self { rows, head_dim, starts, limits, soft_cap, added, .. } = *self;
        C::TYPE.check_head(head_dim);
        assert!(soft_cap > 0.0, "a soft cap of {soft_cap}");
        if let Some(numbers) = added.rows() {
            assert!(numbers == rows, "distances count for {numbers} rows of {rows}");
        }
        if let ByDistance::Tables(tables) = added {
            let whole = |of: &Biases<'_>| of.table.len() % 2 == 1 && of.table.len() >= LANES;
            assert!(tables.iter().all(whole), "a table of biases has a middle");
        }
        let values = if latents { 0 } else { self.values.len() };
        assert!(starts.len() == rows, "{} starts for {rows} rows", starts.len());
        assert!(limits.len() == rows, "{} limits for {rows} rows", limits.len());
        for (&start, &limit) in starts.iter().zip(limits) {
            assert!((1..=KV_CHUNK as u32).contains(&limit), "limit {limit} outside 1..={KV_CHUNK}");
            assert!(start < limit, "no key from {start} to {limit}");
            let pages = (limit as usize).div_ceil(KV_PAGE);
            let keys = self.keys.len();
            assert!(
                pages <= keys && (latents || pages <= values),
                "{limit} keys need {pages} pages: {keys} of keys, {values} of values given",
            );
        }
        let (k_pages, v_pages) = (k_pages.unwrap_or_default(), v_pages.unwrap_or_default());
        for page in k_pages.iter().chain(v_pages) {
            let bytes = size_of_val(*page);
            assert!(
                bytes == C::TYPE.page_bytes(head_dim),
                "a page of {bytes} bytes for head_dim {head_dim}"
            );
        }
        let order = Order::new(C::TYPE, self, values);
        Tile { q, head_dim, starts, limits, soft_cap, added, k_pages, v_pages, order }
    }
}

/// The keys that a row sees: from `start` to before `end`.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Seen {
    start: usize,
    end: usize,
}

/// What pages are made of: numbers of which any bits are one.
pub(crate) trait PageUnit: Copy {}
impl PageUnit for u8 {}
impl PageUnit for u16 {}
impl PageUnit for f32 {}

/// How keys and values are stored, and with that how they are attended.
pub(crate) trait Cell: Copy {
    /// What a page is made of.
    type Unit: PageUnit;
    /// What queries are made of.
    type Query: Copy;

    const TYPE: KvType;

    /// `p[r][key] = q[first + r] · k[key]` for whole blocks of 16 keys, up to `longest` at least.
    fn scores<S: Simd, const R: usize>(
        s: S,
        t: &Tile<'_, Self>,
        first: usize,
        longest: usize,
        p: &mut [[f32; KV_CHUNK]; R],
    );

    /// `o[r] = Σ_key p[r][key] * v[key]` over the keys `seen[r]`. Other weights are anything. `out`:
    /// `R` states, of which `o` is overwritten.
    fn values<S: Simd, const R: usize>(
        s: S,
        t: &Tile<'_, Self>,
        first: usize,
        seen: [Seen; R],
        p: &mut [[f32; KV_CHUNK]; R],
        out: &mut [f32],
    );

    /// The page of values that are the keys of page `keys`: what storing both would have made of it.
    fn turn<S: Simd>(s: S, head_dim: usize, keys: &[Self::Unit], values: &mut [Self::Unit]);
}

/// Stores a key in slot `slot` of a page.
#[inline(always)]
pub(crate) fn store_k<S: Simd>(s: S, k: &[f32], page: KvPageMut<'_>, slot: usize) {
    match page {
        KvPageMut::F16(page) => float::store_k::<S, F16>(s, k, page, slot),
        KvPageMut::Bf16(page) => float::store_k::<S, Bf16>(s, k, page, slot),
        KvPageMut::F32(page) => float::store_k::<S, F32>(s, k, page, slot),
        KvPageMut::Q8_0(page) => quantised::store_k::<S, Q8_0>(s, k, page, slot),
        KvPageMut::Q4_0(page) => quantised::store_k::<S, Q4_0>(s, k, page, slot),
    }
}

/// Stores a value in slot `slot` of a page.
#[inline(always)]
pub(crate) fn store_v<S: Simd>(s: S, v: &[f32], page: KvPageMut<'_>, slot: usize) {
    match page {
        KvPageMut::F16(page) => float::store_v::<S, F16>(s, v, page, slot),
        KvPageMut::Bf16(page) => float::store_v::<S, Bf16>(s, v, page, slot),
        KvPageMut::F32(page) => float::store_v::<S, F32>(s, v, page, slot),
        KvPageMut::Q8_0(page) => quantised::store_v::<S, Q8_0>(s, v, page, slot),
        KvPageMut::Q4_0(page) => quantised::store_v::<S, Q4_0>(s, v, page, slot),
    }
}

/// Does something for all rows of a tile, as many together as registers hold.
macro_rules! in_groups {
    ($simd:ty, $rows:expr, $first:ident => $work:ident $arguments:tt) => {{
        let (rows, mut $first) = ($rows, 0);
        if <$simd>::WIDE {
            while $first + 8 <= rows {
                $work::<$simd, C, 8> $arguments;
                $first += 8;
            }
        }
        while $first + 4 <= rows {
            $work::<$simd, C, 4> $arguments;
            $first += 4;
        }
        if $first + 2 <= rows {
            $work::<$simd, C, 2> $arguments;
            $first += 2;
        }
        if $first < rows {
            $work::<$simd, C, 1> $arguments;
        }
    }};
}
use in_groups;

/// Attention of all rows over one chunk: `out` becomes one state per row. Expects a tile that
/// passed its check.
#[inline(always)]
pub(crate) fn attend_chunk<S: Simd, C: Cell>(
    s: S,
    t: &Tile<'_, C>,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    in_groups!(S, t.limits.len(), first => group(s, t, first, scratch, out));
}

/// The first half of [`attend_chunk`]: weights of keys, into `scratch`, and the maxima and sums of states. The tile
/// has no pages of values.
#[inline(always)]
pub(crate) fn weigh_chunk<S: Simd, C: Cell>(
    s: S,
    t: &Tile<'_, C>,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    in_groups!(S, t.limits.len(), r => softmax_weights(s, t, r, &mut scratch[r * KV_CHUNK..], out));
}

/// The second half, of values of whatever type: the tile has no pages of keys.
#[inline(always)]
pub(crate) fn sum_chunk<S: Simd, C: Cell>(
    s: S,
    t: &Tile<'_, C>,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    in_groups!(S, t.limits.len(), r => weighted_values(s, t, r, &mut scratch[r * KV_CHUNK..], out));
}

/// Attention of rows `first..first + R`.
#[inline(always)]
fn group<S: Simd, C: Cell, const R: usize>(
    s: S,
    t: &Tile<'_, C>,
    first: usize,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    softmax_weights::<S, C, R>(s, t, first, scratch, out);
    weighted_values::<S, C, R>(s, t, first, scratch, out);
}

/// What rows `first..first + R` see, and the last key that any does.
#[inline(always)]
fn seen<C: Cell, const R: usize>(t: &Tile<'_, C>, first: usize) -> ([Seen; R], usize) {
    let (mut seen, mut longest) = ([Seen { start: 0, end: 0 }; R], 0);
    for r in 0..R {
        let (start, end) = (t.starts[first + r] as usize, t.limits[first + r] as usize);
        seen[r] = Seen { start, end };
        longest = longest.max(end);
    }
    (seen, longest)
}

/// Weights of keys for rows `first..first + R`, into the first `R` rows of `scratch`; maxima and sums, into
/// their states.
#[inline(always)]
fn softmax_weights<S: Simd, C: Cell, const R: usize>(
    s: S,
    t: &Tile<'_, C>,
    first: usize,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let (dim, state) = (t.head_dim, attn_state_len(t.head_dim));
    let (seen, longest) = seen::<C, R>(t, first);
    let p = scratch.as_chunks_mut::<KV_CHUNK>().0;
    let p = p.first_chunk_mut::<R>().expect("scratch for every row");
    let out = &mut out[first * state..][..R * state];

    C::scores::<S, R>(s, t, first, longest, p);
    if t.soft_cap != f32::INFINITY {
        for r in 0..R {
            soft_cap(s, blocks_of(&mut p[r], seen[r]).as_flattened_mut(), t.soft_cap);
        }
    }
    for r in 0..R {
        let first_key = seen[r].start / LANES * LANES;
        match t.added {
            ByDistance::Nothing => break,
            ByDistance::Lines(lines) => {
                add_line(s, blocks_of(&mut p[r], seen[r]), first_key, lines[first + r]);
            }
            ByDistance::Tables(tables) => {
                add_biases(s, blocks_of(&mut p[r], seen[r]), first_key, tables[first + r]);
            }
        }
    }
    let (max, sum) = weights(s, p, seen, Ahead::of_weights(t, first));
    for r in 0..R {
        let tail = &mut out[r * state + dim..(r + 1) * state];
        tail.fill(0.0);
        (tail[0], tail[1]) = (max[r], sum[r]);
    }
}

/// The values by the weights that [`softmax_weights`] made, into the states of rows `first..first + R`.
#[inline(always)]
fn weighted_values<S: Simd, C: Cell, const R: usize>(
    s: S,
    t: &Tile<'_, C>,
    first: usize,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let state = attn_state_len(t.head_dim);
    let p = scratch.as_chunks_mut::<KV_CHUNK>().0;
    let p = p.first_chunk_mut::<R>().expect("scratch for every row");
    let out = &mut out[first * state..][..R * state];
    C::values::<S, R>(s, t, first, seen::<C, R>(t, first).0, p, out);
}

/// Blocks of 16 scores that a row sees, at least in part.
#[inline(always)]
fn blocks_of(p: &mut [f32; KV_CHUNK], seen: Seen) -> &mut [[f32; LANES]] {
    &mut p.as_chunks_mut::<LANES>().0[seen.start / LANES..seen.end.div_ceil(LANES)]
}

/// Adds `slope` for each key between the row's own and a score's, of which the first is that of key `first`. Distances
/// are exact, so the bits do not depend on where pages begin.
#[inline(always)]
fn add_line<S: Simd>(s: S, scores: &mut [[f32; LANES]], first: usize, line: Slope) {
    let mut keys = [0.0; LANES];
    for (i, key) in keys.iter_mut().enumerate() {
        *key = (first + i) as f32;
    }
    let (slope, step) = (s.splat(line.slope), s.splat(LANES as f32));
    let mut distance = s.sub(s.load(&keys), s.splat(line.own));
    for block in scores {
        // Below zero on either side of the own key.
        let near = s.sub(s.splat(0.0), s.max(distance, s.sub(s.splat(0.0), distance)));
        s.store(s.fma(slope, near, s.load(block)), block);
        distance = s.add(distance, step);
    }
}

/// Adds the numbers of a table to scores, of which the first is that of key `first`.
#[inline(always)]
fn add_biases<S: Simd>(s: S, scores: &mut [[f32; LANES]], first: usize, biases: Biases<'_>) {
    let Biases { table, own } = biases;
    let (middle, last) = ((table.len() / 2) as i64, (table.len() - LANES) as i64);
    for (i, block) in scores.iter_mut().enumerate() {
        let at = (first + i * LANES) as i64 - own + middle;
        let at = at.clamp(0, last) as usize;
        let numbers: &[f32; LANES] = table[at..].first_chunk().expect("the last one is whole");
        s.store(s.add(s.load(numbers), s.load(block)), block);
    }
}

/// Turns the scores that rows see into `e^(score - max)`; gives the rows' maxima and sums.
///
/// A row by itself is a chain of latencies, the rows of a group together are not. What a row does not see
/// in a block of 16 keys that another sees counts as `-inf`: it becomes e^-86, which the sum, 1 at least,
/// does not feel, and [`Cell::values`] does not use.
#[inline(always)]
fn weights<S: Simd, const R: usize>(
    s: S,
    p: &mut [[f32; KV_CHUNK]; R],
    seen: [Seen; R],
    ahead: Option<Ahead>,
) -> ([f32; R], [f32; R]) {
    // The blocks of which any row sees a key, and those that all rows see whole.
    let (mut first, mut last, mut whole) = (KV_CHUNK / LANES, 0, 0..KV_CHUNK / LANES);
    for row in seen {
        first = first.min(row.start / LANES);
        last = last.max(row.end.div_ceil(LANES));
        whole.start = whole.start.max(row.start.div_ceil(LANES));
        whole.end = whole.end.min(row.end / LANES);
    }
    let low = s.splat(f32::NEG_INFINITY);
    let mut tops = [low; R];
    for b in first..last {
        for r in 0..R {
            let block = &mut p[r].as_chunks_mut::<LANES>().0[b];
            let mut x = s.load(block);
            if !whole.contains(&b) {
                let lane = |key: usize| key.saturating_sub(b * LANES).min(LANES);
                x = s.first(lane(seen[r].end), x, low);
                x = s.first(lane(seen[r].start), low, x);
                s.store(x, block);
            }
            tops[r] = s.max(x, tops[r]);
        }
    }
    let (mut max, mut sum) = ([0.0; R], [0.0; R]);
    for r in 0..R {
        max[r] = s.reduce_max(tops[r]);
        tops[r] = s.splat(max[r]);
    }
    let mut sums = [s.splat(0.0); R];
    for b in first..last {
        for r in 0..R {
            if let Some(ahead) = ahead {
                ahead.fetch_far(s.dot(), 64 * (b * R + r));
            }
            let block = &mut p[r].as_chunks_mut::<LANES>().0[b];
            let p = exp_negative(s, s.sub(s.load(block), tops[r]));
            s.store(p, block);
            sums[r] = s.add(sums[r], p);
        }
    }
    for r in 0..R {
        sum[r] = s.reduce_add(sums[r]);
    }
    (max, sum)
}
