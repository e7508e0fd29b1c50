//! Attention of query rows over one chunk of keys, and the joining of chunks.
//!
//! The context is cut into chunks of [`KV_CHUNK`] keys that are attended apart (by whichever
//! thread) and joined from left to right by the log-sum-exp rule, so the bits of a result depend on
//! the chunk size and on nothing else. The keys of a page lie 16 to a vector, one vector per
//! dimension: scores need no sum across lanes. Values lie one key after the other, so that lanes
//! are dimensions. Both are stored as half floats or as `f32`; sums are `f32`.

#![allow(clippy::needless_range_loop, reason = "register tiles are indexed by row and block alike")]

use crate::exp::exp;
use crate::simd::{LANES, Simd};

/// Token slots of one page; a page holds the keys, or the values, of one KV head.
pub const KV_PAGE: usize = 32;
/// Keys of one chunk.
pub const KV_CHUNK: usize = 256;

/// Floats that hold the attention of one query row so far: `o[head_dim]`, the greatest score `m`,
/// the sum of weights `l`, padding.
pub const fn attn_state_len(head_dim: usize) -> usize {
    (head_dim + 2).next_multiple_of(LANES)
}

/// Floats of scratch that [`crate::Kernels::attend_chunk`] needs for `rows` query rows.
pub const fn attn_scratch_len(rows: usize) -> usize {
    rows * KV_CHUNK
}

/// Keys and values of a chunk's pages, in order, by the type they are stored in.
///
/// Keys: `[pages][KV_PAGE / 16, head_dim, 16]`, values: `[pages][KV_PAGE, head_dim]`.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "said above")]
pub enum KvPages<'a> {
    /// IEEE half floats.
    F16 { k: &'a [&'a [u16]], v: &'a [&'a [u16]] },
    /// Single precision.
    F32 { k: &'a [&'a [f32]], v: &'a [&'a [f32]] },
}

/// A page of keys, or of values, to be written to.
#[derive(Debug)]
pub enum KvPageMut<'a> {
    /// IEEE half floats.
    F16(&'a mut [u16]),
    /// Single precision.
    F32(&'a mut [f32]),
}

impl KvPageMut<'_> {
    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            KvPageMut::F16(page) => page.len(),
            KvPageMut::F32(page) => page.len(),
        }
    }
}

/// Query rows and the chunk of keys and values that they attend.
#[derive(Clone, Copy, Debug)]
pub struct AttnTile<'a> {
    /// Queries, already multiplied by the softmax scale. `[rows, head_dim]`
    pub q: &'a [f32],
    /// Number of query rows.
    pub rows: usize,
    /// Elements of a head, a multiple of 16.
    pub head_dim: usize,
    /// How many of the chunk's keys each row sees, from the first: `1..=KV_CHUNK`. `[rows]`
    pub limits: &'a [u32],
    /// Keys and values of the chunk.
    pub pages: KvPages<'a>,
}

/// An [`AttnTile`] whose pages hold elements of type `E`.
pub(crate) struct Tile<'a, E> {
    q: &'a [f32],
    rows: usize,
    head_dim: usize,
    limits: &'a [u32],
    k_pages: &'a [&'a [E]],
    v_pages: &'a [&'a [E]],
}

impl<'a> AttnTile<'a> {
    /// The tile over its own type of pages. Panics unless all shapes agree.
    pub(crate) fn over<E>(&self, k_pages: &'a [&'a [E]], v_pages: &'a [&'a [E]]) -> Tile<'a, E> {
        let Self { q, rows, head_dim, limits, .. } = *self;
        assert!(
            head_dim > 0 && head_dim.is_multiple_of(LANES),
            "head_dim {head_dim} is not a multiple of {LANES}"
        );
        assert!(
            q.len() == rows * head_dim,
            "q has {} floats for {rows} rows of {head_dim}",
            q.len()
        );
        assert!(limits.len() == rows, "{} limits for {rows} rows", limits.len());
        for &limit in limits {
            assert!((1..=KV_CHUNK as u32).contains(&limit), "limit {limit} outside 1..={KV_CHUNK}");
            let pages = (limit as usize).div_ceil(KV_PAGE);
            assert!(
                pages <= k_pages.len() && pages <= v_pages.len(),
                "{limit} keys need {pages} pages: {} of keys, {} of values given",
                k_pages.len(),
                v_pages.len()
            );
        }
        for page in k_pages.iter().chain(v_pages) {
            assert!(
                page.len() == KV_PAGE * head_dim,
                "a page of {} for head_dim {head_dim}",
                page.len()
            );
        }
        Tile { q, rows, head_dim, limits, k_pages, v_pages }
    }
}

