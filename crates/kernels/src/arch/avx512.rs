//! Sixteen lanes in one AVX-512 register; integer dots by `vpdpbusd`.

use core::arch::asm;
use core::arch::x86_64::*;

use crate::bf16::LEAST;
use crate::simd::{Dot, LANES, Simd, Vector};

/// Proof that the CPU has AVX-512 F, BW, DQ, VL and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// Whether the CPU has what a token stands for.
    pub(crate) fn available() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
    }

    /// # Safety
    ///
    /// [`Avx512::available`] must hold.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Intrinsics whose only demand is the instruction set.
macro_rules! isa {
    ($e:expr) => {
        // SAFETY: the method has a token, so the CPU has the instructions; the memory that is read
        // or written is a reference to an array of exactly the register's (or half register's)
        // size.
        unsafe { $e }
    };
}

impl Avx512 {
    #[inline(always)]
    pub(crate) fn load_i(self, x: &[i32; LANES]) -> __m512i {
        isa!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
}

impl Vector for Avx512 {
    type F = __m512;
    type I = __m512i;

    const WIDE: bool = true;
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        isa!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> Self::I {
        isa!(_mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn to_f(self, a: Self::I) -> Self::F {
        isa!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        isa!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        isa!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        isa!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        isa!(_mm512_fnmadd_ps(a, b, c))
    }
}

impl Simd for Avx512 {
    type Dot = Self;

    #[inline(always)]
    fn dot(self) -> Self {
        self
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::F {
        isa!(_mm512_loadu_ps(x.as_ptr()))
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
    fn store(self, x: Self::F, to: &mut [f32; LANES]) {
        isa!(_mm512_storeu_ps(to.as_mut_ptr(), x));
    }
    #[inline(always)]
    fn store_f16(self, x: Self::F, to: &mut [u16; LANES]) {
        isa!(_mm256_storeu_si256(
            to.as_mut_ptr().cast(),
            _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x)
        ));
    }
    #[inline(always)]
    fn store_bf16(self, x: Self::F, to: &mut [u16; LANES]) {
        isa!({
            let upper = _mm512_srli_epi32::<16>(_mm512_castps_si512(x));
            _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(upper));
        });
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        isa!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        isa!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        isa!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        isa!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        isa!(_mm512_abs_ps(a))
    }
    #[inline(always)]
    fn first(self, n: usize, a: Self::F, fill: Self::F) -> Self::F {
        isa!(_mm512_mask_blend_ps(((1u32 << n) - 1) as u16, fill, a))
    }
    #[inline(always)]
    fn reduce_add(self, a: Self::F) -> f32 {
        isa!({
            let a = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
        })
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::F) -> f32 {
        isa!({
            let a = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)))
        })
    }
    #[inline(always)]
    fn truncate(self, a: Self::F) -> Self::I {
        isa!(_mm512_cvttps_epi32(a))
    }
    #[inline(always)]
    fn as_bits(self, a: Self::F) -> Self::I {
        isa!(_mm512_castps_si512(a))
    }
    #[inline(always)]
    fn as_floats(self, a: Self::I) -> Self::F {
        isa!(_mm512_castsi512_ps(a))
    }
    #[inline(always)]
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I {
        isa!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I {
        isa!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn max_i(self, a: Self::I, b: Self::I) -> Self::I {
        isa!(_mm512_max_epi32(a, b))
    }
    #[inline(always)]
    fn halve_i(self, a: Self::I) -> Self::I {
        isa!(_mm512_srai_epi32::<1>(a))
    }
    #[inline(always)]
    fn to_exponent(self, a: Self::I) -> Self::I {
        isa!(_mm512_slli_epi32::<23>(a))
    }
    #[inline(always)]
    fn reduce_max_i(self, a: Self::I) -> i32 {
        isa!({
            let high = _mm512_extracti32x8_epi32::<1>(a);
            let a = _mm256_max_epi32(_mm512_castsi512_si256(a), high);
            let a = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let a = _mm_max_epi32(a, _mm_shuffle_epi32::<0b01_00_11_10>(a));
            _mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32::<0b10_11_00_01>(a)))
        })
    }
    #[inline(always)]
    fn store_i8(self, a: Self::I, to: &mut [i8; LANES]) {
        isa!(_mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(a)));
    }
    #[inline(always)]
    fn sum_i8(self, a: &[i8; LANES]) -> i32 {
        isa!({
            // As unsigned bytes 128 higher, which one instruction sums in two groups of eight.
            let a = _mm_xor_si128(_mm_loadu_si128(a.as_ptr().cast()), _mm_set1_epi8(-128));
            let sums = _mm_sad_epu8(a, _mm_setzero_si128());
            _mm_cvtsi128_si32(sums) + _mm_extract_epi16::<4>(sums) - 128 * LANES as i32
        })
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
    #[inline(always)]
    fn store_i16(self, a: Self::I, to: &mut [i16; LANES]) {
        isa!(_mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(a)));
    }
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

impl Dot for Avx512 {
    type W = __m512i;
    type N = __m512i;

    const GROUPS: usize = 1;

