//! The mixes of types that published files have.
//!
//! Source: the choice of types per tensor is that of llama.cpp's `llama-quantize`
//! (`src/llama-quant.cpp`), so that files have the usual sizes.

use gguf::TensorType;

/// A type for the whole file, which for some of its tensors means another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// The name to ask for it by.
    pub name: &'static str,
    /// As files and tools write it.
    pub title: &'static str,
    /// `general.file_type`.
    pub file_type: u32,
    base: TensorType,
    head: TensorType,
    /// Half of the layers have this for the attention's values and the feed-forward's output.
    better: TensorType,
}

/// All mixes.
#[rustfmt::skip]
pub const MIXES: [Mix; 27] = {
    use TensorType::*;
    const fn all(name: &'static str, title: &'static str, file_type: u32, ty: TensorType) -> Mix {
        Mix { name, title, file_type, base: ty, head: ty, better: ty }
    }
    const fn headed(name: &'static str, title: &'static str, file_type: u32, ty: TensorType) -> Mix {
        Mix { head: Q6_K, ..all(name, title, file_type, ty) }
    }
    [
        all("f32", "F32", 0, F32),
        all("f16", "F16", 1, F16),
        all("bf16", "BF16", 32, BF16),
        all("q8_0", "Q8_0", 7, Q8_0),
        all("q6_k", "Q6_K", 18, Q6_K),
        Mix { better: Q6_K, ..headed("q5_k_m", "Q5_K_M", 17, Q5_K) },
        headed("q5_k", "Q5_K", 16, Q5_K),
        headed("q5_1", "Q5_1", 9, Q5_1),
        headed("q5_0", "Q5_0", 8, Q5_0),
        Mix { better: Q6_K, ..headed("q4_k_m", "Q4_K_M", 15, Q4_K) },
        headed("q4_k", "Q4_K", 14, Q4_K),
        headed("q4_1", "Q4_1", 3, Q4_1),
        headed("iq4_nl", "IQ4_NL", 25, IQ4_NL),
        headed("iq4_xs", "IQ4_XS", 30, IQ4_XS),
        headed("mxfp4", "MXFP4", 38, MXFP4),
        headed("q3_k", "Q3_K", 11, Q3_K),
        headed("iq3_s", "IQ3_S", 26, IQ3_S),
        headed("iq3_xxs", "IQ3_XXS", 23, IQ3_XXS),
        headed("q2_k", "Q2_K", 10, Q2_K),
        headed("iq2_s", "IQ2_S", 28, IQ2_S),
        headed("iq2_xs", "IQ2_XS", 20, IQ2_XS),
        headed("iq2_xxs", "IQ2_XXS", 19, IQ2_XXS),
        headed("tq2_0", "TQ2_0", 37, TQ2_0),
        headed("tq1_0", "TQ1_0", 36, TQ1_0),
        headed("iq1_m", "IQ1_M", 31, IQ1_M),
        headed("iq1_s", "IQ1_S", 24, IQ1_S),
        headed("q4_0", "Q4_0", 2, Q4_0),
    ]
};

impl Mix {
    /// The type of a matrix in a model of so many layers, whose embedding is the head when it is `tied`.
    pub(super) fn of(&self, tensor: &str, layers: usize, tied: bool) -> TensorType {
        match tensor {
            "token_embd.weight" if !tied => return self.base,
            "token_embd.weight" | "output.weight" => return self.head,
            _ => {}
        }
        let better = ["attn_v.weight", "ffn_down.weight"].iter().any(|end| tensor.ends_with(end));
        let layer = tensor.split('.').nth(1).and_then(|layer| layer.parse().ok());
        match layer {
            Some(layer) if better && more_bits(layer, layers) => self.better,
            _ => self.base,
        }
    }
}

/// llama-quantize's rule for the layers that get more bits: the first eighth, the last, and every
/// third of those between.
pub fn more_bits(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}
