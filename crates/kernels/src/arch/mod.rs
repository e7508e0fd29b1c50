//! One thin file per instruction set (two where registers hold a part of 16 lanes): each implements
//! [`crate::simd`] and nothing else, or has the instructions that go beyond it.
//!
//! A file begins with a *token*, a type of which `new` makes a value only if the CPU has the
//! instructions: holding one is the proof, so the methods of a token are safe.

/// Runs intrinsics in a method of a token.
macro_rules! isa {
    ($e:expr) => {
        // SAFETY: holding a token proves that the CPU has the instructions. Pointers come from
        // arrays that are as long, together, as what is read or written through them.
        unsafe { $e }
    };
}

/// Methods of a token, a line each: `fn add(self, a: F, b: F) -> F = expression;`.
macro_rules! methods {
    ($(fn $name:ident($self:ident $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)? = $e:expr;)*) => {$(
        #[inline(always)]
        fn $name($self $(, $arg: $ty)*) $(-> $ret)? {
            $e
        }
    )*};
}

/// As `methods`, of expressions that are intrinsics.
macro_rules! intrinsics {
    ($(fn $name:ident($self:ident $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)? = $e:expr;)*) => {
        methods! { $(fn $name($self $(, $arg: $ty)*) $(-> $ret)? = isa!($e);)* }
    };
}

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
