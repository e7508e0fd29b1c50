//! Keys and values in 8 bits.
//!
//! The quants of 16 keys are `[8][16 slots][4]`, with 128 added; those of values `[8][32 dimensions]
//! [4 slots]`.

use super::quantised::{LINE, Quants, half};
use super::{Ahead, KV_PAGE, KvType};
use crate::exp::ROUND;
use crate::q8::{BLOCK, Q8Blocks};
use crate::simd::{Dot, LANES, Simd};

/// Adds 128 to a signed byte.
const BIAS: u8 = 0x80;
/// Where the byte of each of four slots stands in its quad: the first and the third byte of all
/// lanes are one vector of pairs (see [`Dot::widen`]), the others the second.
const PLACE: [usize; 4] = [0, 2, 1, 3];

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct Q8_0;

impl Quants for Q8_0 {
    const KV: KvType = KvType::Q8_0;
    const BITS: usize = 8;

    #[inline(always)]
    fn quantize<S: Simd>(s: S, x: [S::F; 2], top: f32) -> (u16, [i8; BLOCK]) {
        let (bits, d) = half(s, top / 127.0);
        // What the scale is after rounding, which may have made it smaller: hence the clamp. Where it is
        // infinite all quants are 0, and what is multiplied with it no number.
        let inverse = s.splat(if d == 0.0 { 0.0 } else { 1.0 / d });
        let mut qs = [0; BLOCK];
        for (x, qs) in x.into_iter().zip(qs.as_chunks_mut::<LANES>().0) {
            let q = s.min(s.splat(127.0), s.max(s.splat(-127.0), s.mul(x, inverse)));
            s.store_i8(s.as_bits(s.add(q, s.splat(ROUND))), qs);
        }
        (bits, qs)
    }

    #[inline(always)]
    fn put_key(lines: &mut [[u8; LINE]], slot: usize, qs: &[i8; BLOCK]) {
        for (to, quad) in lines.iter_mut().zip(qs.as_chunks::<4>().0) {
            to[4 * slot..][..4].copy_from_slice(&quad.map(|q| q as u8 ^ BIAS));
        }
    }

    #[inline(always)]
    fn put_value(lines: &mut [[u8; LINE]], slot: usize, qs: &[i8; BLOCK]) {
        let quads = lines[slot / 4 * 2..][..2].as_flattened_mut().as_chunks_mut::<4>().0;
        for (to, &q) in quads.iter_mut().zip(qs) {
            to[PLACE[slot % 4]] = q as u8;
        }
    }

    #[inline(always)]
    fn turn<S: Simd>(s: S, keys: [&[[u8; LINE]]; 2], values: &mut [[u8; LINE]]) {
        // Bytes of four slots and four dimensions: those of a dimension come together.
        const ORDER: [u8; 16] = {
            let (mut order, mut at) = ([0; 16], 0);
            while at < 16 {
                order[4 * (at % 4) + PLACE[at / 4]] = at as u8;
                at += 1;
            }
            order
        };
        let quads = values.as_flattened_mut().as_chunks_mut::<16>().0;
        for (half, lines) in keys.into_iter().enumerate() {
            for (j, line) in lines.iter().enumerate() {
                let turned = s.shuffle(line, &ORDER).map(|q| q ^ BIAS);
                for (i, turned) in turned.as_chunks::<16>().0.iter().enumerate() {
                    quads[(4 * half + i) * (BLOCK / 4) + j] = *turned;
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
        let mut sums = [d.splat_i(0); R];
        for r in 0..R {
            sums[r] = d.start_biased(q[r].neg128);
        }
        for (j, line) in lines.iter().enumerate() {
            if g == 0 {
                ahead.fetch(d, at + j * LINE);
            }
            let w = d.load_w(line, g);
            for r in 0..R {
                sums[r] = d.dot_biased(sums[r], w, q[r].quad(j));
            }
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
        let v = d.widen(d.load_w(line, g));
        for r in 0..R {
            let sum = d.dot_pairs(sums[r], v[0], weights[r][2 * j]);
            sums[r] = d.dot_pairs(sum, v[1], weights[r][2 * j + 1]);
        }
        sums
    }
}
