//! Dot products of pairs of bfloat16 by `vdpbf16ps`, 16 rows at a time.

use core::arch::x86_64::*;

use super::avx512::Avx512;
use crate::simd::LANES;

/// Proof that the CPU has AVX-512 BF16 and what [`Avx512`] with VNNI stands for.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bf16(Avx512<true>);

impl Avx512Bf16 {
    /// A token, if the CPU has the instructions.
    pub(crate) fn new() -> Option<Self> {
        Avx512::new().filter(|_| is_x86_feature_detected!("avx512bf16")).map(Self)
    }

    /// # Safety
    ///
    /// [`Avx512Bf16::new`] gives a token on this CPU.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        // SAFETY: the caller's contract includes that of `Avx512`.
        Self(unsafe { Avx512::assume() })
    }

    /// The same proof, for everything else.
    #[inline(always)]
    pub(crate) fn avx512(self) -> Avx512<true> {
        self.0
    }

    #[inline(always)]
    pub(crate) fn zero(self) -> __m512 {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm512_setzero_ps() }
    }

    /// Sixteen pairs of weights at any alignment.
    #[inline(always)]
    pub(crate) fn load_pairs(self, x: &[u8; 64]) -> __m512bh {
        // SAFETY: the token proves that the CPU has the instruction, and 64 bytes are there.
        unsafe { pairs(_mm512_loadu_si512(x.as_ptr().cast())) }
    }

    /// `fma(w[2r], x[0], fma(w[2r + 1], x[1], acc[r]))`, each rounded once to nearest even, subnormals
    /// taken for zero; `pair` has `x[0]` in its lower half.
    #[inline(always)]
    pub(crate) fn dot_pair(self, acc: __m512, w: __m512bh, pair: u32) -> __m512 {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe { _mm512_dpbf16_ps(acc, w, pairs(_mm512_set1_epi32(pair as i32))) }
    }

    #[inline(always)]
    pub(crate) fn store(self, x: __m512, to: &mut [f32; LANES]) {
        // SAFETY: the token proves that the CPU has the instruction, and 16 floats are there.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
    }
}

/// The same bits as pairs.
#[inline(always)]
fn pairs(x: __m512i) -> __m512bh {
    // SAFETY: 64 bytes each, and any bits are a value.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(x) }
}
