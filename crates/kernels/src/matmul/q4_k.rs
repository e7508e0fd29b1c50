//! Q4_K: 8 sub-blocks of 32 four-bit values with scales and minima of 6 bits.
//!
//! Packed per block of 256: scales and minima as in [`super::six`], then `[8][256]` nibbles as in Q4_0.

use super::panel::{PanelKind, Sub, unpack_nibbles};
use super::quants::{Head, Packed, Quants};
use super::six::{self, SUBS};
use super::{Q8Blocks, accumulate, add_mins, dot_nibbles};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct Q4K;

/// Where elements `i` and `16 + i` of row `row` of sub-block `2 * pair` are.
const fn place(pair: usize, i: usize, row: usize) -> usize {
    six::HEAD + 2 * pair * Q4K::SUB + i / 4 * 64 + 4 * row + i % 4
}

impl Quants for Q4K {
    const BLOCK_COLS: usize = 256;
    const SUBS: usize = SUBS;
    const HEAD: usize = six::HEAD;
    const SUB: usize = 16 * TILE_ROWS;
    const FAMILY: bool = true;

    fn put(group: &mut [u8], _sub: usize, row: usize, block: &[u8]) {
        six::put(group, row, block);
        // The file pairs sub-blocks in the nibbles of a byte; here a byte's nibbles are of one
        // sub-block.
        for (pair, bytes) in block[16..].as_chunks::<32>().0.iter().enumerate() {
            for i in 0..16 {
                let (first, second) = (bytes[i], bytes[i + 16]);
                let at = place(pair, i, row);
                group[at] = first & 15 | second << 4;
                group[at + Self::SUB] = first >> 4 | second & 0xf0;
            }
        }
    }

    fn get(group: &[u8], _sub: usize, row: usize, block: &mut [u8]) {
        six::get(group, row, block);
        for (pair, bytes) in block[16..].as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for i in 0..16 {
                let at = place(pair, i, row);
                let (even, odd) = (group[at], group[at + Self::SUB]);
                bytes[i] = even & 15 | odd << 4;
                bytes[i + 16] = even >> 4 | odd & 0xf0;
            }
        }
    }

    #[inline(always)]
    fn units<D: Dot, const N: usize>(head: Head<'_, D, N>) -> [[D::F; N]; 2] {
        six::units(head)
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Minimum);

    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        unpack_nibbles(packed, to);
        let [scales, mins] = six::scales(packed);
        to.set_scales(packed.head, scales);
        to.set_others(packed.head, mins);
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let (d, [scales, mins]) = (packed.head.d, six::scales(packed));
        accumulate(d, dot_nibbles(packed, acts, |_| 0), scales, acts, acc);
        add_mins(d, mins, acts, acc);
    }
}
