//! Four rows in a register of Advanced SIMD; integer dots by `sdot`, or by products of 16 bits where the CPU
//! lacks it.

use core::arch::aarch64::*;
use core::arch::asm;

use super::neon::Neon;
use crate::simd::{Dot, LANES, Vector};

/// The proof that [`Neon`] is, for single registers.
#[derive(Clone, Copy)]
pub(crate) struct NeonRows<const DOT: bool>(());

impl<const DOT: bool> NeonRows<DOT> {
    #[inline(always)]
    pub(super) fn new(_: Neon<DOT>) -> Self {
        Self(())
    }

    /// `acc[r] + Σ w[4r + i] * a[i]` of signed bytes whose products' sums of two fit 16 bits.
    #[inline(always)]
    fn dot_signed(self, acc: int32x4_t, w: int8x16_t, quad: i32) -> int32x4_t {
        if DOT {
            return isa!({
                // To the lowest lane: a plain load, where one to all lanes may take a vector unit besides.
                let quad = vsetq_lane_s32::<0>(quad, vdupq_n_s32(0));
                sdot(acc, w, vreinterpretq_s8_s32(quad))
            });
        }
        isa!({
            let a = vreinterpretq_s8_s32(vdupq_n_s32(quad));
            let low = vmull_s8(vget_low_s8(w), vget_low_s8(a));
            vpadalq_s16(acc, vpaddq_s16(low, vmull_high_s8(w, a)))
        })
    }
}

/// `sdot` with the lowest four bytes of `a`. `core::arch` has no stable intrinsic for it yet.
#[inline(always)]
fn sdot(mut acc: int32x4_t, w: int8x16_t, a: int8x16_t) -> int32x4_t {
    // SAFETY: registers only; what calls it has a token of a CPU with FEAT_DotProd.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {acc:v}.4s, {w:v}.16b, {a:v}.4b[0]",
            acc = inout(vreg) acc,
            w = in(vreg) w,
            a = in(vreg) a,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    acc
}

impl<const DOT: bool> Vector for NeonRows<DOT> {
    type F = float32x4_t;
    type I = int32x4_t;

    const WIDE: bool = false;
    const REGISTERS: usize = 32;

    intrinsics! {
        fn splat(self, x: f32) -> Self::F = vdupq_n_f32(x);
        fn splat_i(self, x: i32) -> Self::I = vdupq_n_s32(x);
        fn to_f(self, a: Self::I) -> Self::F = vcvtq_f32_s32(a);
        fn add(self, a: Self::F, b: Self::F) -> Self::F = vaddq_f32(a, b);
        fn mul(self, a: Self::F, b: Self::F) -> Self::F = vmulq_f32(a, b);
        fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F = vfmaq_f32(c, a, b);
        fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F = vfmsq_f32(c, a, b);
    }
}

/// The part of group `g` of what belongs to 16 rows, `N` elements. The remainder costs nothing in a loop, and
/// leaves no bounds to check in it.
#[inline(always)]
fn group<T, const N: usize>(x: &[T], g: usize) -> &[T; N] {
    debug_assert!(g < 4);
    x[g % 4 * N..].first_chunk().expect("four groups")
}

/// Four bytes in the lower half of a register.
#[inline(always)]
fn load_bytes(x: &[u8; LANES], g: usize) -> uint8x8_t {
    isa!(vreinterpret_u8_u32(vdup_n_u32(u32::from_le_bytes(*group(x, g)))))
}

/// The lower four of eight bytes, widened.
#[inline(always)]
fn widen_bytes(x: uint8x8_t) -> uint32x4_t {
    isa!(vmovl_u16(vget_low_u16(vmovl_u8(x))))
}

/// Bits of a vector as 16-bit numbers, and back.
#[inline(always)]
fn halves(w: uint8x16_t) -> int16x8_t {
    isa!(vreinterpretq_s16_u8(w))
}
#[inline(always)]
fn bytes(w: int16x8_t) -> uint8x16_t {
    isa!(vreinterpretq_u8_s16(w))
}

impl<const DOT: bool> Dot for NeonRows<DOT> {
    type W = uint8x16_t;
    type N = int32x4_t;

    const GROUPS: usize = 4;
    const FUSED: bool = true;

