//! The mixes of types that published files have.
//!
//! Source: the choice of types per tensor is that of llama.cpp's `llama-quantize`
//! (`src/llama-quant.cpp`), so that files have the usual sizes.

use super::Shape;
use gguf::{TYPES, TensorType, TypeInfo};

/// A type for the whole file, which for some of its tensors means another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// As files and tools write it.
    pub name: &'static str,
    /// `general.file_type`.
    pub file_type: u32,
    base: TensorType,
    head: TensorType,
    /// Half of the layers have this for the attention's values and the feed-forward's output.
    better: TensorType,
}

/// All mixes: a file of each type, and those of which some layers have a better one.
pub fn mixes() -> Vec<Mix> {
    let medium =
        [Mix::medium("Q5_K_M", 17, TensorType::Q5_K), Mix::medium("Q4_K_M", 15, TensorType::Q4_K)];
    TYPES.iter().map(Mix::plain).chain(medium).collect()
}

impl Mix {
    /// A file of one type; of 5 bits and fewer, with a better head.
    pub(super) fn plain(info: &TypeInfo) -> Mix {
        let (ty, q6_k) = (info.ty, TensorType::Q6_K);
        let bits = |ty: TensorType| 256 / ty.block_len() * ty.block_bytes();
        let head = if bits(ty) < bits(q6_k) { q6_k } else { ty };
        Mix { name: info.name, file_type: info.file.0, base: ty, head, better: ty }
    }

    /// One whose better layers are Q6_K.
    fn medium(name: &'static str, file_type: u32, base: TensorType) -> Mix {
        Mix { name, file_type, better: TensorType::Q6_K, ..Mix::plain(base.info()) }
    }

    /// The type of a matrix in a model of this shape.
    pub(super) fn of(&self, tensor: &str, shape: &Shape) -> TensorType {
        let (layers, tied) = (shape.layers, shape.tied);
        match tensor {
            // Files of this type have it for experts alone.
            _ if self.base == TensorType::MXFP4
                && shape.experts.is_some()
                && !tensor.contains("_exps.")
                && !tensor.contains(".ffn_gate_inp") =>
            {
                return TensorType::Q8_0;
            }
            "token_embd.weight" if !tied => return self.base,
            "token_embd.weight" | "output.weight" => return self.head,
            router if router.contains(".ffn_gate_inp") => return TensorType::F32,
            _ => {}
        }
        let better = ["attn_v.weight", "ffn_down.weight", "ffn_down_exps.weight"]
            .iter()
            .any(|end| tensor.ends_with(end));
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

/// The type, or the nearest one whose blocks fill the rows.
pub fn fit(ty: TensorType, cols: usize) -> TensorType {
    let fits = |ty: TensorType| cols.is_multiple_of(ty.block_len());
    let smaller = match ty {
        _ if fits(ty) => return ty,
        TensorType::IQ4_XS
        | TensorType::IQ3_S
        | TensorType::IQ3_XXS
        | TensorType::IQ2_S
        | TensorType::IQ2_XS
        | TensorType::IQ2_XXS
        | TensorType::IQ1_M
        | TensorType::IQ1_S => TensorType::IQ4_NL,
        TensorType::Q2_K | TensorType::Q3_K | TensorType::TQ1_0 | TensorType::TQ2_0 => {
            TensorType::Q4_0
        }
        TensorType::Q4_K => TensorType::Q5_0,
        TensorType::Q5_K => TensorType::Q5_1,
        TensorType::Q6_K => TensorType::Q8_0,
        _ => TensorType::F16,
    };
    if fits(smaller) { smaller } else { TensorType::F16 }
}
