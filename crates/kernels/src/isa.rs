//! Instruction sets: the list of them, which of them this CPU has, and how one is forced.

use std::fmt;

use crate::arch;

/// The environment variable that forces an instruction set, by its [name](Isa::name).
pub const ISA_VARIABLE: &str = "ARCLIGHT_ISA";

/// Hands the one list of instruction sets to a macro, the best first. A line says how a set is called
/// here and elsewhere, on which CPUs it can be, which token proves that a CPU has it, and how entry
/// points are compiled: for what the token stands for. Its kernels are a table of their own
/// (`vectors`), or that of another set with some entries changed. A new set is the file of its token,
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
            /// AVX-512 F, BW, DQ and VL with VNNI.
            Avx512 = "avx512vnni", target_arch = "x86_64", arch::avx512::Avx512,
                target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"),
                vectors;
            /// AVX2 with FMA and F16C.
            Avx2 = "avx2", target_arch = "x86_64", arch::avx2::Avx2,
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

/// Whether this CPU reads memory fastest in several streams at once, so that tiles should go together where
/// the tokens are too few to keep it busy: one core of a virtual Xeon (Sapphire Rapids) reads weights for one
/// token at 12.7 GB/s by fours and 9.4 one after the other (BF16; Q8_0 11.3 and 9.8, Q6_K 12.0 and 9.6, Q4_K
/// 10.7 and 8.9, Q4_0 9.6 and 7.7; 4 KiB ahead), while a Zen 5 likes one stream best (`--bench families`; in
/// steps docs/performance.md, "Few tokens"; November 2026). Two streams, fetched in two stages (`Fetch::Stream`), are
/// as fast or faster on an Emerald Rapids (docs/performance.md, "In two stages"). Other makers' CPUs count as AMD's.
pub(crate) fn likes_streams() -> bool {
    is_intel()
}

/// Whether many tokens are faster by panels of vectors (`matmul::panel`): on a Sapphire Rapids they are, by
/// 9 % and more, with AVX-512 and with AVX2 (`--bench families`, from 32 tokens). On a Zen 5, 2 tiles by 4 tokens over packed weights reach 79 to
/// 85 % of the peak and 1 by 12 had 70 to 76; panels were not measured there.
pub(crate) fn likes_panels() -> bool {
    is_intel()
}

fn is_intel() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static INTEL: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *INTEL.get_or_init(|| {
            let maker = std::arch::x86_64::__cpuid(0);
            let name = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes);
            name.as_flattened() == b"GenuineIntel"
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_set() {
        for isa in Isa::ALL {
            let expected =
                if isa.is_available() { Ok(isa) } else { Err(IsaError::Unavailable { isa }) };
            assert_eq!(Isa::from_name(isa.name()), expected);
        }
    }

    #[test]
    fn a_wrong_name_is_named() {
        let error = Isa::from_name("avx3").unwrap_err();
        assert!(error.to_string().contains("ARCLIGHT_ISA=\"avx3\""), "{error}");
    }
}
