//! Register tiles over panels by `smmla`: two rows by two tokens, eight columns of each in one instruction.
//!
//! A lane of a vector of sums is a row and a token: rows 0 and 0, then 1 and 1, of tokens 0 and 1, 0 and 1. So
//! weights lie by pairs of rows, eight columns of the first behind each other and then those of the second, and
//! activations by pairs of tokens. A register tile is four rows, two pairs, by up to 12 tokens. Sums are the
//! same integers, so the bits are those of all other kernels. No CPU with the instruction was at hand to time
//! it: it does twice the products of `sdot`, and a block's scales cost the same.

use core::arch::aarch64::*;
use std::ops::Range;

use super::signed::{Finish, Matrices, center};
use super::{MOST_VECTORS, Pass, Sub};
use crate::TILE_ROWS;
use crate::arch::neon_i8mm::{I8mm, Rows4};
use crate::q8::Q8Block;
use crate::simd::{Dot, Vector};
use crate::views::Rows;

/// Blocks of a pair of tokens, in the place of both.
#[repr(C)]
struct Pair {
    /// Eight columns of both tokens, then the next eight.
    octets: [[[i8; 8]; 2]; 4],
    /// Both scales, twice.
    d: [f32; 4],
    /// The scaled sums, likewise.
    dsum: [f32; 4],
    unused: [u32; 8],
}

const _: () = assert!(
    size_of::<Pair>() == 2 * size_of::<Q8Block>() && align_of::<Pair>() == align_of::<Q8Block>()
);

impl Matrices for I8mm {
    type Vectors = Rows4;

    const MOST: usize = MOST_VECTORS;

    #[inline(always)]
    fn vectors(self) -> Rows4 {
        self.rows()
    }

    /// Takes the offset from weights and puts every eight columns of a row together, those of the first two rows
    /// before those of the next two.
    #[inline(always)]
    fn arrange<K: Finish>(self, panel: &mut [Sub]) {
        center::<K>(panel);
        let rows = self.rows();
        for sub in panel {
            for [low, high] in sub.quads.as_chunks_mut::<2>().0 {
                let mut octets = [[0; 16]; 8];
                for g in 0..Rows4::GROUPS {
                    let [first, second] = self.zip_quads(rows.load_w(low, g), rows.load_w(high, g));
                    (octets[2 * g], octets[2 * g + 1]) = (first, second);
                }
                let (a, b) = octets.as_flattened().split_at(64);
                low.copy_from_slice(a);
                high.copy_from_slice(b);
            }
        }
    }

    /// Every two tokens as a pair; one that is left over stays as it is.
    #[inline(always)]
    fn gather(acts: Rows<'_, Q8Block>, tokens: Range<usize>, first: usize, to: &mut [Q8Block]) {
        let (start, count) = (tokens.start, tokens.len());
        for t in (0..count).step_by(2) {
            let one = &acts.row(start + t)[first..];
            let two = (t + 1 < count).then(|| &acts.row(start + t + 1)[first..]);
            for (b, to) in to.chunks_exact_mut(count).enumerate() {
                let (a, Some(two)) = (&one[b], two) else {
                    to[t] = one[b];
                    continue;
                };
                let b = &two[b];
                let x = a.qs.as_flattened().as_chunks::<8>().0;
                let y = b.qs.as_flattened().as_chunks::<8>().0;
                let pair = Pair {
                    octets: [[x[0], y[0]], [x[1], y[1]], [x[2], y[2]], [x[3], y[3]]],
                    d: [a.d, b.d, a.d, b.d],
                    dsum: [a.dsum, b.dsum, a.dsum, b.dsum],
                    unused: [0; 8],
                };
                let to: &mut [Q8Block; 2] = to[t..].first_chunk_mut().expect("two tokens");
                // SAFETY: as large and as aligned, and any bits are a block.
                unsafe { std::ptr::from_mut(to).cast::<Pair>().write(pair) };
            }
        }
    }

