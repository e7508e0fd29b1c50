//! Products of two rows and two columns of bytes (`smmla`, FEAT_I8MM: Neoverse V1, N2 and later).

use core::arch::aarch64::*;
use core::arch::asm;
use std::arch::is_aarch64_feature_detected;

use super::neon::Neon;
use super::neon_rows::NeonRows;
use crate::simd::Simd;

/// Four rows of a tile.
pub(crate) type Rows4 = NeonRows<true>;

/// Proof that the CPU has FEAT_I8MM and what [`Neon`] with dot products stands for.
#[derive(Clone, Copy)]
pub(crate) struct I8mm(Neon<true>);

impl I8mm {
    /// A token, if the CPU has the instructions.
    pub(crate) fn new() -> Option<Self> {
        Neon::new().filter(|_| is_aarch64_feature_detected!("i8mm")).map(Self)
    }

    /// # Safety
    ///
    /// [`I8mm::new`] gives a token on this CPU.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        // SAFETY: the caller's contract includes that of `Neon`.
        Self(unsafe { Neon::assume() })
    }

    /// The same proof, for everything else.
    #[inline(always)]
    pub(crate) fn rows(self) -> Rows4 {
        Simd::dot(self.0)
    }

    /// `acc[2i + j] + Σ w[8i + c] * a[8j + c]` over eight columns. `core::arch` has no stable intrinsic for it
    /// yet.
    #[inline(always)]
    pub(crate) fn multiply(self, mut acc: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
        // SAFETY: the token proves that the instruction may be used; registers only.
        unsafe {
            asm!(
                ".arch_extension i8mm",
                "smmla {acc:v}.4s, {w:v}.16b, {a:v}.16b",
                acc = inout(vreg) acc,
                w = in(vreg) w,
                a = in(vreg) a,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        acc
    }

    #[inline(always)]
    pub(crate) fn load_two(self, x: &[u8; 32]) -> [int8x16_t; 2] {
        let x: *const i8 = x.as_ptr().cast();
        isa!([vld1q_s8(x), vld1q_s8(x.add(16))])
    }
    #[inline(always)]
    pub(crate) fn load_octets(self, x: &[[i8; 8]; 2]) -> int8x16_t {
        isa!(vld1q_s8(x.as_flattened().as_ptr()))
    }
    /// Eight bytes and eight zeros.
    #[inline(always)]
    pub(crate) fn load_octet(self, x: &[i8; 8]) -> int8x16_t {
        isa!(vcombine_s8(vld1_s8(x.as_ptr()), vdup_n_s8(0)))
    }
    #[inline(always)]
    pub(crate) fn load_floats(self, x: &[f32; 4]) -> float32x4_t {
        isa!(vld1q_f32(x.as_ptr()))
    }

    /// Lanes in turn: of the lower halves, of the upper ones.
    #[inline(always)]
    pub(crate) fn zip(self, a: float32x4_t, b: float32x4_t) -> [float32x4_t; 2] {
        isa!([vzip1q_f32(a, b), vzip2q_f32(a, b)])
    }
    /// The reverse of [`I8mm::zip`].
    #[inline(always)]
    pub(crate) fn unzip(self, [a, b]: [float32x4_t; 2]) -> [float32x4_t; 2] {
        isa!([vuzp1q_f32(a, b), vuzp2q_f32(a, b)])
    }
    /// Four bytes in turn, as bytes.
    #[inline(always)]
    pub(crate) fn zip_quads(self, a: uint8x16_t, b: uint8x16_t) -> [[u8; 16]; 2] {
        let mut bytes = [[0; 16]; 2];
        isa!({
            let (a, b) = (vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b));
            vst1q_u8(bytes[0].as_mut_ptr(), vreinterpretq_u8_u32(vzip1q_u32(a, b)));
            vst1q_u8(bytes[1].as_mut_ptr(), vreinterpretq_u8_u32(vzip2q_u32(a, b)));
        });
        bytes
    }

    /// `iters` rounds of products without anything around them; gives the multiply-accumulates done.
    #[inline(always)]
    pub(crate) fn peak(self, iters: u64) -> u64 {
        const CHAINS: usize = 12;
        let mut acc = [isa!(vdupq_n_s32(0)); CHAINS];
        let (w, a) = (isa!(vdupq_n_s8(3)), isa!(vdupq_n_s8(1)));
        for _ in 0..iters {
            // As the kernels have them: operands that might have changed.
            let a = std::hint::black_box(a);
            for acc in &mut acc {
                *acc = self.multiply(*acc, w, a);
            }
        }
        std::hint::black_box(acc);
        iters * (CHAINS * 32) as u64
    }
}
