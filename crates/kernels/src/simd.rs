//! The vector traits that every kernel is written against.
//!
//! [`Simd`] has 16 lanes, whatever the registers' width: one AVX-512 register, two AVX2 registers,
//! or an array. [`Dot`] has as many lanes as one register, and lanes are rows of a tile: where 16
//! rows take two registers, a register tile of one group and more tokens is the better one.
//!
//! A value of a type that implements them is a *token*: it can be made only where the CPU has the
//! instructions (see [`crate::arch`]), so holding one proves that the methods may be called. All
//! implementations give the same bits for every method; NaN payloads are the one exception (the
//! sign and payload of a NaN are unspecified).
//!
//! Methods are `#[inline(always)]` and the kernels built from them too: they compile to the
//! instructions of the `#[target_feature]` entry point that they are inlined into (see
//! [`crate::table`]).

/// Number of lanes of a [`Simd`] vector, and of rows of a tile.
pub(crate) const LANES: usize = 16;

/// Columns as rows.
#[inline(always)]
pub(crate) fn transpose<T: Copy>(from: &[[T; LANES]; LANES]) -> [[T; LANES]; LANES] {
    let mut to = *from;
    for (i, row) in to.iter_mut().enumerate() {
        for (to, from) in row.iter_mut().zip(from) {
            *to = from[i];
        }
    }
    to
}

/// What both kinds of vectors can do.
pub(crate) trait Vector: Copy {
    /// A vector of `f32`.
    type F: Copy;
    /// A vector of `i32`.
    type I: Copy;

    /// Whether there are 32 registers of 16 lanes, and not 16 of 8.
    const WIDE: bool;
    /// How many registers there are; none of plain Rust's arrays.
    const REGISTERS: usize;

    fn splat(self, x: f32) -> Self::F;
    fn splat_i(self, x: i32) -> Self::I;
    fn to_f(self, a: Self::I) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c - a * b`, rounded once.
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
}

/// Sixteen lanes.
pub(crate) trait Simd: Vector {
    /// The vectors for matrix tiles.
    type Dot: Dot;

    fn dot(self) -> Self::Dot;

    fn load(self, x: &[f32; LANES]) -> Self::F;
    /// Sixteen IEEE half floats at any alignment, widened.
    fn load_f16(self, x: &[u8; 32]) -> Self::F;
    /// Sixteen bfloat16, widened.
    fn load_bf16(self, x: &[u16; LANES]) -> Self::F;
    fn store(self, x: Self::F, to: &mut [f32; LANES]);
    /// Rounds to half floats, ties to even.
    fn store_f16(self, x: Self::F, to: &mut [u16; LANES]);
    /// The upper half of every lane's bits: a bfloat16, if that is what it holds
    /// ([`Simd::round_bf16`]).
    fn store_bf16(self, x: Self::F, to: &mut [u16; LANES]);

    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a > b ? a : b`: a NaN on either side gives `b`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`: a NaN on either side gives `b`.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    /// The first `n` lanes of `a` (`n <= 16`), the others from `fill`.
    fn first(self, n: usize, a: Self::F, fill: Self::F) -> Self::F;
    /// Sum of the lanes in the one order that is allowed: `i` with `i + 8`, `i + 4`, `i + 2`,
    /// `i + 1`.
    fn reduce_add(self, a: Self::F) -> f32;
    /// Greatest lane, compared in the order of [`Simd::reduce_add`].
    fn reduce_max(self, a: Self::F) -> f32;

    /// Rounds towards zero. What does not fit becomes an integer whose low byte is unspecified.
    fn truncate(self, a: Self::F) -> Self::I;
    fn as_bits(self, a: Self::F) -> Self::I;
    fn as_floats(self, a: Self::I) -> Self::F;
    /// Wrapping addition.
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Wrapping subtraction.
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;
    fn max_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a >> 1`, rounding down.
    fn halve_i(self, a: Self::I) -> Self::I;
    /// `a << 23`: an integer into the place of a float's exponent.
    fn to_exponent(self, a: Self::I) -> Self::I;
    fn reduce_max_i(self, a: Self::I) -> i32;
    /// The low byte of every lane.
    fn store_i8(self, a: Self::I, to: &mut [i8; LANES]);
    fn sum_i8(self, a: &[i8; LANES]) -> i32;
    /// Rounds to bfloat16, ties to even; magnitudes below [`crate::bf16::LEAST`] become zero.
    fn round_bf16(self, a: Self::F) -> Self::F;

