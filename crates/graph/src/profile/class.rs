//! Kinds of work by which time is compared with other engines'.

use crate::instr::Instr;

/// The classes of ZigLlama's chapter on threads (section 7.2), except for its overhead, which is waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Products with weights, and the quantisation of their inputs.
    Gemm,
    /// Attention with its rotation and its cache, and what layers without it have in its place.
    Attention,
    /// Norms.
    Norm,
    /// Sums with the residual stream.
    Residual,
    /// All else: embedding, tables of rotations, choices of experts, copies.
    Sequential,
}

impl Class {
    /// All of them, in the order of the chapter's table.
    pub const ALL: [Class; 5] =
        [Class::Gemm, Class::Attention, Class::Norm, Class::Residual, Class::Sequential];

    pub(super) fn of(instr: &Instr) -> Class {
        if instr.matrix().is_some() || instr.bank().is_some() {
            return Class::Gemm;
        }
        Class::of_name(instr.name())
    }

    /// The class of an instruction without weights.
    fn of_name(name: &str) -> Class {
        const MIXERS: [&str; 4] = ["join", "convolution", "delta_rule", "state_space"];
        match name {
            "quantize" => Class::Gemm,
            "residual" | "corrected" | "merged" => Class::Residual,
            name if name.contains("attend") || name.contains("append") => Class::Attention,
            name if MIXERS.contains(&name) => Class::Attention,
            name if name.contains("norm") => Class::Norm,
            _ => Class::Sequential,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_listings_have_their_classes() {
        let classes = [
            ("quantize", Class::Gemm),
            ("rope+append+attend", Class::Attention),
            ("append", Class::Attention),
            ("join", Class::Attention),
            ("state_space", Class::Attention),
            ("rms_norm", Class::Norm),
            ("norm+gate", Class::Norm),
            ("residual", Class::Residual),
            ("embed", Class::Sequential),
            ("select", Class::Sequential),
        ];
        for (name, class) in classes {
            assert_eq!(Class::of_name(name), class, "{name}");
        }
    }
}