/// What a page holds.
pub(crate) trait Element: Copy + Default {
    fn widen<S: Simd>(s: S, from: &[Self; LANES]) -> S::F;
    fn narrow<S: Simd>(s: S, x: S::F, to: &mut [Self; LANES]);
}

impl Element for u16 {
    #[inline(always)]
    fn widen<S: Simd>(s: S, from: &[u16; LANES]) -> S::F {
        // SAFETY: 16 elements of two bytes; bytes have no alignment.
        s.load_f16(unsafe { &*from.as_ptr().cast::<[u8; 2 * LANES]>() })
    }

    #[inline(always)]
    fn narrow<S: Simd>(s: S, x: S::F, to: &mut [u16; LANES]) {
        s.store_f16(x, to);
    }
}

impl Element for f32 {
    #[inline(always)]
    fn widen<S: Simd>(s: S, from: &[f32; LANES]) -> S::F {
        s.load(from)
    }

    #[inline(always)]
    fn narrow<S: Simd>(s: S, x: S::F, to: &mut [f32; LANES]) {
        s.store(x, to);
    }
}

/// Stores a key in slot `slot` of a page.
#[inline(always)]
pub(crate) fn store_k<S: Simd, E: Element>(s: S, k: &[f32], page: &mut [E], slot: usize) {
    let head_dim = k.len();
    let lane = &mut page[slot / LANES * head_dim * LANES..][..head_dim * LANES];
    let mut narrow = [E::default(); LANES];
    for (x, to) in k.as_chunks::<LANES>().0.iter().zip(lane.chunks_exact_mut(LANES * LANES)) {
        E::narrow(s, s.load(x), &mut narrow);
        for (to, x) in to.as_chunks_mut::<LANES>().0.iter_mut().zip(narrow) {
            to[slot % LANES] = x;
        }
    }
}

/// Stores a value in slot `slot` of a page.
#[inline(always)]
pub(crate) fn store_v<S: Simd, E: Element>(s: S, v: &[f32], page: &mut [E], slot: usize) {
    let to = &mut page[slot * v.len()..][..v.len()];
    for (x, to) in v.as_chunks::<LANES>().0.iter().zip(to.as_chunks_mut::<LANES>().0) {
        E::narrow(s, s.load(x), to);
    }
}

/// Attention of all rows over one chunk: `out` becomes one state per row. Expects a tile that
/// passed its check.
#[inline(always)]
pub(crate) fn attend_chunk<S: Simd, E: Element>(
    s: S,
    t: &Tile<'_, E>,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let mut r = 0;
    // Register tiles: rows that share each load of a key or value, blocks of 16 keys, blocks of 16
    // dimensions.
    if S::WIDE {
        while r + 8 <= t.rows {
            group::<S, E, 8, 2, 2>(s, t, r, scratch, out);
            r += 8;
        }
        if r + 4 <= t.rows {
            group::<S, E, 4, 2, 4>(s, t, r, scratch, out);
            r += 4;
        }
    } else {
        while r + 4 <= t.rows {
            group::<S, E, 4, 1, 1>(s, t, r, scratch, out);
            r += 4;
        }
    }
    if r + 2 <= t.rows {
        group::<S, E, 2, 2, 2>(s, t, r, scratch, out);
        r += 2;
    }
    if r < t.rows {
        group::<S, E, 1, 2, 4>(s, t, r, scratch, out);
    }
}

/// Sixteen elements of a page, widened.
///
/// # Safety
///
/// `i + 16 <= page.len()`.
#[inline(always)]
unsafe fn lanes<S: Simd, E: Element>(s: S, page: &[E], i: usize) -> S::F {
    debug_assert!(i + LANES <= page.len());
    // SAFETY: within the page by contract.
    E::widen(s, unsafe { &*page.as_ptr().add(i).cast::<[E; LANES]>() })
}

