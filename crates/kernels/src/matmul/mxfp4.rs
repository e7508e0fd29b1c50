//! MXFP4: 32 floats of 4 bits that share a power of two.
//!
//! Packed in fours of blocks: `[4][16]` powers (the file's byte, which is half of what the format means, as
//! the floats are doubled), then `[4][256]` bytes of nibbles as in Q4_0.

use super::panel::{PanelKind, Sub};
use super::quants::{Head, Packed, Quants, get_quads, put_quads};
use super::steps::{DOUBLED, dot_doubled, start_doubled, unpack_steps};
use super::{Q8Blocks, accumulate, part};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct Mxfp4;

impl Quants for Mxfp4 {
    const BLOCK_COLS: usize = 32;
    const SUBS: usize = 4;
    const HEAD: usize = 4 * TILE_ROWS;
    const SUB: usize = 16 * TILE_ROWS;

    fn put(group: &mut [u8], sub: usize, row: usize, block: &[u8]) {
        group[sub * TILE_ROWS + row] = block[0];
        put_quads(&mut group[Self::HEAD + sub * Self::SUB..], row, &block[1..]);
    }

    fn get(group: &[u8], sub: usize, row: usize, block: &mut [u8]) {
        block[0] = group[sub * TILE_ROWS + row];
        get_quads(&group[Self::HEAD + sub * Self::SUB..], row, &mut block[1..]);
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Sixteen);

    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        unpack_steps(&DOUBLED, packed, to);
        let Packed { head, sub, .. } = packed;
        let Head { d, bytes: [bytes], groups: [group] } = head;
        to.set_scales(head, [d.load_power(part(bytes, sub * TILE_ROWS), group)]);
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let Packed { head: Head { d, bytes, groups }, sub, .. } = packed;
        let mut scales = [d.splat(0.0); N];
        for n in 0..N {
            scales[n] = d.load_power(part(bytes[n], sub * TILE_ROWS), groups[n]);
        }
        let mut sums = start_doubled::<D, T, N, 3>(d, acts, |act| act.neg128);
        dot_doubled(packed, 0, acts, [0, 4, 1, 5], &mut sums);
        dot_doubled(packed, 2, acts, [2, 6, 3, 7], &mut sums);
        accumulate(d, sums, scales, acts, acc);
    }
}
