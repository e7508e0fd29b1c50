//! The one list of kernels, and from it the table of entry points of every instruction set.
//!
//! An entry point makes the token and calls the generic kernel, which is inlined into it and so
//! compiled with its `#[target_feature]`s.

use crate::TILE_ROWS;
use crate::arch::scalar::Scalar;
#[cfg(target_arch = "x86_64")]
use crate::arch::{amx::Amx, avx2::Avx2, avx512::Avx512, avx512bf16::Avx512Bf16};
#[cfg(target_arch = "aarch64")]
use crate::arch::{neon::Neon, neon_i8mm::I8mm};
use crate::attention::{self, Blocks, Tile};
use crate::elementwise::{self, RopeStyle};
use crate::matmul::panel::{self, Kind, PanelKind, Panels, Pass, Sub};
#[cfg(target_arch = "x86_64")]
use crate::matmul::panel::{
    State,
    signed::{Finish, center},
    tiles,
};
#[cfg(target_arch = "aarch64")]
use crate::matmul::panel::{pairs, signed::Finish};
use crate::matmul::{
    self, Bf16, F16, F32, Family, Iq4Nl, Iq4Xs, Mxfp4, Place, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0,
    Q5_1, Q5K, Q6K, Q8_0, RegisterTile, SIZES, Size, Unpacks, Wide, exists, sizes, step, streams,
    usual,
};
#[cfg(target_arch = "x86_64")]
use crate::matmul::{MicroKernel, PAIRS, step_pairs};
use crate::q8::{self, Q8Block};
use crate::simd::{Dot, Simd, Vector};
use crate::views::{Rows, RowsMut};
use crate::{bf16, exp, peak};
use std::ops::Range;

/// Hands the list of matrix types to a macro: `name: form of activations = how a tile is packed`.
macro_rules! for_each_type {
    ($apply:ident, $($arg:tt)*) => {
        $apply! { [
            matmul_f32: f32 = F32;
            matmul_f16: f32 = F16;
            matmul_bf16: u8 = Bf16;
            matmul_q8_0: Q8Block = Q8_0;
            matmul_q4_0: Q8Block = Q4_0;
            matmul_q4_k: Q8Block = Q4K;
            matmul_q6_k: Q8Block = Q6K;
            matmul_q4_1: Q8Block = Q4_1;
            matmul_q5_0: Q8Block = Q5_0;
            matmul_q5_1: Q8Block = Q5_1;
            matmul_q2_k: Q8Block = Q2K;
            matmul_q3_k: Q8Block = Q3K;
            matmul_q5_k: Q8Block = Q5K;
            matmul_iq4_nl: Q8Block = Iq4Nl;
            matmul_iq4_xs: Q8Block = Iq4Xs;
            matmul_mxfp4: Q8Block = Mxfp4;
            matmul_wide: Q8Block = Wide;
        ] $($arg)* }
    };
}