/// Attention of rows `first..first + R`.
#[inline(always)]
fn group<S: Simd, E: Element, const R: usize, const KEYS: usize, const DIMS: usize>(
    s: S,
    t: &Tile<'_, E>,
    first: usize,
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let dim = t.head_dim;
    let q: [&[f32]; R] = std::array::from_fn(|r| &t.q[(first + r) * dim..][..dim]);
    let limits: [usize; R] = std::array::from_fn(|r| t.limits[first + r] as usize);
    let shared = limits.into_iter().min().unwrap_or(0);
    let longest = limits.into_iter().max().unwrap_or(0);
    let p = &mut scratch[..R * KV_CHUNK];
    let out = &mut out[first * attn_state_len(dim)..][..R * attn_state_len(dim)];

    scores::<S, E, R, KEYS>(s, t, q, longest, p);
    let (p, _) = p.as_chunks_mut::<KV_CHUNK>();
    for ((p, state), limit) in
        p.iter_mut().zip(out.chunks_exact_mut(attn_state_len(dim))).zip(limits)
    {
        let (m, l) = weights(s, p, limit);
        state[dim..].fill(0.0);
        state[dim] = m;
        state[dim + 1] = l;
    }
    let mut d = 0;
    while d + DIMS * LANES <= dim {
        values::<S, E, R, DIMS>(s, t, p, limits, shared, d, out);
        d += DIMS * LANES;
    }
    while d < dim {
        values::<S, E, R, 1>(s, t, p, limits, shared, d, out);
        d += LANES;
    }
}

/// `p[r][key] = Σ_d q[r][d] * k[d][key]` for whole blocks of 16 keys, up to `longest` at least.
#[inline(always)]
fn scores<S: Simd, E: Element, const R: usize, const KEYS: usize>(
    s: S,
    t: &Tile<'_, E>,
    q: [&[f32]; R],
    longest: usize,
    p: &mut [f32],
) {
    let dim = t.head_dim;
    let mut key = 0;
    while key < longest {
        // KEYS divides the blocks of a page, so a step stays within one.
        let page = &t.k_pages[key / KV_PAGE][key % KV_PAGE * dim..][..KEYS * LANES * dim];
        let mut acc = [[s.splat(0.0); KEYS]; R];
        for d in 0..dim {
            let mut k = [s.splat(0.0); KEYS];
            for (b, k) in k.iter_mut().enumerate() {
                // SAFETY: `d < dim`, `b < KEYS`, and the page's slice has `KEYS * dim * 16`
                // elements.
                *k = unsafe { lanes(s, page, (b * dim + d) * LANES) };
            }
            for r in 0..R {
                // SAFETY: every row of `q` has `dim` elements.
                let q = s.splat(unsafe { *q[r].get_unchecked(d) });
                for b in 0..KEYS {
                    acc[r][b] = s.fma(q, k[b], acc[r][b]);
                }
            }
        }
        for (acc, p) in acc.iter().zip(p.chunks_exact_mut(KV_CHUNK)) {
            for (acc, p) in acc.iter().zip(p[key..].as_chunks_mut::<LANES>().0) {
                s.store(*acc, p);
            }
        }
        key += KEYS * LANES;
    }
}

/// Turns the first `limit` scores into `e^(score - max)`, the rest of the last block into 0; gives
/// max and sum.
#[inline(always)]
fn weights<S: Simd>(s: S, p: &mut [f32; KV_CHUNK], limit: usize) -> (f32, f32) {
    let (blocks, _) = p.as_chunks_mut::<LANES>();
    let blocks = &mut blocks[..limit.div_ceil(LANES)];
    let low = s.splat(f32::NEG_INFINITY);
    let visible = |b: usize| (limit - b * LANES).min(LANES);
    let mut max = low;
    for (b, block) in blocks.iter().enumerate() {
        max = s.max(s.first(visible(b), s.load(block), low), max);
    }
    let m = s.reduce_max(max);
    let max = s.splat(m);
    let mut sum = s.splat(0.0);
    for (b, block) in blocks.iter_mut().enumerate() {
        let p = s.first(visible(b), exp(s, s.sub(s.load(block), max)), s.splat(0.0));
        s.store(p, block);
        sum = s.add(sum, p);
    }
    (m, s.reduce_add(sum))
}

