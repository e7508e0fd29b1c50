//! Sixteen lanes as an array: the specification, and the only implementation on CPUs without SIMD
//! code here.

use crate::bf16::LEAST;
use crate::simd::{Dot, LANES, Simd, Vector};

/// Token of the plain Rust implementation; anybody may make one.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

impl Scalar {
    /// A token.
    pub(crate) fn new() -> Option<Self> {
        Some(Self)
    }

    /// # Safety
    ///
    /// None is needed: it is named as those of other instruction sets.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        Self
    }
}

/// As [`std::array::from_fn`], but the compiler unrolls it wherever it stands.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "an iterator is not always unrolled")]
fn from_fn<T: Copy + Default, const N: usize>(f: impl Fn(usize) -> T) -> [T; N] {
    let mut all = [T::default(); N];
    for i in 0..N {
        all[i] = f(i);
    }
    all
}

#[inline(always)]
fn map<T: Copy, U: Copy + Default, const N: usize>(a: [T; N], f: impl Fn(T) -> U) -> [U; N] {
    from_fn(|i| f(a[i]))
}

#[inline(always)]
fn map2<T: Copy + Default>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> T) -> [T; LANES] {
    from_fn(|i| f(a[i], b[i]))
}

/// Folds 16 lanes: `i` with `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
#[inline(always)]
fn tree<T: Copy>(mut a: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            a[i] = f(a[i], a[i + half]);
        }
    }
    a[0]
}

#[inline(always)]
fn quads(quad: i32) -> [i32; 4] {
    map(quad.to_le_bytes(), |b| i32::from(b as i8))
}

impl Vector for Scalar {
    type F = [f32; LANES];
    type I = [i32; LANES];

    const WIDE: bool = false;
    const REGISTERS: usize = 0;

    methods! {
        fn splat(self, x: f32) -> Self::F = [x; LANES];
        fn splat_i(self, x: i32) -> Self::I = [x; LANES];
        fn to_f(self, a: Self::I) -> Self::F = map(a, |v| v as f32);
        fn add(self, a: Self::F, b: Self::F) -> Self::F = map2(a, b, |a, b| a + b);
        fn mul(self, a: Self::F, b: Self::F) -> Self::F = map2(a, b, |a, b| a * b);
        fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F =
            from_fn(|i| a[i].mul_add(b[i], c[i]));
        fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F =
            from_fn(|i| (-a[i]).mul_add(b[i], c[i]));
    }
}

impl Simd for Scalar {
    type Dot = Self;

