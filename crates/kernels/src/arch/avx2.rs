//! Sixteen lanes in two AVX2 registers.

use core::arch::asm;
use core::arch::x86_64::*;

use super::avx2_rows::Avx2Rows;
use crate::bf16::LEAST;
use crate::simd::{LANES, Simd, Vector};

/// Proof that the CPU has AVX2, FMA and F16C and, where `VNNI`, dot products of bytes (AVX-VNNI).
#[derive(Clone, Copy)]
pub(crate) struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    /// A token, if the CPU has the instructions.
    pub(crate) fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!VNNI || is_x86_feature_detected!("avxvnni"));
        has.then_some(Self(()))
    }

    /// # Safety
    ///
    /// [`Avx2::new`] gives a token on this CPU.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        Self(())
    }
}

/// Asks for a cache line to write to. The intrinsic asks to read it where the compiler is not told of
/// `prefetchw`, which every CPU with AVX2 has, or takes for nothing.
#[inline(always)]
pub(super) fn prefetch_write(at: *const u8) {
    // SAFETY: a hint that touches nothing, whatever the address.
    unsafe { asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags)) };
}

/// Columns as rows: in both halves of the registers columns of eight rows, and then the halves of 16.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn transpose(from: &[[u16; LANES]; LANES]) -> [[u16; LANES]; LANES] {
    let mut turned = [_mm256_setzero_si256(); LANES];
    for half in 0..2 {
        let mut rows = [_mm256_setzero_si256(); 8];
        for (to, row) in rows.iter_mut().zip(&from[8 * half..]) {
            // SAFETY: 16 elements of two bytes.
            *to = unsafe { _mm256_loadu_si256(row.as_ptr().cast()) };
        }
        let [a, b, c, d, e, f, g, h] = rows;
        let (ab, cd) = (_mm256_unpacklo_epi16(a, b), _mm256_unpacklo_epi16(c, d));
        let (ef, gh) = (_mm256_unpacklo_epi16(e, f), _mm256_unpacklo_epi16(g, h));
        let (ab_high, cd_high) = (_mm256_unpackhi_epi16(a, b), _mm256_unpackhi_epi16(c, d));
        let (ef_high, gh_high) = (_mm256_unpackhi_epi16(e, f), _mm256_unpackhi_epi16(g, h));
        let pairs = [
            [_mm256_unpacklo_epi32(ab, cd), _mm256_unpacklo_epi32(ef, gh)],
            [_mm256_unpackhi_epi32(ab, cd), _mm256_unpackhi_epi32(ef, gh)],
            [_mm256_unpacklo_epi32(ab_high, cd_high), _mm256_unpacklo_epi32(ef_high, gh_high)],
            [_mm256_unpackhi_epi32(ab_high, cd_high), _mm256_unpackhi_epi32(ef_high, gh_high)],
        ];
        for (i, [upper, lower]) in pairs.into_iter().enumerate() {
            turned[8 * half + 2 * i] = _mm256_unpacklo_epi64(upper, lower);
            turned[8 * half + 2 * i + 1] = _mm256_unpackhi_epi64(upper, lower);
        }
    }
    let mut to = [[0; LANES]; LANES];
    for i in 0..8 {
        let (first, second) = (turned[i], turned[8 + i]);
        let columns = [
            _mm256_permute2x128_si256::<0x20>(first, second),
            _mm256_permute2x128_si256::<0x31>(first, second),
        ];
        for (column, i) in columns.into_iter().zip([i, 8 + i]) {
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(to[i].as_mut_ptr().cast(), column) };
        }
    }
    to
}

/// Byte `order[i]` of each 16 at byte `i` of them.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn shuffle(x: &[u8; 64], order: &[u8; 16]) -> [u8; 64] {
    let mut to = [0; 64];
    // SAFETY: 16 bytes.
    let order = unsafe { _mm_loadu_si128(order.as_ptr().cast()) };
    let order = _mm256_broadcastsi128_si256(order);
    for (x, to) in x.as_chunks::<32>().0.iter().zip(to.as_chunks_mut::<32>().0) {
        // SAFETY: 32 bytes each.
        unsafe {
            let x = _mm256_loadu_si256(x.as_ptr().cast());
            _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm256_shuffle_epi8(x, order));
        }
    }
    to
}

/// Sum of eight lanes, in the order of [`Simd::reduce_add`].
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn fold_add(a: __m256) -> f32 {
    let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
    let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
}

/// The greatest of eight lanes.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn fold_max(a: __m256) -> f32 {
    let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
    let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)))
}

/// The same of integers.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn fold_max_i(a: __m256i) -> i32 {
    let a = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
    let a = _mm_max_epi32(a, _mm_shuffle_epi32::<0b01_00_11_10>(a));
    _mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32::<0b10_11_00_01>(a)))
}

