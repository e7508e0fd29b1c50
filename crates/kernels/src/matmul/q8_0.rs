//! Q8_0: 32 signed bytes and a half-precision scale.
//!
//! Packed in pairs of blocks: `[2][16]` scales, then `[2][8][16][4]` quants with 128 added.

use super::panel::{PanelKind, Sub};
use super::quants::{Packed, Quants, get_half, put_half};
use super::{accumulate, block, load_scales, part, within};
use crate::TILE_ROWS;
use crate::q8::Q8Block;
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
    fn unpack<D: Dot>(
        d: D,
        packed: Packed<'_, 1>,
        group: usize,
        sub: usize,
        _units: [[D::F; 1]; 2],
        to: &mut Sub,
    ) {
        for (j, to) in to.quads.iter_mut().enumerate() {
            d.store_w(d.load_w(part(packed.quants[0], 64 * j), group), to, group);
        }
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
        // SAFETY: the caller's contract.
        let act = |t: usize| unsafe { block(acts[t], b) };
        let mut sums = [[d.splat_i(0); N]; T];
        for t in 0..T {
            sums[t] = [d.start_biased(act(t).neg128); N];
        }
        for j in 0..8 {
            let mut w = [d.splat_w(0); N];
            for n in 0..N {
                w[n] = d.load_w(part(packed.quants[n], 64 * j), groups[n]);
            }
            for t in 0..T {
                for n in 0..N {
                    sums[t][n] = d.dot_biased(sums[t][n], w[n], act(t).quad(j));
                }
            }
        }
        let scales = load_scales(d, within(packed.head, sub * SCALES), groups);
        // SAFETY: the caller's contract.
        unsafe { accumulate(d, sums, scales, acts, b, acc) };
    }
}
