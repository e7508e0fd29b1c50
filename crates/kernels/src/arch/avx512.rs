//! Sixteen lanes in one AVX-512 register; integer dots by `vpdpbusd`, or where the CPU lacks it by `vpmaddubsw`
//! and `vpmaddwd`, as [`super::avx2_rows`] says.

use core::arch::asm;
use core::arch::x86_64::*;

use super::avx2::{self, fold_add, fold_max, fold_max_i, shuffle, sum_bytes, transpose};
use crate::bf16::LEAST;
use crate::simd::{Dot, LANES, Simd, Vector};

/// Proof that the CPU has AVX-512 F, BW, DQ and VL and, where `VNNI`, dot products of bytes.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const VNNI: bool>(());

impl<const VNNI: bool> Avx512<VNNI> {
    /// A token, if the CPU has the instructions.
    pub(crate) fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && (!VNNI || is_x86_feature_detected!("avx512vnni"));
        has.then_some(Self(()))
    }

    /// # Safety
    ///
    /// [`Avx512::new`] gives a token on this CPU.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        Self(())
    }

    #[inline(always)]
    pub(crate) fn load_i(self, x: &[i32; LANES]) -> __m512i {
        isa!(_mm512_loadu_si512(x.as_ptr().cast()))
    }

    /// `acc` and the sums of each lane's two pair sums.
    #[inline(always)]
    fn widen_add(self, acc: __m512i, pairs: __m512i) -> __m512i {
        isa!(_mm512_add_epi32(acc, _mm512_madd_epi16(pairs, opaque(_mm512_set1_epi16(1)))))
    }

    /// Pair sums in 16 bits.
    #[inline(always)]
    fn pair_sums(self, w: __m512i, quad: i32) -> __m512i {
        isa!(_mm512_maddubs_epi16(w, _mm512_set1_epi32(quad)))
    }
}

impl<const VNNI: bool> Vector for Avx512<VNNI> {
    type F = __m512;
    type I = __m512i;

    const WIDE: bool = true;
    const REGISTERS: usize = 32;

    intrinsics! {
        fn splat(self, x: f32) -> Self::F = _mm512_set1_ps(x);
        fn splat_i(self, x: i32) -> Self::I = _mm512_set1_epi32(x);
        fn to_f(self, a: Self::I) -> Self::F = _mm512_cvtepi32_ps(a);
        fn add(self, a: Self::F, b: Self::F) -> Self::F = _mm512_add_ps(a, b);
        fn mul(self, a: Self::F, b: Self::F) -> Self::F = _mm512_mul_ps(a, b);
        fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F = _mm512_fmadd_ps(a, b, c);
        fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F = _mm512_fnmadd_ps(a, b, c);
    }
}

impl<const VNNI: bool> Simd for Avx512<VNNI> {
    type Dot = Self;

