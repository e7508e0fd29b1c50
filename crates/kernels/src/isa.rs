//! Instruction sets: their names, which of them this CPU has, and how one is forced.

use std::fmt;

/// The environment variable that forces an instruction set, by its [name](Isa::name).
pub const ISA_VARIABLE: &str = "ARCLIGHT_ISA";

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust: the specification of all others.
    Scalar,
    /// Advanced SIMD of 64-bit Arm.
    Neon,
    /// The same with dot products of bytes (FEAT_DotProd: most Arm servers since 2018).
    NeonDot,
    /// As [`Isa::NeonDot`], and products of small matrices of bytes for many tokens (FEAT_I8MM).
    NeonI8mm,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL with VNNI.
    Avx512,
    /// The same, and BF16 for matrices of that type.
    Avx512Bf16,
    /// As [`Isa::Avx512`], and AMX with 8-bit integers for many tokens. Without BF16: CPUs that have AMX
    /// multiply bfloat16 faster widened (Sapphire Rapids: 32 and 57 G multiply-accumulates per second,
    /// `arclight bench --limits`, November 2026).
    Amx,
}

impl Isa {
    /// All instruction sets, the best first.
    pub const ALL: [Self; 8] = [
        Self::Amx,
        Self::Avx512Bf16,
        Self::Avx512,
        Self::Avx2,
        Self::NeonI8mm,
        Self::NeonDot,
        Self::Neon,
        Self::Scalar,
    ];

    /// The name in kernel names, logs and [`ISA_VARIABLE`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::NeonDot => "neondot",
            Self::NeonI8mm => "neoni8mm",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512vnni",
            Self::Avx512Bf16 => "avx512bf16",
            Self::Amx => "amxint8",
        }
    }

    /// Whether this CPU has it, and the operating system lets programs use it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => crate::arch::neon::Neon::<false>::new().is_some(),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot => crate::arch::neon::Neon::<true>::new().is_some(),
            #[cfg(target_arch = "aarch64")]
            Self::NeonI8mm => crate::arch::neon_i8mm::I8mm::new().is_some(),
            #[cfg(not(target_arch = "aarch64"))]
            Self::Neon | Self::NeonDot | Self::NeonI8mm => false,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => crate::arch::avx2::Avx2::new().is_some(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => crate::arch::avx512::Avx512::new().is_some(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => crate::arch::avx512bf16::Avx512Bf16::new().is_some(),
            #[cfg(target_arch = "x86_64")]
            Self::Amx => crate::arch::amx::Amx::new().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 | Self::Avx512Bf16 | Self::Amx => false,
        }
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
         use scalar, avx2, avx512vnni, avx512bf16, amxint8, neon, neondot or neoni8mm, \
         or unset it"
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
