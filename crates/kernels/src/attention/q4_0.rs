//! Keys and values in 4 bits, rounded as ggml rounds Q4_0: the element of greatest magnitude, the first
//! of several, becomes -8, so that scales have a sign.
//!
//! The quants of 16 keys are a tile of a Q4_0 matrix, `[4][16 slots][4]`: byte `i` of quad `j` holds
//! elements `4j + i` (low) and `16 + 4j + i` (high), with 8 added. Those of values are signed, `[4][32
//! dimensions][4]`: of slots `8j..8j + 8` the even ones in the lower 16 bits, the odd ones in the upper,
//! the first in the lowest four (see [`Dot::widen_nibbles`]).

use super::quantised::{LINE, Quants, half};
use super::{Ahead, KV_PAGE, KvType};
use crate::q8::{BLOCK, Q8Blocks};
use crate::simd::{Dot, LANES, Simd};

/// What is added to a quant of a key.
const BIAS: i8 = 8;

/// A half float that is no number.
const NAN: u16 = 0x7e00;

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct Q4_0;

impl Quants for Q4_0 {
    const KV: KvType = KvType::Q4_0;
    const BITS: usize = 4;

    #[inline(always)]
    fn quantize<S: Simd>(s: S, x: [S::F; 2], top: f32) -> (u16, [i8; BLOCK]) {
        let d = extreme(s, x, top) / -8.0;
        let inverse = 1.0 / d;
        let inverse = s.splat(if inverse.is_finite() { inverse } else { 0.0 });
        let mut qs = [0; BLOCK];
        for (x, qs) in x.into_iter().zip(qs.as_chunks_mut::<LANES>().0) {
            let q = s.add(s.mul(x, inverse), s.splat(8.5));
            let q = s.truncate(s.min(q, s.splat(15.0)));
            s.store_i8(s.sub_i(q, s.splat_i(i32::from(BIAS))), qs);
        }
        // Infinity times a sum below 0 would be a score that softmax ignores.
        let (bits, d) = half(s, d);
        (if d.is_finite() { bits } else { NAN }, qs)
    }

    #[inline(always)]
    fn put_key(lines: &mut [[u8; LINE]], slot: usize, qs: &[i8; BLOCK]) {
        let (low, high) = qs.split_at(BLOCK / 2);
        let bytes = low.iter().zip(high).map(|(&low, &high)| {
            let biased = |q: i8| (q + BIAS) as u8;
            biased(low) | biased(high) << 4
        });
        for (i, byte) in bytes.enumerate() {
            lines[i / 4][4 * slot + i % 4] = byte;
        }
    }

    #[inline(always)]
    fn put_value(lines: &mut [[u8; LINE]], slot: usize, qs: &[i8; BLOCK]) {
        let (half, nibble) = (slot % 2, slot % 8 / 2);
        let (at, shift) = (2 * half + nibble / 2, nibble % 2 * 4);
        let quads = lines[slot / 8 * 2..][..2].as_flattened_mut().as_chunks_mut::<4>().0;
        for (to, &q) in quads.iter_mut().zip(qs) {
            to[at] = to[at] & !(15 << shift) | (q as u8 & 15) << shift;
        }
    }

    #[inline(always)]
    fn turn<S: Simd>(_: S, keys: [&[[u8; LINE]]; 2], values: &mut [[u8; LINE]]) {
        /// Slots of a word of values.
        const SLOTS: usize = 8;
        /// What subtracts 8 from 8 nibbles, as signed numbers.
        const SIGNS: u32 = 0x8888_8888;
        let words = values.as_flattened_mut().as_chunks_mut::<4>().0;
        let of_slots = words.as_chunks_mut::<BLOCK>().0;
        for (i, values) in of_slots.iter_mut().enumerate() {
            let (lines, first) = (keys[i / 2], i % 2 * SLOTS);
            for (j, line) in lines.iter().enumerate() {
                let slots = &line.as_chunks::<4>().0[first..][..SLOTS];
                // Nibble `n` of a key is element `4j + n / 2` of the lower or the upper 16.
                let mut turned = [SIGNS; 8];
                for (k, word) in slots.iter().enumerate() {
                    let (word, to) = (u32::from_le_bytes(*word), 16 * (k % 2) + 4 * (k / 2));
                    for (n, turned) in turned.iter_mut().enumerate() {
                        *turned ^= (word >> (4 * n) & 15) << to;
                    }
                }
                for (n, turned) in turned.into_iter().enumerate() {
                    values[4 * j + n / 2 + n % 2 * (BLOCK / 2)] = turned.to_le_bytes();
                }
            }
        }
    }

    #[inline(always)]
    fn dots<D: Dot, const R: usize>(
        d: D,
        lines: &[[u8; LINE]],
        g: usize,
        q: Q8Blocks<'_, R>,
        (ahead, at): (Ahead, usize),
    ) -> [D::I; R] {
        let mask = d.splat_w(15);
        let mut acc = [d.start_nibbles(0); R];
        for r in 0..R {
            acc[r] = d.start_nibbles(q[r].neg8);
        }
        for (j, line) in lines.iter().enumerate() {
            if g == 0 {
                ahead.fetch(d, at + j * LINE);
            }
            let both = d.load_w(line, g);
            let (low, high) = (d.and(both, mask), d.and(d.shr4(both), mask));
            for r in 0..R {
                acc[r] = d.dot_nibbles(acc[r], low, q[r].quad(j));
            }
            for r in 0..R {
                acc[r] = d.dot_nibbles(acc[r], high, q[r].quad(4 + j));
            }
        }
        let mut sums = [d.splat_i(0); R];
        for r in 0..R {
            sums[r] = d.end_nibbles(acc[r], q[r].neg8);
        }
        sums
    }

    #[inline(always)]
    fn add<D: Dot, const R: usize>(
        d: D,
        line: &[u8; LINE],
        g: usize,
        weights: &[[i32; KV_PAGE / 2]; R],
        j: usize,
        mut sums: [D::I; R],
    ) -> [D::I; R] {
        let v = d.widen_nibbles(d.load_w(line, g));
        for r in 0..R {
            for i in 0..4 {
                sums[r] = d.dot_pairs(sums[r], v[i], weights[r][4 * j + i]);
            }
        }
        sums
    }
}

/// The first element whose magnitude is `top`, the greatest; NaN if that is.
#[inline(always)]
fn extreme<S: Simd>(s: S, x: [S::F; 2], top: f32) -> f32 {
    let most = |x: [S::F; 2]| s.reduce_max_i(s.max_i(s.as_bits(x[0]), s.as_bits(x[1])));
    let zero = s.splat(0.0);
    let (positive, negative) = (most(x), most([s.sub(zero, x[0]), s.sub(zero, x[1])]));
    if positive < top.to_bits() as i32 {
        return -top;
    }
    if negative < top.to_bits() as i32 {
        return top;
    }
    let mut all = [[0.0; LANES]; 2];
    s.store(x[0], &mut all[0]);
    s.store(x[1], &mut all[1]);
    all.as_flattened().iter().copied().find(|x| x.abs() == top).unwrap_or(f32::NAN)
}
