//! Sixteen lanes in two AVX2 registers, eight rows in one; integer dots by `vpmaddubsw` and
//! `vpmaddwd`.
//!
//! `vpmaddubsw` adds two products with 16-bit saturation: exact for weights of 7 bits (2 · 127 ·
//! 127 = 32258). Eight-bit weights lose their bias first and give their sign to the activation (2 ·
//! 128 · 127 = 32512).

use core::arch::asm;
use core::arch::x86_64::*;

use crate::bf16::LEAST;
use crate::simd::{Dot, LANES, Simd, Vector};

/// Proof that the CPU has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Whether the CPU has what a token stands for.
    pub(crate) fn available() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
    }

    /// # Safety
    ///
    /// [`Avx2::available`] must hold.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Intrinsics whose only demand is the instruction set.
macro_rules! isa {
    ($e:expr) => {
        // SAFETY: the method has a token, so the CPU has the instructions; pointers come from
        // arrays of 16 elements (or 64 bytes), of which each register takes the lower or the upper
        // half.
        unsafe { $e }
    };
}

/// One intrinsic on both halves.
macro_rules! both {
    ($f:expr, $($a:expr),+) => {
        [isa!($f($($a[0]),+)), isa!($f($($a[1]),+))]
    };
}

impl Vector for Avx2 {
    type F = [__m256; 2];
    type I = [__m256i; 2];

    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [isa!(_mm256_set1_ps(x)); 2]
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> Self::I {
        [isa!(_mm256_set1_epi32(x)); 2]
    }
    #[inline(always)]
    fn to_f(self, a: Self::I) -> Self::F {
        both!(_mm256_cvtepi32_ps, a)
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_add_ps, a, b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_mul_ps, a, b)
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both!(_mm256_fmadd_ps, a, b, c)
    }
    #[inline(always)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both!(_mm256_fnmadd_ps, a, b, c)
    }
}

impl Simd for Avx2 {
    type Dot = Avx2Rows;

    #[inline(always)]
    fn dot(self) -> Avx2Rows {
        Avx2Rows(self)
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::F {
        isa!([_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))])
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> Self::F {
        isa!([
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(16).cast())),
        ])
    }
    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; LANES]) {
        isa!({
            _mm256_storeu_ps(to.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), x[1]);
        });
    }
    #[inline(always)]
    fn store_f16(self, x: Self::F, to: &mut [u16; LANES]) {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
        isa!({
            _mm_storeu_si128(to.as_mut_ptr().cast(), _mm256_cvtps_ph::<NEAREST>(x[0]));
            _mm_storeu_si128(to.as_mut_ptr().add(8).cast(), _mm256_cvtps_ph::<NEAREST>(x[1]));
        });
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_sub_ps, a, b)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_div_ps, a, b)
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_max_ps, a, b)
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_min_ps, a, b)
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        let sign = self.splat(-0.0);
        both!(_mm256_andnot_ps, sign, a)
    }
    #[inline(always)]
    fn first(self, n: usize, a: Self::F, fill: Self::F) -> Self::F {
        isa!({
            let n = _mm256_set1_epi32(n as i32);
            let low = _mm256_cmpgt_epi32(n, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            let high = _mm256_cmpgt_epi32(n, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
            [
                _mm256_blendv_ps(fill[0], a[0], _mm256_castsi256_ps(low)),
                _mm256_blendv_ps(fill[1], a[1], _mm256_castsi256_ps(high)),
            ]
        })
    }
    #[inline(always)]
    fn reduce_add(self, a: Self::F) -> f32 {
        isa!({
            let a = _mm256_add_ps(a[0], a[1]);
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
        })
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::F) -> f32 {
        isa!({
            let a = _mm256_max_ps(a[0], a[1]);
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)))
        })
    }
    #[inline(always)]
    fn as_bits(self, a: Self::F) -> Self::I {
        both!(_mm256_castps_si256, a)
    }
    #[inline(always)]
    fn as_floats(self, a: Self::I) -> Self::F {
        both!(_mm256_castsi256_ps, a)
    }
    #[inline(always)]
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_add_epi32, a, b)
    }
    #[inline(always)]
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_sub_epi32, a, b)
    }
    #[inline(always)]
    fn max_i(self, a: Self::I, b: Self::I) -> Self::I {
        both!(_mm256_max_epi32, a, b)
    }
    #[inline(always)]
    fn halve_i(self, a: Self::I) -> Self::I {
        both!(_mm256_srai_epi32::<1>, a)
    }
    #[inline(always)]
    fn to_exponent(self, a: Self::I) -> Self::I {
        both!(_mm256_slli_epi32::<23>, a)
    }
    #[inline(always)]
    fn reduce_max_i(self, a: Self::I) -> i32 {
        isa!({
            let a = _mm256_max_epi32(a[0], a[1]);
            let a = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let a = _mm_max_epi32(a, _mm_shuffle_epi32::<0b01_00_11_10>(a));
            _mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32::<0b10_11_00_01>(a)))
        })
    }
    #[inline(always)]
    fn store_i8(self, a: Self::I, to: &mut [i8; LANES]) {
        let byte = self.splat_i(0xff);
        let a = both!(_mm256_and_si256, a, byte);
        isa!({
            // Packing works within 128-bit halves: the permutation puts the four groups of four
            // back in order.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(a[0], a[1]));
            let bytes = _mm_packus_epi16(
                _mm256_castsi256_si128(words),
                _mm256_extracti128_si256::<1>(words),
            );
            _mm_storeu_si128(to.as_mut_ptr().cast(), bytes);
        });
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
        [self.round_half(a[0]), self.round_half(a[1])]
    }
    #[inline(always)]
    fn store_i16(self, a: Self::I, to: &mut [i16; LANES]) {
        let half = self.splat_i(0xffff);
        let a = both!(_mm256_and_si256, a, half);
        isa!({
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(a[0], a[1]));
            _mm256_storeu_si256(to.as_mut_ptr().cast(), words);
        });
    }
}