/// [`Simd::sum_i8`]: as unsigned bytes 128 higher, which one instruction sums in two groups of eight.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn sum_bytes(a: &[i8; LANES]) -> i32 {
    // SAFETY: 16 bytes are there.
    let a = unsafe { _mm_loadu_si128(a.as_ptr().cast()) };
    let sums = _mm_sad_epu8(_mm_xor_si128(a, _mm_set1_epi8(-128)), _mm_setzero_si128());
    _mm_cvtsi128_si32(sums) + _mm_extract_epi16::<4>(sums) - 128 * LANES as i32
}

/// One intrinsic on both halves.
macro_rules! both {
    ($f:expr, $($a:expr),+) => {
        [$f($($a[0]),+), $f($($a[1]),+)]
    };
}

impl<const VNNI: bool> Vector for Avx2<VNNI> {
    type F = [__m256; 2];
    type I = [__m256i; 2];

    const WIDE: bool = false;
    const REGISTERS: usize = 16;

    intrinsics! {
        fn splat(self, x: f32) -> Self::F = [_mm256_set1_ps(x); 2];
        fn splat_i(self, x: i32) -> Self::I = [_mm256_set1_epi32(x); 2];
        fn to_f(self, a: Self::I) -> Self::F = both!(_mm256_cvtepi32_ps, a);
        fn add(self, a: Self::F, b: Self::F) -> Self::F = both!(_mm256_add_ps, a, b);
        fn mul(self, a: Self::F, b: Self::F) -> Self::F = both!(_mm256_mul_ps, a, b);
        fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F =
            both!(_mm256_fmadd_ps, a, b, c);
        fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F =
            both!(_mm256_fnmadd_ps, a, b, c);
    }
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type Dot = Avx2Rows<VNNI>;

    intrinsics! {
        fn load(self, x: &[f32; LANES]) -> Self::F =
            [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))];
        fn transpose(self, from: &[[u16; LANES]; LANES]) -> [[u16; LANES]; LANES] = transpose(from);
        fn shuffle(self, x: &[u8; 64], order: &[u8; 16]) -> [u8; 64] = shuffle(x, order);
        fn sub(self, a: Self::F, b: Self::F) -> Self::F = both!(_mm256_sub_ps, a, b);
        fn div(self, a: Self::F, b: Self::F) -> Self::F = both!(_mm256_div_ps, a, b);
        fn max(self, a: Self::F, b: Self::F) -> Self::F = both!(_mm256_max_ps, a, b);
        fn min(self, a: Self::F, b: Self::F) -> Self::F = both!(_mm256_min_ps, a, b);
        fn abs(self, a: Self::F) -> Self::F = both!(_mm256_andnot_ps, self.splat(-0.0), a);
        fn truncate(self, a: Self::F) -> Self::I = both!(_mm256_cvttps_epi32, a);
        fn as_bits(self, a: Self::F) -> Self::I = both!(_mm256_castps_si256, a);
        fn as_floats(self, a: Self::I) -> Self::F = both!(_mm256_castsi256_ps, a);
        fn add_i(self, a: Self::I, b: Self::I) -> Self::I = both!(_mm256_add_epi32, a, b);
        fn sub_i(self, a: Self::I, b: Self::I) -> Self::I = both!(_mm256_sub_epi32, a, b);
        fn max_i(self, a: Self::I, b: Self::I) -> Self::I = both!(_mm256_max_epi32, a, b);
        fn halve_i(self, a: Self::I) -> Self::I = both!(_mm256_srai_epi32::<1>, a);
        fn to_exponent(self, a: Self::I) -> Self::I = both!(_mm256_slli_epi32::<23>, a);
        fn reduce_add(self, a: Self::F) -> f32 = fold_add(_mm256_add_ps(a[0], a[1]));
        fn reduce_max(self, a: Self::F) -> f32 = fold_max(_mm256_max_ps(a[0], a[1]));
        fn reduce_max_i(self, a: Self::I) -> i32 = fold_max_i(_mm256_max_epi32(a[0], a[1]));
        fn sum_i8(self, a: &[i8; LANES]) -> i32 = sum_bytes(a);
    }

    methods! {
        fn dot(self) -> Self::Dot = Avx2Rows::new(self);
        fn round_bf16(self, a: Self::F) -> Self::F = [self.round_half(a[0]), self.round_half(a[1])];
    }

    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> Self::F {
        isa!([
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(16).cast())),
        ])
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> Self::F {
        isa!({
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().add(8).cast()));
            [
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
            ]
        })
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
    fn store_bf16(self, x: Self::F, to: &mut [u16; LANES]) {
        isa!({
            let upper = both!(_mm256_srli_epi32::<16>, self.as_bits(x));
            let words = _mm256_packus_epi32(upper[0], upper[1]);
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), words);
        });
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
    fn store_i8(self, a: Self::I, to: &mut [i8; LANES]) {
        isa!({
            let a = both!(_mm256_and_si256, a, self.splat_i(0xff));
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
    fn store_i16(self, a: Self::I, to: &mut [i16; LANES]) {
        isa!({
            let a = both!(_mm256_and_si256, a, self.splat_i(0xffff));
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(a[0], a[1]));
            _mm256_storeu_si256(to.as_mut_ptr().cast(), words);
        });
    }
}

impl<const VNNI: bool> Avx2<VNNI> {
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
