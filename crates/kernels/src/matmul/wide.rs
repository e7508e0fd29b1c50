//! The types that are unpacked when they are loaded: blocks of 256 signed bytes with a small scale for
//! every 16 and one float, which hold them exactly (see [`gguf::Integers`]).
//!
//! Packed per block: `[16]` floats, `[16][16]` scales (a byte each), then `[64][16][4]` bytes with 64
//! added, four of a row together: 8.6 bits for each value.

use super::halves::{self, Halves, SCALES};
use super::quants::{Head, Packed, Quants};
use super::{Q8Blocks, part, start};
use crate::TILE_ROWS;
use crate::simd::Dot;
use gguf::Integers;

/// A block's form for [`Quants::put`] and [`Quants::get`] is not the file's but [`Wide::form`]'s.
pub(crate) struct Wide;

/// Half blocks (of 16 columns) of a block.
const HALVES: usize = 16;
const QUANTS: usize = SCALES + HALVES * TILE_ROWS;
/// Packed values of a half block.
const HALF: usize = 4 * 64;
/// What makes the values unsigned: they are in -62..=62.
const BIAS: i8 = 64;

impl Wide {
    /// Bytes of a block as [`Wide::form`] gives it.
    pub(crate) const FORM: usize = 4 + HALVES + 256;

    /// A block as bytes: the float, the scales, the values.
    pub(crate) fn form(of: &Integers) -> [u8; Self::FORM] {
        let mut bytes = [0; Self::FORM];
        bytes[..4].copy_from_slice(&of.unit.to_le_bytes());
        bytes[4..20].copy_from_slice(&of.scales);
        for (byte, q) in bytes[20..].iter_mut().zip(of.quants) {
            *byte = q as u8;
        }
        bytes
    }

    /// The reverse.
    pub(crate) fn integers(form: &[u8; Self::FORM]) -> Integers {
        Integers {
            unit: f32::from_le_bytes(*part(form, 0)),
            scales: *part(form, 4),
            quants: part::<256>(form, 20).map(|q| q as i8),
        }
    }
}

impl Quants for Wide {
    const BLOCK_COLS: usize = 256;
    const SUBS: usize = HALVES / 2;
    const HEAD: usize = QUANTS;
    const SUB: usize = 2 * HALF;

    fn put(group: &mut [u8], _sub: usize, row: usize, block: &[u8]) {
        group[4 * row..][..4].copy_from_slice(&block[..4]);
        for (j, &scale) in block[4..20].iter().enumerate() {
            group[SCALES + j * TILE_ROWS + row] = scale;
        }
        for (j, quad) in block[20..].as_chunks::<4>().0.iter().enumerate() {
            let biased = quad.map(|q| q.wrapping_add_signed(BIAS));
            group[QUANTS + 64 * j + 4 * row..][..4].copy_from_slice(&biased);
        }
    }

    fn get(group: &[u8], _sub: usize, row: usize, block: &mut [u8]) {
        block[..4].copy_from_slice(&group[4 * row..][..4]);
        for (j, scale) in block[4..20].iter_mut().enumerate() {
            *scale = group[SCALES + j * TILE_ROWS + row];
        }
        for (j, quad) in block[20..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let biased = part::<4>(group, QUANTS + 64 * j + 4 * row);
            *quad = biased.map(|q| q.wrapping_add_signed(-BIAS));
        }
    }

    #[inline(always)]
    fn units<D: Dot, const N: usize>(head: Head<'_, D, N>) -> [[D::F; N]; 2] {
        let Head { d, bytes, groups } = head;
        let mut units = [d.splat(0.0); N];
        for n in 0..N {
            units[n] = d.load_f32(part(bytes[n], 0), groups[n]);
        }
        [units; 2]
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        halves::add::<Self, D, T, N>(packed, acts, acc);
    }
}

impl Halves for Wide {
    #[inline(always)]
    fn scale<D: Dot>(d: D, bytes: &[u8; TILE_ROWS], group: usize) -> D::F {
        d.load_u8(bytes, group)
    }

    #[inline(always)]
    fn half<D: Dot, const T: usize, const N: usize, const SIDE: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
    ) -> [[D::I; N]; T] {
        let d = packed.head.d;
        let mut sums = start(d, acts, |act| 2 * act.neg32[SIDE]);
        for q in 0..4 {
            let mut w = [d.splat_w(0); N];
            for n in 0..N {
                w[n] = packed.vector(n, 4 * SIDE + q);
            }
            for t in 0..T {
                for n in 0..N {
                    sums[t][n] = d.dot(sums[t][n], w[n], acts[t].quad(4 * SIDE + q));
                }
            }
        }
        sums
    }
}