    intrinsics! {
        fn load(self, x: &[f32; LANES]) -> Self::F = _mm512_loadu_ps(x.as_ptr());
        fn store(self, x: Self::F, to: &mut [f32; LANES]) = _mm512_storeu_ps(to.as_mut_ptr(), x);
        fn transpose(self, from: &[[u16; LANES]; LANES]) -> [[u16; LANES]; LANES] = transpose(from);
        fn shuffle(self, x: &[u8; 64], order: &[u8; 16]) -> [u8; 64] = shuffle(x, order);
        fn sub(self, a: Self::F, b: Self::F) -> Self::F = _mm512_sub_ps(a, b);
        fn div(self, a: Self::F, b: Self::F) -> Self::F = _mm512_div_ps(a, b);
        fn max(self, a: Self::F, b: Self::F) -> Self::F = _mm512_max_ps(a, b);
        fn min(self, a: Self::F, b: Self::F) -> Self::F = _mm512_min_ps(a, b);
        fn abs(self, a: Self::F) -> Self::F = _mm512_abs_ps(a);
        fn first(self, n: usize, a: Self::F, fill: Self::F) -> Self::F =
            _mm512_mask_blend_ps(((1u32 << n) - 1) as u16, fill, a);
        fn truncate(self, a: Self::F) -> Self::I = _mm512_cvttps_epi32(a);
        fn as_bits(self, a: Self::F) -> Self::I = _mm512_castps_si512(a);
        fn as_floats(self, a: Self::I) -> Self::F = _mm512_castsi512_ps(a);
        fn add_i(self, a: Self::I, b: Self::I) -> Self::I = _mm512_add_epi32(a, b);
        fn sub_i(self, a: Self::I, b: Self::I) -> Self::I = _mm512_sub_epi32(a, b);
        fn max_i(self, a: Self::I, b: Self::I) -> Self::I = _mm512_max_epi32(a, b);
        fn halve_i(self, a: Self::I) -> Self::I = _mm512_srai_epi32::<1>(a);
        fn to_exponent(self, a: Self::I) -> Self::I = _mm512_slli_epi32::<23>(a);
        fn reduce_add(self, a: Self::F) -> f32 =
            fold_add(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a)));
        fn reduce_max(self, a: Self::F) -> f32 =
            fold_max(_mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a)));
        fn reduce_max_i(self, a: Self::I) -> i32 = fold_max_i(_mm256_max_epi32(
            _mm512_castsi512_si256(a),
            _mm512_extracti32x8_epi32::<1>(a),
        ));
        fn sum_i8(self, a: &[i8; LANES]) -> i32 = sum_bytes(a);
        fn store_i8(self, a: Self::I, to: &mut [i8; LANES]) =
            _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(a));
        fn store_i16(self, a: Self::I, to: &mut [i16; LANES]) =
            _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(a));
    }

    methods! {
        fn dot(self) -> Self = self;
    }

    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> Self::F {
        // The form without `{sae}` takes its operand from memory, which saves Intel's CPUs a shuffle: one operation
        // of the multiply units instead of two. No exception is enabled, so both give the same.
        isa!({
            let halves = _mm256_loadu_si256(x.as_ptr().cast());
            _mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(halves)
        })
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> Self::F {
        isa!({
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        })
    }
    #[inline(always)]
    fn store_f16(self, x: Self::F, to: &mut [u16; LANES]) {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        isa!(_mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtps_ph::<NEAREST>(x)));
    }
    #[inline(always)]
    fn store_bf16(self, x: Self::F, to: &mut [u16; LANES]) {
        isa!({
            let upper = _mm512_srli_epi32::<16>(_mm512_castps_si512(x));
            _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(upper));
        });
    }
    #[inline(always)]
    fn round_bf16(self, a: Self::F) -> Self::F {
        isa!({
            let bits = _mm512_castps_si512(a);
            let last = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff));
            let kept = _mm512_set1_epi32(0xffff_0000_u32 as i32);
            let rounded = _mm512_and_si512(_mm512_add_epi32(bits, half), kept);
            // The addition might carry a NaN over into zero.
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
            let quiet = _mm512_set1_epi32(0x7fc0_0000);
            let rounded = _mm512_mask_mov_epi32(rounded, nan, quiet);
            let small = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(_mm512_abs_ps(a), _mm512_set1_ps(LEAST));
            _mm512_castsi512_ps(_mm512_maskz_mov_epi32(!small, rounded))
        })
    }
}

/// A value of which the compiler knows nothing: see that of [`super::avx2_rows`].
#[target_feature(enable = "avx512f")]
#[inline]
fn opaque(mut v: __m512i) -> __m512i {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(zmm_reg) v, options(pure, nomem, nostack, preserves_flags)) };
    v
}