/// Hands the list of all other kernels to a macro: `name(arguments) -> result = generic kernel`.
macro_rules! for_each_kernel {
    ($apply:ident $($arg:tt)*) => {
        $apply! { $($arg)*
            quantize_q8(x: &[f32], blocks: &mut [Q8Block], next: Option<(&[f32], &[u8])>) = q8::quantize;
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
            prefetch(rows: Rows<'_, f32>) = elementwise::prefetch;
            prefetch_write(rows: RowsMut<'_, f32>) = elementwise::prefetch_write;
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
    ([$($ty:ident: $act:ty = $tile:ty;)*]
     $($name:ident($($arg:ident: $of:ty),*) $(-> $ret:ty)? = $kernel:expr;)*) => {
        /// Entry points of one instruction set, to be called only where the CPU has it.
        pub(crate) struct Table {
            $(pub(crate) $ty: Family<$act>,)*
            $(pub(crate) $name: unsafe fn($($of),*) $(-> $ret)?,)*
            pub(crate) panels: Panels,
        }
    };
}

/// The family of register tiles of a type: an entry point for every size that exists.
macro_rules! family {
    ($simd:ty, $sizes:expr, $act:ty = |$place:ident, $out:ident| $step:expr;
     $attribute:meta, $exists:expr, $usual:expr, $from:expr) => {{
        /// # Safety
        ///
        /// The CPU has the table's instruction set.
        #[$attribute]
        unsafe fn register_tile<const T: usize, const N: usize, const U: usize>(
            $place: Place<'_, $act>,
            $out: &mut RowsMut<'_, f32>,
        ) {
            $step
        }
        family!(@ $simd, $sizes, $act, $exists, $usual, $from,
            [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19])
    }};
    (@ $simd:ty, $sizes:expr, $act:ty, $exists:expr, $usual:expr, $from:expr, [$($at:literal)*]) => {{
        const LIST: [Size; SIZES] = $sizes;
        const TILES: [Option<RegisterTile<$act>>; SIZES] = [$(
            if $exists($at) {
                const SIZE: Size = LIST[$at];
                Some(register_tile::<{ SIZE.1 as usize }, { SIZE.0 as usize }, { SIZE.2 as usize }>)
            } else {
                None
            },
        )*];
        Family {
            sizes: &LIST,
            tiles: &TILES,
            groups: <<$simd as Simd>::Dot as Dot>::GROUPS,
            usual: $usual,
            from: $from,
            streams: None,
            choice: <$simd as Vector>::REGISTERS > 0,
            panel: None,
        }
    }};
}

/// The register tiles over panels of an instruction set: an entry point for every kind and number of tokens
/// that its registers hold.
macro_rules! panels {
    ($entries:ident, $list:tt) => {
        Panels {
            tiles: [
                panels!(@ $entries, Eight, $list),
                panels!(@ $entries, Minimum, $list),
                panels!(@ $entries, Halves, $list),
                panels!(@ $entries, Biased, $list),
            ],
            groups: <$entries::D as Dot>::GROUPS,
            gather: $entries::gather,
            gather_matrices: $entries::gather,
            spread: $entries::spread,
            state: None,
        }
    };
    (@ $entries:ident, $kind:ident, [$($tokens:literal)*]) => {
        [$(
            if <$entries::D as Vector>::REGISTERS > 0
                && $tokens <= PanelKind::$kind.most::<$entries::D>()
            {
                Some($entries::register_tile::<panel::$kind, $tokens> as panel::RegisterTile)
            } else {
                None
            },
        )*]
    };
}

macro_rules! define_entries {
    ([$($ty:ident: $act:ty = $tile:ty;)*] $table:ident: $simd:ty, $token:expr, $attribute:meta;
     $($name:ident($($arg:ident: $of:ty),*) $(-> $ret:ty)? = $kernel:expr;)*) => {
        pub(crate) static $table: Table = {
            // In modules of their own, because the compiler works on modules side by side.
            $(
                mod $ty {
                    use super::*;

                    type D = <$simd as Simd>::Dot;
                    const SIZES_OF: [Size; SIZES] = sizes::<D>();

                    /// # Safety
                    ///
                    /// The CPU has the table's instruction set.
                    #[$attribute]
                    unsafe fn unpack(tile: &[u8], subs: Range<usize>, panel: &mut [Sub]) {
                        <$tile as matmul::Tile>::unpack(Simd::dot($token), tile, subs, panel);
                    }

                    pub(super) const FAMILY: Family<$act> = Family {
                        streams: streams::<D, $tile>(),
                        panel: match <$tile as matmul::Tile>::PANEL {
                            Some(kind) if <D as Vector>::REGISTERS > 0 => Some(Unpacks {
                                kind,
                                member: kind.member::<D>(),
                                from: kind.fewest::<D>(),
                                matrices: false,
                                entry: unpack,
                                bytes: |cols| {
                                    let blocks = cols.div_ceil(<$tile as matmul::Tile>::BLOCK_COLS);
                                    <$tile as matmul::Tile>::bytes(blocks)
                                },
                            }),
                            _ => None,
                        },
                        ..family!(
                            $simd, SIZES_OF,
                            $act = |place, out| {
                                step::<D, $tile, T, N, U>(Simd::dot($token), place.into(), out);
                            };
                            $attribute, exists::<D, $tile>, usual::<D, $tile>(),
                            if D::WIDE { <$tile as matmul::Tile>::TWO_FROM } else { 1 }
                        )
                    };
                }
            )*
            $(
                mod $name {
                    use super::*;

                    /// # Safety
                    ///
                    /// The CPU has the table's instruction set.
                    #[$attribute]
                    pub(super) unsafe fn entry($($arg: $of),*) $(-> $ret)? {
                        $kernel($token, $($arg),*)
                    }
                }
            )*
            mod panels {
                use super::*;

                pub(super) type D = <$simd as Simd>::Dot;

                /// # Safety
                ///
                /// The CPU has the table's instruction set.
                #[$attribute]
                pub(super) unsafe fn register_tile<K: Kind, const T: usize>(
                    pass: Pass<'_>,
                    sums: &mut [[f32; TILE_ROWS]],
                ) {
                    panel::step::<D, K, T>(Simd::dot($token), pass, sums);
                }

                /// # Safety
                ///
                /// The CPU has the table's instruction set.
                #[$attribute]
                pub(super) unsafe fn gather(
                    acts: Rows<'_, Q8Block>,
                    tokens: Range<usize>,
                    first: usize,
                    to: &mut [Q8Block],
                ) {
                    panel::gather(acts, tokens, first, to);
                }

                /// # Safety
                ///
                /// The CPU has the table's instruction set.
                #[$attribute]
                pub(super) unsafe fn spread(
                    sums: &[[f32; TILE_ROWS]],
                    out: RowsMut<'_, f32>,
                    tiles: Range<usize>,
                ) {
                    panel::spread::<D>(Simd::dot($token), sums, out, tiles);
                }
            }
            Table {
                $($ty: $ty::FAMILY,)*
                $($name: $name::entry,)*
                panels: panels!(panels, [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16]),
            }
        };
    };
}

/// Hands both lists to a macro.
macro_rules! for_all {
    ([$($types:tt)*] $apply:ident $($arg:tt)*) => {
        for_each_kernel!($apply [$($types)*] $($arg)*);
    };
}

for_each_type!(for_all, define_table);

for_each_type!(for_all, define_entries SCALAR: Scalar, Scalar, inline(never););

#[cfg(target_arch = "x86_64")]
for_each_type!(for_all, define_entries
    AVX2: Avx2,
    // SAFETY: the entry point's contract.
    unsafe { Avx2::assume() },
    target_feature(enable = "avx2,fma,f16c");
);

#[cfg(target_arch = "x86_64")]
for_each_type!(for_all, define_entries
    AVX512: Avx512,
    // SAFETY: the entry point's contract.
    unsafe { Avx512::assume() },
    target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni");
);

#[cfg(target_arch = "aarch64")]
for_each_type!(for_all, define_entries
    NEON: Neon<false>,
    // SAFETY: the entry point's contract.
    unsafe { Neon::<false>::assume() },
    target_feature(enable = "neon");
);

#[cfg(target_arch = "aarch64")]
for_each_type!(for_all, define_entries
    NEON_DOT: Neon<true>,
    // SAFETY: the entry point's contract.
    unsafe { Neon::<true>::assume() },
    target_feature(enable = "neon,dotprod");
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
                    $kernel(unsafe { Avx512Bf16::assume() }, $($arg),*)
                }
            )*
            Table { matmul_bf16: PAIRS_FAMILY, $($name,)* ..AVX512 }
        };
    }
    const fn all(_: usize) -> bool {
        true
    }
    const PAIRS_FAMILY: Family<u8> = family!(
        Avx512, PAIRS,
        // SAFETY: the entry point's contract.
        u8 = |place, out| step_pairs::<T, N, U>(unsafe { Avx512Bf16::assume() }, place.into(), out);
        target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16"),
        all, MicroKernel::of((2, 8, 1)), 1
    );
    entries! {
        round_bf16(x: &[f32], row: &mut [u8]) = bf16::packed;
        peak_bf16(iters: u64) -> u64 = peak::bf16_pairs;
    }
};

