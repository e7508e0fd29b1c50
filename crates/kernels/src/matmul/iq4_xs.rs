//! IQ4_XS: 8 sub-blocks of 32 indices into 16 uneven steps; 6-bit scales, themselves scaled in half
//! precision.
//!
//! Packed per block of 256: `[16]` d (half floats), padding to a vector, `[8][16]` scales (a signed
//! byte each), then `[8][256]` bytes of nibbles as in Q4_0.

use super::panel::{PanelKind, Sub};
use super::quants::{Head, Packed, Quants, get_half, get_quads, put_half, put_quads};
use super::steps::{UNEVEN, dot_uneven, unpack_steps};
use super::{Q8Blocks, accumulate, part};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct Iq4Xs;

const SCALES: usize = 64;

impl Quants for Iq4Xs {
    const BLOCK_COLS: usize = 256;
    const SUBS: usize = 8;
    const HEAD: usize = SCALES + 8 * TILE_ROWS;
    const SUB: usize = 16 * TILE_ROWS;

    fn put(group: &mut [u8], _sub: usize, row: usize, block: &[u8]) {
        put_half(group, 0, row, block);
        let (high, low) = (u16::from_le_bytes([block[2], block[3]]), &block[4..8]);
        for j in 0..Self::SUBS {
            let low = low[j / 2] >> (j % 2 * 4) & 15;
            let scale = low | ((high >> (2 * j) & 3) as u8) << 4;
            group[SCALES + j * TILE_ROWS + row] = scale.wrapping_sub(32);
        }
        put_quads(&mut group[Self::HEAD..], row, &block[8..]);
    }

    fn get(group: &[u8], _sub: usize, row: usize, block: &mut [u8]) {
        get_half(group, 0, row, block);
        let mut high = 0;
        block[4..8].fill(0);
        for j in 0..Self::SUBS {
            let scale = group[SCALES + j * TILE_ROWS + row].wrapping_add(32);
            block[4 + j / 2] |= (scale & 15) << (j % 2 * 4);
            high |= u16::from(scale >> 4) << (2 * j);
        }
        block[2..4].copy_from_slice(&high.to_le_bytes());
        get_quads(&group[Self::HEAD..], row, &mut block[8..]);
    }

    #[inline(always)]
    fn units<D: Dot, const N: usize>(head: Head<'_, D, N>) -> [[D::F; N]; 2] {
        [head.half_floats(0); 2]
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Uneven);

    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        unpack_steps(&UNEVEN, packed, to);
        to.set_scales(packed.head, scales(packed));
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        accumulate(packed.head.d, dot_uneven(packed, acts), scales(packed), acts, acc);
    }
}

/// The scales of a sub-block.
#[inline(always)]
fn scales<D: Dot, const N: usize>(packed: Packed<'_, D, N>) -> [D::F; N] {
    let Packed { head: Head { d, bytes, groups }, units: [mut scales, _], sub, .. } = packed;
    for n in 0..N {
        let scale = d.load_i8(part(bytes[n], SCALES + sub * TILE_ROWS), groups[n]);
        scales[n] = d.mul(scales[n], scale);
    }
    scales
}
