//! What the kernels are called, in logs and profiles, and how large their register tiles are.

use gguf::TensorType;

use crate::attention::KV_PAGE;
use crate::kernels::Kernels;
use crate::pack::is_unpacked;

/// An operation, for [`Kernels::kernel_name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A matrix tile of this type times activations.
    MatMul(TensorType),
    /// Quantisation of activations.
    QuantizeQ8,
    /// Rounding of activations.
    RoundBf16,
    /// Attention over a chunk of keys.
    Attention,
    /// RMS normalisation.
    RmsNorm,
    /// Rotary position embedding.
    Rope,
    /// Gated activation.
    SwiGlu,
    /// Softmax.
    Softmax,
}

impl Kernels {
    /// Name of the kernel that does `op`: instruction set, operation, types, and for matrices rows
    /// × tokens of a register tile, e.g. `avx512vnni_matmul_q4_0_32x4`.
    /// With instructions for small matrices (AMX, `smmla`) that of many tokens.
    pub fn kernel_name(&self, op: Op) -> String {
        let isa = match op {
            Op::MatMul(ty) => self.family_of(ty).isa,
            // The form that these matrices are multiplied with.
            Op::RoundBf16 => self.family_of(TensorType::BF16).isa,
            _ => self.table.isa,
        };
        match op {
            Op::MatMul(ty) => {
                let (rows, tokens) = self.family_of(ty).tile();
                let ty = if is_unpacked(ty) { "wide" } else { &ty.name().to_lowercase() };
                format!("{isa}_matmul_{ty}_{rows}x{tokens}")
            }
            Op::QuantizeQ8 => format!("{isa}_quantize_f32_q8"),
            Op::RoundBf16 => format!("{isa}_round_f32_bf16"),
            Op::Attention => format!("{isa}_attention_f16_{KV_PAGE}"),
            Op::RmsNorm => format!("{isa}_rms_norm_f32"),
            Op::Rope => format!("{isa}_rope_f32"),
            Op::SwiGlu => format!("{isa}_swiglu_f32"),
            Op::Softmax => format!("{isa}_softmax_f32"),
        }
    }
}
