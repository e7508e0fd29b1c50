//! The arithmetic limit: the kernels' own multiply instructions without anything around them.

use std::hint::black_box;

#[cfg(target_arch = "x86_64")]
use crate::arch::avx512bf16::Avx512Bf16;
use crate::product::Product;
use crate::simd::{Dot, LANES, Simd, Vector};

/// Independent accumulators that cover the latency: of one instruction, where registers hold so many sums of 16 lanes
/// or of a part of them; of several instructions, or two sums of 8 lanes each.
const MANY: usize = 12;
const FEW: usize = 5;

/// A loop over independent sums, each of which `$dot` adds to from so many vectors of weights. No function with
/// a closure: that might not be compiled for the instruction set.
macro_rules! chains {
    ($d:ident: $D:ty, $chains:ident, $iters:ident, $vectors:literal, $dot:ident) => {{
        let w = [$d.load_w(&black_box([3; 64]), 0); $vectors];
        let quads = [[0x0102_0304; $chains]; $vectors];
        let mut acc = [$d.splat_i(0); $chains];
        for _ in 0..$iters {
            let quads = black_box(&quads);
            for i in 0..$chains {
                let mut own = [0; $vectors];
                for k in 0..$vectors {
                    own[k] = quads[k][i];
                }
                acc[i] = $d.$dot(acc[i], w, own);
            }
        }
        black_box(acc);
        $iters * 4 * lanes::<$D>($vectors * $chains)
    }};
}

/// `iters` rounds of integer dots; gives the number of multiply-accumulates done.
#[inline(always)]
pub(crate) fn int<S: Simd>(s: S, product: Product, iters: u64) -> u64 {
    if S::WIDE || S::Dot::FUSED {
        integers::<S::Dot, MANY>(s.dot(), product, iters)
    } else {
        integers::<S::Dot, FEW>(s.dot(), product, iters)
    }
}

#[inline(always)]
fn integers<D: Dot, const CHAINS: usize>(d: D, product: Product, iters: u64) -> u64 {
    match product {
        _ if D::FUSED => bytes::<D, CHAINS>(d, iters),
        Product::Int4 => nibbles::<D, CHAINS>(d, iters),
        Product::Int5 => chains!(d: D, CHAINS, iters, 4, dot_four),
        Product::Int6 => chains!(d: D, CHAINS, iters, 2, dot_two),
        Product::Int8 => biased::<D, CHAINS>(d, iters),
        _ => bytes::<D, CHAINS>(d, iters),
    }
}

/// A loop over independent sums, each of which `$dot` adds to from one vector of weights.
macro_rules! singles {
    ($(#[$doc:meta])* $name:ident, $dot:ident) => {
        $(#[$doc])*
        #[inline(always)]
        fn $name<D: Dot, const CHAINS: usize>(d: D, iters: u64) -> u64 {
            let w = d.load_w(&black_box([3; 64]), 0);
            let quads = [0x0102_0304; CHAINS];
            let mut acc = [d.splat_i(0); CHAINS];
            for _ in 0..iters {
                // Broadcast operands that might have changed, as the kernels have them: nothing can be
                // hoisted.
                let quads = black_box(&quads);
                for i in 0..CHAINS {
                    acc[i] = d.$dot(acc[i], w, quads[i]);
                }
            }
            black_box(acc);
            iters * 4 * lanes::<D>(CHAINS)
        }
    };
}
singles! {
    /// Dots of weights of 7 bits, or of any where one instruction takes all.
    bytes, dot
}
singles! {
    /// Dots of weights of 8 bits.
    biased, dot_biased
}

/// Dots of the nibbles of a block.
#[inline(always)]
fn nibbles<D: Dot, const CHAINS: usize>(d: D, iters: u64) -> u64 {
    const QUADS: usize = 8;
    let w = d.load_w(&black_box([3; 64]), 0);
    let quads = [[0x0102_0304; CHAINS]; QUADS];
    for _ in 0..iters {
        let quads = black_box(&quads);
        let mut acc = [d.start_nibbles(0); CHAINS];
        for quad in quads {
            for i in 0..CHAINS {
                acc[i] = d.dot_nibbles(acc[i], w, quad[i]);
            }
        }
        let mut sums = [d.splat_i(0); CHAINS];
        for i in 0..CHAINS {
            sums[i] = d.end_nibbles(acc[i], quads[0][i]);
        }
        black_box(&sums);
    }
    iters * 4 * lanes::<D>(QUADS * CHAINS)
}

/// `iters` rounds of fused multiply-adds; gives their number, counted by lane.
#[inline(always)]
pub(crate) fn float<S: Simd>(s: S, iters: u64) -> u64 {
    if S::WIDE { float_chains::<S, MANY>(s, iters) } else { float_chains::<S, FEW>(s, iters) }
}

#[inline(always)]
fn float_chains<S: Simd, const CHAINS: usize>(s: S, iters: u64) -> u64 {
    let (a, b) = (s.splat(black_box(0.5)), s.splat(black_box(1.0)));
    let mut acc = [s.splat(0.0); CHAINS];
    for _ in 0..iters {
        for acc in &mut acc {
            *acc = s.fma(*acc, a, b);
        }
    }
    black_box(acc);
    iters * (CHAINS * LANES) as u64
}

/// Tokens for which the kernels widen a vector of weights once.
const TOKENS: usize = 8;

/// As [`float`], for half floats that are widened first.
#[inline(always)]
pub(crate) fn half<S: Simd>(s: S, iters: u64) -> u64 {
    let d = s.dot();
    let (weights, x) = ([0; 32], d.splat(black_box(1.0)));
    let mut acc = [d.splat(0.0); TOKENS];
    for _ in 0..iters {
        let w = d.load_f16(black_box(&weights), 0);
        for acc in &mut acc {
            *acc = d.fma(w, x, *acc);
        }
    }
    black_box(acc);
    iters * lanes::<S::Dot>(TOKENS)
}

/// As [`float`], for pairs of bfloat16 that are widened first.
#[inline(always)]
pub(crate) fn bf16_widened<S: Simd>(s: S, iters: u64) -> u64 {
    let d = s.dot();
    let (weights, x) = ([0; 64], d.splat(black_box(1.0)));
    let mut acc = [d.splat(0.0); TOKENS];
    for _ in 0..iters {
        let w = d.load_w(black_box(&weights), 0);
        for w in [d.odd_bf16(w), d.even_bf16(w)] {
            for acc in &mut acc {
                *acc = d.fma(w, x, *acc);
            }
        }
    }
    black_box(acc);
    iters * lanes::<S::Dot>(2 * TOKENS)
}

/// As [`int8`], for dots of pairs of bfloat16.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn bf16_pairs(d: Avx512Bf16, iters: u64) -> u64 {
    const CHAINS: usize = 16;
    let w = d.load_pairs(&black_box([0; 64]));
    let pairs = [0x3f80_3f80; CHAINS];
    let mut acc = [d.zero(); CHAINS];
    for _ in 0..iters {
        let pairs = black_box(&pairs);
        for i in 0..CHAINS {
            acc[i] = d.dot_pair(acc[i], w, pairs[i]);
        }
    }
    black_box(acc);
    iters * (CHAINS * 2 * LANES) as u64
}

/// Lanes of `vectors` registers.
const fn lanes<D: Dot>(vectors: usize) -> u64 {
    (vectors * LANES / D::GROUPS) as u64
}
