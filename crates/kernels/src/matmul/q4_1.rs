//! Q4_1: 32 four-bit values, a half-precision scale and minimum.
//!
//! Packed per block: `[16]` scales, `[16]` minima, `[256]` bytes of nibbles as in Q4_0.

use super::panel::{PanelKind, Sub, unpack_nibbles};
use super::quants::{Packed, Quants, get_half, get_quads, put_half, put_quads};
use super::{Q8Blocks, accumulate, add_mins, dot_nibbles};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct Q4_1;

const MINS: usize = 2 * TILE_ROWS;

impl Quants for Q4_1 {
    const BLOCK_COLS: usize = 32;
    const SUBS: usize = 1;
    const HEAD: usize = 4 * TILE_ROWS;
    const SUB: usize = 16 * TILE_ROWS;

    fn put(group: &mut [u8], _sub: usize, row: usize, block: &[u8]) {
        put_half(group, 0, row, block);
        put_half(group, MINS, row, &block[2..]);
        put_quads(&mut group[Self::HEAD..], row, &block[4..]);
    }

    fn get(group: &[u8], _sub: usize, row: usize, block: &mut [u8]) {
        get_half(group, 0, row, block);
        get_half(group, MINS, row, &mut block[2..]);
        get_quads(&group[Self::HEAD..], row, &mut block[4..]);
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Minimum);

    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        unpack_nibbles(packed, to);
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
        accumulate(head.d, dot_nibbles(packed, acts, |_| 0), scales, acts, acc);
        add_mins(head.d, mins, acts, acc);
    }
}
