//! Q5_K: 8 sub-blocks of 32 five-bit values with scales and minima of 6 bits.
//!
//! Packed per block of 256: scales and minima as in [`super::six`], then the values of each sub-block as in
//! [`super::five`].

use super::five::{self, FIVE, dot_five, unpack_five};
use super::panel::{PanelKind, Sub};
use super::quants::{Head, Packed, Quants};
use super::six::{self, SUBS};
use super::{Q8Blocks, accumulate, add_mins};
use crate::simd::Dot;

pub(crate) struct Q5K;

impl Quants for Q5K {
    const BLOCK_COLS: usize = 256;
    const SUBS: usize = SUBS;
    const HEAD: usize = six::HEAD;
    const SUB: usize = FIVE;
    const FAMILY: bool = true;

    fn put(group: &mut [u8], _sub: usize, row: usize, block: &[u8]) {
        six::put(group, row, block);
        // The file has bit `j` of 32 bytes for sub-block `j`, and pairs sub-blocks in the nibbles.
        let (fifth, nibbles) = block[16..].split_at(32);
        for j in 0..SUBS {
            let nibble = |i: usize| nibbles[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
            let q = std::array::from_fn(|i| nibble(i) | (fifth[i] >> j & 1) << 4);
            five::put(&mut group[Self::HEAD + j * FIVE..], row, &q);
        }
    }

    fn get(group: &[u8], _sub: usize, row: usize, block: &mut [u8]) {
        six::get(group, row, block);
        block[16..].fill(0);
        let (fifth, nibbles) = block[16..].split_at_mut(32);
        for j in 0..SUBS {
            let q = five::get(&group[Self::HEAD + j * FIVE..], row);
            for (i, q) in q.into_iter().enumerate() {
                fifth[i] |= q >> 4 << j;
                nibbles[j / 2 * 32 + i] |= (q & 15) << (j % 2 * 4);
            }
        }
    }

    #[inline(always)]
    fn units<D: Dot, const N: usize>(head: Head<'_, D, N>) -> [[D::F; N]; 2] {
        six::units(head)
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::FiveMinimum);

    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        unpack_five(packed, to);
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
        accumulate(d, dot_five(packed, acts, |_| 0), scales, acts, acc);
        add_mins(d, mins, acts, acc);
    }
}
