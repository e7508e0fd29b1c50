//! Keys and values as half floats, as bfloat16 or as `f32`.
//!
//! The keys of a page lie 16 to a vector, one vector per dimension: scores need no sum across lanes.
//! Values lie one key after the other, so that lanes are dimensions. Sums are `f32`, along the
//! dimensions for a score and along the keys for a value, each in order.

use super::{Ahead, Cell, KV_CHUNK, KV_PAGE, KvType, PageUnit, Seen, Tile, attn_state_len};
use crate::simd::{LANES, Simd, transpose};
use std::ops::Range;

/// What a page holds.
pub(crate) trait Element: Copy {
    type Bits: PageUnit + Default;

    const KV: KvType;

    fn widen<S: Simd>(s: S, from: &[Self::Bits; LANES]) -> S::F;
    fn narrow<S: Simd>(s: S, x: S::F, to: &mut [Self::Bits; LANES]);
    fn transpose<S: Simd>(
        s: S,
        from: &[[Self::Bits; LANES]; LANES],
    ) -> [[Self::Bits; LANES]; LANES];
}

/// IEEE half floats.
#[derive(Clone, Copy)]
pub(crate) struct F16;

impl Element for F16 {
    type Bits = u16;

    const KV: KvType = KvType::F16;

    #[inline(always)]
    fn widen<S: Simd>(s: S, from: &[u16; LANES]) -> S::F {
        // SAFETY: 16 elements of two bytes; bytes have no alignment.
        s.load_f16(unsafe { &*from.as_ptr().cast::<[u8; 2 * LANES]>() })
    }

    #[inline(always)]
    fn narrow<S: Simd>(s: S, x: S::F, to: &mut [u16; LANES]) {
        s.store_f16(x, to);
    }

    #[inline(always)]
    fn transpose<S: Simd>(s: S, from: &[[u16; LANES]; LANES]) -> [[u16; LANES]; LANES] {
        s.transpose(from)
    }
}

/// bfloat16. As in matrices, magnitudes below [`crate::bf16::LEAST`] count as zero.
#[derive(Clone, Copy)]
pub(crate) struct Bf16;

impl Element for Bf16 {
    type Bits = u16;

    const KV: KvType = KvType::Bf16;

    #[inline(always)]
    fn widen<S: Simd>(s: S, from: &[u16; LANES]) -> S::F {
        s.load_bf16(from)
    }

    #[inline(always)]
    fn narrow<S: Simd>(s: S, x: S::F, to: &mut [u16; LANES]) {
        s.store_bf16(s.round_bf16(x), to);
    }

    #[inline(always)]
    fn transpose<S: Simd>(s: S, from: &[[u16; LANES]; LANES]) -> [[u16; LANES]; LANES] {
        s.transpose(from)
    }
}

/// Single precision.
#[derive(Clone, Copy)]
pub(crate) struct F32;

impl Element for F32 {
    type Bits = f32;

    const KV: KvType = KvType::F32;

    #[inline(always)]
    fn widen<S: Simd>(s: S, from: &[f32; LANES]) -> S::F {
        s.load(from)
    }

    #[inline(always)]
    fn narrow<S: Simd>(s: S, x: S::F, to: &mut [f32; LANES]) {
        s.store(x, to);
    }

    #[inline(always)]
    fn transpose<S: Simd>(_: S, from: &[[f32; LANES]; LANES]) -> [[f32; LANES]; LANES] {
        transpose(from)
    }
}

/// Stores a key in slot `slot` of a page.
#[inline(always)]
pub(super) fn store_k<S: Simd, E: Element>(s: S, k: &[f32], page: &mut [E::Bits], slot: usize) {
    let head_dim = k.len();
    let lane = &mut page[slot / LANES * head_dim * LANES..][..head_dim * LANES];
    let mut narrow = [E::Bits::default(); LANES];
    for (x, to) in k.as_chunks::<LANES>().0.iter().zip(lane.chunks_exact_mut(LANES * LANES)) {
        E::narrow(s, s.load(x), &mut narrow);
        for (to, x) in to.as_chunks_mut::<LANES>().0.iter_mut().zip(narrow) {
            to[slot % LANES] = x;
        }
    }
}

/// Stores a value in slot `slot` of a page.
#[inline(always)]
pub(super) fn store_v<S: Simd, E: Element>(s: S, v: &[f32], page: &mut [E::Bits], slot: usize) {
    let to = &mut page[slot * v.len()..][..v.len()];
    for (x, to) in v.as_chunks::<LANES>().0.iter().zip(to.as_chunks_mut::<LANES>().0) {
        E::narrow(s, s.load(x), to);
    }
}

/// Sixteen elements of a page, widened.
///
/// # Safety
///
/// `i + 16 <= page.len()`.
#[inline(always)]
unsafe fn lanes<S: Simd, E: Element>(s: S, page: &[E::Bits], i: usize) -> S::F {
    debug_assert!(i + LANES <= page.len());
    // SAFETY: within the page by contract.
    E::widen(s, unsafe { &*page.as_ptr().add(i).cast::<[E::Bits; LANES]>() })
}

