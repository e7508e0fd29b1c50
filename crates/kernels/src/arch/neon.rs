//! Sixteen lanes in four registers of Arm's Advanced SIMD ("NEON").

use core::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use super::neon_rows::NeonRows;
use crate::bf16::LEAST;
use crate::simd::{LANES, Simd, Vector};

/// Proof that the CPU has Advanced SIMD and, where `DOT`, its dot products of bytes (`sdot`, FEAT_DotProd).
#[derive(Clone, Copy)]
pub(crate) struct Neon<const DOT: bool>(());

impl<const DOT: bool> Neon<DOT> {
    /// A token, if the CPU has the instructions.
    pub(crate) fn new() -> Option<Self> {
        let has = is_aarch64_feature_detected!("neon")
            && (!DOT || is_aarch64_feature_detected!("dotprod"));
        has.then_some(Self(()))
    }

    /// # Safety
    ///
    /// [`Neon::new`] gives a token on this CPU.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        Self(())
    }
}

/// One intrinsic on each quarter.
macro_rules! each {
    ($f:expr, $($a:expr),+) => {
        [$f($($a[0]),+), $f($($a[1]),+), $f($($a[2]),+), $f($($a[3]),+)]
    };
}

impl<const DOT: bool> Vector for Neon<DOT> {
    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];

    const WIDE: bool = false;
    const REGISTERS: usize = 32;

    intrinsics! {
        fn splat(self, x: f32) -> Self::F = [vdupq_n_f32(x); 4];
        fn splat_i(self, x: i32) -> Self::I = [vdupq_n_s32(x); 4];
        fn to_f(self, a: Self::I) -> Self::F = each!(vcvtq_f32_s32, a);
        fn add(self, a: Self::F, b: Self::F) -> Self::F = each!(vaddq_f32, a, b);
        fn mul(self, a: Self::F, b: Self::F) -> Self::F = each!(vmulq_f32, a, b);
        fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F = each!(vfmaq_f32, c, a, b);
        fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F = each!(vfmsq_f32, c, a, b);
    }
}

/// One load of each quarter.
macro_rules! load_each {
    ($f:expr, $x:expr) => {
        [$f($x.as_ptr()), $f($x.as_ptr().add(4)), $f($x.as_ptr().add(8)), $f($x.as_ptr().add(12))]
    };
}

/// Eight half floats, widened.
#[inline(always)]
fn widen_halves(x: uint16x8_t) -> [float32x4_t; 2] {
    isa!({
        let x = vreinterpretq_f16_u16(x);
        [vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)]
    })
}

impl<const DOT: bool> Simd for Neon<DOT> {
    type Dot = NeonRows<DOT>;

    intrinsics! {
        fn load(self, x: &[f32; LANES]) -> Self::F = load_each!(vld1q_f32, x);
        fn sub(self, a: Self::F, b: Self::F) -> Self::F = each!(vsubq_f32, a, b);
        fn div(self, a: Self::F, b: Self::F) -> Self::F = each!(vdivq_f32, a, b);
        // Not `fmax` and `fmin`, which give a NaN wherever there is one.
        fn max(self, a: Self::F, b: Self::F) -> Self::F =
            each!(vbslq_f32, each!(vcgtq_f32, a, b), a, b);
        fn min(self, a: Self::F, b: Self::F) -> Self::F =
            each!(vbslq_f32, each!(vcltq_f32, a, b), a, b);
        fn abs(self, a: Self::F) -> Self::F = each!(vabsq_f32, a);
        fn truncate(self, a: Self::F) -> Self::I = each!(vcvtq_s32_f32, a);
        fn as_bits(self, a: Self::F) -> Self::I = each!(vreinterpretq_s32_f32, a);
        fn as_floats(self, a: Self::I) -> Self::F = each!(vreinterpretq_f32_s32, a);
        fn add_i(self, a: Self::I, b: Self::I) -> Self::I = each!(vaddq_s32, a, b);
        fn sub_i(self, a: Self::I, b: Self::I) -> Self::I = each!(vsubq_s32, a, b);
        fn max_i(self, a: Self::I, b: Self::I) -> Self::I = each!(vmaxq_s32, a, b);
        fn halve_i(self, a: Self::I) -> Self::I = each!(vshrq_n_s32::<1>, a);
        fn to_exponent(self, a: Self::I) -> Self::I = each!(vshlq_n_s32::<23>, a);
        fn reduce_max_i(self, a: Self::I) -> i32 =
            vmaxvq_s32(vmaxq_s32(vmaxq_s32(a[0], a[2]), vmaxq_s32(a[1], a[3])));
        fn round_bf16(self, a: Self::F) -> Self::F = each!(round_quarter, a);
    }

