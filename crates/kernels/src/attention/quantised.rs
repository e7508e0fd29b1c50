//! Keys and values in 8 or 4 bits: blocks of 32 elements of a head with a half-precision scale.
//!
//! A page of `n` blocks a head begins with its scales, `[n][32 slots]`. The quants of keys follow as `[2][n]`
//! of what 16 keys take: they are the rows of a matrix tile, and their scores the integer dots of that tile
//! with queries quantised to 8 bits, scaled block by block. The quants of values are `[n]` of what all slots
//! take, those of a few slots beside each other, so that the sum over keys is an integer dot as well: the
//! weights of a page, each times the scale of its value's block, are quantised to 15 bits relative to the
//! greatest weight and the greatest scale of the page. Eight bits would lose the keys beside one that has
//! nearly all the weight; with 15 the values' own error stays an order of magnitude larger.
//!
//! A row's weights are quantised by what the row sees and nothing else: its bits do not depend on
//! slots that are filled later.

use super::{Ahead, Cell, KV_CHUNK, KV_PAGE, KvType, Seen, Tile, attn_state_len};
use crate::exp::ROUND;
use crate::q8::{BLOCK, Q8Block, Q8Blocks};
use crate::simd::{Dot, LANES, Simd};
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes that are loaded at a time.
pub(super) const LINE: usize = 64;
/// Most groups of rows that 16 rows are.
const MOST_GROUPS: usize = 4;
/// The greatest quant of a weight.
const TOP: f32 = 32767.0;
/// A smaller greatest weight, or scale, counts as this one: [`TOP`] over it must not overflow.
const TINY: f32 = 1e-30;
/// Scales of a block of the head, one per slot.
const SCALES: usize = 2 * KV_PAGE;

/// What the types differ in: the quants of one block of the head, in lines.
pub(crate) trait Quants: Copy {
    const KV: KvType;
    const BITS: usize;
    /// Bytes of 16 keys.
    const KEYS: usize = Self::BITS * BLOCK * LANES / 8;
    /// Bytes of all values of a page.
    const VALUES: usize = Self::BITS * BLOCK * KV_PAGE / 8;

    /// The bits of the scale, and the quants of `x`, whose greatest magnitude is `top`. A NaN, an infinity
    /// or a scale beyond half precision makes sure that nothing which the block enters is finite.
    fn quantize<S: Simd>(s: S, x: [S::F; 2], top: f32) -> (u16, [i8; BLOCK]);
    /// Stores quants of one of 16 keys.
    fn put_key(lines: &mut [[u8; LINE]], slot: usize, qs: &[i8; BLOCK]);
    /// Stores quants of the value of a slot.
    fn put_value(lines: &mut [[u8; LINE]], slot: usize, qs: &[i8; BLOCK]);
    /// Stores the quants of all keys of a page, 16 and 16, as those of values.
    fn turn<S: Simd>(s: S, keys: [&[[u8; LINE]]; 2], values: &mut [[u8; LINE]]);
    /// Dots of 16 keys with a block of each row of queries. As many lines are fetched meanwhile, of a page
    /// and from an offset in it.
    fn dots<D: Dot, const R: usize>(
        d: D,
        lines: &[[u8; LINE]],
        g: usize,
        q: Q8Blocks<'_, R>,
        ahead: (Ahead, usize),
    ) -> [D::I; R];
    /// `sums` and the dots of each row's weights with the values of 16 dimensions in a line, the `j`-th
    /// of them. A word of weights is of two slots.
    fn add<D: Dot, const R: usize>(
        d: D,
        line: &[u8; LINE],
        g: usize,
        weights: &[[i32; KV_PAGE / 2]; R],
        j: usize,
        sums: [D::I; R],
    ) -> [D::I; R];
}

/// The bits of `x` in half precision, and what they stand for.
#[inline(always)]
pub(super) fn half<S: Simd>(s: S, x: f32) -> (u16, f32) {
    let (mut bits, mut back) = ([0; LANES], [0.0; LANES]);
    s.store_f16(s.splat(x), &mut bits);
    // SAFETY: 16 integers of two bytes; bytes have no alignment.
    s.store(s.load_f16(unsafe { &*bits.as_ptr().cast() }), &mut back);
    (bits[0], back[0])
}

