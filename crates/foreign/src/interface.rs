//! The interface of `include/arclight_kernel.h`, as Rust sees it.

use std::ffi::{c_char, c_void};

/// The version of the interface.
pub(crate) const VERSION: u32 = 1;
/// The one symbol of a shared object.
pub(crate) const SYMBOL: &str = "arclight_kernels";
/// Most kernels of a file, bytes of a name, rows at once, and results at once.
pub(crate) const MOST_KERNELS: u32 = 64;
pub(crate) const MOST_NAME: usize = 64;
pub(crate) const MOST_ROWS: u32 = 128;
pub(crate) const MOST_RESULTS: usize = 1024;

/// Activations of 32 columns: 64 bytes that only the kernels read.
#[repr(C, align(4))]
#[derive(Clone, Copy)]
pub(crate) struct Acts(pub(crate) [u8; 64]);

/// `arclight_product`.
#[repr(C)]
pub(crate) struct RawProduct {
    pub(crate) weights: *const *const c_void,
    pub(crate) acts: *const *const Acts,
    pub(crate) results: *mut f32,
    pub(crate) tiles: usize,
    pub(crate) tokens: usize,
    pub(crate) blocks: usize,
    pub(crate) ahead: usize,
}

/// What multiplies.
pub(crate) type Multiply = unsafe extern "C" fn(*const RawProduct);

/// `arclight_kernel`.
#[repr(C)]
pub(crate) struct RawKernel {
    pub(crate) name: *const c_char,
    pub(crate) ty: *const c_char,
    pub(crate) instructions: *const c_char,
    pub(crate) rows: u32,
    pub(crate) tokens: u32,
    pub(crate) multiply: Option<Multiply>,
}

/// `arclight_kernel_list`. All versions begin with their number.
#[repr(C)]
pub(crate) struct RawList {
    pub(crate) version: u32,
    pub(crate) count: u32,
    pub(crate) kernels: *const RawKernel,
}