    methods! {
        fn dot(self) -> Self = self;
        fn load(self, x: &[f32; LANES]) -> Self::F = *x;
        fn load_f16(self, x: &[u8; 32]) -> Self::F =
            std::array::from_fn(|i| half::f16::from_le_bytes([x[2 * i], x[2 * i + 1]]).to_f32());
        fn load_bf16(self, x: &[u16; LANES]) -> Self::F =
            map(*x, |bits| f32::from_bits(u32::from(bits) << 16));
        fn store(self, x: Self::F, to: &mut [f32; LANES]) = *to = x;
        fn store_f16(self, x: Self::F, to: &mut [u16; LANES]) =
            *to = map(x, |v| half::f16::from_f32(v).to_bits());
        fn store_bf16(self, x: Self::F, to: &mut [u16; LANES]) =
            *to = map(x, |v| (v.to_bits() >> 16) as u16);
        fn sub(self, a: Self::F, b: Self::F) -> Self::F = map2(a, b, |a, b| a - b);
        fn div(self, a: Self::F, b: Self::F) -> Self::F = map2(a, b, |a, b| a / b);
        fn max(self, a: Self::F, b: Self::F) -> Self::F =
            map2(a, b, |a, b| if a > b { a } else { b });
        fn min(self, a: Self::F, b: Self::F) -> Self::F =
            map2(a, b, |a, b| if a < b { a } else { b });
        fn abs(self, a: Self::F) -> Self::F = map(a, f32::abs);
        fn first(self, n: usize, a: Self::F, fill: Self::F) -> Self::F =
            from_fn(|i| if i < n { a[i] } else { fill[i] });
        fn reduce_add(self, a: Self::F) -> f32 = tree(a, |a, b| a + b);
        fn reduce_max(self, a: Self::F) -> f32 = tree(a, |a, b| if a > b { a } else { b });
        fn truncate(self, a: Self::F) -> Self::I = map(a, |v| v as i32);
        fn as_bits(self, a: Self::F) -> Self::I = map(a, |v| v.to_bits() as i32);
        fn as_floats(self, a: Self::I) -> Self::F = map(a, |v| f32::from_bits(v as u32));
        fn add_i(self, a: Self::I, b: Self::I) -> Self::I = map2(a, b, i32::wrapping_add);
        fn sub_i(self, a: Self::I, b: Self::I) -> Self::I = map2(a, b, i32::wrapping_sub);
        fn max_i(self, a: Self::I, b: Self::I) -> Self::I = map2(a, b, i32::max);
        fn halve_i(self, a: Self::I) -> Self::I = map(a, |v| v >> 1);
        fn to_exponent(self, a: Self::I) -> Self::I = map(a, |v| v << 23);
        fn reduce_max_i(self, a: Self::I) -> i32 = tree(a, i32::max);
        fn store_i8(self, a: Self::I, to: &mut [i8; LANES]) = *to = map(a, |v| v as i8);
        fn sum_i8(self, a: &[i8; LANES]) -> i32 = a.iter().map(|&q| i32::from(q)).sum();
        fn round_bf16(self, a: Self::F) -> Self::F =
            map(a, |x| if x.abs() < LEAST { 0.0 } else { half::bf16::from_f32(x).to_f32() });
        fn store_i16(self, a: Self::I, to: &mut [i16; LANES]) = *to = map(a, |v| v as i16);
    }
}

impl Dot for Scalar {
    type W = [u8; 64];
    type N = [i32; LANES];

    const GROUPS: usize = 1;
    const FUSED: bool = true;

