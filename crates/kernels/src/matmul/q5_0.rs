//! Q5_0: 32 five-bit values with offset 16 and a half-precision scale.
//!
//! Packed in pairs of blocks: `[2][16]` scales, then the values of each as in [`super::five`].

use super::five::{self, FIVE, dot_five, unpack_five};
use super::panel::{PanelKind, Sub};
use super::quants::{Packed, Quants, get_half, put_half};
use super::{Q8Blocks, accumulate};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct Q5_0;

const SCALES: usize = 2 * TILE_ROWS;

impl Quants for Q5_0 {
    const BLOCK_COLS: usize = 32;
    const SUBS: usize = 2;
    const HEAD: usize = 2 * SCALES;
    const SUB: usize = FIVE;

    fn put(group: &mut [u8], sub: usize, row: usize, block: &[u8]) {
        put_half(group, sub * SCALES, row, block);
        let q = five::from_file(&block[2..6], &block[6..]);
        five::put(&mut group[Self::HEAD + sub * Self::SUB..], row, &q);
    }

    fn get(group: &[u8], sub: usize, row: usize, block: &mut [u8]) {
        get_half(group, sub * SCALES, row, block);
        let (fifth, nibbles) = block[2..].split_at_mut(4);
        five::to_file(&five::get(&group[Self::HEAD + sub * Self::SUB..], row), fifth, nibbles);
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Sixteen);

    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        unpack_five(packed, to);
        to.set_scales(packed.head, packed.head.half_floats(packed.sub * SCALES));
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let scales = packed.head.half_floats(packed.sub * SCALES);
        let sums = dot_five(packed, acts, |act| 2 * act.neg8);
        accumulate(packed.head.d, sums, scales, acts, acc);
    }
}