/// Quantises a block: the bits of its scale and the quants.
#[inline(always)]
fn quantize<S: Simd, Q: Quants>(s: S, x: &[f32; BLOCK]) -> (u16, [i8; BLOCK]) {
    let (halves, _) = x.as_chunks::<LANES>();
    let x = [s.load(&halves[0]), s.load(&halves[1])];
    // As integers, magnitudes compare as they do as floats, and NaN is the greatest.
    let bits = s.max_i(s.as_bits(s.abs(x[0])), s.as_bits(s.abs(x[1])));
    Q::quantize(s, x, f32::from_bits(s.reduce_max_i(bits) as u32))
}

/// The scales and the quants of a page.
#[inline(always)]
fn parts(page: &[u8], head_dim: usize) -> (&[[u8; SCALES]], &[u8]) {
    let (scales, quants) = page.split_at(head_dim / BLOCK * SCALES);
    (scales.as_chunks().0, quants)
}

/// Stores a key in slot `slot` of a page.
#[inline(always)]
pub(super) fn store_k<S: Simd, Q: Quants>(s: S, k: &[f32], page: &mut [u8], slot: usize) {
    let blocks = k.len() / BLOCK;
    let (scales, quants) = page.split_at_mut(blocks * SCALES);
    let quants = &mut quants[slot / LANES * blocks * Q::KEYS..][..blocks * Q::KEYS];
    let places =
        scales.as_chunks_mut::<SCALES>().0.iter_mut().zip(quants.chunks_exact_mut(Q::KEYS));
    for (x, (scales, quants)) in k.as_chunks::<BLOCK>().0.iter().zip(places) {
        let (d, qs) = quantize::<S, Q>(s, x);
        scales[2 * slot..][..2].copy_from_slice(&d.to_le_bytes());
        Q::put_key(quants.as_chunks_mut().0, slot % LANES, &qs);
    }
}

/// Stores a value in slot `slot` of a page.
#[inline(always)]
pub(super) fn store_v<S: Simd, Q: Quants>(s: S, v: &[f32], page: &mut [u8], slot: usize) {
    let (scales, quants) = page.split_at_mut(v.len() / BLOCK * SCALES);
    let places =
        scales.as_chunks_mut::<SCALES>().0.iter_mut().zip(quants.chunks_exact_mut(Q::VALUES));
    for (x, (scales, quants)) in v.as_chunks::<BLOCK>().0.iter().zip(places) {
        let (d, qs) = quantize::<S, Q>(s, x);
        scales[2 * slot..][..2].copy_from_slice(&d.to_le_bytes());
        Q::put_value(quants.as_chunks_mut().0, slot, &qs);
    }
}

/// Pages of blocks of type `Q`.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<Q>(PhantomData<Q>);

impl<Q: Quants> Cell for Blocks<Q> {
    type Unit = u8;
    type Query = Q8Block;

    const TYPE: KvType = Q::KV;

    #[inline(always)]
    fn scores<S: Simd, const R: usize>(
        s: S,
        t: &Tile<'_, Self>,
        first: usize,
        longest: usize,
        p: &mut [[f32; KV_CHUNK]; R],
    ) {
        let blocks = t.head_dim / BLOCK;
        let mut q = [t.q.row(first); R];
        for r in 0..R {
            q[r] = t.q.row(first + r);
            assert!(q[r].len() == blocks);
        }
        for key in (0..longest).step_by(LANES) {
            let (page, half) = (key / KV_PAGE, key % KV_PAGE / LANES);
            let ahead = Ahead::of_keys(t, first, page);
            let (scales, quants) = parts(t.k_pages[page], t.head_dim);
            let at = blocks * SCALES + half * blocks * Q::KEYS;
            let quants = &quants[half * blocks * Q::KEYS..][..blocks * Q::KEYS];
            for b in (half * blocks / 2)..((half + 1) * blocks).div_ceil(2) {
                ahead.fetch(s.dot(), b * SCALES);
            }
            // SAFETY: every row of `q` has `blocks` blocks, asserted above.
            unsafe { score::<S::Dot, Q, R>(s.dot(), scales, half, quants, q, ahead, at, p, key) };
        }
    }

