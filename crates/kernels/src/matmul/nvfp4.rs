//! NVFP4: 64 floats of 4 bits, of which each 16 have a scale of 8 bits.
//!
//! Packed per block of 64, as large as the file's: `[4][16]` scales (the file's byte, without what means
//! nothing), then `[2][256]` bytes of nibbles, a vector of quads 0 and 2 of a half block and one of quads
//! 1 and 3.

use super::halves::{self, Halves};
use super::panel::{PanelKind, Sub};
use super::quants::{Head, Packed, Quants, get_quads, put_quads};
use super::steps::{DOUBLED, dot_doubled, look_up, start_doubled};
use super::{Q8Blocks, part};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct Nvfp4;

/// Scales of a block.
const SCALES: usize = 4;

/// [`Dot::load_e4m3`] gives 2^-8 of a stored scale, which is twice that of the doubled floats.
const UNIT: f32 = 128.0;

impl Quants for Nvfp4 {
    const BLOCK_COLS: usize = 64;
    const SUBS: usize = 2;
    const HEAD: usize = SCALES * TILE_ROWS;
    const SUB: usize = 16 * TILE_ROWS;

    fn put(group: &mut [u8], _sub: usize, row: usize, block: &[u8]) {
        let (scales, nibbles) = block.split_at(SCALES);
        for (j, &scale) in scales.iter().enumerate() {
            // Of the bytes that E4M3 has for not a number, the file's first is a zero and the other 480.
            group[j * TILE_ROWS + row] = if scale == 0x7f { 0 } else { scale & 0x7f };
        }
        for (sub, nibbles) in nibbles.as_chunks::<16>().0.iter().enumerate() {
            put_quads(&mut group[Self::HEAD + sub * Self::SUB..], row, nibbles);
        }
    }

    fn get(group: &[u8], _sub: usize, row: usize, block: &mut [u8]) {
        let (scales, nibbles) = block.split_at_mut(SCALES);
        for (j, scale) in scales.iter_mut().enumerate() {
            let byte = group[j * TILE_ROWS + row];
            *scale = if byte == 0x7f { 0xff } else { byte };
        }
        for (sub, nibbles) in nibbles.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            get_quads(&group[Self::HEAD + sub * Self::SUB..], row, nibbles);
        }
    }

    #[inline(always)]
    fn units<D: Dot, const N: usize>(head: Head<'_, D, N>) -> [[D::F; N]; 2] {
        [[head.d.splat(UNIT); N]; 2]
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Halves);

    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        let Packed { head, sub, .. } = packed;
        let Head { d, bytes: [bytes], groups: [group] } = head;
        // A panel of halves has 32 added.
        let steps = d.table(&DOUBLED.map(|step| step + 16));
        for side in 0..2 {
            let scale = d.load_e4m3(part(bytes, Self::scales(sub, side)), group);
            let scale = d.mul(d.splat(UNIT), scale);
            d.store(scale, if side == 0 { &mut to.scales } else { &mut to.others }, group);
            for i in 0..2 {
                let w = look_up(d, steps, packed.vector(0, 2 * side + i));
                d.store_w(w[0], &mut to.quads[4 * side + i], group);
                d.store_w(w[1], &mut to.quads[4 * side + i + 2], group);
            }
        }
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

impl Halves for Nvfp4 {
    #[inline(always)]
    fn scales(sub: usize, side: usize) -> usize {
        (2 * sub + side) * TILE_ROWS
    }

    #[inline(always)]
    fn scale<D: Dot>(d: D, bytes: &[u8; TILE_ROWS], group: usize) -> D::F {
        d.load_e4m3(bytes, group)
    }

    #[inline(always)]
    fn half<D: Dot, const T: usize, const N: usize, const SIDE: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
    ) -> [[D::I; N]; T] {
        let mut sums = start_doubled::<D, T, N, 1>(packed.head.d, acts, |act| act.neg32[SIDE]);
        let first = 4 * SIDE;
        dot_doubled(packed, 2 * SIDE, acts, [first, first + 2, first + 1, first + 3], &mut sums);
        sums
    }
}
