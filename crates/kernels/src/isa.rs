//! Instruction sets: the list of them, which of them this CPU has, and how one is forced.

use std::fmt;

use crate::arch;

/// The environment variable that forces an instruction set, by its [name](Isa::name).
pub const ISA_VARIABLE: &str = "ARCLIGHT_ISA";

/// Hands the one list of instruction sets to a macro, the best first. A line says how a set is called
/// here and elsewhere, on which CPUs it can be, which token proves that a CPU has it, and how entry
/// points are compiled: for what the token stands for. Its kernels are a table of their own
/// (`vectors`), or that of another set with some entries changed: those that multiply integers (`dots`),
/// small matrices (`matrices`) or pairs of bfloat16 (`bf16_pairs`). A new set is the file of its token,
/// with a `mod` line, and a line here.
macro_rules! for_each_isa {
    ($apply:ident $($arg:tt)*) => {
        $apply! { $($arg)*
            /// As [`Isa::Avx512`], and AMX with 8-bit integers for many tokens. Without BF16: CPUs that
            /// have AMX multiply bfloat16 faster widened (Sapphire Rapids: 32 and 57 G
            /// multiply-accumulates per second, `arclight bench --limits`, November 2026).
            Amx = "amxint8", target_arch = "x86_64", arch::amx::Amx,
                target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"),
                matrices(Avx512);
            /// As [`Isa::Avx512`], and BF16 for matrices of that type.
            Avx512Bf16 = "avx512bf16", target_arch = "x86_64", arch::avx512bf16::Avx512Bf16,
                target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16"),
                bf16_pairs(Avx512);
            /// As [`Isa::Avx512Bw`], and dot products of bytes (VNNI).
            Avx512 = "avx512vnni", target_arch = "x86_64", arch::avx512::Avx512<true>,
                target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"),
                dots(Avx512Bw);
            /// AVX-512 F, BW, DQ and VL (Skylake-SP).
            Avx512Bw = "avx512bw", target_arch = "x86_64", arch::avx512::Avx512<false>,
                target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl"),
                vectors;
            /// As [`Isa::Avx2`], and dot products of bytes (AVX-VNNI: client CPUs since 2021).
            AvxVnni = "avxvnni", target_arch = "x86_64", arch::avx2::Avx2<true>,
                target_feature(enable = "avx2,fma,f16c,avxvnni"),
                dots(Avx2);
            /// AVX2 with FMA and F16C.
            Avx2 = "avx2", target_arch = "x86_64", arch::avx2::Avx2<false>,
                target_feature(enable = "avx2,fma,f16c"),
                vectors;
            /// As [`Isa::NeonDot`], and products of small matrices of bytes for many tokens
            /// (FEAT_I8MM).
            NeonI8mm = "neoni8mm", target_arch = "aarch64", arch::neon_i8mm::I8mm,
                target_feature(enable = "neon,dotprod,i8mm"),
                matrices(NeonDot);
            /// Advanced SIMD with dot products of bytes (FEAT_DotProd: most Arm servers since 2018).
            NeonDot = "neondot", target_arch = "aarch64", arch::neon::Neon<true>,
                target_feature(enable = "neon,dotprod"),
                vectors;
            /// Advanced SIMD of 64-bit Arm.
            Neon = "neon", target_arch = "aarch64", arch::neon::Neon<false>,
                target_feature(enable = "neon"),
                vectors;
            /// Plain Rust: the specification of all others.
            Scalar = "scalar", all(), arch::scalar::Scalar, inline(never), vectors;
        }
    };
}
pub(crate) use for_each_isa;

macro_rules! define_isa {
    ($($(#[$doc:meta])* $isa:ident = $name:literal, $arch:meta, $token:ty, $attribute:meta,
       $form:ident $(($base:ident))?;)*) => {
        /// An instruction set that kernels are compiled for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Isa {
            $($(#[$doc])* $isa,)*
        }

        impl Isa {
            /// All instruction sets, the best first.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$isa),*];

            /// The name in kernel names, logs and [`ISA_VARIABLE`].
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$isa => $name,)*
                }
            }

            /// Whether this CPU has it, and the operating system lets programs use it.
            pub fn is_available(self) -> bool {
                $(
                    #[cfg($arch)]
                    if self == Self::$isa {
                        return <$token>::new().is_some();
                    }
                )*
                false
            }
        }
    };
}
for_each_isa!(define_isa);

impl Isa {
    /// The names of all, to be listed.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The one with this name, if this CPU has it.
    ///
    /// # Errors
    ///
    /// [`IsaError`] if there is no such instruction set, or the CPU lacks it.
    pub fn from_name(name: &str) -> Result<Self, IsaError> {
        let isa = Self::ALL.into_iter().find(|isa| isa.name() == name);
        let isa = isa.ok_or_else(|| IsaError::Unknown { name: name.to_owned() })?;
        if isa.is_available() { Ok(isa) } else { Err(IsaError::Unavailable { isa }) }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a forced instruction set cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// The name is not one of [`Isa::ALL`]'s.
    #[error(
        "{ISA_VARIABLE}={name:?} is not an instruction set: \
         use one of {}, or unset it",
        Isa::names()
    )]
    Unknown {
        /// The name as given.
        name: String,
    },
    /// The CPU does not have it.
    #[error("{ISA_VARIABLE}={isa} is not available on this CPU: unset it, or use one that is")]
    Unavailable {
        /// The instruction set asked for.
        isa: Isa,
    },
}