    #[inline(always)]
    fn values<S: Simd, const R: usize>(
        s: S,
        t: &Tile<'_, Self>,
        first: usize,
        seen: [Seen; R],
        p: &mut [[f32; KV_CHUNK]; R],
        out: &mut [f32],
    ) {
        let (dim, state) = (t.head_dim, attn_state_len(t.head_dim));
        // What all rows see, and the last that any does.
        let (mut start, mut end, mut most) = (0, KV_CHUNK, 0);
        for row in seen {
            (start, end, most) = (start.max(row.start), end.min(row.end), most.max(row.end));
        }
        for out in out.chunks_exact_mut(state) {
            out[..dim].fill(0.0);
        }
        let mut quantized = [Quantized::<R>::NONE; BLOCKS];
        for (page, at) in (0..most).step_by(KV_PAGE).enumerate() {
            let ahead = Ahead::of_values(t, first, page);
            let (scales, quants) = parts(t.v_pages[page], dim);
            for b in 0..scales.len() {
                ahead.fetch(s.dot(), b * SCALES);
            }
            let (mut visible, mut weights) = ([Slots::ALL; R], [Weights::NONE; R]);
            let p_of = |r: usize| p[r][at..].first_chunk().expect("a page lies in the chunk");
            // Most pages are seen whole by all rows: nothing is masked there.
            let whole = start <= at && at + KV_PAGE <= end;
            if whole {
                for r in 0..R {
                    weights[r] = Weights::new(s, p_of(r), Slots::ALL);
                }
            } else {
                for r in 0..R {
                    visible[r] = Slots::of(seen[r], at);
                    weights[r] = Weights::new(s, p_of(r), visible[r]);
                }
            }
            for (i, scales) in scales.chunks(BLOCKS).enumerate() {
                for (scales, to) in scales.iter().zip(&mut quantized) {
                    match whole {
                        true => to.set(s, &weights, scales, [Slots::ALL; R]),
                        false => to.set(s, &weights, scales, visible),
                    }
                }
                let start = i * BLOCKS;
                for (b, from) in quantized[..scales.len()].iter().enumerate() {
                    let b = start + b;
                    let quants = &quants[b * Q::VALUES..][..Q::VALUES];
                    let at = dim / BLOCK * SCALES + b * Q::VALUES;
                    value::<S, Q, R>(s, quants, from, ahead, at, b * BLOCK, out);
                }
            }
        }
    }

    #[inline(always)]
    fn turn<S: Simd>(s: S, head_dim: usize, keys: &[u8], values: &mut [u8]) {
        let blocks = head_dim / BLOCK;
        let (scales, keys) = keys.split_at(blocks * SCALES);
        let (to, values) = values.split_at_mut(scales.len());
        to.copy_from_slice(scales);
        let [lower, upper] =
            [0, 1].map(|half| &keys[half * blocks * Q::KEYS..][..blocks * Q::KEYS]);
        let keys = lower.chunks_exact(Q::KEYS).zip(upper.chunks_exact(Q::KEYS));
        for ((lower, upper), values) in keys.zip(values.chunks_exact_mut(Q::VALUES)) {
            let keys = [lower.as_chunks().0, upper.as_chunks().0];
            Q::turn(s, keys, values.as_chunks_mut().0);
        }
    }
}

/// Scores of 16 keys: half `half` of a page's slots.
///
/// # Safety
///
/// Every row of `q` has as many blocks as there are `scales`.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "one register tile")]
unsafe fn score<D: Dot, Q: Quants, const R: usize>(
    d: D,
    scales: &[[u8; SCALES]],
    half: usize,
    quants: &[u8],
    q: [&[Q8Block]; R],
    ahead: Ahead,
    at: usize,
    p: &mut [[f32; KV_CHUNK]; R],
    key: usize,
) {
    let mut acc = [[d.splat(0.0); R]; MOST_GROUPS];
    for (b, (scales, quants)) in scales.iter().zip(quants.chunks_exact(Q::KEYS)).enumerate() {
        let scales = scales.as_chunks::<{ 2 * LANES }>().0[half];
        let lines = quants.as_chunks().0;
        // SAFETY: the caller's contract.
        let q = unsafe { Q8Blocks::new(q, b) };
        for g in 0..D::GROUPS {
            let sums = Q::dots(d, lines, g, q, (ahead, at + b * Q::KEYS));
            let scale = d.load_f16(&scales, g);
            for r in 0..R {
                acc[g][r] = d.fma(d.to_f(sums[r]), d.mul(scale, d.splat(q[r].d)), acc[g][r]);
            }
        }
    }
    for r in 0..R {
        let p = p[r][key..].first_chunk_mut().expect("blocks of 16 lie in the chunk");
        for g in 0..D::GROUPS {
            d.store(acc[g][r], p, g);
        }
    }
}