impl Avx2 {
    /// [`Simd::round_bf16`] of one register.
    #[inline(always)]
    fn round_half(self, a: __m256) -> __m256 {
        isa!({
            let bits = _mm256_castps_si256(a);
            let last = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff));
            let kept = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            let rounded = _mm256_and_si256(_mm256_add_epi32(bits, half), kept);
            // The addition might carry a NaN over into zero.
            let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a);
            let quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc0_0000));
            let rounded = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), quiet, nan);
            let magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
            let small = _mm256_cmp_ps::<_CMP_LT_OQ>(magnitude, _mm256_set1_ps(LEAST));
            _mm256_andnot_ps(small, rounded)
        })
    }
}

/// The same proof, for single registers.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Rows(Avx2);

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

impl Avx2Rows {
    /// A group's bytes, widened.
    #[inline(always)]
    fn load_bytes(self, x: &[u8; LANES], g: usize) -> __m256i {
        let x: &[u8; 8] = group(x, g);
        isa!(_mm256_cvtepu8_epi32(_mm_loadl_epi64(x.as_ptr().cast())))
    }
    /// `acc` and the sums of each lane's two pair sums.
    #[inline(always)]
    fn widen_add(self, acc: __m256i, pairs: __m256i) -> __m256i {
        isa!(_mm256_add_epi32(acc, _mm256_madd_epi16(pairs, opaque(_mm256_set1_epi16(1)))))
    }
}

impl Vector for Avx2Rows {
    type F = __m256;
    type I = __m256i;

    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        isa!(_mm256_set1_ps(x))
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> Self::I {
        isa!(_mm256_set1_epi32(x))
    }
    #[inline(always)]
    fn to_f(self, a: Self::I) -> Self::F {
        isa!(_mm256_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        isa!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        isa!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        isa!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        isa!(_mm256_fnmadd_ps(a, b, c))
    }
}

/// Elements `8g..8g + 8` of what belongs to 16 rows, `N` bytes.
#[inline(always)]
fn group<const N: usize>(x: &[u8], g: usize) -> &[u8; N] {
    x[g * N..].first_chunk().expect("two groups")
}

impl Dot for Avx2Rows {
    type W = __m256i;
    /// Pair sums in 16 bits: 8 dots reach 8 · 2 · 15 · 127 = 30480 at most.
    type N = __m256i;

    const GROUPS: usize = 2;