/// Elements of a cache line.
const fn line<E: Element>() -> usize {
    64 / size_of::<E::Bits>()
}

impl<E: Element> Cell for E {
    type Unit = E::Bits;
    type Query = f32;

    const TYPE: KvType = E::KV;

    #[inline(always)]
    fn scores<S: Simd, const R: usize>(
        s: S,
        t: &Tile<'_, E>,
        first: usize,
        longest: usize,
        p: &mut [[f32; KV_CHUNK]; R],
    ) {
        // A multiply-add takes four cycles, and two begin in each: eight sums keep them busy.
        let (mut page, pages) = (0, longest.div_ceil(KV_PAGE));
        if S::WIDE && R == 1 {
            while page + 4 <= pages {
                score::<S, E, R, 4, 2>(s, t, first, page, 0, p);
                page += 4;
            }
        }
        if S::WIDE && R <= 2 {
            while page + 2 <= pages {
                score::<S, E, R, 2, 2>(s, t, first, page, 0, p);
                page += 2;
            }
        }
        // Of the last page, rows may see no more than half.
        let half = R > 2 && (1..=LANES).contains(&(longest % KV_PAGE));
        while page < pages - usize::from(half) {
            if S::WIDE || R <= 2 {
                score::<S, E, R, 1, 2>(s, t, first, page, 0, p);
            } else {
                score::<S, E, R, 1, 1>(s, t, first, page, 0, p);
                score::<S, E, R, 1, 1>(s, t, first, page, 1, p);
            }
            page += 1;
        }
        if half {
            score::<S, E, R, 1, 1>(s, t, first, page, 0, p);
        }
    }

    #[inline(always)]
    fn values<S: Simd, const R: usize>(
        s: S,
        t: &Tile<'_, E>,
        first: usize,
        seen: [Seen; R],
        p: &mut [[f32; KV_CHUNK]; R],
        out: &mut [f32],
    ) {
        let (dim, state) = (t.head_dim, attn_state_len(t.head_dim));
        // What all rows see, and the last that any does.
        let (mut start, mut end, mut most) = (0, KV_CHUNK, 0);
        let mut rows = [&p[0]; R];
        for r in 0..R {
            let row = seen[r];
            (start, end, most) = (start.max(row.start), end.min(row.end), most.max(row.end));
            rows[r] = &p[r];
        }
        if start >= end {
            // Nothing: every row goes by itself.
            (start, end) = (KV_CHUNK, KV_CHUNK);
        }
        for out in out.chunks_exact_mut(state) {
            out[..dim].fill(0.0);
        }
        // A page is left only when all of it has been used, so that memory is read in order; but
        // where many rows share the values, sums stay in registers for several pages.
        let together = if R < 4 { KV_PAGE } else { 4 * KV_PAGE };
        // Rows go together over the keys that all of them see; the rest is done row by row, because a
        // key that a row does not see may hold anything, and 0 times anything is not always 0.
        if start > 0 {
            for (r, out) in out.chunks_exact_mut(state).enumerate() {
                let keys = seen[r].start..seen[r].end.min(start);
                keys_of::<S, E, 1>(s, t, first, [rows[r]], keys, out);
            }
        }
        for at in (start / together * together..most).step_by(together) {
            let to = at + together;
            keys_of::<S, E, R>(s, t, first, rows, start.max(at)..end.min(to), out);
            for (r, out) in out.chunks_exact_mut(state).enumerate() {
                let keys = end.max(at)..seen[r].end.min(to);
                keys_of::<S, E, 1>(s, t, first, [rows[r]], keys, out);
            }
        }
    }

    #[inline(always)]
    fn turn<S: Simd>(s: S, head_dim: usize, keys: &[E::Bits], values: &mut [E::Bits]) {
        let halves =
            keys.chunks_exact(head_dim * LANES).zip(values.chunks_exact_mut(head_dim * LANES));
        for (keys, values) in halves {
            let blocks = keys.as_chunks::<LANES>().0.as_chunks::<LANES>().0;
            for (b, block) in blocks.iter().enumerate() {
                let of_keys = E::transpose(s, block);
                for (key, value) in of_keys.iter().zip(values.chunks_exact_mut(head_dim)) {
                    value.as_chunks_mut::<LANES>().0[b] = *key;
                }
            }
        }
    }
}

/// `o[r] += Σ_key p[r][key] * v[key]` for the keys `keys`.
#[inline(always)]
fn keys_of<S: Simd, E: Element, const R: usize>(
    s: S,
    t: &Tile<'_, E>,
    first: usize,
    p: [&[f32; KV_CHUNK]; R],
    keys: Range<usize>,
    out: &mut [f32],
) {
    if keys.is_empty() {
        return;
    }
    let mut d = 0;
    macro_rules! blocks {
        ($dims:literal) => {
            while d + $dims * LANES <= t.head_dim {
                value::<S, E, R, $dims>(s, t, first, d, p, keys.clone(), out);
                d += $dims * LANES;
            }
        };
    }
    if S::WIDE {
        if R <= 2 {
            blocks!(8);
        }
        if R <= 4 {
            blocks!(4);
        }
        blocks!(2);
    }
    blocks!(1);
}

