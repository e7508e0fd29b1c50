//! What a model is, in a few words and numbers.

use crate::quantize::mixes;
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

impl ModelInfo {
    pub(crate) fn of(gguf: &Gguf<'_>) -> ModelInfo {
        let meta = gguf.metadata();
        let text = |key| meta.opt_str(key).ok().flatten().map(str::to_owned);
        let architecture = text("general.architecture").unwrap_or_else(|| "unknown".to_owned());
        let totals = type_totals(gguf);
        let most = totals.iter().max_by_key(|(_, t)| t.bytes).map(|(ty, _)| *ty);
        let file_type = meta.opt_u32("general.file_type").ok().flatten();
        let known = mixes().into_iter().find(|mix| Some(mix.file_type) == file_type);
        ModelInfo {
            name: text("general.name").unwrap_or_else(|| architecture.clone()),
            architecture,
            ty: known
                .map(|mix| mix.name)
                .or(most.map(TensorType::name))
                .unwrap_or("no tensors")
                .to_owned(),
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
