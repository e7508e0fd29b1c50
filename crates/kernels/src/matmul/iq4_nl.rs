//! IQ4_NL: 32 indices into 16 uneven steps and a half-precision scale.
//!
//! Packed as Q4_0: in pairs of blocks, `[2][16]` scales, then `[2][256]` bytes of nibbles.

use super::quants::{Packed, Quants, get_half, get_quads, put_half, put_quads};
use super::steps::dot_uneven;
use super::{accumulate, load_scales, within};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
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
        let scales = load_scales(d, within(packed.head, sub * SCALES), groups);
        // SAFETY: the caller's contract.
        unsafe {
            let sums = dot_uneven(d, within(packed.quants, 0), groups, acts, b);
            accumulate(d, sums, scales, acts, b, acc);
        }
    }
}