    #[inline(always)]
    fn load_f32(self, x: &[u8; 64], _g: usize) -> Self::F {
        isa!(_mm512_castsi512_ps(_mm512_loadu_si512(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32], _g: usize) -> Self::F {
        Simd::load_f16(self, x)
    }
    #[inline(always)]
    fn load_u8(self, x: &[u8; LANES], _g: usize) -> Self::F {
        isa!(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(x.as_ptr().cast()))))
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8; LANES], _g: usize) -> Self::F {
        isa!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast()))))
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
    fn store(self, x: Self::F, to: &mut [f32; LANES], _g: usize) {
        Simd::store(self, x, to);
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES], _g: usize) -> Self::F {
        Simd::load(self, x)
    }
    #[inline(always)]
    fn load_w(self, x: &[u8; 64], _g: usize) -> Self::W {
        isa!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn store_w(self, x: Self::W, to: &mut [u8; 64], _g: usize) {
        isa!(_mm512_storeu_si512(to.as_mut_ptr().cast(), x));
    }
    #[inline(always)]
    fn load_pairs_u8(self, x: &[u8; 2 * LANES], _g: usize) -> Self::W {
        isa!(_mm512_cvtepu8_epi16(_mm256_loadu_si256(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_pairs_i8(self, x: &[u8; 2 * LANES], _g: usize) -> Self::W {
        isa!(_mm512_cvtepi8_epi16(_mm256_loadu_si256(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        isa!(_mm_prefetch::<_MM_HINT_T0>(at.cast()));
    }
    #[inline(always)]
    fn prefetch_second(self, at: *const u8) {
        isa!(_mm_prefetch::<_MM_HINT_T1>(at.cast()));
    }
    #[inline(always)]
    fn prefetch_write(self, at: *const u8) {
        super::avx2::prefetch_write(at);
    }
    #[inline(always)]
    fn splat_w(self, x: u8) -> Self::W {
        isa!(_mm512_set1_epi8(x as i8))
    }
    #[inline(always)]
    fn and(self, a: Self::W, b: Self::W) -> Self::W {
        isa!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or(self, a: Self::W, b: Self::W) -> Self::W {
        isa!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn shr4(self, a: Self::W) -> Self::W {
        isa!(_mm512_srli_epi16::<4>(a))
    }
    #[inline(always)]
    fn shr2(self, a: Self::W) -> Self::W {
        isa!(_mm512_srli_epi16::<2>(a))
    }
    #[inline(always)]
    fn shr3(self, a: Self::W) -> Self::W {
        isa!(_mm512_srli_epi16::<3>(a))
    }
    #[inline(always)]
    fn shr5(self, a: Self::W) -> Self::W {
        isa!(_mm512_srli_epi16::<5>(a))
    }
    #[inline(always)]
    fn shr6(self, a: Self::W) -> Self::W {
        isa!(_mm512_srli_epi16::<6>(a))
    }
    #[inline(always)]
    fn table(self, x: &[u8; 16]) -> Self::W {
        isa!(_mm512_broadcast_i32x4(_mm_loadu_si128(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn lookup(self, table: Self::W, index: Self::W) -> Self::W {
        isa!(_mm512_shuffle_epi8(table, index))
    }
    #[inline(always)]
    fn dot(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I {
        isa!(_mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(quad)))
    }
    #[inline(always)]
    fn start_nibbles(self, start: i32) -> Self::N {
        self.splat_i(start)
    }
    #[inline(always)]
    fn dot_nibbles(self, acc: Self::N, w: Self::W, quad: i32) -> Self::N {
        Dot::dot(self, acc, w, quad)
    }
    #[inline(always)]
    fn end_nibbles(self, acc: Self::N, _start: i32) -> Self::I {
        acc
    }
    #[inline(always)]
    fn start_half(self, start: i32) -> Self::N {
        self.splat_i(start)
    }
    #[inline(always)]
    fn scale_halves(self, low: Self::N, high: Self::N, scales: Self::W) -> Self::I {
        isa!({
            let lower = _mm512_set4_epi32(0x0d0c_0d0c, 0x0908_0908, 0x0504_0504, 0x0100_0100);
            let sums = _mm512_mask_shuffle_epi8(low, 0xcccc_cccc_cccc_cccc, high, lower);
            _mm512_madd_epi16(sums, scales)
        })
    }
    #[inline(always)]
    fn start_biased(self, neg128: i32) -> Self::I {
        self.splat_i(neg128)
    }
    #[inline(always)]
    fn dot_biased(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I {
        Dot::dot(self, acc, w, quad)
    }
    #[inline(always)]
    fn even_bf16(self, a: Self::W) -> Self::F {
        isa!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(a)))
    }
    #[inline(always)]
    fn odd_bf16(self, a: Self::W) -> Self::F {
        let upper = self.splat_i(0xffff_0000_u32 as i32);
        isa!(_mm512_castsi512_ps(_mm512_and_si512(a, upper)))
    }
    #[inline(always)]
    fn widen(self, w: Self::W) -> [Self::W; 2] {
        isa!([_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(w)), _mm512_srai_epi16::<8>(w)])
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
    #[inline(always)]
    fn dot_pairs(self, acc: Self::I, w: Self::W, pair: i32) -> Self::I {
        isa!(dpwssd(acc, w, _mm512_set1_epi32(pair)))
    }
}
