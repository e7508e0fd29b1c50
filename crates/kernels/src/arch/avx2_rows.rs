//! Eight rows in an AVX2 register; integer dots by `vpdpbusd`, or where the CPU lacks it by `vpmaddubsw` and
//! `vpmaddwd`.
//!
//! `vpmaddubsw` adds two products with 16-bit saturation: exact for weights of 7 bits (2 · 127 ·
//! 127 = 32258). Eight-bit weights lose their bias first and give their sign to the activation (2 ·
//! 128 · 127 = 32512).

use core::arch::asm;
use core::arch::x86_64::*;

use super::avx2::Avx2;
use crate::simd::{Dot, LANES, Vector};

/// The proof that [`Avx2`] is, for single registers.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Rows<const VNNI: bool>(());

/// A constant that the compiler does not know to be one. Of constants it knows it makes memory
/// operands in the innermost loops, which read them from the program's file over and over: from a
/// page that lies on one memory node. This one stays in a register or on the thread's own stack.
#[target_feature(enable = "avx2")]
#[inline]
fn opaque(mut v: __m256i) -> __m256i {
    // SAFETY: no instruction at all. `pure` lets it be made once and moved out of loops.
    unsafe { asm!("/* {0} */", inout(ymm_reg) v, options(pure, nomem, nostack, preserves_flags)) };
    v
}