/// The slots of a page that a row sees, one after the other: a bit each.
#[derive(Clone, Copy, PartialEq)]
struct Slots(u32);

impl Slots {
    const ALL: Slots = Slots(u32::MAX);

    /// Of the page that begins with key `at`.
    #[inline(always)]
    fn of(seen: Seen, at: usize) -> Slots {
        let below = |key: usize| ((1u64 << key.saturating_sub(at).min(KV_PAGE)) - 1) as u32;
        Slots(below(seen.end) & !below(seen.start))
    }

    #[inline(always)]
    fn range(self) -> Range<usize> {
        self.0.trailing_zeros() as usize..(u32::BITS - self.0.leading_zeros()) as usize
    }
}

/// The softmax weights of a page, relative to the greatest of them.
#[derive(Clone, Copy)]
struct Weights {
    /// Times [`TOP`]; zero beyond what the row sees.
    relative: [f32; KV_PAGE],
    top: f32,
}

impl Weights {
    const NONE: Weights = Weights { relative: [0.0; KV_PAGE], top: 0.0 };

    #[inline(always)]
    fn new<S: Simd>(s: S, p: &[f32; KV_PAGE], visible: Slots) -> Self {
        let [p0, p1] = only(s, halves(s, p), visible);
        let top = greatest(s, p0, p1);
        let factor = s.splat(TOP / top);
        let mut relative = [0.0; KV_PAGE];
        let (to, _) = relative.as_chunks_mut::<LANES>();
        s.store(s.mul(p0, factor), &mut to[0]);
        s.store(s.mul(p1, factor), &mut to[1]);
        Self { relative, top }
    }
}

/// Blocks of the head whose weights are quantised together, before any is used.
const BLOCKS: usize = 4;

/// The weights of a page, each times the scale of its value in one block of the head.
#[derive(Clone, Copy)]
struct Quantized<const R: usize> {
    /// Two to a word.
    pairs: [[i32; KV_PAGE / 2]; R],
    /// What a quant stands for.
    factors: [f32; R],
}

impl<const R: usize> Quantized<R> {
    const NONE: Self = Self { pairs: [[0; KV_PAGE / 2]; R], factors: [0.0; R] };

    #[inline(always)]
    fn set<S: Simd>(
        &mut self,
        s: S,
        weights: &[Weights; R],
        scales: &[u8; SCALES],
        visible: [Slots; R],
    ) {
        let mut shares = Shares::new(s, scales, visible[0]);
        for r in 0..R {
            if r > 0 && visible[r] != visible[r - 1] {
                shares = Shares::new(s, scales, visible[r]);
            }
            let weights = &weights[r];
            // SAFETY: 32 integers of two bytes in the place of 16 of four.
            let pairs = unsafe { &mut *self.pairs[r].as_mut_ptr().cast::<[i16; KV_PAGE]>() };
            let relative = halves(s, &weights.relative);
            for (i, pairs) in pairs.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                // Below 2^22, the nearest integer stands in the low bits of the sum.
                let w = s.fma(relative[i], shares.relative[i], s.splat(ROUND));
                s.store_i16(s.as_bits(w), pairs);
            }
            self.factors[r] = weights.top * shares.top * (1.0 / TOP);
        }
    }
}

/// The scales of a page's values in one block of the head, relative to the greatest magnitude of them.
#[derive(Clone, Copy)]
struct Shares<S: Simd> {
    relative: [S::F; 2],
    top: f32,
}

