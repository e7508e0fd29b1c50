//! Single instructions beside what their manuals say.
#![cfg(target_arch = "x86_64")]

use arclight_kernels::{Isa, Kernels, amx_product};
use core::arch::x86_64::*;

/// Subnormals as the instruction sees them.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

fn fma(w: u32, x: u32, acc: f32) -> f32 {
    let wide = |bits: u32| flushed(f32::from_bits(bits << 16));
    flushed(wide(w).mul_add(wide(x), flushed(acc)))
}

/// The manual's pseudo-code.
fn manual(acc: f32, w: u32, x: u32) -> f32 {
    fma(w & 0xffff, x & 0xffff, fma(w >> 16, x >> 16, acc))
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn dot(acc: f32, w: u32, x: u32) -> f32 {
    // SAFETY: 64 bytes each, and any bits are a value.
    let pairs = |bits: u32| unsafe {
        std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(bits as i32))
    };
    _mm512_cvtss_f32(_mm512_dpbf16_ps(_mm512_set1_ps(acc), pairs(w), pairs(x)))
}

#[test]
fn vdpbf16ps_does_what_its_manual_says() {
    if Kernels::for_isa(Isa::Avx512Bf16).is_none() {
        return;
    }
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 32) as u32
    };
    for i in 0..400_000 {
        // Any bits; factors whose products are around the smallest normal number; moderate ones.
        let (acc, w, x) = match i % 4 {
            0 => (next(), next(), next()),
            1 => (next() & 0x81ff_ffff, next() & 0xbfff_bfff, next() & 0xbfff_bfff),
            2 => (next() & 0x81ff_ffff, next() & 0x80ff_80ff | 0x2000_2000, 0x1f80_1f80),
            _ => {
                let near_one = |bits: u32| bits & 0x83ff_83ff | 0x3c00_3c00;
                (next() & 0x83ff_ffff | 0x3c00_0000, near_one(next()), near_one(next()))
            }
        };
        let acc = f32::from_bits(acc);
        // SAFETY: available.
        let (got, want) = (unsafe { dot(acc, w, x) }, manual(acc, w, x));
        let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
        assert!(same, "{acc:e} + {w:#x} * {x:#x}: {got:e}, not {want:e}");
    }
}

#[test]
fn products_of_tiles_are_exact() {
    let first: [[i8; 40]; 16] =
        std::array::from_fn(|m| std::array::from_fn(|k| (m * 31 + k * 57 + 128) as u8 as i8));
    let second: [[u8; 64]; 8] =
        std::array::from_fn(|k| std::array::from_fn(|n| (k * 91 + n * 37 + 5) as u8));
    for (set, rows, quads) in
        [(0, 16, 8), (1, 1, 8), (0, 13, 4), (1, 5, 1), (1, 16, 8), (0, 1, 8), (1, 13, 4), (0, 5, 1)]
    {
        let Some(got) = amx_product(set, rows, quads, &first, &second) else { return };
        for (m, row) in first.iter().enumerate() {
            for n in 0..16 {
                let product =
                    |k: usize| i32::from(row[k]) * i32::from(second[k / 4][4 * n + k % 4] as i8);
                let want = if m < rows { (0..4 * quads).map(product).sum() } else { 7 };
                assert_eq!(got[m][n], want, "{rows} rows, {quads} quads: {m}, {n}");
            }
        }
    }
}
