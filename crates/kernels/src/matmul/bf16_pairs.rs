//! bfloat16 by `vdpbf16ps`: two columns of a row in one instruction.
//!
//! `vdpbf16ps` takes 6 cycles and two begin in each (Zen 5), so 12 sums are needed to cover the
//! latency: a register tile is two matrix tiles by 8 tokens, which share the loads of activations. 98 %
//! of the instruction's peak; one matrix tile by 16 tokens has 92 %, by 8 tokens 67 % (2560 columns,
//! November 2026).

use super::bf16::{Bf16, PAIR};
use super::parts::rows;
use super::pieces::{Products, Stack, tree};
use super::{Fetch, Part, Place, Tile, check_acts, check_parts, fetch, slices, within};
use crate::arch::avx512bf16::Avx512Bf16;
use crate::simd::Vector;
use crate::views::RowsMut;

/// [`step`](super::step) by `vdpbf16ps`, with activations as [`crate::bf16::packed`] makes them.
#[inline(always)]
pub(crate) fn step_pairs<const T: usize, const N: usize, const U: usize>(
    d: Avx512Bf16,
    place: Place<'_, u32>,
    out: &mut RowsMut<'_, f32>,
) {
    let Place { tiles, pieces, acts, tile, token, fetch, .. } = place;
    let mut parts = [tiles.part(tile, 0, N); N];
    for n in 1..N {
        parts[n] = tiles.part(tile + n, 0, N);
    }
    const { assert!(U == 1) };
    let mut stack = Stack::new();
    let last = tree(Pairs(d, fetch), parts, pieces, rows::<_, T>(acts, token), &mut stack);
    for root in 0..stack.left() {
        store_root(d, stack.root(root), root * tiles.count() + tile, token, out);
    }
    store_root(d, &last, stack.left() * tiles.count() + tile, token, out);
}

/// Writes the sums of one root, whose first tile is `first`.
#[inline(always)]
fn store_root<const T: usize, const N: usize>(
    d: Avx512Bf16,
    sums: &[[<Pairs as Products<u32>>::F; N]; T],
    first: usize,
    token: usize,
    out: &mut RowsMut<'_, f32>,
) {
    for t in 0..T {
        let row = out.row_mut(token + t).as_chunks_mut().0;
        for n in 0..N {
            d.store(sums[t][n], &mut row[first + n]);
        }
    }
}

/// The products of pairs.
#[derive(Clone, Copy)]
struct Pairs(Avx512Bf16, Fetch);

impl Products<u32> for Pairs {
    type F = core::arch::x86_64::__m512;

    const ACT_COLS: usize = 2;

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        self.0.avx512().add(a, b)
    }
    #[inline(always)]
    fn bytes(cols: usize) -> usize {
        Bf16::bytes(cols)
    }
    #[inline(always)]
    fn dot<const T: usize, const N: usize>(
        self,
        parts: [Part<'_>; N],
        acts: [&[u32]; T],
    ) -> [[Self::F; N]; T] {
        let d = self.0;
        let pairs = acts[0].len();
        check_acts(acts, pairs);
        check_parts(parts, pairs * PAIR);
        let mut acc = [[d.zero(); N]; T];
        for p in 0..pairs {
            let weights: [&[u8; PAIR]; N] = within(slices(parts, p * PAIR, PAIR), 0);
            fetch::<_, T, N>(d.avx512(), parts, p * PAIR, 1, self.1);
            let mut w = [d.load_pairs(weights[0]); N];
            for n in 1..N {
                w[n] = d.load_pairs(weights[n]);
            }
            for t in 0..T {
                // SAFETY: all activation rows have `pairs` elements, checked above.
                let x = unsafe { *acts[t].get_unchecked(p) };
                for n in 0..N {
                    acc[t][n] = d.dot_pair(acc[t][n], w[n], x);
                }
            }
        }
        acc
    }
}
