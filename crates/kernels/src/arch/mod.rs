//! One thin file per instruction set: each implements [`crate::simd::Simd`] and nothing else.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512bf16;
pub(crate) mod scalar;
