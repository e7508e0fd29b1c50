//! Tables of entry points, one for every instruction set: made from the lists of instruction sets
//! ([`crate::isa`]), of matrix types ([`crate::matmul`]) and of all other kernels, which is here.
//!
//! An entry point calls the generic kernel, which is inlined into it and so compiled with its
//! `#[target_feature]`s. It takes for granted that the CPU has them: a table is reached only by who
//! has the instruction set's token ([`crate::Kernels::for_isa`]).

#![allow(non_snake_case, reason = "modules are called as instruction sets and types are")]

use std::ops::Range;

use crate::TILE_ROWS;
use crate::arch;
use crate::attention::{self, Blocks, KvPageMut, Tile};
use crate::elementwise::{self, RopeStyle};
use crate::exp::{Activation, Curve};
use crate::isa::{Isa, for_each_isa};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::matmul::panel::signed::{Finish, Matrices};
use crate::matmul::panel::{self, Kind, PanelKind, Panels, Pass, Sub};
use crate::matmul::{
    self, Family, Line, Place, RegisterTile, RegisterTiles, SIZES, Size, for_each_type, sizes, step,
};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::matmul::{MicroKernel, Unpacks};
#[cfg(target_arch = "x86_64")]
use crate::matmul::{PAIRS, Sums, step_pairs};
use crate::product::Product;
use crate::q8::{self, Q8Block};
use crate::recurrent::{self, Conv, Scan};
use crate::simd::{Dot, Simd, Vector};
use crate::views::{Rows, RowsMut};
use crate::{bf16, peak};