    methods! {
        fn dot(self) -> Self::Dot = NeonRows::new(self);
    }

    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> Self::F {
        isa!({
            let low = widen_halves(vreinterpretq_u16_u8(vld1q_u8(x.as_ptr())));
            let high = widen_halves(vreinterpretq_u16_u8(vld1q_u8(x.as_ptr().add(16))));
            [low[0], low[1], high[0], high[1]]
        })
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> Self::F {
        isa!({
            let (low, high) = (vld1q_u16(x.as_ptr()), vld1q_u16(x.as_ptr().add(8)));
            [
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(low))),
                vreinterpretq_f32_u32(vshll_high_n_u16::<16>(low)),
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(high))),
                vreinterpretq_f32_u32(vshll_high_n_u16::<16>(high)),
            ]
        })
    }
    #[inline(always)]
    fn store(self, x: Self::F, to: &mut [f32; LANES]) {
        let to = to.as_mut_ptr();
        isa!({
            vst1q_f32(to, x[0]);
            vst1q_f32(to.add(4), x[1]);
            vst1q_f32(to.add(8), x[2]);
            vst1q_f32(to.add(12), x[3]);
        });
    }
    #[inline(always)]
    fn store_f16(self, x: Self::F, to: &mut [u16; LANES]) {
        isa!({
            let low = vcvt_high_f16_f32(vcvt_f16_f32(x[0]), x[1]);
            let high = vcvt_high_f16_f32(vcvt_f16_f32(x[2]), x[3]);
            vst1q_u16(to.as_mut_ptr(), vreinterpretq_u16_f16(low));
            vst1q_u16(to.as_mut_ptr().add(8), vreinterpretq_u16_f16(high));
        });
    }
    #[inline(always)]
    fn store_bf16(self, x: Self::F, to: &mut [u16; LANES]) {
        isa!({
            let bits = each!(vreinterpretq_u32_f32, x);
            let low = vshrn_high_n_u32::<16>(vshrn_n_u32::<16>(bits[0]), bits[1]);
            let high = vshrn_high_n_u32::<16>(vshrn_n_u32::<16>(bits[2]), bits[3]);
            vst1q_u16(to.as_mut_ptr(), low);
            vst1q_u16(to.as_mut_ptr().add(8), high);
        });
    }
    #[inline(always)]
    fn first(self, n: usize, a: Self::F, fill: Self::F) -> Self::F {
        const PLACES: [i32; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        isa!({
            let at = load_each!(vld1q_s32, PLACES);
            let own = each!(vcltq_s32, at, self.splat_i(n as i32));
            each!(vbslq_f32, own, a, fill)
        })
    }
    #[inline(always)]
    fn reduce_add(self, a: Self::F) -> f32 {
        isa!({
            let a = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
            let a = vadd_f32(vget_low_f32(a), vget_high_f32(a));
            vget_lane_f32::<0>(a) + vget_lane_f32::<1>(a)
        })
    }
    #[inline(always)]
    fn reduce_max(self, a: Self::F) -> f32 {
        let max = |a, b| isa!(vbslq_f32(vcgtq_f32(a, b), a, b));
        let a = max(max(a[0], a[2]), max(a[1], a[3]));
        isa!({
            let (low, high) = (vget_low_f32(a), vget_high_f32(a));
            let a = vbsl_f32(vcgt_f32(low, high), low, high);
            let (even, odd) = (vget_lane_f32::<0>(a), vget_lane_f32::<1>(a));
            if even > odd { even } else { odd }
        })
    }
    #[inline(always)]
    fn store_i8(self, a: Self::I, to: &mut [i8; LANES]) {
        isa!({
            let low = vmovn_high_s32(vmovn_s32(a[0]), a[1]);
            let high = vmovn_high_s32(vmovn_s32(a[2]), a[3]);
            vst1q_s8(to.as_mut_ptr(), vmovn_high_s16(vmovn_s16(low), high));
        });
    }
    #[inline(always)]
    fn sum_i8(self, a: &[i8; LANES]) -> i32 {
        i32::from(isa!(vaddlvq_s8(vld1q_s8(a.as_ptr()))))
    }
    #[inline(always)]
    fn store_i16(self, a: Self::I, to: &mut [i16; LANES]) {
        isa!({
            vst1q_s16(to.as_mut_ptr(), vmovn_high_s32(vmovn_s32(a[0]), a[1]));
            vst1q_s16(to.as_mut_ptr().add(8), vmovn_high_s32(vmovn_s32(a[2]), a[3]));
        });
    }
}

/// [`Simd::round_bf16`] of one register.
///
/// # Safety
///
/// The CPU has Advanced SIMD.
#[inline(always)]
unsafe fn round_quarter(a: float32x4_t) -> float32x4_t {
    isa!({
        let bits = vreinterpretq_u32_f32(a);
        let last = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
        let half = vaddq_u32(last, vdupq_n_u32(0x7fff));
        let rounded = vandq_u32(vaddq_u32(bits, half), vdupq_n_u32(0xffff_0000));
        // The addition might carry a NaN over into zero.
        let rounded = vbslq_u32(vceqq_f32(a, a), rounded, vdupq_n_u32(0x7fc0_0000));
        let small = vcltq_f32(vabsq_f32(a), vdupq_n_f32(LEAST));
        vreinterpretq_f32_u32(vbicq_u32(rounded, small))
    })
}