    /// The low half of every lane.
    fn store_i16(self, a: Self::I, to: &mut [i16; LANES]);

    /// Columns as rows.
    #[inline(always)]
    fn transpose(self, from: &[[u16; LANES]; LANES]) -> [[u16; LANES]; LANES] {
        transpose(from)
    }

    /// Byte `order[i]` of each 16 at byte `i` of them.
    #[inline(always)]
    fn shuffle(self, x: &[u8; 64], order: &[u8; 16]) -> [u8; 64] {
        let mut to = [0; 64];
        for (x, to) in x.as_chunks::<16>().0.iter().zip(to.as_chunks_mut::<16>().0) {
            for (to, &from) in to.iter_mut().zip(order) {
                *to = x[usize::from(from)];
            }
        }
        to
    }

    /// Up to 16 values, the missing lanes filled.
    #[inline(always)]
    fn load_part(self, x: &[f32], fill: f32) -> Self::F {
        let mut lanes = [fill; LANES];
        lanes[..x.len()].copy_from_slice(x);
        self.load(&lanes)
    }

    /// The first `to.len() <= 16` lanes.
    #[inline(always)]
    fn store_part(self, x: Self::F, to: &mut [f32]) {
        let mut lanes = [0.0; LANES];
        self.store(x, &mut lanes);
        to.copy_from_slice(&lanes[..to.len()]);
    }
}

/// Lanes that are rows of a tile: group `g` of the 16 rows. Loads take what belongs to all 16 rows
/// and pick their group's part.
pub(crate) trait Dot: Vector {
    /// Bytes of weights, four per lane: lane `r` owns bytes `4r..4r + 4`.
    type W: Copy;
    /// Sums of dots of nibbles, over one block of 32 columns at most.
    type N: Copy;

    /// Groups that make up the 16 rows.
    const GROUPS: usize;
    /// Whether every dot adds to sums of 32 bits at once. Else those of weights of few bits are added in 16 bits
    /// first, and the fewer bits, the more of them.
    const FUSED: bool;

    /// Little-endian `f32` at any alignment.
    fn load_f32(self, x: &[u8; 64], g: usize) -> Self::F;
    /// IEEE half floats at any alignment, widened.
    fn load_f16(self, x: &[u8; 32], g: usize) -> Self::F;
    fn load_u8(self, x: &[u8; LANES], g: usize) -> Self::F;
    fn load_i8(self, x: &[u8; LANES], g: usize) -> Self::F;
    /// Powers of two, `2^(x - 128)`.
    fn load_power(self, x: &[u8; LANES], g: usize) -> Self::F;
    /// Floats of 8 bits without a sign (4 exponent, bias 7, 3 mantissa), times 2^-8: the half floats with these
    /// bits in their places. All are numbers.
    fn load_e4m3(self, x: &[u8; LANES], g: usize) -> Self::F;
    fn load(self, x: &[f32; LANES], g: usize) -> Self::F;
    fn store(self, x: Self::F, to: &mut [f32; LANES], g: usize);

    fn load_w(self, x: &[u8; 64], g: usize) -> Self::W;
    fn store_w(self, x: Self::W, to: &mut [u8; 64], g: usize);
    /// Bytes as 16 bits, a pair to a lane.
    fn load_pairs_u8(self, x: &[u8; 2 * LANES], g: usize) -> Self::W;
    /// As [`Dot::load_pairs_u8`], the bytes signed.
    fn load_pairs_i8(self, x: &[u8; 2 * LANES], g: usize) -> Self::W;
    /// Asks for the cache line of any address; nothing is read.
    fn prefetch(self, at: *const u8);
    /// The same, no nearer than the second cache.
    fn prefetch_second(self, at: *const u8);
    /// Asks for the cache line of any address in order to write to it; nothing is written.
    fn prefetch_write(self, at: *const u8);
    fn splat_w(self, x: u8) -> Self::W;
    fn and(self, a: Self::W, b: Self::W) -> Self::W;
    fn or(self, a: Self::W, b: Self::W) -> Self::W;
    /// Every byte shifted right by 4; bits that enter from a neighbour are unspecified: mask them.
    fn shr4(self, a: Self::W) -> Self::W;
    /// As [`Dot::shr4`], by 2.
    fn shr2(self, a: Self::W) -> Self::W;
    /// As [`Dot::shr4`], by 3.
    fn shr3(self, a: Self::W) -> Self::W;
    /// As [`Dot::shr4`], by 5.
    fn shr5(self, a: Self::W) -> Self::W;
    /// As [`Dot::shr4`], by 6.
    fn shr6(self, a: Self::W) -> Self::W;

