//! Q4_0: 32 four-bit values with offset 8 and a half-precision scale.
//!
//! Packed in pairs of blocks: `[2][16]` scales, then `[2][256]` bytes of nibbles.

use super::panel::{PanelKind, Sub, unpack_nibbles};
use super::quants::{Packed, Quants, get_half, get_quads, put_half, put_quads};
use super::{accumulate, dot_nibbles, load_scales, part, within};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
use crate::simd::Dot;

pub(crate) struct Q4_0;

const SCALES: usize = 2 * TILE_ROWS;

impl Quants for Q4_0 {
    const BLOCK_COLS: usize = 32;
    const SUBS: usize = 2;
    const HEAD: usize = 2 * SCALES;
    const SUB: usize = 16 * TILE_ROWS;
    const FAMILY: bool = true;

    fn put(group: &mut [u8], sub: usize, row: usize, block: &[u8]) {
        put_half(group, sub * SCALES, row, block);
        put_quads(&mut group[Self::HEAD + sub * Self::SUB..], row, &block[2..]);
    }

    fn get(group: &[u8], sub: usize, row: usize, block: &mut [u8]) {
        get_half(group, sub * SCALES, row, block);
        get_quads(&group[Self::HEAD + sub * Self::SUB..], row, &mut block[2..]);
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Eight);

    #[inline(always)]
    fn unpack<D: Dot>(
        d: D,
        packed: Packed<'_, 1>,
        group: usize,
        sub: usize,
        _units: [[D::F; 1]; 2],
        to: &mut Sub,
    ) {
        unpack_nibbles(d, part(packed.quants[0], 0), group, to);
        let [scale] = load_scales(d, within(packed.head, sub * SCALES), [group]);
        d.store(scale, &mut to.scales, group);
    }

    #[inline(always)]
    unsafe fn add<D: Dot, const T: usize, const N: usize>(
        d: D,
        packed: Packed<'_, N>,
        groups: [usize; N],
        sub: usize,
        _units: [[D::F; N]; 2],
        acts: [&[Q8Block]; T],
        b: usize,
        acc: &mut [[D::F; N]; T],
    ) {
        let nibbles = within(packed.quants, 0);
        // SAFETY: the caller's contract.
        let sums = unsafe { dot_nibbles(d, nibbles, groups, acts, b, |act| act.neg8) };
        let scales = load_scales(d, within(packed.head, sub * SCALES), groups);
        // SAFETY: the caller's contract.
        unsafe { accumulate(d, sums, scales, acts, b, acc) };
    }
}
