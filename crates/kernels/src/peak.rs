//! The arithmetic limit: the kernels' own multiply instructions without anything around them.
//!
//! With AVX2, 4-bit weights can beat it: their pair sums stay in 16 bits for a whole block, and
//! widen once instead of at every dot.

use std::hint::black_box;

#[cfg(target_arch = "x86_64")]
use crate::arch::avx512bf16::Avx512Bf16;
use crate::simd::{Dot, LANES, Simd, Vector};

/// Independent accumulators that cover the latency, for 32 vector registers and for 16 of half the
/// width.
const WIDE: usize = 12;
const NARROW: usize = 5;

/// `iters` rounds of integer dots; gives the number of 8-bit multiply-accumulates done.
#[inline(always)]
pub(crate) fn int8<S: Simd>(s: S, iters: u64) -> u64 {
    if S::WIDE {
        int8_chains::<S::Dot, WIDE>(s.dot(), iters)
    } else {
        int8_chains::<S::Dot, NARROW>(s.dot(), iters)
    }
}

#[inline(always)]
fn int8_chains<D: Dot, const CHAINS: usize>(d: D, iters: u64) -> u64 {
    let w = d.load_w(&black_box([3; 64]), 0);
    let quads = [0x0102_0304; CHAINS];
    let mut acc = [d.splat_i(0); CHAINS];
    for _ in 0..iters {
        // Broadcast operands that might have changed, as the kernels have them: nothing can be
        // hoisted.
        let quads = black_box(&quads);
        for i in 0..CHAINS {
            acc[i] = d.dot(acc[i], w, quads[i]);
        }
    }
    black_box(acc);
    iters * (CHAINS * 4 * LANES / D::GROUPS) as u64
}

/// `iters` rounds of fused multiply-adds; gives their number, counted by lane.
#[inline(always)]
pub(crate) fn float<S: Simd>(s: S, iters: u64) -> u64 {
    if S::WIDE { float_chains::<S, WIDE>(s, iters) } else { float_chains::<S, NARROW>(s, iters) }
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
