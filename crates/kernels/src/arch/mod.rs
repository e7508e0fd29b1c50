//! One thin file per instruction set (two where registers hold a part of 16 lanes): each implements
//! [`crate::simd`] and nothing else, or has the instructions that go beyond it.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_rows;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512bf16;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon_i8mm;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon_rows;
pub(crate) mod scalar;