/// `vpdpwssd`. The compiler takes the intrinsic for a multiplication and an addition, regroups the
/// additions of a whole unrolled sum as a tree, and spills it.
#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
fn dpwssd(mut acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: an instruction that this function's features have, on registers.
    unsafe {
        asm!("vpdpwssd {0}, {1}, {2}", inout(zmm_reg) acc, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

impl<const VNNI: bool> Dot for Avx512<VNNI> {
    type W = __m512i;
    /// Without VNNI pair sums in 16 bits, as [`super::avx2_rows`] has them.
    type N = __m512i;

    const GROUPS: usize = 1;
    const FUSED: bool = VNNI;

    intrinsics! {
        fn load_f32(self, x: &[u8; 64], _g: usize) -> Self::F =
            _mm512_castsi512_ps(_mm512_loadu_si512(x.as_ptr().cast()));
        fn load_u8(self, x: &[u8; LANES], _g: usize) -> Self::F =
            _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(x.as_ptr().cast())));
        fn load_i8(self, x: &[u8; LANES], _g: usize) -> Self::F =
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast())));
        fn load_e4m3(self, x: &[u8; LANES], _g: usize) -> Self::F = _mm512_cvtph_ps(
            _mm256_slli_epi16::<7>(_mm256_cvtepu8_epi16(_mm_loadu_si128(x.as_ptr().cast()))),
        );
        fn load_w(self, x: &[u8; 64], _g: usize) -> Self::W = _mm512_loadu_si512(x.as_ptr().cast());
        fn store_w(self, x: Self::W, to: &mut [u8; 64], _g: usize) =
            _mm512_storeu_si512(to.as_mut_ptr().cast(), x);
        fn load_pairs_u8(self, x: &[u8; 2 * LANES], _g: usize) -> Self::W =
            _mm512_cvtepu8_epi16(_mm256_loadu_si256(x.as_ptr().cast()));
        fn load_pairs_i8(self, x: &[u8; 2 * LANES], _g: usize) -> Self::W =
            _mm512_cvtepi8_epi16(_mm256_loadu_si256(x.as_ptr().cast()));
        fn prefetch(self, at: *const u8) = _mm_prefetch::<_MM_HINT_T0>(at.cast());
        fn prefetch_second(self, at: *const u8) = _mm_prefetch::<_MM_HINT_T1>(at.cast());
        fn splat_w(self, x: u8) -> Self::W = _mm512_set1_epi8(x as i8);
        fn and(self, a: Self::W, b: Self::W) -> Self::W = _mm512_and_si512(a, b);
        fn or(self, a: Self::W, b: Self::W) -> Self::W = _mm512_or_si512(a, b);
        fn shr4(self, a: Self::W) -> Self::W = _mm512_srli_epi16::<4>(a);
        fn shr2(self, a: Self::W) -> Self::W = _mm512_srli_epi16::<2>(a);
        fn shr3(self, a: Self::W) -> Self::W = _mm512_srli_epi16::<3>(a);
        fn shr5(self, a: Self::W) -> Self::W = _mm512_srli_epi16::<5>(a);
        fn shr6(self, a: Self::W) -> Self::W = _mm512_srli_epi16::<6>(a);
        fn table(self, x: &[u8; 16]) -> Self::W =
            _mm512_broadcast_i32x4(_mm_loadu_si128(x.as_ptr().cast()));
        fn lookup(self, table: Self::W, index: Self::W) -> Self::W =
            _mm512_shuffle_epi8(table, index);
        fn even_bf16(self, a: Self::W) -> Self::F = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(a));
        fn widen(self, w: Self::W) -> [Self::W; 2] =
            [_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(w)), _mm512_srai_epi16::<8>(w)];
    }

    methods! {
        fn load_f16(self, x: &[u8; 32], _g: usize) -> Self::F = Simd::load_f16(self, x);
        fn store(self, x: Self::F, to: &mut [f32; LANES], _g: usize) = Simd::store(self, x, to);
        fn load(self, x: &[f32; LANES], _g: usize) -> Self::F = Simd::load(self, x);
        fn prefetch_write(self, at: *const u8) = avx2::prefetch_write(at);
        fn start_nibbles(self, start: i32) -> Self::N = self.splat_i(if VNNI { start } else { 0 });
        fn start_half(self, start: i32) -> Self::N =
            self.splat_i(if VNNI { start } else { start & 0xffff });
        fn start_biased(self, neg128: i32) -> Self::I = self.splat_i(if VNNI { neg128 } else { 0 });
    }

    #[inline(always)]
    fn load_power(self, x: &[u8; LANES], _g: usize) -> Self::F {
        isa!({
            let x = _mm512_cvtepu8_epi32(_mm_loadu_si128(x.as_ptr().cast()));
            let usual = _mm512_slli_epi32::<23>(_mm512_sub_epi32(x, _mm512_set1_epi32(1)));
            let tiny = _mm512_cmplt_epi32_mask(x, _mm512_set1_epi32(2));
            let bits = _mm512_mask_sllv_epi32(usual, tiny, _mm512_set1_epi32(1 << 21), x);
            _mm512_castsi512_ps(bits)
        })
    }
    #[inline(always)]
    fn dot(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I {
        if VNNI {
            return isa!(_mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(quad)));
        }
        self.widen_add(acc, self.pair_sums(w, quad))
    }
    #[inline(always)]
    fn dot_two(self, acc: Self::I, w: [Self::W; 2], quads: [i32; 2]) -> Self::I {
        if VNNI {
            return Dot::dot(self, Dot::dot(self, acc, w[0], quads[0]), w[1], quads[1]);
        }
        let first = self.pair_sums(w[0], quads[0]);
        self.widen_add(acc, self.dot_nibbles(first, w[1], quads[1]))
    }
    #[inline(always)]
    fn dot_four(self, mut acc: Self::I, w: [Self::W; 4], quads: [i32; 4]) -> Self::I {
        if VNNI {
            for i in 0..4 {
                acc = Dot::dot(self, acc, w[i], quads[i]);
            }
            return acc;
        }
        let mut sums = self.pair_sums(w[0], quads[0]);
        for i in 1..4 {
            sums = self.dot_nibbles(sums, w[i], quads[i]);
        }
        self.widen_add(acc, sums)
    }
    #[inline(always)]
    fn dot_nibbles(self, acc: Self::N, w: Self::W, quad: i32) -> Self::N {
        if VNNI {
            return Dot::dot(self, acc, w, quad);
        }
        // Not to be regrouped, as with AVX2.
        isa!(opaque(_mm512_add_epi16(acc, self.pair_sums(w, quad))))
    }
    #[inline(always)]
    fn end_nibbles(self, acc: Self::N, start: i32) -> Self::I {
        if VNNI { acc } else { self.widen_add(self.splat_i(start), acc) }
    }
    #[inline(always)]
    fn dot_biased(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I {
        if VNNI {
            return Dot::dot(self, acc, w, quad);
        }
        isa!({
            let signed = _mm512_xor_si512(w, opaque(_mm512_set1_epi8(-128)));
            // There is no `vpsignb`: the activation is subtracted from zero where the weight has a sign.
            let (quad, negative) = (_mm512_set1_epi32(quad), _mm512_movepi8_mask(signed));
            let quad = _mm512_mask_sub_epi8(quad, negative, _mm512_setzero_si512(), quad);
            self.widen_add(acc, _mm512_maddubs_epi16(_mm512_abs_epi8(signed), quad))
        })
    }
    #[inline(always)]
    fn dot_pairs(self, acc: Self::I, w: Self::W, pair: i32) -> Self::I {
        let pair = self.splat_i(pair);
        if VNNI {
            return isa!(dpwssd(acc, w, pair));
        }
        isa!(opaque(_mm512_add_epi32(acc, _mm512_madd_epi16(w, pair))))
    }
    #[inline(always)]
    fn scale_halves(self, low: Self::N, high: Self::N, scales: Self::W) -> Self::I {
        isa!({
            let lower = _mm512_set4_epi32(0x0d0c_0d0c, 0x0908_0908, 0x0504_0504, 0x0100_0100);
            if VNNI {
                let sums = _mm512_mask_shuffle_epi8(low, 0xcccc_cccc_cccc_cccc, high, lower);
                return _mm512_madd_epi16(sums, scales);
            }
            // Each scale twice: once for each pair sum.
            let upper = _mm512_set4_epi32(0x0f0e_0f0e, 0x0b0a_0b0a, 0x0706_0706, 0x0302_0302);
            let even = _mm512_shuffle_epi8(scales, lower);
            let odd = _mm512_shuffle_epi8(scales, upper);
            _mm512_add_epi32(_mm512_madd_epi16(low, even), _mm512_madd_epi16(high, odd))
        })
    }
    #[inline(always)]
    fn odd_bf16(self, a: Self::W) -> Self::F {
        let upper = self.splat_i(0xffff_0000_u32 as i32);
        isa!(_mm512_castsi512_ps(_mm512_and_si512(a, upper)))
    }
    #[inline(always)]
    fn widen_nibbles(self, w: Self::W) -> [Self::W; 4] {
        isa!([
            _mm512_srai_epi16::<12>(_mm512_slli_epi16::<12>(w)),
            _mm512_srai_epi16::<12>(_mm512_slli_epi16::<8>(w)),
            _mm512_srai_epi16::<12>(_mm512_slli_epi16::<4>(w)),
            _mm512_srai_epi16::<12>(w),
        ])
    }
}
