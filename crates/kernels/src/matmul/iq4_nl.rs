//! IQ4_NL: 32 indices into 16 uneven steps and a half-precision scale.
//!
//! Packed as Q4_0: in pairs of blocks, `[2][16]` scales, then `[2][256]` bytes of nibbles.

use super::panel::{PanelKind, Sub};
use super::quants::{Packed, Quants, get_half, get_quads, put_half, put_quads};
use super::steps::{UNEVEN, dot_uneven, unpack_steps};
use super::{Q8Blocks, accumulate};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct Iq4Nl;

const SCALES: usize = 2 * TILE_ROWS;

impl Quants for Iq4Nl {
    const BLOCK_COLS: usize = 32;
    const SUBS: usize = 2;
    const HEAD: usize = 2 * SCALES;
    const SUB: usize = 16 * TILE_ROWS;

    fn put(group: &mut [u8], sub: usize, row: usize, block: &[u8]) {
        put_half(group, sub * SCALES, row, block);
        put_quads(&mut group[Self::HEAD + sub * Self::SUB..], row, &block[2..]);
    }

    fn get(group: &[u8], sub: usize, row: usize, block: &mut [u8]) {
        get_half(group, sub * SCALES, row, block);
        get_quads(&group[Self::HEAD + sub * Self::SUB..], row, &mut block[2..]);
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Uneven);

    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        unpack_steps(&UNEVEN, packed, to);
        to.set_scales(packed.head, packed.head.half_floats(packed.sub * SCALES));
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let scales = packed.head.half_floats(packed.sub * SCALES);
        accumulate(packed.head.d, dot_uneven(packed, acts), scales, acts, acc);
    }
}
