//! The one list of kernels, and from it the table of entry points of every instruction set.
//!
//! An entry point makes the token and calls the generic kernel, which is inlined into it and so
//! compiled with its `#[target_feature]`s.

use crate::arch::scalar::Scalar;
#[cfg(target_arch = "x86_64")]
use crate::arch::{avx2::Avx2, avx512::Avx512, avx512bf16::Avx512Bf16};
use crate::attention::{self, Blocks, Tile};
use crate::elementwise::{self, RopeStyle};
#[cfg(target_arch = "x86_64")]
use crate::matmul::matmul_pairs;
use crate::matmul::{
    F16, F32, Iq4Nl, Iq4Xs, Mxfp4, Piece, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0,
    Tiles, Wide, matmul, matmul_widened,
};
use crate::q8::{self, Q8Block};
use crate::views::{Rows, RowsMut};
use crate::{bf16, exp, peak};

/// Hands the list to a macro: `name(arguments) -> result = generic kernel`.
macro_rules! for_each_kernel {
    ($apply:ident $($arg:tt)*) => {
        $apply! { $($arg)*
            matmul_f32(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, f32>, out: RowsMut<'_, f32>) =
                matmul::<_, F32>;
            matmul_f16(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, f32>, out: RowsMut<'_, f32>) =
                matmul::<_, F16>;
            matmul_bf16(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, u8>, out: RowsMut<'_, f32>) =
                matmul_widened;
            matmul_q8_0(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Q8_0>;
            matmul_q4_0(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Q4_0>;
            matmul_q4_k(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Q4K>;
            matmul_q6_k(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Q6K>;
            matmul_q4_1(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Q4_1>;
            matmul_q5_0(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Q5_0>;
            matmul_q5_1(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Q5_1>;
            matmul_q2_k(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Q2K>;
            matmul_q3_k(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Q3K>;
            matmul_q5_k(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Q5K>;
            matmul_iq4_nl(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Iq4Nl>;
            matmul_iq4_xs(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Iq4Xs>;
            matmul_mxfp4(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Mxfp4>;
            matmul_wide(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, Q8Block>, out: RowsMut<'_, f32>) =
                matmul::<_, Wide>;
            quantize_q8(x: &[f32], blocks: &mut [Q8Block]) = q8::quantize;
            round_bf16(x: &[f32], row: &mut [u8]) = bf16::widened;
            rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = elementwise::rms_norm;
            rms_norm_heads(heads: &mut [f32], weight: &[f32], eps: f32) = elementwise::rms_norm_heads;
            layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]) =
                elementwise::layer_norm;
            square_sum(x: &[f32]) -> f32 = elementwise::square_sum;
            sum(x: &[f32]) -> f32 = elementwise::sum;
            scale_by(x: &mut [f32], factor: f32, weight: &[f32]) = elementwise::scale_by;
            add(a: &[f32], b: &[f32], out: &mut [f32]) = elementwise::add;
            add_assign(a: &mut [f32], b: &[f32]) = elementwise::add_assign;
            scale(x: &mut [f32], factor: f32) = elementwise::scale;
            rope(head: &mut [f32], cos_sin: &[f32], style: RopeStyle) = elementwise::rope;
            argmax(x: &[f32]) -> usize = elementwise::argmax;
            exp(x: &mut [f32]) = exp::exp_all;
            softmax(x: &mut [f32]) = exp::softmax;
            swiglu(gate: Rows<'_, f32>, up: Rows<'_, f32>, out: RowsMut<'_, f32>) =
                exp::gated::<_, exp::Silu>;
            geglu(gate: Rows<'_, f32>, up: Rows<'_, f32>, out: RowsMut<'_, f32>) =
                exp::gated::<_, exp::Gelu>;
            gelu(x: &mut [f32]) = exp::map::<_, exp::Gelu>;
            silu(x: &mut [f32]) = exp::map::<_, exp::Silu>;
            soft_cap(x: &mut [f32], cap: f32) = exp::soft_cap;
            store_k_f16(k: &[f32], page: &mut [u16], slot: usize) =
                attention::store_k::<_, attention::F16>;
            store_v_f16(v: &[f32], page: &mut [u16], slot: usize) =
                attention::store_v::<_, attention::F16>;
            store_k_bf16(k: &[f32], page: &mut [u16], slot: usize) =
                attention::store_k::<_, attention::Bf16>;
            store_v_bf16(v: &[f32], page: &mut [u16], slot: usize) =
                attention::store_v::<_, attention::Bf16>;
            store_k_f32(k: &[f32], page: &mut [f32], slot: usize) =
                attention::store_k::<_, attention::F32>;
            store_v_f32(v: &[f32], page: &mut [f32], slot: usize) =
                attention::store_v::<_, attention::F32>;
            store_k_q8_0(k: &[f32], page: &mut [u8], slot: usize) =
                attention::store_k_blocks::<_, attention::Q8_0>;
            store_v_q8_0(v: &[f32], page: &mut [u8], slot: usize) =
                attention::store_v_blocks::<_, attention::Q8_0>;
            store_k_q4_0(k: &[f32], page: &mut [u8], slot: usize) =
                attention::store_k_blocks::<_, attention::Q4_0>;
            store_v_q4_0(v: &[f32], page: &mut [u8], slot: usize) =
                attention::store_v_blocks::<_, attention::Q4_0>;
            attend_chunk_f16(tile: &Tile<'_, attention::F16>, scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_chunk;
            attend_chunk_bf16(tile: &Tile<'_, attention::Bf16>, scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_chunk;
            attend_chunk_f32(tile: &Tile<'_, attention::F32>, scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_chunk;
            attend_chunk_q8_0(tile: &Tile<'_, Blocks<attention::Q8_0>>, scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_chunk;
            attend_chunk_q4_0(tile: &Tile<'_, Blocks<attention::Q4_0>>, scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_chunk;
            attn_merge(acc: &mut [f32], part: &[f32], head_dim: usize) = attention::merge;
            attn_fold(parts: Rows<'_, f32>, head_dim: usize, out: &mut [f32]) = attention::fold;
            attn_finish(state: &[f32], head_dim: usize, out: &mut [f32]) = attention::finish;
            peak_i8(iters: u64) -> u64 = peak::int8;
            peak_f32(iters: u64) -> u64 = peak::float;
            peak_f16(iters: u64) -> u64 = peak::half;
            peak_bf16(iters: u64) -> u64 = peak::bf16_widened;
        }
    };
}

macro_rules! define_table {
    ($($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $kernel:expr;)*) => {
        /// Entry points of one instruction set, to be called only where the CPU has it.
        pub(crate) struct Table {
            $(pub(crate) $name: unsafe fn($($ty),*) $(-> $ret)?,)*
        }
    };
}

macro_rules! define_entries {
    ($table:ident, $token:expr, $attribute:meta;
     $($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $kernel:expr;)*) => {
        pub(crate) static $table: Table = {
            $(
                /// # Safety
                ///
                /// The CPU has the table's instruction set.
                #[$attribute]
                unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
                    $kernel($token, $($arg),*)
                }
            )*
            Table { $($name,)* }
        };
    };
}

for_each_kernel!(define_table);

for_each_kernel!(define_entries SCALAR, Scalar, inline(never););

#[cfg(target_arch = "x86_64")]
for_each_kernel!(define_entries
    AVX2,
    // SAFETY: the entry point's contract.
    unsafe { Avx2::new() },
    target_feature(enable = "avx2,fma,f16c");
);

#[cfg(target_arch = "x86_64")]
for_each_kernel!(define_entries
    AVX512,
    // SAFETY: the entry point's contract.
    unsafe { Avx512::new() },
    target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni");
);

/// What `vdpbf16ps` changes, and the rest of [`AVX512`].
#[cfg(target_arch = "x86_64")]
pub(crate) static AVX512_BF16: Table = {
    macro_rules! entries {
        ($($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $kernel:expr;)*) => {
            $(
                /// # Safety
                ///
                /// The CPU has the table's instruction set.
                #[target_feature(enable =
                    "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
                unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
                    // SAFETY: the entry point's contract.
                    $kernel(unsafe { Avx512Bf16::new() }, $($arg),*)
                }
            )*
            Table { $($name,)* ..AVX512 }
        };
    }
    entries! {
        matmul_bf16(tiles: Tiles<'_>, pieces: &[Piece], acts: Rows<'_, u8>, out: RowsMut<'_, f32>) =
            matmul_pairs;
        round_bf16(x: &[f32], row: &mut [u8]) = bf16::packed;
        peak_bf16(iters: u64) -> u64 = peak::bf16_pairs;
    }
};