/// `vpdpwssd`, as asm for the reason that [`super::avx512`] gives.
#[target_feature(enable = "avx2,avxvnni")]
#[inline]
fn dpwssd(mut acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: an instruction that this function's features have, on registers.
    unsafe {
        asm!("{{vex}} vpdpwssd {0}, {1}, {2}", inout(ymm_reg) acc, in(ymm_reg) a, in(ymm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

impl<const VNNI: bool> Avx2Rows<VNNI> {
    #[inline(always)]
    pub(super) fn new(_: Avx2<VNNI>) -> Self {
        Self(())
    }
    /// A group's bytes, widened.
    #[inline(always)]
    fn load_bytes(self, x: &[u8; LANES], g: usize) -> __m256i {
        isa!(_mm256_cvtepu8_epi32(load_half(x, g)))
    }
    /// `acc` and the sums of each lane's two pair sums.
    #[inline(always)]
    fn widen_add(self, acc: __m256i, pairs: __m256i) -> __m256i {
        isa!(_mm256_add_epi32(acc, _mm256_madd_epi16(pairs, opaque(_mm256_set1_epi16(1)))))
    }
}

impl<const VNNI: bool> Vector for Avx2Rows<VNNI> {
    type F = __m256;
    type I = __m256i;

    const WIDE: bool = false;
    const REGISTERS: usize = 16;

    intrinsics! {
        fn splat(self, x: f32) -> Self::F = _mm256_set1_ps(x);
        fn splat_i(self, x: i32) -> Self::I = _mm256_set1_epi32(x);
        fn to_f(self, a: Self::I) -> Self::F = _mm256_cvtepi32_ps(a);
        fn add(self, a: Self::F, b: Self::F) -> Self::F = _mm256_add_ps(a, b);
        fn mul(self, a: Self::F, b: Self::F) -> Self::F = _mm256_mul_ps(a, b);
        fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F = _mm256_fmadd_ps(a, b, c);
        fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F = _mm256_fnmadd_ps(a, b, c);
    }
}

/// Elements `8g..8g + 8` of what belongs to 16 rows, `N` bytes.
#[inline(always)]
fn group<const N: usize>(x: &[u8], g: usize) -> &[u8; N] {
    x[g * N..].first_chunk().expect("two groups")
}

/// A group's bytes.
#[inline(always)]
fn load_half(x: &[u8; LANES], g: usize) -> __m128i {
    // SAFETY: every CPU with 64 bits has the instruction; 8 bytes are there.
    unsafe { _mm_loadl_epi64(group::<8>(x, g).as_ptr().cast()) }
}

impl<const VNNI: bool> Dot for Avx2Rows<VNNI> {
    type W = __m256i;
    /// Without VNNI pair sums in 16 bits: 8 dots reach 8 · 2 · 15 · 127 = 30480 at most.
    type N = __m256i;

    const GROUPS: usize = 2;
    const FUSED: bool = VNNI;

    intrinsics! {
        fn load_f32(self, x: &[u8; 64], g: usize) -> Self::F =
            _mm256_castsi256_ps(self.load_w(x, g));
        fn load_u8(self, x: &[u8; LANES], g: usize) -> Self::F =
            _mm256_cvtepi32_ps(self.load_bytes(x, g));
        fn prefetch(self, at: *const u8) = _mm_prefetch::<_MM_HINT_T0>(at.cast());
        fn prefetch_second(self, at: *const u8) = _mm_prefetch::<_MM_HINT_T1>(at.cast());
        fn splat_w(self, x: u8) -> Self::W = opaque(_mm256_set1_epi8(x as i8));
        fn and(self, a: Self::W, b: Self::W) -> Self::W = _mm256_and_si256(a, b);
        fn or(self, a: Self::W, b: Self::W) -> Self::W = _mm256_or_si256(a, b);
        fn shr4(self, a: Self::W) -> Self::W = _mm256_srli_epi16::<4>(a);
        fn shr2(self, a: Self::W) -> Self::W = _mm256_srli_epi16::<2>(a);
        fn shr3(self, a: Self::W) -> Self::W = _mm256_srli_epi16::<3>(a);
        fn shr5(self, a: Self::W) -> Self::W = _mm256_srli_epi16::<5>(a);
        fn shr6(self, a: Self::W) -> Self::W = _mm256_srli_epi16::<6>(a);
        fn table(self, x: &[u8; 16]) -> Self::W =
            opaque(_mm256_broadcastsi128_si256(_mm_loadu_si128(x.as_ptr().cast())));
        fn lookup(self, table: Self::W, index: Self::W) -> Self::W =
            _mm256_shuffle_epi8(table, index);
        fn even_bf16(self, a: Self::W) -> Self::F = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(a));
        fn widen(self, w: Self::W) -> [Self::W; 2] =
            [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w)), _mm256_srai_epi16::<8>(w)];
        fn load_f16(self, x: &[u8; 32], g: usize) -> Self::F =
            _mm256_cvtph_ps(_mm_loadu_si128(group::<16>(x, g).as_ptr().cast()));
        fn load_i8(self, x: &[u8; LANES], g: usize) -> Self::F =
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_half(x, g)));
        fn load_e4m3(self, x: &[u8; LANES], g: usize) -> Self::F =
            _mm256_cvtph_ps(_mm_slli_epi16::<7>(_mm_cvtepu8_epi16(load_half(x, g))));
        fn store(self, x: Self::F, to: &mut [f32; LANES], g: usize) =
            _mm256_storeu_ps(to[g * 8..][..8].as_mut_ptr(), x);
        fn load(self, x: &[f32; LANES], g: usize) -> Self::F =
            _mm256_loadu_ps(x[g * 8..][..8].as_ptr());
        fn load_w(self, x: &[u8; 64], g: usize) -> Self::W =
            _mm256_loadu_si256(group::<32>(x, g).as_ptr().cast());
        fn store_w(self, x: Self::W, to: &mut [u8; 64], g: usize) =
            _mm256_storeu_si256(to[g * 32..][..32].as_mut_ptr().cast(), x);
        fn load_pairs_u8(self, x: &[u8; 2 * LANES], g: usize) -> Self::W =
            _mm256_cvtepu8_epi16(_mm_loadu_si128(group::<16>(x, g).as_ptr().cast()));
        fn load_pairs_i8(self, x: &[u8; 2 * LANES], g: usize) -> Self::W =
            _mm256_cvtepi8_epi16(_mm_loadu_si128(group::<16>(x, g).as_ptr().cast()));
    }

    methods! {
        fn prefetch_write(self, at: *const u8) = super::avx2::prefetch_write(at);
        fn start_nibbles(self, start: i32) -> Self::N = self.splat_i(if VNNI { start } else { 0 });
        // In the lower of each two pair sums.
        fn start_half(self, start: i32) -> Self::N =
            self.splat_i(if VNNI { start } else { start & 0xffff });
        fn start_biased(self, neg128: i32) -> Self::I = self.splat_i(if VNNI { neg128 } else { 0 });
    }

    #[inline(always)]
    fn load_power(self, x: &[u8; LANES], g: usize) -> Self::F {
        let x = self.load_bytes(x, g);
        isa!({
            let one = _mm256_set1_epi32(1);
            let usual = _mm256_slli_epi32::<23>(_mm256_sub_epi32(x, one));
            // Those of 0 and 1, which are the greater there; less than the usual ones elsewhere.
            let subnormal = _mm256_slli_epi32::<21>(_mm256_add_epi32(x, one));
            _mm256_castsi256_ps(_mm256_max_epi32(usual, subnormal))
        })
    }
    #[inline(always)]
    fn dot(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I {
        if VNNI {
            return isa!(_mm256_dpbusd_avx_epi32(acc, w, self.splat_i(quad)));
        }
        self.widen_add(acc, isa!(_mm256_maddubs_epi16(w, self.splat_i(quad))))
    }
    #[inline(always)]
    fn dot_two(self, acc: Self::I, w: [Self::W; 2], quads: [i32; 2]) -> Self::I {
        if VNNI {
            return self.dot(self.dot(acc, w[0], quads[0]), w[1], quads[1]);
        }
        // Pair sums in 16 bits: 2 · 2 · 63 · 127 = 32004 at most.
        let first = isa!(_mm256_maddubs_epi16(w[0], self.splat_i(quads[0])));
        self.widen_add(acc, self.dot_nibbles(first, w[1], quads[1]))
    }
    #[inline(always)]
    fn splat_shifted<const BY: i32>(self, x: i32) -> Self::I {
        // Left to itself the compiler shifts before, in a register of integers: two instructions more.
        isa!(_mm256_srai_epi32::<BY>(opaque(_mm256_set1_epi32(x))))
    }
    #[inline(always)]
    fn dot_four(self, mut acc: Self::I, w: [Self::W; 4], quads: [i32; 4]) -> Self::I {
        if VNNI {
            for i in 0..4 {
                acc = self.dot(acc, w[i], quads[i]);
            }
            return acc;
        }
        // Pair sums in 16 bits: 4 · 2 · 31 · 127 = 31496 at most.
        let mut sums = isa!(_mm256_maddubs_epi16(w[0], self.splat_i(quads[0])));
        for i in 1..4 {
            sums = self.dot_nibbles(sums, w[i], quads[i]);
        }
        self.widen_add(acc, sums)
    }
    #[inline(always)]
    fn dot_nibbles(self, acc: Self::N, w: Self::W, quad: i32) -> Self::N {
        if VNNI {
            return self.dot(acc, w, quad);
        }
        // Not to be regrouped: as a tree, the sums of a register tile would not fit into 16 registers.
        // A saturating sum would do that, too, but goes to half as many ports of AMD's CPUs.
        isa!(opaque(_mm256_add_epi16(acc, _mm256_maddubs_epi16(w, self.splat_i(quad)))))
    }
    #[inline(always)]
    fn end_nibbles(self, acc: Self::N, start: i32) -> Self::I {
        if VNNI { acc } else { self.widen_add(self.splat_i(start), acc) }
    }
    #[inline(always)]
    fn scale_halves(self, low: Self::N, high: Self::N, scales: Self::W) -> Self::I {
        if VNNI {
            return isa!({
                let high = _mm256_slli_epi32::<16>(high);
                _mm256_madd_epi16(_mm256_blend_epi16::<0b1010_1010>(low, high), scales)
            });
        }
        // Each scale twice: once for each pair sum.
        isa!({
            let even = _mm256_slli_epi32::<16>(scales);
            let even = _mm256_blend_epi16::<0b1010_1010>(_mm256_srli_epi32::<16>(even), even);
            let odd = _mm256_srli_epi32::<16>(scales);
            let odd = _mm256_blend_epi16::<0b1010_1010>(odd, scales);
            _mm256_add_epi32(_mm256_madd_epi16(low, even), _mm256_madd_epi16(high, odd))
        })
    }
    #[inline(always)]
    fn dot_biased(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I {
        if VNNI {
            return self.dot(acc, w, quad);
        }
        isa!({
            let signed = _mm256_xor_si256(w, opaque(_mm256_set1_epi8(-128)));
            let quad = _mm256_sign_epi8(_mm256_set1_epi32(quad), signed);
            self.widen_add(acc, _mm256_maddubs_epi16(_mm256_abs_epi8(signed), quad))
        })
    }
    #[inline(always)]
    fn odd_bf16(self, a: Self::W) -> Self::F {
        let upper = isa!(opaque(_mm256_set1_epi32(0xffff_0000_u32 as i32)));
        isa!(_mm256_castsi256_ps(_mm256_and_si256(a, upper)))
    }
    #[inline(always)]
    fn widen_nibbles(self, w: Self::W) -> [Self::W; 4] {
        isa!([
            _mm256_srai_epi16::<12>(_mm256_slli_epi16::<12>(w)),
            _mm256_srai_epi16::<12>(_mm256_slli_epi16::<8>(w)),
            _mm256_srai_epi16::<12>(_mm256_slli_epi16::<4>(w)),
            _mm256_srai_epi16::<12>(w),
        ])
    }
    #[inline(always)]
    fn dot_pairs(self, acc: Self::I, w: Self::W, pair: i32) -> Self::I {
        let pair = self.splat_i(pair);
        if VNNI {
            return isa!(dpwssd(acc, w, pair));
        }
        // Not to be regrouped: as a tree, the sums would not fit into 16 registers.
        isa!(opaque(_mm256_add_epi32(acc, _mm256_madd_epi16(w, pair))))
    }
}
