//! What a model is, in a few words and numbers.

use gguf::{Gguf, TensorType};
use serde::Serialize;
use std::collections::BTreeMap;

/// Name, type and size of a model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ModelInfo {
    /// `general.name`, or the architecture's.
    pub(crate) name: String,
    /// `general.architecture`.
    pub(crate) architecture: String,
    /// As files and tools write it: `Q4_K_M`.
    #[serde(rename = "type")]
    pub(crate) ty: String,
    /// Elements of all tensors.
    pub(crate) parameters: usize,
    /// Bytes of all tensors.
    pub(crate) bytes: usize,
}

/// Tensors of one type.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct TypeTotal {
    pub(crate) tensors: usize,
    pub(crate) elements: usize,
    pub(crate) bytes: usize,
}

/// Names of `general.file_type`, for the types that can be read.
#[rustfmt::skip]
const FILE_TYPES: [(u32, &str); 33] = [
    (0, "F32"), (1, "F16"), (2, "Q4_0"), (3, "Q4_1"), (7, "Q8_0"), (8, "Q5_0"), (9, "Q5_1"),
    (10, "Q2_K"), (11, "Q3_K_S"), (12, "Q3_K_M"), (13, "Q3_K_L"), (14, "Q4_K_S"), (15, "Q4_K_M"),
    (16, "Q5_K_S"), (17, "Q5_K_M"), (18, "Q6_K"), (19, "IQ2_XXS"), (20, "IQ2_XS"), (21, "Q2_K_S"),
    (22, "IQ3_XS"), (23, "IQ3_XXS"), (24, "IQ1_S"), (25, "IQ4_NL"), (26, "IQ3_S"), (27, "IQ3_M"),
    (28, "IQ2_S"), (29, "IQ2_M"), (30, "IQ4_XS"), (31, "IQ1_M"), (32, "BF16"), (36, "TQ1_0"),
    (37, "TQ2_0"), (38, "MXFP4"),
];

impl ModelInfo {
    pub(crate) fn of(gguf: &Gguf<'_>) -> ModelInfo {
        let meta = gguf.metadata();
        let text = |key| meta.opt_str(key).ok().flatten().map(str::to_owned);
        let architecture = text("general.architecture").unwrap_or_else(|| "unknown".to_owned());
        let totals = type_totals(gguf);
        let most = totals.iter().max_by_key(|(_, t)| t.bytes).map(|(ty, _)| *ty);
        let file_type = meta.opt_u32("general.file_type").ok().flatten();
        let known = FILE_TYPES.iter().find(|(id, _)| Some(*id) == file_type).map(|(_, name)| *name);
        ModelInfo {
            name: text("general.name").unwrap_or_else(|| architecture.clone()),
            architecture,
            ty: known.or(most.map(TensorType::name)).unwrap_or("no tensors").to_owned(),
            parameters: totals.values().map(|t| t.elements).sum(),
            bytes: totals.values().map(|t| t.bytes).sum(),
        }
    }
}

/// How much there is of each type.
pub(crate) fn type_totals(gguf: &Gguf<'_>) -> BTreeMap<TensorType, TypeTotal> {
    let mut totals: BTreeMap<TensorType, TypeTotal> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let total = totals.entry(tensor.ty).or_default();
        total.tensors += 1;
        total.elements += tensor.elements();
        total.bytes += tensor.data.len();
    }
    totals
}