/// What AMX changes, and the rest of [`AVX512`].
#[cfg(target_arch = "x86_64")]
pub(crate) static AMX: Table = {
    /// # Safety
    ///
    /// The CPU has the table's instruction set.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn register_tile<K: Finish, const T: usize>(
        pass: Pass<'_>,
        sums: &mut [[f32; TILE_ROWS]],
    ) {
        // SAFETY: the entry point's contract; `configure` was called.
        unsafe { tiles::step::<K, T>(Amx::assume(), pass, sums) };
    }
    /// # Safety
    ///
    /// The CPU has the table's instruction set.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn gather(
        acts: Rows<'_, Q8Block>,
        tokens: Range<usize>,
        first: usize,
        to: &mut [Q8Block],
    ) {
        tiles::gather(acts, tokens, first, to);
    }
    /// # Safety
    ///
    /// The CPU has the table's instruction set.
    unsafe fn configure(tokens: usize) {
        // SAFETY: the entry point's contract.
        unsafe { Amx::assume() }.configure(tokens, tiles::QUADS);
    }
    /// # Safety
    ///
    /// The CPU has the table's instruction set.
    unsafe fn release() {
        // SAFETY: the entry point's contract.
        unsafe { Amx::assume() }.release();
    }
    /// # Safety
    ///
    /// The CPU has the table's instruction set.
    unsafe fn peak_i8(iters: u64) -> u64 {
        // SAFETY: the entry point's contract.
        unsafe { Amx::assume() }.peak(iters)
    }
    macro_rules! register_tiles {
        ($kind:ident, [$($tokens:literal)*]) => {
            [$(Some(register_tile::<panel::$kind, $tokens> as panel::RegisterTile),)*]
        };
        ($kind:ident) => {
            register_tiles!($kind, [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16])
        };
    }
    macro_rules! unpacks {
        ($ty:ident, $tile:ty, $kind:ident) => {{
            /// # Safety
            ///
            /// The CPU has the table's instruction set.
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            unsafe fn unpack(tile: &[u8], subs: Range<usize>, panel: &mut [Sub]) {
                // SAFETY: the entry point's contract.
                let d = unsafe { Avx512::assume() };
                <$tile as matmul::Tile>::unpack(d, tile, subs, panel);
                center::<panel::$kind>(panel);
            }
            let family = AVX512.$ty;
            let Some(own) = family.panel else { panic!("the type has panels") };
            assert!(matches!(own.kind, PanelKind::$kind));
            let member = MicroKernel { tokens: panel::MOST as u8, ..own.member };
            let panel =
                Unpacks { member, entry: unpack, from: tiles::FEWEST, matrices: true, ..own };
            Family { panel: Some(panel), ..family }
        }};
    }
    Table {
        matmul_q4_0: unpacks!(matmul_q4_0, Q4_0, Eight),
        matmul_q4_k: unpacks!(matmul_q4_k, Q4K, Minimum),
        matmul_q8_0: unpacks!(matmul_q8_0, Q8_0, Biased),
        panels: Panels {
            tiles: {
                let mut all = AVX512.panels.tiles;
                all[PanelKind::Eight as usize] = register_tiles!(Eight);
                all[PanelKind::Minimum as usize] = register_tiles!(Minimum);
                all[PanelKind::Biased as usize] = register_tiles!(Biased);
                all
            },
            gather_matrices: gather,
            state: Some(State { configure, release }),
            ..AVX512.panels
        },
        peak_i8,
        ..AVX512
    }
};