    #[inline(always)]
    unsafe fn step<K: Finish, const T: usize>(self, pass: Pass<'_>, sums: &mut [[f32; TILE_ROWS]]) {
        let d = self;
        let Pass { panel, group, acts, runs, at, ahead } = pass;
        let (acts, rows) = (acts.as_chunks::<T>().0, d.rows());
        assert!(acts.len() == panel.len(), "activations of {} sub-blocks", acts.len());
        let mut blocks = panel.iter().zip(acts).enumerate();
        for run in runs {
            let mut own = run.begin::<Rows4, T, 1>(rows, group, at, sums);
            let mut acc: Sums<float32x4_t, T> = [[rows.splat(0.0); 2]; T];
            for q in 0..T.div_ceil(2) {
                acc[q] = d.zip(own[2 * q][0], own[(2 * q + 1).min(T - 1)][0]);
            }
            for (b, (sub, acts)) in blocks.by_ref().take(run.subs) {
                if let Some(ahead) = ahead {
                    ahead.fetch(rows, b, panel.len());
                }
                add::<K, T>(d, sub, group, acts, &mut acc);
            }
            for q in 0..T.div_ceil(2) {
                let [one, two] = d.unzip(acc[q]);
                own[2 * q][0] = one;
                if 2 * q + 1 < T {
                    own[2 * q + 1][0] = two;
                }
            }
            run.end(rows, group, at, own, sums);
        }
    }
}

/// Two vectors of sums for each pair of tokens, of `T` tokens; half of them are unused.
type Sums<V, const T: usize> = [[V; 2]; T];

/// Adds the products of a sub-block.
#[inline(always)]
fn add<K: Finish, const T: usize>(
    d: I8mm,
    sub: &Sub,
    group: usize,
    acts: &[Q8Block; T],
    acc: &mut Sums<float32x4_t, T>,
) {
    let rows = d.rows();
    let mut sums: Sums<int32x4_t, T> = [[rows.splat_i(0); 2]; T];
    for (i, octets) in sub.quads.as_chunks::<2>().0.iter().enumerate() {
        let octets = octets.as_flattened().as_chunks::<32>().0;
        let [first, second] = d.load_two(&octets[group % Rows4::GROUPS]);
        for q in 0..T.div_ceil(2) {
            let a = match pair(acts, q) {
                Ok(pair) => d.load_octets(&pair.octets[i]),
                Err(one) => d.load_octet(&one.qs.as_flattened().as_chunks().0[i]),
            };
            sums[q] = [d.multiply(sums[q][0], first, a), d.multiply(sums[q][1], second, a)];
        }
    }
    let scales = rows.load(&sub.scales, group);
    let scales = d.zip(scales, scales);
    let minima = rows.load(&sub.others, group);
    let minima = d.zip(minima, minima);
    for q in 0..T.div_ceil(2) {
        let (scale, dsum) = match pair(acts, q) {
            Ok(pair) => (d.load_floats(&pair.d), d.load_floats(&pair.dsum)),
            Err(one) => (rows.splat(one.d), rows.splat(one.dsum)),
        };
        for p in 0..2 {
            let product = rows.mul(scales[p], scale);
            acc[q][p] = rows.fma(rows.to_f(sums[q][p]), product, acc[q][p]);
            if K::MINIMA {
                acc[q][p] = rows.fma(minima[p], dsum, acc[q][p]);
            }
        }
    }
}

/// Pair `q` of the tokens, or the one that is left over.
#[inline(always)]
fn pair<const T: usize>(acts: &[Q8Block; T], q: usize) -> Result<&Pair, &Q8Block> {
    if 2 * q + 1 < T {
        // SAFETY: two blocks are as large and as aligned as a pair, of which any bits are one.
        Ok(unsafe { &*acts[2 * q..][..2].as_ptr().cast::<Pair>() })
    } else {
        Err(&acts[2 * q])
    }
}
