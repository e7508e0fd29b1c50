//! bfloat16 by `vdpbf16ps`: two columns of a row in one instruction.
//!
//! `vdpbf16ps` takes 6 cycles and two begin in each (Zen 5), so 12 sums are needed to cover the
//! latency: a register tile is two matrix tiles by 8 tokens, which share the loads of activations. 98 %
//! of the instruction's peak; one matrix tile by 16 tokens has 92 %, by 8 tokens 67 % (2560 columns,
//! November 2026).

use super::bf16::{Bf16, PAIR};
use super::{
    Fetch, Part, Piece, Products, Tile, Tiles, check_acts, check_parts, fetch, rows, slices, tree,
    within,
};
use crate::acts::elements;
use crate::arch::avx512bf16::Avx512Bf16;
use crate::simd::Vector;
use crate::views::{Rows, RowsMut};

/// [`matmul`] by `vdpbf16ps`, with activations as [`crate::bf16::packed`] makes them.
#[inline(always)]
pub(crate) fn matmul_pairs(
    d: Avx512Bf16,
    tiles: Tiles<'_>,
    pieces: &[Piece],
    acts: Rows<'_, u8>,
    mut out: RowsMut<'_, f32>,
) {
    let acts = elements(acts);
    let mut i = 0;
    while i + 2 <= tiles.count() {
        let parts = [tiles.part(i, 0, 2), tiles.part(i + 1, 0, 2)];
        pairs_by_tokens(d, parts, pieces, acts, &mut out, i);
        i += 2;
    }
    while i < tiles.count() {
        pairs_by_tokens(d, [tiles.part(i, 0, 1)], pieces, acts, &mut out, i);
        i += 1;
    }
}

/// Tiles `i..i + N` times all activation rows.
#[inline(always)]
fn pairs_by_tokens<const N: usize>(
    d: Avx512Bf16,
    parts: [Part<'_>; N],
    pieces: &[Piece],
    acts: Rows<'_, u32>,
    out: &mut RowsMut<'_, f32>,
    i: usize,
) {
    // Fewer than 8 tokens take hardly less time than 8: what is left over goes at once.
    macro_rules! step {
        ($left:expr, $t:expr; $($tokens:literal)*) => {
            match $left {
                $($tokens => step_pairs::<$tokens, N>(d, parts, pieces, acts, out, i, $t),)*
                _ => step_pairs::<8, N>(d, parts, pieces, acts, out, i, $t),
            }
        };
    }
    for t in (0..acts.rows()).step_by(8) {
        step!(acts.rows() - t, t; 1 2 3 4 5 6 7);
    }
}

/// One register tile: tokens `t..t + T` and tiles `i..i + N`.
#[inline(always)]
fn step_pairs<const T: usize, const N: usize>(
    d: Avx512Bf16,
    parts: [Part<'_>; N],
    pieces: &[Piece],
    acts: Rows<'_, u32>,
    out: &mut RowsMut<'_, f32>,
    i: usize,
    t: usize,
) {
    let next = match acts.rows().div_ceil(8) {
        1 => Fetch::Stream,
        // With one line at a time, passes take turns by the line.
        _ if t == 0 => Fetch::Successor { first: 0, step: 1 },
        _ => Fetch::Nothing,
    };
    let sums = tree(Pairs(d, next), parts, pieces, rows::<_, T>(acts, t));
    for token in 0..T {
        let row = out.row_mut(t + token).as_chunks_mut().0;
        for n in 0..N {
            d.store(sums[token][n], &mut row[i + n]);
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
            fetch(d.avx512(), parts, p * PAIR, 1, self.1);
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