    /// 16 bytes over and over.
    fn table(self, x: &[u8; 16]) -> Self::W;
    /// In each 16 bytes, the bytes of `table` at `index`, of at most 4 bits.
    fn lookup(self, table: Self::W, index: Self::W) -> Self::W;

    /// `acc[r] + Σ w[4r + i] * a[i]`, exact, for weights of at most 7 bits; `quad` is four `i8`.
    fn dot(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I;
    /// Two of [`Dot::dot`], for weights of at most 6 bits.
    #[inline(always)]
    fn dot_two(self, acc: Self::I, w: [Self::W; 2], quads: [i32; 2]) -> Self::I {
        self.dot(self.dot(acc, w[0], quads[0]), w[1], quads[1])
    }
    /// `x >> BY` in all lanes: for an offset of which a multiple stands ready in memory.
    #[inline(always)]
    fn splat_shifted<const BY: i32>(self, x: i32) -> Self::I {
        self.splat_i(x >> BY)
    }
    /// Four of [`Dot::dot`], for weights of at most 5 bits.
    #[inline(always)]
    fn dot_four(self, acc: Self::I, w: [Self::W; 4], quads: [i32; 4]) -> Self::I {
        let acc = self.dot_two(acc, [w[0], w[1]], [quads[0], quads[1]]);
        self.dot_two(acc, [w[2], w[3]], [quads[2], quads[3]])
    }
    /// Begins a sum of dots of nibbles at `start`.
    fn start_nibbles(self, start: i32) -> Self::N;
    /// As [`Dot::dot`] for weights of at most 4 bits; at most 8 times.
    fn dot_nibbles(self, acc: Self::N, w: Self::W, quad: i32) -> Self::N;
    /// The sum, given the same `start` again.
    fn end_nibbles(self, acc: Self::N, start: i32) -> Self::I;
    /// Begins a sum of at most four dots of nibbles at `start`, of at most 14 bits: for
    /// [`Dot::scale_halves`].
    fn start_half(self, start: i32) -> Self::N;
    /// `low[r] * scales[2r] + high[r] * scales[2r + 1]`, of sums and scales that fit 16 bits.
    fn scale_halves(self, low: Self::N, high: Self::N, scales: Self::W) -> Self::I;
    /// Where a sum of [`Dot::dot_biased`] starts, given -128 times the sum of all activations of
    /// the block.
    fn start_biased(self, neg128: i32) -> Self::I;
    /// As [`Dot::dot`] for weights stored with 128 added, any byte; activations in `-127..=127`.
    /// Starting at [`Dot::start_biased`], a whole block gives the exact sum over the weights
    /// without the 128.
    fn dot_biased(self, acc: Self::I, w: Self::W, quad: i32) -> Self::I;
    /// Of pairs of bfloat16, one pair in each lane, the lower halves, widened.
    fn even_bf16(self, a: Self::W) -> Self::F;
    /// As [`Dot::even_bf16`], the upper halves.
    fn odd_bf16(self, a: Self::W) -> Self::F;
    /// Signed bytes as 16 bits, a pair to a lane: bytes 0 and 2, bytes 1 and 3.
    fn widen(self, w: Self::W) -> [Self::W; 2];
    /// Signed nibbles as 16 bits, a pair to a lane: of each half of a lane the lowest, and so on.
    fn widen_nibbles(self, w: Self::W) -> [Self::W; 4];
    /// `acc[r] + Σ w[2r + i] * a[i]` for 16-bit `w`; `pair` is two `i16`.
    fn dot_pairs(self, acc: Self::I, w: Self::W, pair: i32) -> Self::I;
}