/// Hands the list of other kernels that multiply integers to a macro: `name(arguments) -> result = generic kernel`.
macro_rules! for_each_integer_kernel {
    ($apply:ident $($arg:tt)*) => {
        $apply! { $($arg)*
            attend_chunk_q8_0(tile: &Tile<'_, Blocks<attention::Q8_0>>, scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_chunk;
            attend_chunk_q4_0(tile: &Tile<'_, Blocks<attention::Q4_0>>, scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_chunk;
            attend_latents_q8_0(tile: &Tile<'_, Blocks<attention::Q8_0>>, turned: &mut [u8], scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_latents;
            attend_latents_q4_0(tile: &Tile<'_, Blocks<attention::Q4_0>>, turned: &mut [u8], scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_latents;
            weigh_chunk_q8_0(tile: &Tile<'_, Blocks<attention::Q8_0>>, scratch: &mut [f32], out: &mut [f32]) =
                attention::weigh_chunk;
            sum_chunk_q8_0(tile: &Tile<'_, Blocks<attention::Q8_0>>, scratch: &mut [f32], out: &mut [f32]) =
                attention::sum_chunk;
            weigh_chunk_q4_0(tile: &Tile<'_, Blocks<attention::Q4_0>>, scratch: &mut [f32], out: &mut [f32]) =
                attention::weigh_chunk;
            sum_chunk_q4_0(tile: &Tile<'_, Blocks<attention::Q4_0>>, scratch: &mut [f32], out: &mut [f32]) =
                attention::sum_chunk;
            peak_int(product: Product, iters: u64) -> u64 = peak::int;
        }
    };
}

/// Hands the list of all others to a macro, after what is there already.
macro_rules! for_each_kernel {
    ($apply:ident $($arg:tt)*) => {
        $apply! { $($arg)*
            quantize_q8(x: &[f32], blocks: &mut [Q8Block], next: Option<(&[f32], &[u8])>) = q8::quantize;
            round_bf16(x: &[f32], row: &mut [u8]) = bf16::widened;
            rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = elementwise::rms_norm;
            rms_norm_heads(heads: &mut [f32], weight: &[f32], eps: f32) = elementwise::rms_norm_heads;
            layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]) =
                elementwise::layer_norm;
            layer_norm_heads(heads: &mut [f32], dim: usize, weight: &[f32], eps: f32) =
                elementwise::layer_norm_heads;
            square_sum(x: &[f32]) -> f32 = elementwise::square_sum;
            sum(x: &[f32]) -> f32 = elementwise::sum;
            scale_by(x: &mut [f32], factor: f32, weight: &[f32]) = elementwise::scale_by;
            add(a: &[f32], b: &[f32], out: &mut [f32]) = elementwise::add;
            add_assign(a: &mut [f32], b: &[f32]) = elementwise::add_assign;
            add_scaled(a: &mut [f32], factor: f32, b: &[f32]) = elementwise::add_scaled;
            above(x: &mut [f32], least: f32) = elementwise::above;
            scale(x: &mut [f32], factor: f32) = elementwise::scale;
            rope(head: &mut [f32], cos_sin: &[f32], style: RopeStyle) = elementwise::rope;
            argmax(x: &[f32]) -> usize = elementwise::argmax;
            exp(x: &mut [f32]) = crate::exp::exp_all;
            weigh(curve: Curve, logits: &[f32], weights: &mut [f32], steps: &mut [i16]) = crate::exp::weigh;
            softmax(x: &mut [f32]) = crate::exp::softmax;
            activate(f: Activation, x: &mut [f32]) = crate::exp::activate;
            gated(f: Activation, gate: Rows<'_, f32>, up: Rows<'_, f32>, out: RowsMut<'_, f32>) =
                crate::exp::gated;
            rotate(x: &mut [f32]) = crate::rotate::rotate;
            conv(conv: &Conv<'_>, state: &mut [f32], out: RowsMut<'_, f32>) = recurrent::conv;
            scan(scan: &Scan<'_>, state: &mut [f32], out: RowsMut<'_, f32>) = recurrent::scan;
            prefetch(rows: Rows<'_, f32>) = elementwise::prefetch;
            prefetch_write(rows: RowsMut<'_, f32>) = elementwise::prefetch_write;
            soft_cap(x: &mut [f32], cap: f32) = crate::exp::soft_cap;
            store_k(k: &[f32], page: KvPageMut<'_>, slot: usize) = attention::store_k;
            store_v(v: &[f32], page: KvPageMut<'_>, slot: usize) = attention::store_v;
            attend_chunk_f16(tile: &Tile<'_, attention::F16>, scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_chunk;
            attend_chunk_bf16(tile: &Tile<'_, attention::Bf16>, scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_chunk;
            attend_chunk_f32(tile: &Tile<'_, attention::F32>, scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_chunk;
            attend_latents_f16(tile: &Tile<'_, attention::F16>, turned: &mut [u16], scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_latents;
            attend_latents_bf16(tile: &Tile<'_, attention::Bf16>, turned: &mut [u16], scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_latents;
            attend_latents_f32(tile: &Tile<'_, attention::F32>, turned: &mut [f32], scratch: &mut [f32], out: &mut [f32]) =
                attention::attend_latents;
            weigh_chunk_f16(tile: &Tile<'_, attention::F16>, scratch: &mut [f32], out: &mut [f32]) =
                attention::weigh_chunk;
            sum_chunk_f16(tile: &Tile<'_, attention::F16>, scratch: &mut [f32], out: &mut [f32]) =
                attention::sum_chunk;
            weigh_chunk_bf16(tile: &Tile<'_, attention::Bf16>, scratch: &mut [f32], out: &mut [f32]) =
                attention::weigh_chunk;
            sum_chunk_bf16(tile: &Tile<'_, attention::Bf16>, scratch: &mut [f32], out: &mut [f32]) =
                attention::sum_chunk;
            weigh_chunk_f32(tile: &Tile<'_, attention::F32>, scratch: &mut [f32], out: &mut [f32]) =
                attention::weigh_chunk;
            sum_chunk_f32(tile: &Tile<'_, attention::F32>, scratch: &mut [f32], out: &mut [f32]) =
                attention::sum_chunk;
            attn_merge(acc: &mut [f32], part: &[f32], head_dim: usize) = attention::merge;
            attn_fold(parts: Rows<'_, f32>, head_dim: usize, sink: f32, out: &mut [f32]) =
                attention::fold;
            attn_finish(state: &[f32], head_dim: usize, sink: f32, out: &mut [f32]) =
                attention::finish;
            peak_f32(iters: u64) -> u64 = peak::float;
            peak_f16(iters: u64) -> u64 = peak::half;
            peak_bf16(iters: u64) -> u64 = peak::bf16_widened;
        }
    };
}

macro_rules! define_table {
    ($($name:ident($($arg:ident: $of:ty),*) $(-> $ret:ty)? = $kernel:expr;)*) => {
        /// Entry points of one instruction set, to be called only where the CPU has it.
        pub(crate) struct Table {
            /// Of each line of the list of types.
            pub(crate) families: [Family; Line::COUNT],
            /// Whether integers of all widths are multiplied alike: [`Dot::FUSED`].
            pub(crate) fused: bool,
            /// Bytes of an activation in bfloat16.
            pub(crate) bf16_bytes: usize,
            pub(crate) panels: Panels,
            $(pub(crate) $name: unsafe fn($($of),*) $(-> $ret)?,)*
        }
    };
}
for_each_integer_kernel!(for_each_kernel define_table);

/// The token of the table's instruction set.
macro_rules! define_token {
    ($token:ty) => {
        #[inline(always)]
        fn token() -> $token {
            // SAFETY: it is for entry points, which run only where a token was given.
            unsafe { <$token>::assume() }
        }
    };
}

/// What elements a family's activations have, by their form.
macro_rules! element {
    (F32) => {
        f32
    };
    (Bf16) => {
        u8
    };
    (Q8) => {
        Q8Block
    };
}

/// Register tiles of all sizes of a list.
macro_rules! register_tiles {
    ($entry:ident, $act:ty, $sizes:ident) => {
        register_tiles!($entry, $act, $sizes,
            [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19])
    };
    ($entry:ident, $act:ty, $sizes:ident, [$($at:literal)*]) => {{
        const TILES: [Option<RegisterTile<$act>>; SIZES] = [$(
            if $sizes[$at].0 > 0 {
                const SIZE: Size = $sizes[$at];
                Some($entry::<{ SIZE.1 as usize }, { SIZE.0 as usize }, { SIZE.2 as usize }>)
            } else {
                None
            },
        )*];
        &TILES
    }};
}

/// Register tiles over panels of one kind, of every number of tokens up to `$most`.
macro_rules! tiles_over_panels {
    ($entry:ident, $kind:ident, $most:expr) => {
        tiles_over_panels!($entry, $kind, $most, 1)
    };
    ($entry:ident, $kind:ident, $most:expr, $vectors:expr) => {
        tiles_over_panels!($entry, $kind, $most, $vectors, [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16])
    };
    ($entry:ident, $kind:ident, $most:expr, $vectors:expr, [$($tokens:literal)*]) => {
        [$(
            if $tokens <= $most {
                Some($entry::<panel::$kind, $tokens, { $vectors }> as panel::RegisterTile)
            } else {
                None
            },
        )*]
    };
}

/// The token of the table's instruction set, and that for vectors of rows.
macro_rules! define_rows {
    ($token:ty) => {
        type D = <$token as Simd>::Dot;
        define_token!($token);

        #[inline(always)]
        fn rows() -> D {
            Simd::dot(token())
        }
    };
}

/// The family of type `K`, in a module of its own, with what unpacks its weights into panels.
macro_rules! family {
    ($isa:ident, $attribute:meta, $acts:ident, $unpack:expr) => {
        type Act = element!($acts);
        const SIZES_OF: [Size; SIZES] = sizes::<D, K>();

        #[$attribute]
        fn register_tile<const T: usize, const N: usize, const U: usize>(
            place: Place<'_, Act>,
            out: &mut RowsMut<'_, f32>,
        ) {
            step::<D, K, T, N, U>(rows(), place.into(), out);
        }

        pub(in crate::table) const FAMILY: Family = Family::new::<D, K>(
            Isa::$isa,
            &SIZES_OF,
            RegisterTiles::$acts(register_tiles!(register_tile, Act, SIZES_OF)),
            $unpack,
        );
    };
}

/// The entry points of some of the other kernels.
macro_rules! entries {
    ($attribute:meta,
     $($name:ident($($arg:ident: $of:ty),*) $(-> $ret:ty)? = $kernel:expr;)*) => {
        $(
            mod $name {
                use super::*;

                #[$attribute]
                pub(super) fn entry($($arg: $of),*) $(-> $ret)? {
                    $kernel(token(), $($arg),*)
                }
            }
        )*
    };
}

/// Register tiles over panels of all kinds.
macro_rules! panel_tiles {
    ($attribute:meta) => {
        mod panels {
            use super::*;

            #[$attribute]
            fn register_tile<K: Kind, const T: usize, const N: usize>(
                pass: Pass<'_>,
                sums: &mut [[f32; TILE_ROWS]],
            ) {
                panel::step::<D, K, T, N>(rows(), pass, sums);
            }

            /// The most tokens of a register tile; none where members cannot be chosen.
            const fn most(kind: PanelKind) -> usize {
                if D::REGISTERS > 0 { kind.most::<D>() } else { 0 }
            }

            macro_rules! kind_tiles {
                ($kind:ident) => {
                    tiles_over_panels!(
                        register_tile,
                        $kind,
                        most(PanelKind::$kind),
                        PanelKind::$kind.vectors::<D>()
                    )
                };
            }

            pub(super) const TILES: panel::KindTiles = [
                kind_tiles!(Eight),
                kind_tiles!(Minimum),
                kind_tiles!(Halves),
                kind_tiles!(Biased),
                kind_tiles!(Uneven),
                kind_tiles!(Sixteen),
                kind_tiles!(FiveMinimum),
            ];
        }
    };
}

/// The table of an instruction set with vectors of its own.
macro_rules! vectors {
    ($isa:ident, $token:ty, $attribute:meta) => {
        for_each_type! { for_each_integer_kernel for_each_kernel vectors $isa, $token, $attribute, }
    };
    ($isa:ident, $token:ty, $attribute:meta,
     [$($file:ident::$tile:ident: $acts:ident, $types:tt;)*]
     $($name:ident($($arg:ident: $of:ty),*) $(-> $ret:ty)? = $kernel:expr;)*) => {
        define_rows!($token);

        // In modules of their own, because the compiler works on modules side by side.
        $(
            pub(super) mod $tile {
                use super::*;

                type K = matmul::$file::$tile;

                #[$attribute]
                pub(in crate::table) fn unpack(
                    tile: &[u8],
                    subs: Range<usize>,
                    panel: &mut [Sub],
                ) {
                    <K as matmul::Tile>::unpack(rows(), tile, subs, panel);
                }

                family! { $isa, $attribute, $acts, unpack }
            }
        )*
        entries! { $attribute, $($name($($arg: $of),*) $(-> $ret)? = $kernel;)* }
        panel_tiles! { $attribute }

        #[$attribute]
        fn gather(acts: Rows<'_, Q8Block>, tokens: Range<usize>, first: usize, to: &mut [Q8Block]) {
            panel::gather(acts, tokens, first, to);
        }

        #[$attribute]
        fn spread(sums: &[[f32; TILE_ROWS]], out: RowsMut<'_, f32>, tiles: Range<usize>) {
            panel::spread::<D>(rows(), sums, out, tiles);
        }

        pub(crate) static TABLE: Table = Table {
            families: [$($tile::FAMILY),*],
            fused: D::FUSED,
            bf16_bytes: size_of::<f32>(),
            panels: Panels {
                tiles: panels::TILES,
                groups: D::GROUPS,
                gather,
                gather_matrices: gather,
                spread,
                state: None,
            },
            $($name: $name::entry,)*
        };
    };
}

/// What dots of integers change in the table of another instruction set, whose vectors are as wide: the families and
/// the panels of quantised weights, and the other kernels that multiply integers.
#[cfg(target_arch = "x86_64")]
macro_rules! dots {
    ($isa:ident, $token:ty, $attribute:meta, $base:ident) => {
        for_each_type! { for_each_integer_kernel dots $isa, $token, $attribute, $base, }
    };
    ($isa:ident, $token:ty, $attribute:meta, $base:ident,
     [$($file:ident::$tile:ident: $acts:ident, $types:tt;)*]
     $($name:ident($($arg:ident: $of:ty),*) $(-> $ret:ty)? = $kernel:expr;)*) => {
        define_rows!($token);

        $(
            mod $tile {
                use super::*;

                dots! { @ $acts $isa, $attribute, $base, $file, $tile }
            }
        )*
        entries! { $attribute, $($name($($arg: $of),*) $(-> $ret)? = $kernel;)* }
        panel_tiles! { $attribute }

        pub(crate) static TABLE: Table = Table {
            families: [$($tile::FAMILY),*],
            fused: D::FUSED,
            panels: Panels { tiles: panels::TILES, ..$base::TABLE.panels },
            $($name: $name::entry,)*
            ..$base::TABLE
        };
    };
    // Unpacking does not multiply.
    (@ Q8 $isa:ident, $attribute:meta, $base:ident, $file:ident, $tile:ident) => {
        type K = matmul::$file::$tile;

        family! { $isa, $attribute, Q8, $base::$tile::unpack }
    };
    (@ $acts:ident $isa:ident, $attribute:meta, $base:ident, $file:ident, $tile:ident) => {
        pub(super) const FAMILY: Family = $base::$tile::FAMILY;
    };
}

/// What dots of pairs of bfloat16 change in the table of another instruction set.
#[cfg(target_arch = "x86_64")]
macro_rules! bf16_pairs {
    ($isa:ident, $token:ty, $attribute:meta, $base:ident) => {
        define_token!($token);

        #[$attribute]
        fn register_tile<const T: usize, const N: usize, const U: usize>(
            place: Place<'_, u8>,
            out: &mut RowsMut<'_, f32>,
        ) {
            step_pairs::<T, N, U>(token(), place.into(), out);
        }

        #[$attribute]
        fn round_bf16(x: &[f32], row: &mut [u8]) {
            bf16::packed(token(), x, row);
        }

        #[$attribute]
        fn peak_bf16(iters: u64) -> u64 {
            peak::bf16_pairs(token(), iters)
        }

        pub(crate) static TABLE: Table = {
            let mut families = $base::TABLE.families;
            let own = &mut families[Line::Bf16 as usize];
            *own = Family {
                isa: Isa::$isa,
                sizes: &PAIRS,
                tiles: RegisterTiles::Bf16(register_tiles!(register_tile, u8, PAIRS)),
                usual: MicroKernel::of((2, 8, 1)),
                from: 1,
                sums: Sums::Dots,
                ..*own
            };
            Table { families, bf16_bytes: 2, round_bf16, peak_bf16, ..$base::TABLE }
        };
    };
}

/// What instructions that multiply small matrices change in the table of another instruction set:
/// the panels that they are fit for.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! matrices {
    ($isa:ident, $token:ty, $attribute:meta, $base:ident) => {
        for_each_type! { matrices $isa, $token, $attribute, $base, }
    };
    ($isa:ident, $token:ty, $attribute:meta, $base:ident,
     [$($file:ident::$tile:ident: $acts:ident, $types:tt;)*]) => {
        define_token!($token);

        const MOST: usize = <$token as Matrices>::MOST;

        #[$attribute]
        fn register_tile<K: Finish, const T: usize, const N: usize>(
            pass: Pass<'_>,
            sums: &mut [[f32; TILE_ROWS]],
        ) {
            const { assert!(N == 1, "a tile is not cut") };
            // SAFETY: registers are made ready by what stands beside this in the table.
            unsafe { token().step::<K, T>(pass, sums) };
        }

        #[$attribute]
        fn gather(
            acts: Rows<'_, Q8Block>,
            tokens: Range<usize>,
            first: usize,
            to: &mut [Q8Block],
        ) {
            <$token>::gather(acts, tokens, first, to);
        }

        #[$attribute]
        fn unpack<T: matmul::Tile, K: Finish>(
            tile: &[u8],
            subs: Range<usize>,
            panel: &mut [Sub],
        ) {
            T::unpack(token().vectors(), tile, subs, panel);
            token().arrange::<K>(panel);
        }

        #[$attribute]
        fn peak_int(_: Product, iters: u64) -> u64 {
            token().peak(iters)
        }

        /// With panels for these instructions, if they are of a kind that is fit for them.
        const fn family<T: matmul::Tile>(family: Family) -> Family {
            let Some(own) = family.panel else { return family };
            let entry: panel::Unpack = match own.kind {
                PanelKind::Eight => unpack::<T, panel::Eight>,
                PanelKind::Minimum => unpack::<T, panel::Minimum>,
                PanelKind::Biased | PanelKind::Uneven => unpack::<T, panel::Biased>,
                PanelKind::Sixteen => unpack::<T, panel::Sixteen>,
                PanelKind::FiveMinimum => unpack::<T, panel::FiveMinimum>,
                PanelKind::Halves => return family,
            };
            let member = MicroKernel { tokens: MOST as u8, ..own.member };
            let panel = Unpacks { member, entry, matrices: true, ..own };
            Family { isa: Isa::$isa, panel: Some(panel), ..family }
        }

        pub(crate) static TABLE: Table = {
            let Table { families, mut panels, .. } = $base::TABLE;
            let minima = tiles_over_panels!(register_tile, Minimum, MOST);
            panels.tiles[PanelKind::Minimum as usize] = minima;
            panels.tiles[PanelKind::FiveMinimum as usize] = minima;
            // Without their offsets they are all alike.
            let signed = tiles_over_panels!(register_tile, Biased, MOST);
            panels.tiles[PanelKind::Eight as usize] = signed;
            panels.tiles[PanelKind::Biased as usize] = signed;
            panels.tiles[PanelKind::Uneven as usize] = signed;
            panels.tiles[PanelKind::Sixteen as usize] = signed;
            panels.gather_matrices = gather;
            panels.state = <$token as Matrices>::STATE;
            let families =
                [$(family::<matmul::$file::$tile>(families[Line::$tile as usize])),*];
            Table { families, panels, peak_int, ..$base::TABLE }
        };
    };
}

macro_rules! define_tables {
    ($($(#[$doc:meta])* $isa:ident = $name:literal, $arch:meta, $token:ty, $attribute:meta,
       $form:ident $(($base:ident))?;)*) => {
        $(
            #[cfg($arch)]
            pub(crate) mod $isa {
                use super::*;

                $form! { $isa, $token, $attribute $(, $base)? }
            }
        )*
    };
}
for_each_isa!(define_tables);