/// `o[r][d..] = Σ_key p[r][key] * v[key][d..]`, `DIMS` blocks of 16 dimensions wide.
///
/// Rows go together over the keys that all of them see; the rest is done row by row, because a key
/// that a row does not see may hold anything, and 0 times anything is not always 0.
#[inline(always)]
fn values<S: Simd, E: Element, const R: usize, const DIMS: usize>(
    s: S,
    t: &Tile<'_, E>,
    p: &[[f32; KV_CHUNK]],
    limits: [usize; R],
    shared: usize,
    d: usize,
    out: &mut [f32],
) {
    let dim = t.head_dim;
    assert!(p.len() == R && d + DIMS * LANES <= dim && shared <= KV_CHUNK);
    let mut acc = [[s.splat(0.0); DIMS]; R];
    for (page, v) in t.v_pages.iter().enumerate() {
        let keys = shared.saturating_sub(page * KV_PAGE).min(KV_PAGE);
        assert!(v.len() == KV_PAGE * dim);
        for slot in 0..keys {
            let mut x = [s.splat(0.0); DIMS];
            for (b, x) in x.iter_mut().enumerate() {
                // SAFETY: `slot < KV_PAGE` and `d + DIMS * 16 <= dim`, asserted above.
                *x = unsafe { lanes(s, v, slot * dim + d + b * LANES) };
            }
            for r in 0..R {
                // SAFETY: `R` rows and a key below `shared <= KV_CHUNK`, asserted above.
                let p = unsafe { *p.get_unchecked(r).get_unchecked(page * KV_PAGE + slot) };
                let p = s.splat(p);
                for b in 0..DIMS {
                    acc[r][b] = s.fma(p, x[b], acc[r][b]);
                }
            }
        }
    }
    for r in 0..R {
        for key in shared..limits[r] {
            let v = &t.v_pages[key / KV_PAGE][key % KV_PAGE * dim + d..][..DIMS * LANES];
            let p = s.splat(p[r][key]);
            for b in 0..DIMS {
                // SAFETY: the slice has `DIMS * 16` elements.
                acc[r][b] = s.fma(p, unsafe { lanes(s, v, b * LANES) }, acc[r][b]);
            }
        }
    }
    for (acc, state) in acc.iter().zip(out.chunks_exact_mut(attn_state_len(dim))) {
        for (acc, o) in acc.iter().zip(state[d..].as_chunks_mut::<LANES>().0) {
            s.store(*acc, o);
        }
    }
}

/// Joins the state of the keys to the right, `part`, to the state of those to the left, `acc`.
#[inline(always)]
pub(crate) fn merge<S: Simd>(s: S, acc: &mut [f32], part: &[f32], head_dim: usize) {
    let (o, acc) = acc.split_at_mut(head_dim);
    let (part_o, part) = part.split_at(head_dim);
    let m = if acc[0] > part[0] { acc[0] } else { part[0] };
    let mut factors = [0.0; LANES];
    (factors[0], factors[1]) = (acc[0] - m, part[0] - m);
    let e = exp(s, s.load(&factors));
    s.store(e, &mut factors);
    let [a, b, ..] = factors;
    (acc[0], acc[1]) = (m, part[1].mul_add(b, acc[1] * a));
    let (a, b) = (s.splat(a), s.splat(b));
    for (o, part_o) in o.as_chunks_mut::<LANES>().0.iter_mut().zip(part_o.as_chunks::<LANES>().0) {
        s.store(s.fma(s.load(part_o), b, s.mul(s.load(o), a)), o);
    }
}

/// `out = o / l`: the attention of a row whose chunks have all been joined.
#[inline(always)]
pub(crate) fn finish<S: Simd>(s: S, state: &[f32], head_dim: usize, out: &mut [f32]) {
    let (o, rest) = state.split_at(head_dim);
    let l = s.splat(rest[1]);
    for (o, out) in o.as_chunks::<LANES>().0.iter().zip(out.as_chunks_mut::<LANES>().0) {
        s.store(s.div(s.load(o), l), out);
    }
}
