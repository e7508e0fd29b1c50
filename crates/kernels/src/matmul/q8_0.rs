//! Q8_0: 32 signed bytes and a half-precision scale.
//!
//! Packed in pairs of blocks: `[2][16]` scales, then `[2][8][16][4]` quants with 128 added.

use super::panel::{PanelKind, Sub};
use super::quants::{Packed, Quants, get_half, put_half};
use super::{Q8Blocks, accumulate, part};
use crate::TILE_ROWS;
use crate::simd::Dot;

pub(crate) struct Q8_0;

const SCALES: usize = 2 * TILE_ROWS;
/// Adds 128 to a signed byte.
const BIAS: u8 = 0x80;

impl Quants for Q8_0 {
    const BLOCK_COLS: usize = 32;
    const SUBS: usize = 2;
    const HEAD: usize = 2 * SCALES;
    const SUB: usize = 32 * TILE_ROWS;
    const FAMILY: bool = true;

    fn put(group: &mut [u8], sub: usize, row: usize, block: &[u8]) {
        put_half(group, sub * SCALES, row, block);
        let quants = &mut group[Self::HEAD + sub * Self::SUB..];
        for (j, quad) in block[2..].as_chunks::<4>().0.iter().enumerate() {
            quants[64 * j + 4 * row..][..4].copy_from_slice(&quad.map(|q| q ^ BIAS));
        }
    }

    fn get(group: &[u8], sub: usize, row: usize, block: &mut [u8]) {
        get_half(group, sub * SCALES, row, block);
        let quants = &group[Self::HEAD + sub * Self::SUB..];
        for (j, quad) in block[2..].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *quad = part::<4>(quants, 64 * j + 4 * row).map(|q| q ^ BIAS);
        }
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Biased);

    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        let Packed { head, sub, .. } = packed;
        for (j, to) in to.quads.iter_mut().enumerate() {
            head.d.store_w(packed.vector(0, j), to, head.groups[0]);
        }
        to.set_scales(head, head.half_floats(sub * SCALES));
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let Packed { head, sub, .. } = packed;
        let d = head.d;
        let mut sums = [[d.splat_i(0); N]; T];
        for t in 0..T {
            sums[t] = [d.start_biased(acts[t].neg128); N];
        }
        for j in 0..8 {
            let mut w = [d.splat_w(0); N];
            for n in 0..N {
                w[n] = packed.vector(n, j);
            }
            for t in 0..T {
                for n in 0..N {
                    sums[t][n] = d.dot_biased(sums[t][n], w[n], acts[t].quad(j));
                }
            }
        }
        accumulate(d, sums, head.half_floats(sub * SCALES), acts, acc);
    }
}