    intrinsics! {
        fn load_f32(self, x: &[u8; 64], g: usize) -> Self::F =
            vreinterpretq_f32_u8(self.load_w(x, g));
        fn load_u8(self, x: &[u8; LANES], g: usize) -> Self::F =
            vcvtq_f32_u32(widen_bytes(load_bytes(x, g)));
        fn splat_w(self, x: u8) -> Self::W = vdupq_n_u8(x);
        fn and(self, a: Self::W, b: Self::W) -> Self::W = vandq_u8(a, b);
        fn or(self, a: Self::W, b: Self::W) -> Self::W = vorrq_u8(a, b);
        fn shr4(self, a: Self::W) -> Self::W = vshrq_n_u8::<4>(a);
        fn shr2(self, a: Self::W) -> Self::W = vshrq_n_u8::<2>(a);
        fn shr3(self, a: Self::W) -> Self::W = vshrq_n_u8::<3>(a);
        fn shr5(self, a: Self::W) -> Self::W = vshrq_n_u8::<5>(a);
        fn shr6(self, a: Self::W) -> Self::W = vshrq_n_u8::<6>(a);
        fn table(self, x: &[u8; 16]) -> Self::W = vld1q_u8(x.as_ptr());
        fn lookup(self, table: Self::W, index: Self::W) -> Self::W = vqtbl1q_u8(table, index);
        fn even_bf16(self, a: Self::W) -> Self::F =
            vreinterpretq_f32_u32(vshlq_n_u32::<16>(vreinterpretq_u32_u8(a)));
        fn odd_bf16(self, a: Self::W) -> Self::F =
            vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u8(a), vdupq_n_u32(0xffff_0000)));
        fn load_f16(self, x: &[u8; 32], g: usize) -> Self::F =
            vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(group::<_, 8>(x, g).as_ptr())));
        fn load(self, x: &[f32; LANES], g: usize) -> Self::F =
            vld1q_f32(group::<_, 4>(x, g).as_ptr());
        fn store(self, x: Self::F, to: &mut [f32; LANES], g: usize) =
            vst1q_f32(to[g % 4 * 4..][..4].as_mut_ptr(), x);
        fn load_w(self, x: &[u8; 64], g: usize) -> Self::W =
            vld1q_u8(group::<_, 16>(x, g).as_ptr());
        fn store_w(self, x: Self::W, to: &mut [u8; 64], g: usize) =
            vst1q_u8(to[g % 4 * 16..][..16].as_mut_ptr(), x);
        fn load_pairs_u8(self, x: &[u8; 2 * LANES], g: usize) -> Self::W =
            vreinterpretq_u8_u16(vmovl_u8(vld1_u8(group::<_, 8>(x, g).as_ptr())));
        fn load_pairs_i8(self, x: &[u8; 2 * LANES], g: usize) -> Self::W =
            bytes(vmovl_s8(vreinterpret_s8_u8(vld1_u8(group::<_, 8>(x, g).as_ptr()))));
    }

    methods! {
        fn start_nibbles(self, start: i32) -> Self::N = self.splat_i(start);
        fn dot_nibbles(self, acc: Self::N, w: Self::W, quad: i32) -> Self::N =
            self.dot(acc, w, quad);
        fn end_nibbles(self, acc: Self::N, _start: i32) -> Self::I = acc;
        fn start_half(self, start: i32) -> Self::N = self.splat_i(start);
        fn start_biased(self, _neg128: i32) -> Self::I = self.splat_i(0);
    }

    #[inline(always)]
    fn load_i8(self, x: &[u8; LANES], g: usize) -> Self::F {
        isa!({
            let x = vreinterpret_s8_u8(load_bytes(x, g));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(x))))
        })
    }
    #[inline(always)]
    fn load_power(self, x: &[u8; LANES], g: usize) -> Self::F {
        let x = widen_bytes(load_bytes(x, g));
        isa!({
            let usual = vshlq_n_u32::<23>(vsubq_u32(x, vdupq_n_u32(1)));
            let subnormal = vshlq_u32(vdupq_n_u32(1 << 21), vreinterpretq_s32_u32(x));
            let tiny = vcltq_u32(x, vdupq_n_u32(2));
            vreinterpretq_f32_u32(vbslq_u32(tiny, subnormal, usual))
        })
    }
    #[inline(always)]
    fn load_e4m3(self, x: &[u8; LANES], g: usize) -> Self::F {
        isa!({
            let halves = vshlq_n_u16::<7>(vmovl_u8(load_bytes(x, g)));
            vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(halves)))
        })
    }
    #[inline(always)]
    fn prefetch(self, at: *const u8) {
        // SAFETY: a hint that touches nothing, whatever the address.
        unsafe { asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags)) };
    }
    #[inline(always)]
    fn prefetch_second(self, at: *const u8) {
        // SAFETY: as above.
        unsafe { asm!("prfm pldl2keep, [{}]", in(reg) at, options(nostack, preserves_flags)) };
    }
    #[inline(always)]
    fn prefetch_write(self, at: *const u8) {
        // SAFETY: as above.
        unsafe { asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags)) };
    }
    #[inline(always)]
    fn dot(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I {
        self.dot_signed(acc, isa!(vreinterpretq_s8_u8(w)), quad)
    }
    #[inline(always)]
    fn scale_halves(self, low: Self::N, high: Self::N, scales: Self::W) -> Self::I {
        isa!({
            let scales = vreinterpretq_s32_u8(scales);
            let even = vshrq_n_s32::<16>(vshlq_n_s32::<16>(scales));
            vmlaq_s32(vmulq_s32(low, even), high, vshrq_n_s32::<16>(scales))
        })
    }
    #[inline(always)]
    fn dot_biased(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I {
        // Without the 128, two products reach 2 · 128 · 127 = 32512.
        self.dot_signed(acc, isa!(vreinterpretq_s8_u8(veorq_u8(w, vdupq_n_u8(0x80)))), quad)
    }
    #[inline(always)]
    fn widen(self, w: Self::W) -> [Self::W; 2] {
        let w = halves(w);
        isa!([bytes(vshrq_n_s16::<8>(vshlq_n_s16::<8>(w))), bytes(vshrq_n_s16::<8>(w))])
    }
    #[inline(always)]
    fn widen_nibbles(self, w: Self::W) -> [Self::W; 4] {
        let w = halves(w);
        isa!([
            bytes(vshrq_n_s16::<12>(vshlq_n_s16::<12>(w))),
            bytes(vshrq_n_s16::<12>(vshlq_n_s16::<8>(w))),
            bytes(vshrq_n_s16::<12>(vshlq_n_s16::<4>(w))),
            bytes(vshrq_n_s16::<12>(w)),
        ])
    }
    #[inline(always)]
    fn dot_pairs(self, acc: Self::I, w: Self::W, pair: i32) -> Self::I {
        let w = halves(w);
        isa!({
            let a = vreinterpretq_s16_s32(vdupq_n_s32(pair));
            let low = vmull_s16(vget_low_s16(w), vget_low_s16(a));
            vaddq_s32(acc, vpaddq_s32(low, vmull_high_s16(w, a)))
        })
    }
}
