//! Activations in 8 bits: blocks of 32 with what the dot products need beside the quants.
//!
//! One block is one cache line, so that a kernel needs one pointer per token. The offsets that
//! packed weights carry (8, 32 or 128 added to make them unsigned) are taken back once per block,
//! through sums that stand ready here.

use crate::exp::ROUND;
use crate::simd::{Dot, LANES, Simd};
use std::ops::Index;

/// Columns of a block.
pub(crate) const BLOCK: usize = 32;

/// Thirty-two activations: `x[i] ≈ d * qs[i]`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Q8Block {
    /// Quants in `-127..=127`, four to a quad.
    pub(crate) qs: [[i8; 4]; 8],
    /// Scale: the greatest magnitude over 127.
    pub(crate) d: f32,
    /// `d` times the sum of the quants.
    pub(crate) dsum: f32,
    /// -8 times the sum of the quants.
    pub(crate) neg8: i32,
    /// -32 times the sum of each half's quants.
    pub(crate) neg32: [i32; 2],
    /// -128 times the sum of the quants.
    pub(crate) neg128: i32,
    /// The sum of each half in whole steps, the nearest: `step` times this is `d` times the sum of the
    /// half's quants but for half a step at most (as each quant is its activation but for half of `d`).
    pub(crate) steps: [i16; 2],
    /// A sixteenth of the greatest scale of the 256 columns that the block is of: half a step, the most
    /// that a sum is off by, is 1/32 of that scale.
    pub(crate) step: f32,
}

const _: () = assert!(size_of::<Q8Block>() == 64);

impl Q8Block {
    pub(crate) const ZERO: Self = Self {
        qs: [[0; 4]; 8],
        d: 0.0,
        dsum: 0.0,
        neg8: 0,
        neg32: [0; 2],
        neg128: 0,
        steps: [0; 2],
        step: 0.0,
    };

    /// Quad `i` in one word, its first quant lowest.
    #[inline(always)]
    pub(crate) fn quad(&self, i: usize) -> i32 {
        // Not by `map`, which may not be inlined where an instruction set is switched on.
        let [a, b, c, d] = self.qs[i];
        i32::from_le_bytes([a as u8, b as u8, c as u8, d as u8])
    }

    /// The steps of both halves in one word, the first half's lowest.
    #[inline(always)]
    pub(crate) fn steps(&self) -> i32 {
        i32::from(self.steps[1]) << 16 | i32::from(self.steps[0] as u16)
    }
}

/// A block of each token, with the token as index.
#[derive(Clone, Copy)]
pub(crate) struct Q8Blocks<'a, const T: usize> {
    acts: [&'a [Q8Block]; T],
    /// Below the length of each.
    b: usize,
}

impl<'a, const T: usize> Q8Blocks<'a, T> {
    /// Block `b` of each.
    ///
    /// # Safety
    ///
    /// `b` is below the length of every element of `acts`.
    #[inline(always)]
    pub(crate) unsafe fn new(acts: [&'a [Q8Block]; T], b: usize) -> Self {
        Self { acts, b }
    }

    /// Those that lie one behind the other.
    #[inline(always)]
    pub(crate) fn of(blocks: &'a [Q8Block; T]) -> Self {
        let mut acts = [&blocks[..1]; T];
        for t in 0..T {
            acts[t] = &blocks[t..=t];
        }
        Self { acts, b: 0 }
    }
}

impl<const T: usize> Index<usize> for Q8Blocks<'_, T> {
    type Output = Q8Block;

    #[inline(always)]
    fn index(&self, t: usize) -> &Q8Block {
        debug_assert!(self.b < self.acts[t].len());
        // SAFETY: as every constructor has it.
        unsafe { self.acts[t].get_unchecked(self.b) }
    }
}

/// Blocks that share a [`Q8Block::step`].
const GROUP: usize = 8;
/// Steps of the greatest scale of a group: half a block's sum, at most 16 · 127 quants, fits 16 bits.
const STEPS: f32 = 16.0;

/// A smaller greatest magnitude counts as this one: 127 over it must not overflow, nor a scale of
/// the activations times one of the weights sink into the subnormals.
const TINY: f32 = 1e-30;