/// Scores of `PAGES * KEYS` blocks of 16 keys: `KEYS` blocks, from block `block`, of each of the
/// pages from `page`.
#[inline(always)]
fn score<S: Simd, E: Element, const R: usize, const PAGES: usize, const KEYS: usize>(
    s: S,
    t: &Tile<'_, E>,
    first: usize,
    page: usize,
    block: usize,
    p: &mut [[f32; KV_CHUNK]; R],
) {
    let dim = t.head_dim;
    let mut q = [t.q.row(first); R];
    for r in 0..R {
        q[r] = t.q.row(first + r);
        assert!(q[r].len() == dim);
    }
    let mut keys = [&t.k_pages[page][..0]; PAGES];
    let mut ahead = [Ahead::of_keys(t, first, page); PAGES];
    for i in 0..PAGES {
        keys[i] = &t.k_pages[page + i][block * dim * LANES..][..KEYS * dim * LANES];
        ahead[i] = Ahead::of_keys(t, first, page + i);
    }
    let mut acc = [[[s.splat(0.0); KEYS]; PAGES]; R];
    assert!(dim.is_multiple_of(2));
    for at in (0..dim).step_by(line::<E>() / LANES) {
        for i in 0..PAGES {
            for b in 0..KEYS {
                ahead[i].fetch(s.dot(), ((block + b) * dim + at) * LANES * size_of::<E::Bits>());
            }
        }
        for d in at..at + line::<E>() / LANES {
            let mut k = [[s.splat(0.0); KEYS]; PAGES];
            for i in 0..PAGES {
                for b in 0..KEYS {
                    // SAFETY: `d < dim` (a line holds one or two dimensions, and `dim` is even),
                    // `b < KEYS`, and `keys` are of `KEYS * dim * 16` elements.
                    k[i][b] = unsafe { lanes::<S, E>(s, keys[i], (b * dim + d) * LANES) };
                }
            }
            for r in 0..R {
                // SAFETY: every row of `q` has `dim` elements, asserted above.
                let q = s.splat(unsafe { *q[r].get_unchecked(d) });
                for i in 0..PAGES {
                    for b in 0..KEYS {
                        acc[r][i][b] = s.fma(q, k[i][b], acc[r][i][b]);
                    }
                }
            }
        }
    }
    for r in 0..R {
        for i in 0..PAGES {
            let p = p[r][(page + i) * KV_PAGE + block * LANES..].as_chunks_mut::<LANES>().0;
            for b in 0..KEYS {
                s.store(acc[r][i][b], &mut p[b]);
            }
        }
    }
}

/// `o[r][d..] += Σ_key p[r][key] * v[key][d..]`, `DIMS` blocks of 16 dimensions wide, for the keys
/// `keys`.
#[inline(always)]
fn value<S: Simd, E: Element, const R: usize, const DIMS: usize>(
    s: S,
    t: &Tile<'_, E>,
    first: usize,
    d: usize,
    p: [&[f32; KV_CHUNK]; R],
    keys: Range<usize>,
    out: &mut [f32],
) {
    let (dim, state) = (t.head_dim, attn_state_len(t.head_dim));
    assert!(d + DIMS * LANES <= dim && keys.end <= KV_CHUNK);
    let mut acc = [[s.splat(0.0); DIMS]; R];
    for r in 0..R {
        let o = out[r * state + d..][..DIMS * LANES].as_chunks::<LANES>().0;
        for b in 0..DIMS {
            acc[r][b] = s.load(&o[b]);
        }
    }
    let mut key = keys.start;
    while key < keys.end {
        let page = key / KV_PAGE;
        let (v, ahead) = (t.v_pages[page], Ahead::of_values(t, first, page));
        assert!(v.len() == KV_PAGE * dim);
        let end = keys.end.min((page + 1) * KV_PAGE);
        let mut at = key % KV_PAGE * dim + d;
        for key in key..end {
            for b in (0..DIMS).step_by(line::<E>() / LANES) {
                ahead.fetch(s.dot(), (at + b * LANES) * size_of::<E::Bits>());
            }
            let mut x = [s.splat(0.0); DIMS];
            for b in 0..DIMS {
                // SAFETY: a slot below `KV_PAGE` and `d + DIMS * 16 <= dim`, asserted above.
                x[b] = unsafe { lanes::<S, E>(s, v, at + b * LANES) };
            }
            for r in 0..R {
                // SAFETY: `keys` end at `KV_CHUNK` at most, asserted above.
                let p = s.splat(unsafe { *p[r].get_unchecked(key) });
                for b in 0..DIMS {
                    acc[r][b] = s.fma(p, x[b], acc[r][b]);
                }
            }
            at += dim;
        }
        key = end;
    }
    for r in 0..R {
        let o = out[r * state + d..][..DIMS * LANES].as_chunks_mut::<LANES>().0;
        for b in 0..DIMS {
            s.store(acc[r][b], &mut o[b]);
        }
    }
}