/// What `smmla` changes, and the rest of [`NEON_DOT`].
#[cfg(target_arch = "aarch64")]
pub(crate) static NEON_I8MM: Table = {
    /// # Safety
    ///
    /// The CPU has the table's instruction set.
    #[target_feature(enable = "neon,dotprod,i8mm")]
    unsafe fn register_tile<K: Finish, const T: usize>(
        pass: Pass<'_>,
        sums: &mut [[f32; TILE_ROWS]],
    ) {
        // SAFETY: the entry point's contract.
        pairs::step::<K, T>(unsafe { I8mm::assume() }, pass, sums);
    }
    /// # Safety
    ///
    /// The CPU has the table's instruction set.
    #[target_feature(enable = "neon,dotprod,i8mm")]
    unsafe fn gather(
        acts: Rows<'_, Q8Block>,
        tokens: Range<usize>,
        first: usize,
        to: &mut [Q8Block],
    ) {
        pairs::gather(acts, tokens, first, to);
    }
    /// # Safety
    ///
    /// The CPU has the table's instruction set.
    #[target_feature(enable = "neon,dotprod,i8mm")]
    unsafe fn peak_i8(iters: u64) -> u64 {
        // SAFETY: the entry point's contract.
        unsafe { I8mm::assume() }.peak(iters)
    }
    macro_rules! register_tiles {
        ($kind:ident, [$($tokens:literal)*]) => {
            [$(Some(register_tile::<panel::$kind, $tokens> as panel::RegisterTile),)*
             None, None, None, None]
        };
        ($kind:ident) => {
            register_tiles!($kind, [1 2 3 4 5 6 7 8 9 10 11 12])
        };
    }
    macro_rules! unpacks {
        ($ty:ident, $tile:ty, $kind:ident) => {{
            /// # Safety
            ///
            /// The CPU has the table's instruction set.
            #[target_feature(enable = "neon,dotprod,i8mm")]
            unsafe fn unpack(tile: &[u8], subs: Range<usize>, panel: &mut [Sub]) {
                // SAFETY: the entry point's contract.
                let d = unsafe { I8mm::assume() };
                <$tile as matmul::Tile>::unpack(d.rows(), tile, subs, panel);
                pairs::arrange::<panel::$kind>(d, panel);
            }
            let family = NEON_DOT.$ty;
            let Some(own) = family.panel else { panic!("the type has panels") };
            assert!(matches!(own.kind, PanelKind::$kind));
            assert!(own.member.tokens as usize == panel::MOST_VECTORS);
            let panel = Unpacks { entry: unpack, from: pairs::FEWEST, matrices: true, ..own };
            Family { panel: Some(panel), ..family }
        }};
    }
    Table {
        matmul_q4_0: unpacks!(matmul_q4_0, Q4_0, Eight),
        matmul_q4_k: unpacks!(matmul_q4_k, Q4K, Minimum),
        matmul_q8_0: unpacks!(matmul_q8_0, Q8_0, Biased),
        panels: Panels {
            tiles: {
                let mut all = NEON_DOT.panels.tiles;
                all[PanelKind::Eight as usize] = register_tiles!(Eight);
                all[PanelKind::Minimum as usize] = register_tiles!(Minimum);
                all[PanelKind::Biased as usize] = register_tiles!(Biased);
                all
            },
            gather_matrices: gather,
            ..NEON_DOT.panels
        },
        peak_i8,
        ..NEON_DOT
    }
};