    #[inline(always)]
    fn load_f32(self, x: &[u8; 64], g: usize) -> Self::F {
        isa!(_mm256_castsi256_ps(self.load_w(x, g)))
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32], g: usize) -> Self::F {
        let x: &[u8; 16] = group(x, g);
        isa!(_mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_u8(self, x: &[u8; LANES], g: usize) -> Self::F {
        isa!(_mm256_cvtepi32_ps(self.load_bytes(x, g)))
    }
    #[inline(always)]
    fn load_i8(self, x: &[u8; LANES], g: usize) -> Self::F {
        let x: &[u8; 8] = group(x, g);
        isa!(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(x.as_ptr().cast()))))
    }
    #[inline(always)]
    fn load_power(self, x: &[u8; LANES], g: usize) -> Self::F {
        let x = self.load_bytes(x, g);
        isa!({
            let usual = _mm256_slli_epi32::<23>(_mm256_sub_epi32(x, _mm256_set1_epi32(1)));
            let subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(1 << 21), x);
            let tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), x);
            _mm256_castsi256_ps(_mm256_blendv_epi8(usual, subnormal, tiny))
        })
    }
    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; LANES], g: usize) {
        let to = &mut to[g * 8..][..8];
        isa!(_mm256_storeu_ps(to.as_mut_ptr(), x));
    }

    #[inline(always)]
    fn load_w(self, x: &[u8; 64], g: usize) -> Self::W {
        let x: &[u8; 32] = group(x, g);
        isa!(_mm256_loadu_si256(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn prefetch_second(self, at: *const u8) {
        isa!(_mm_prefetch::<_MM_HINT_T1>(at.cast()));
    }
    #[inline(always)]
    fn load_pairs_u8(self, x: &[u8; 2 * LANES], g: usize) -> Self::W {
        let x: &[u8; 16] = group(x, g);
        isa!(_mm256_cvtepu8_epi16(_mm_loadu_si128(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_pairs_i8(self, x: &[u8; 2 * LANES], g: usize) -> Self::W {
        let x: &[u8; 16] = group(x, g);
        isa!(_mm256_cvtepi8_epi16(_mm_loadu_si128(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        isa!(_mm_prefetch::<_MM_HINT_T0>(at.cast()));
    }
    #[inline(always)]
    fn splat_w(self, x: u8) -> Self::W {
        isa!(opaque(_mm256_set1_epi8(x as i8)))
    }
    #[inline(always)]
    fn and(self, a: Self::W, b: Self::W) -> Self::W {
        isa!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn or(self, a: Self::W, b: Self::W) -> Self::W {
        isa!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn shr4(self, a: Self::W) -> Self::W {
        isa!(_mm256_srli_epi16::<4>(a))
    }
    #[inline(always)]
    fn shr2(self, a: Self::W) -> Self::W {
        isa!(_mm256_srli_epi16::<2>(a))
    }
    #[inline(always)]
    fn shr3(self, a: Self::W) -> Self::W {
        isa!(_mm256_srli_epi16::<3>(a))
    }
    #[inline(always)]
    fn shr5(self, a: Self::W) -> Self::W {
        isa!(_mm256_srli_epi16::<5>(a))
    }
    #[inline(always)]
    fn shr6(self, a: Self::W) -> Self::W {
        isa!(_mm256_srli_epi16::<6>(a))
    }

    #[inline(always)]
    fn table(self, x: &[u8; 16]) -> Self::W {
        isa!(opaque(_mm256_broadcastsi128_si256(_mm_loadu_si128(x.as_ptr().cast()))))
    }
    #[inline(always)]
    fn lookup(self, table: Self::W, index: Self::W) -> Self::W {
        isa!(_mm256_shuffle_epi8(table, index))
    }

    #[inline(always)]
    fn dot(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I {
        self.widen_add(acc, isa!(_mm256_maddubs_epi16(w, self.splat_i(quad))))
    }
    #[inline(always)]
    fn dot_two(self, acc: Self::I, w: [Self::W; 2], quads: [i32; 2]) -> Self::I {
        // Pair sums in 16 bits: 2 · 2 · 63 · 127 = 32004 at most.
        let first = isa!(_mm256_maddubs_epi16(w[0], self.splat_i(quads[0])));
        self.widen_add(acc, self.dot_nibbles(first, w[1], quads[1]))
    }
    #[inline(always)]
    fn start_nibbles(self, _start: i32) -> Self::N {
        self.splat_i(0)
    }
    #[inline(always)]
    fn dot_nibbles(self, acc: Self::N, w: Self::W, quad: i32) -> Self::N {
        // The saturating sum never saturates, but the compiler may not regroup it: as a tree, the
        // sums of a register tile would not fit into 16 registers.
        isa!(_mm256_adds_epi16(acc, _mm256_maddubs_epi16(w, self.splat_i(quad))))
    }
    #[inline(always)]
    fn end_nibbles(self, acc: Self::N, start: i32) -> Self::I {
        self.widen_add(self.splat_i(start), acc)
    }
    #[inline(always)]
    fn start_half(self, start: i32) -> Self::N {
        // In the lower of each two pair sums.
        self.splat_i(start & 0xffff)
    }
    #[inline(always)]
    fn scale_halves(self, low: Self::N, high: Self::N, scales: Self::W) -> Self::I {
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
    fn start_biased(self, _neg128: i32) -> Self::I {
        self.splat_i(0)
    }
    #[inline(always)]
    fn dot_biased(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I {
        isa!({
            let signed = _mm256_xor_si256(w, opaque(_mm256_set1_epi8(-128)));
            let quad = _mm256_sign_epi8(_mm256_set1_epi32(quad), signed);
            self.widen_add(acc, _mm256_maddubs_epi16(_mm256_abs_epi8(signed), quad))
        })
    }
    #[inline(always)]
    fn even_bf16(self, a: Self::W) -> Self::F {
        isa!(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(a)))
    }
    #[inline(always)]
    fn odd_bf16(self, a: Self::W) -> Self::F {
        let upper = isa!(opaque(_mm256_set1_epi32(0xffff_0000_u32 as i32)));
        isa!(_mm256_castsi256_ps(_mm256_and_si256(a, upper)))
    }
    #[inline(always)]
    fn widen(self, w: Self::W) -> [Self::W; 2] {
        isa!([_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w)), _mm256_srai_epi16::<8>(w)])
    }
    #[inline(always)]
    fn dot_pairs(self, acc: Self::I, w: Self::W, pair: i32) -> Self::I {
        // Not to be regrouped: as a tree, the sums would not fit into 16 registers.
        isa!(opaque(_mm256_add_epi32(acc, _mm256_madd_epi16(w, _mm256_set1_epi32(pair)))))
    }
}