/// Quantises `x` into its blocks. A NaN or an infinity makes its whole block NaN or infinite.
///
/// Sixteen blocks go together, in passes that each depend on little: one after the other, the
/// maximum, the division and the sums of a block are a chain too long to overlap with the next's
/// (36 cycles a block with AVX-512 on Zen 5, against 18; 2560 floats, 2026-11-21).
///
/// Of many rows another core has written some, and has read what their places held before. Lines of both are asked
/// for sixteen blocks ahead, in the end those of the `next` row: an Emerald Rapids took 38 ms for a prompt of 512
/// without, 35 with those of the places, 28 with both (`benchmarks/notes/2026-11-23-where-sums-go.md`).
#[inline(always)]
pub(crate) fn quantize<S: Simd>(
    s: S,
    x: &[f32],
    blocks: &mut [Q8Block],
    next: Option<(&[f32], &[u8])>,
) {
    let (from, to) = (x, blocks.as_ptr());
    for (i, (x, blocks)) in x.chunks(LANES * BLOCK).zip(blocks.chunks_mut(LANES)).enumerate() {
        if let Some((next, place)) = next {
            let after = (i + 1) * LANES;
            let rest = &from[from.len().min(after * BLOCK)..];
            let (lines, places) = if rest.is_empty() {
                (next, place.as_ptr())
            } else {
                (rest, to.wrapping_add(after).cast())
            };
            for (b, lines) in lines.chunks(BLOCK).take(LANES).enumerate() {
                let line = lines.as_ptr().cast::<u8>();
                s.dot().prefetch(line);
                s.dot().prefetch(line.wrapping_add(64));
                s.dot().prefetch_write(places.wrapping_add(64 * b));
            }
        }
        let x = x.as_chunks::<BLOCK>().0;
        let mut tops = [0.0; LANES];
        for (x, top) in x.iter().zip(&mut tops) {
            let [x0, x1] = halves(s, x);
            // As integers, magnitudes compare as they do as floats, and NaN is the greatest.
            let bits = s.max_i(s.as_bits(s.abs(x0)), s.as_bits(s.abs(x1)));
            *top = f32::from_bits(s.reduce_max_i(bits) as u32);
        }
        let (mut scales, mut inverses) = ([0.0; LANES], [0.0; LANES]);
        let (top, full) = (s.max(s.splat(TINY), s.load(&tops)), s.splat(127.0));
        s.store(s.div(top, full), &mut scales);
        s.store(s.div(full, top), &mut inverses);

        let mut sums = [[0; 2]; LANES];
        for (((x, block), inverse), sums) in
            x.iter().zip(blocks.iter_mut()).zip(inverses).zip(&mut sums)
        {
            let [x0, x1] = halves(s, x);
            let (qs, _) = block.qs.as_flattened_mut().as_chunks_mut::<LANES>();
            s.store_i8(round(s, x0, inverse), &mut qs[0]);
            s.store_i8(round(s, x1, inverse), &mut qs[1]);
            *sums = [s.sum_i8(&qs[0]), s.sum_i8(&qs[1])];
        }
        // Zero where a row ends.
        scales[x.len()..].fill(0.0);
        let mut steps = [0.0; LANES];
        for (steps, scales) in steps.chunks_mut(GROUP).zip(scales.chunks(GROUP)) {
            // As above, a NaN is the greatest.
            let top = scales.iter().map(|d| d.to_bits()).max().map_or(0.0, f32::from_bits);
            steps.fill(top / STEPS);
        }
        let mut ratios = [0.0; LANES];
        s.store(s.div(s.load(&scales), s.load(&steps)), &mut ratios);
        let others = steps.into_iter().zip(ratios);
        for (((block, d), sums), (step, ratio)) in
            blocks.iter_mut().zip(scales).zip(sums).zip(others)
        {
            let sum = sums[0] + sums[1];
            block.d = d;
            block.dsum = d * sum as f32;
            block.neg8 = -8 * sum;
            block.neg32 = sums.map(|sum| -32 * sum);
            block.neg128 = -128 * sum;
            block.steps = sums.map(|sum| (sum as f32 * ratio + ROUND).to_bits() as i16);
            block.step = step;
        }
    }
}

#[inline(always)]
fn halves<S: Simd>(s: S, x: &[f32; BLOCK]) -> [S::F; 2] {
    let (halves, _) = x.as_chunks::<LANES>();
    [s.load(&halves[0]), s.load(&halves[1])]
}

/// `x * inverse` to the nearest integer, ties to even, by the addition that leaves it in the low
/// bits.
#[inline(always)]
fn round<S: Simd>(s: S, x: S::F, inverse: f32) -> S::I {
    let q = s.fma(x, s.splat(inverse), s.splat(ROUND));
    s.sub_i(s.as_bits(q), s.splat_i(ROUND.to_bits() as i32))
}
