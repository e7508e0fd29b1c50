//! Q5_0: 32 five-bit values with offset 16 and a half-precision scale.
//!
//! Packed in pairs of blocks: `[2][16]` scales, then the values of each as in [`super::five`].

use super::five::{self, FIVE, dot_five};
use super::quants::{Packed, Quants, get_half, put_half};
use super::{accumulate, load_scales, within};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
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
            let sums = dot_five(d, within(packed.quants, 0), groups, acts, b, |act| 2 * act.neg8);
            accumulate(d, sums, scales, acts, b, acc);
        }
    }
}
