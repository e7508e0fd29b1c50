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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
    unsafe fn dot(acc: f32, w: u32, x: u32) -> f32 {
        // SAFETY: the caller has asked the CPU.
        let d = unsafe { Avx512Bf16::assume() };
        let mut out = [0.0; LANES];
        d.store(d.dot_pair(_mm512_set1_ps(acc), pairs(_mm512_set1_epi32(w as i32)), x), &mut out);
        out[0]
    }

    #[test]
    fn the_instruction_does_what_its_manual_says() {
        if Avx512Bf16::new().is_none() {
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
}
