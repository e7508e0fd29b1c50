//! TQ2_0: 256 values of two bits with offset 1, and a half-precision scale: the weights -1, 0 and 1 of BitNet b1.58
//! (arXiv:2402.17764). TQ1_0, which has five of them in a byte, is packed so as well.
//!
//! Packed in pairs of blocks: `[2][16]` scales, then a vector per half block of 16 columns: of byte `4r + i`, bits
//! `2q..2q + 2` are element `4q + i` of row `r`. bitnet.cpp (arXiv:2410.16144) has 2 bits for a weight, too (I2_S).

use super::panel::{PanelKind, Sub};
use super::q2_k::file_place;
use super::quants::{Packed, Quants, get_half, put_half};
use super::{Q8Blocks, accumulate, dot_two_bits};
use crate::TILE_ROWS;
use crate::simd::Dot;
use gguf::TensorType;

pub(crate) struct Tq2_0;

const SCALES: usize = 2 * TILE_ROWS;
/// Sub-blocks of a block.
const SUBS: usize = 8;
/// Where the scale is in the file's block.
const SCALE: usize = 64;
/// Bytes of a block in the file.
const BLOCK: usize = 66;

impl Tq2_0 {
    /// A block of TQ1_0 as one of TQ2_0, which has the same values.
    pub(crate) fn form(block: &[u8]) -> [u8; BLOCK] {
        let integers = TensorType::TQ1_0.integers(block).expect("a whole block");
        let integers = integers.expect("its values are integers and a scale");
        let mut form = [0; BLOCK];
        for (i, q) in integers.quants.iter().enumerate() {
            let (byte, shift) = file_place(i);
            form[byte] |= ((q + 1) as u8) << shift;
        }
        form[SCALE..].copy_from_slice(&block[block.len() - 2..]);
        form
    }
}

/// Where a group keeps element `i` of the block that begins with sub-block `sub`: byte and shift of its bit pair.
const fn place(sub: usize, row: usize, i: usize) -> (usize, usize) {
    (2 * SCALES + (2 * sub + i / 16) * 64 + 4 * row + i % 4, i / 4 % 4 * 2)
}

#[inline(always)]
fn scales<D: Dot, const N: usize>(packed: Packed<'_, D, N>) -> [D::F; N] {
    packed.head.half_floats(packed.sub / SUBS * SCALES)
}

impl Quants for Tq2_0 {
    const BLOCK_COLS: usize = 256;
    const SUBS: usize = 2 * SUBS;
    const HEAD: usize = 2 * SCALES;
    const SUB: usize = 2 * 64;

    fn put(group: &mut [u8], sub: usize, row: usize, block: &[u8]) {
        put_half(group, sub / SUBS * SCALES, row, &block[SCALE..]);
        for i in 0..256 {
            let (byte, shift) = file_place(i);
            let q = block[byte] >> shift & 3;
            let (at, shift) = place(sub, row, i);
            group[at] = group[at] & !(3 << shift) | q << shift;
        }
    }

    fn get(group: &[u8], sub: usize, row: usize, block: &mut [u8]) {
        block.fill(0);
        get_half(group, sub / SUBS * SCALES, row, &mut block[SCALE..]);
        for i in 0..256 {
            let (at, shift) = place(sub, row, i);
            let q = group[at] >> shift & 3;
            let (byte, shift) = file_place(i);
            block[byte] |= q << shift;
        }
    }

    const PANEL: Option<PanelKind> = Some(PanelKind::Eight);

    /// With 7 added: panels of this kind have an offset of 8.
    #[inline(always)]
    fn unpack<D: Dot>(packed: Packed<'_, D, 1>, to: &mut Sub) {
        let d = packed.head.d;
        let (two, seven) = (d.splat_w(3), d.table(&SEVEN));
        for side in 0..2 {
            let mut pairs = packed.vector(0, side);
            for q in 4 * side..4 * side + 4 {
                let w = d.lookup(seven, d.and(pairs, two));
                d.store_w(w, &mut to.quads[q], packed.head.groups[0]);
                pairs = d.shr2(pairs);
            }
        }
        to.set_scales(packed.head, scales(packed));
    }

    #[inline(always)]
    fn add<D: Dot, const T: usize, const N: usize>(
        packed: Packed<'_, D, N>,
        acts: Q8Blocks<'_, T>,
        acc: &mut [[D::F; N]; T],
    ) {
        let d = packed.head.d;
        let mut integers = [[d.start_nibbles(0); N]; T];
        for t in 0..T {
            integers[t] = [d.start_nibbles(acts[t].neg8 >> 3); N];
        }
        for side in 0..2 {
            dot_two_bits(packed, side, acts, &mut integers);
        }
        let mut sums = [[d.splat_i(0); N]; T];
        for t in 0..T {
            for n in 0..N {
                sums[t][n] = d.end_nibbles(integers[t][n], acts[t].neg8 >> 3);
            }
        }
        accumulate(d, sums, scales(packed), acts, acc);
    }
}

/// What two bits become in a panel.
const SEVEN: [u8; 16] = {
    let mut table = [0; 16];
    let mut q = 0;
    while q < 4 {
        table[q] = q as u8 + 7;
        q += 1;
    }
    table
};