    methods! {
        fn load_f16(self, x: &[u8; 32], _g: usize) -> Self::F = Simd::load_f16(self, x);
        fn load_u8(self, x: &[u8; LANES], _g: usize) -> Self::F = map(*x, f32::from);
        fn load_i8(self, x: &[u8; LANES], _g: usize) -> Self::F = map(*x, |b| f32::from(b as i8));
        fn store(self, x: Self::F, to: &mut [f32; LANES], _g: usize) = Simd::store(self, x, to);
        fn load(self, x: &[f32; LANES], _g: usize) -> Self::F = *x;
        fn load_w(self, x: &[u8; 64], _g: usize) -> Self::W = *x;
        fn store_w(self, x: Self::W, to: &mut [u8; 64], _g: usize) = *to = x;
        fn load_pairs_u8(self, x: &[u8; 2 * LANES], _g: usize) -> Self::W = pairs(map(*x, i16::from));
        fn load_pairs_i8(self, x: &[u8; 2 * LANES], _g: usize) -> Self::W =
            pairs(map(*x, |b| i16::from(b as i8)));
        fn prefetch(self, _at: *const u8) = ();
        fn prefetch_second(self, _at: *const u8) = ();
        fn prefetch_write(self, _at: *const u8) = ();
        fn splat_w(self, x: u8) -> Self::W = [x; 64];
        fn and(self, a: Self::W, b: Self::W) -> Self::W = from_fn(|i| a[i] & b[i]);
        fn or(self, a: Self::W, b: Self::W) -> Self::W = from_fn(|i| a[i] | b[i]);
        fn shr4(self, a: Self::W) -> Self::W = map(a, |b| b >> 4);
        fn shr2(self, a: Self::W) -> Self::W = map(a, |b| b >> 2);
        fn shr3(self, a: Self::W) -> Self::W = map(a, |b| b >> 3);
        fn shr5(self, a: Self::W) -> Self::W = map(a, |b| b >> 5);
        fn shr6(self, a: Self::W) -> Self::W = map(a, |b| b >> 6);
        fn table(self, x: &[u8; 16]) -> Self::W = from_fn(|i| x[i % 16]);
        fn lookup(self, table: Self::W, index: Self::W) -> Self::W =
            from_fn(|i| table[i / 16 * 16 + usize::from(index[i] & 15)]);
        fn start_nibbles(self, start: i32) -> Self::N = [start; LANES];
        fn dot_nibbles(self, acc: Self::N, w: Self::W, quad: i32) -> Self::N =
            Dot::dot(self, acc, w, quad);
        fn end_nibbles(self, acc: Self::N, _start: i32) -> Self::I = acc;
        fn start_half(self, start: i32) -> Self::N = [start; LANES];
        fn scale_halves(self, low: Self::N, high: Self::N, scales: Self::W) -> Self::I =
            from_fn(|r| low[r] * half(scales, 2 * r) + high[r] * half(scales, 2 * r + 1));
        fn start_biased(self, neg128: i32) -> Self::I = [neg128; LANES];
        fn dot_biased(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I =
            Dot::dot(self, acc, w, quad);
        fn even_bf16(self, a: Self::W) -> Self::F =
            from_fn(|i| half::bf16::from_le_bytes([a[4 * i], a[4 * i + 1]]).to_f32());
        fn odd_bf16(self, a: Self::W) -> Self::F =
            from_fn(|i| half::bf16::from_le_bytes([a[4 * i + 2], a[4 * i + 3]]).to_f32());
    }

    #[inline(always)]
    fn load_f32(self, x: &[u8; 64], _g: usize) -> Self::F {
        from_fn(|i| f32::from_le_bytes([x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]]))
    }
    #[inline(always)]
    fn load_power(self, x: &[u8; LANES], _g: usize) -> Self::F {
        // The two least are subnormal.
        map(*x, |b| f32::from_bits(if b < 2 { 1 << (21 + b) } else { u32::from(b - 1) << 23 }))
    }
    #[inline(always)]
    fn load_e4m3(self, x: &[u8; LANES], _g: usize) -> Self::F {
        map(*x, |b| half::f16::from_bits(u16::from(b) << 7).to_f32())
    }
    #[inline(always)]
    fn dot(self, mut acc: Self::I, w: Self::W, quad: i32) -> Self::I {
        let a = quads(quad);
        for (acc, w) in acc.iter_mut().zip(w.as_chunks::<4>().0) {
            for i in 0..4 {
                *acc += i32::from(w[i]) * a[i];
            }
        }
        acc
    }
    #[inline(always)]
    fn widen(self, w: Self::W) -> [Self::W; 2] {
        let byte = |i: usize| i16::from(w[i] as i8).to_le_bytes();
        [0, 1].map(|odd| from_fn(|i| byte(i / 4 * 4 + odd + i % 4 / 2 * 2)[i % 2]))
    }
    #[inline(always)]
    fn widen_nibbles(self, w: Self::W) -> [Self::W; 4] {
        [nibbles(w, 12), nibbles(w, 8), nibbles(w, 4), nibbles(w, 0)]
    }
    #[inline(always)]
    fn dot_pairs(self, acc: Self::I, w: Self::W, pair: i32) -> Self::I {
        let (a, b) = (i32::from(pair as i16), pair >> 16);
        from_fn(|r| acc[r] + half(w, 2 * r) * a + half(w, 2 * r + 1) * b)
    }
}

/// 16-bit numbers as bytes.
#[inline(always)]
fn pairs(x: [i16; 2 * LANES]) -> [u8; 64] {
    from_fn(|i| x[i / 2].to_le_bytes()[i % 2])
}

/// Of every 16 bits the nibble that a shift brings to the top.
#[inline(always)]
fn nibbles(w: [u8; 64], up: u32) -> [u8; 64] {
    pairs(from_fn(|i| i16::from_le_bytes([w[2 * i], w[2 * i + 1]]) << up >> 12))
}

/// 16-bit number `i` of bytes.
#[inline(always)]
fn half(w: [u8; 64], i: usize) -> i32 {
    i32::from(i16::from_le_bytes([w[2 * i], w[2 * i + 1]]))
}
