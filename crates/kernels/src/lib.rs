//! SIMD kernels with scalar twins, chosen at run time.
//!
//! [`Kernels`] is a table of entry points for one instruction set. [`Kernels::detect`] gives the
//! best that the CPU has; the environment variable `ARCLIGHT_ISA` forces another. Every kernel
//! gives the same bits on every instruction set: each algorithm is written once, over vectors of 16
//! lanes (one AVX-512 register, two AVX2 registers, or an array), with one order for every sum. Nor
//! do the bits of a token's results depend on what else is in the call. The sign and payload of a
//! NaN are the one thing left open.
//!
//! Kernels take slices and views and do one thread's share: there are no threads here, no
//! allocation, no memory nodes. Matrices are packed by [`pack_tile`] into tiles of 16 rows that
//! only this crate understands, and, of two types, kernels that were written elsewhere
//! ([`ForeignProduct`]).
//!
//! Wrong shapes are faults of the caller and panic; values never do.

#[cfg(target_endian = "big")]
compile_error!("packed weights are little endian: big-endian machines are not supported");

mod acts;
mod arch;
mod attention;
mod bf16;
mod bf16_trial;
mod cpu;
mod elementwise;
mod exp;
mod foreign;
mod how;
mod isa;
mod kernels;
mod matmul;
mod pack;
mod peak;
mod product;
mod q8;
mod recurrent;
mod rotate;
mod simd;
mod table;
mod views;

pub use acts::{ActKind, Acts, act_kind, most_row_bytes, q8_row_bytes};
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub use arch::amx::amx_product;
pub use attention::{
    AttnTile, Biases, ByDistance, KV_CHUNK, KV_PAGE, KvPageMut, KvPages, KvQueries, KvType,
    KvTypes, Slope, attn_scratch_len, attn_state_len, attn_turned_len, bias_table_len,
};
pub use bf16_trial::{Bf16Trial, bf16_trial};
pub use elementwise::RopeStyle;
pub use exp::{Activation, Curve, Xielu};
pub use foreign::{Foreign, ForeignProduct, MatKernel};
pub use how::{Block, How};
pub use isa::{ISA_VARIABLE, Isa, IsaError};
pub use kernels::Kernels;
pub use matmul::{MicroKernel, MicroKernelError, PIECE_LEVELS, Piece, Tiles};
pub use pack::{is_unpacked, pack_tile, tile_bytes};
pub use product::{Product, Products};
pub use recurrent::{Conv, SLICE, Scan, scan_state_len};
pub use views::{Rows, RowsMut};

/// Rows of a packed tile.
pub const TILE_ROWS: usize = 16;
