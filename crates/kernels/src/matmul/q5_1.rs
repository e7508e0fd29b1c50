//! Q5_1: 32 five-bit values, a half-precision scale and minimum.
//!
//! Packed per block: `[16]` scales, `[16]` minima, the values as in [`super::five`].

use super::five::{self, FIVE, dot_five, unpack_five};
use super::panel::{PanelKind, Sub};
use super::quants::{Packed, Quants, get_half, put_half};
use super::{Q8Blocks, accumulate, add_mins};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct Q5_1;

const MINS: usize = 2 * TILE_ROWS;

impl Quants for Q5_1 {
    const BLOCK_COLS: usize = 32;
    const SUBS: usize = 1;
    const HEAD: usize = 4 * TILE_ROWS;
    const SUB: usize = FIVE;

    fn put(group: &mut [u8], _sub: usize, row: usize, block: &[u8]) {
        put_half(group, 0, row, block);
        put_half(group, MINS, row, &block[2..]);
        five::put(&mut group[Self::HEAD..], row, &five::from_file(&block[4..8], &block[8..]));
    }

    fn get(group: &[u8], _sub: usize, row: usize, block: &mut [u8]) {
        get_half(group, 0, row, block);
        get_half(group, MINS, row, &mut block[2..]);
        let (fifth, nibbles) = block[4..].split_at_mut(4);
        five::to_file(&five::get(&group[Self::HEAD..], row), fifth, nibbles);
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::FiveMinimum);

    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        unpack_five(packed, to);
        to.set_scales(packed.head, packed.head.half_floats(0));
        to.set_others(packed.head, packed.head.half_floats(MINS));
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let Packed { head, .. } = packed;
        let (scales, mins) = (head.half_floats(0), head.half_floats(MINS));
        accumulate(head.d, dot_five(packed, acts, |_| 0), scales, acts, acc);
        add_mins(head.d, mins, acts, acc);
    }
}