impl<S: Simd> Shares<S> {
    #[inline(always)]
    fn new(s: S, scales: &[u8; SCALES], visible: Slots) -> Self {
        let (scales, _) = scales.as_chunks::<{ 2 * LANES }>();
        let scales = [s.load_f16(&scales[0]), s.load_f16(&scales[1])];
        let [d0, d1] = only(s, scales, visible);
        let top = greatest(s, s.abs(d0), s.abs(d1));
        let factor = s.splat(1.0 / top);
        Self { relative: [s.mul(d0, factor), s.mul(d1, factor)], top }
    }
}

#[inline(always)]
fn halves<S: Simd>(s: S, x: &[f32; KV_PAGE]) -> [S::F; 2] {
    let (halves, _) = x.as_chunks::<LANES>();
    [s.load(&halves[0]), s.load(&halves[1])]
}

/// Of 32, those of the slots that are seen; zeros in the place of the others.
#[inline(always)]
fn only<S: Simd>(s: S, [x0, x1]: [S::F; 2], slots: Slots) -> [S::F; 2] {
    if slots == Slots::ALL {
        return [x0, x1];
    }
    let (zero, Range { start, end }) = (s.splat(0.0), slots.range());
    let x0 = s.first(start.min(LANES), zero, s.first(end.min(LANES), x0, zero));
    let x1 = s.first(end.saturating_sub(LANES), x1, zero);
    [x0, s.first(start.saturating_sub(LANES), zero, x1)]
}

/// The greatest of numbers that are not negative, at least [`TINY`]; NaN is the greatest.
#[inline(always)]
fn greatest<S: Simd>(s: S, x0: S::F, x1: S::F) -> f32 {
    let bits = s.max_i(s.as_bits(x0), s.as_bits(x1));
    let top = s.reduce_max_i(s.max_i(bits, s.splat_i(TINY.to_bits() as i32)));
    f32::from_bits(top as u32)
}

/// `o[r][d..d + 32] += Σ_slot weights[r][slot] * v[slot][d..d + 32]`.
#[inline(always)]
fn value<S: Simd, Q: Quants, const R: usize>(
    s: S,
    quants: &[u8],
    weights: &Quantized<R>,
    ahead: Ahead,
    at: usize,
    d: usize,
    out: &mut [f32],
) {
    if S::WIDE {
        sums::<S::Dot, Q, R, 2>(s.dot(), quants, weights, ahead, at, [d, 0], out);
    } else {
        sums::<S::Dot, Q, R, 1>(s.dot(), quants, weights, ahead, at, [d, 0], out);
        sums::<S::Dot, Q, R, 1>(s.dot(), quants, weights, ahead, at, [d, 1], out);
    }
}

/// [`value`] for `H` blocks of 16 dimensions, the first of which is `h` of those from `d`.
#[inline(always)]
fn sums<D: Dot, Q: Quants, const R: usize, const H: usize>(
    dot: D,
    quants: &[u8],
    weights: &Quantized<R>,
    ahead: Ahead,
    at: usize,
    [d, h]: [usize; 2],
    out: &mut [f32],
) {
    let state = out.len() / R;
    for g in 0..D::GROUPS {
        let mut sums = [[dot.splat_i(0); R]; H];
        // Lines of the lower and of the upper 16 dimensions take turns.
        for (j, lines) in quants.as_chunks::<{ 2 * LINE }>().0.iter().enumerate() {
            for i in 0..H {
                if g == 0 {
                    ahead.fetch(dot, at + (2 * j + h + i) * LINE);
                }
                let line = &lines.as_chunks().0[h + i];
                sums[i] = Q::add(dot, line, g, &weights.pairs, j, sums[i]);
            }
        }
        for r in 0..R {
            let factor = dot.splat(weights.factors[r]);
            for i in 0..H {
                let o = &mut out[r * state + d..][..BLOCK].as_chunks_mut::<LANES>().0[h + i];
                // SAFETY: 16 floats; bytes have no alignment.
                let sum = dot.load_f32(unsafe { &*o.as_ptr().cast::<[u8; 4 * LANES]>() }, g);
                dot.store(dot.fma(dot.to_f(sums[i][r]), factor, sum), o, g);
            }
        }
    }
}
