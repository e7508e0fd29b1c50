//! What a model is, in a few words and numbers.

use crate::quantize::mixes::mixes;
use gguf::{Gguf, OtherTensor, TensorType};
use serde::Serialize;
use std::borrow::Cow;
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

impl TypeTotal {
    fn add(&mut self, elements: usize, bytes: usize) {
        self.tensors += 1;
        // Elements of a type whose size is not known are as many as a file says.
        self.elements = self.elements.saturating_add(elements);
        self.bytes += bytes;
    }
}

impl ModelInfo {
    pub(crate) fn of(gguf: &Gguf<'_>) -> ModelInfo {
        let meta = gguf.metadata();
        let text = |key| meta.opt_str(key).ok().flatten().map(str::to_owned);
        let architecture = text("general.architecture").unwrap_or_else(|| "unknown".to_owned());
        let totals = type_totals(gguf);
        let most = totals.iter().max_by_key(|(_, t)| t.bytes).map(|(ty, _)| &**ty);
        let file_type = meta.opt_u32("general.file_type").ok().flatten();
        let known = mixes().into_iter().find(|mix| Some(mix.file_type) == file_type);
        ModelInfo {
            name: text("general.name").unwrap_or_else(|| architecture.clone()),
            architecture,
            ty: known.map(|mix| mix.name).or(most).unwrap_or("no tensors").to_owned(),
            parameters: totals.iter().fold(0, |sum, (_, t)| sum.saturating_add(t.elements)),
            bytes: totals.iter().map(|(_, t)| t.bytes).sum(),
        }
    }
}

/// How much there is of each type, by its name; types that are not supported come last.
pub(crate) fn type_totals(gguf: &Gguf<'_>) -> Vec<(Cow<'static, str>, TypeTotal)> {
    let mut totals: BTreeMap<TensorType, TypeTotal> = BTreeMap::new();
    for tensor in gguf.tensors() {
        totals.entry(tensor.ty).or_default().add(tensor.elements(), tensor.data.len());
    }
    let mut others: BTreeMap<u32, (Cow<'static, str>, TypeTotal)> = BTreeMap::new();
    for tensor in gguf.others() {
        let of = others.entry(tensor.type_id);
        let (_, total) = of.or_insert_with(|| (other_type(tensor), TypeTotal::default()));
        total.add(tensor.shape.elements(), tensor.bytes);
    }
    let known = totals.into_iter().map(|(ty, total)| (ty.name().into(), total));
    known.chain(others.into_values()).collect()
}

/// The name of a type that is not supported, or its number where it has no name.
pub(crate) fn other_type(tensor: &OtherTensor<'_>) -> Cow<'static, str> {
    match tensor.type_name() {
        Some(name) => name.into(),
        None => format!("unknown type {}", tensor.type_id).into(),
    }
}
