//! The importance matrix, if there is one: which of its entries each tensor is quantised with.

use super::mixes::Mix;
use crate::error::Error;
use gguf::{Gguf, Importances, Tensor, TensorType, Writer};
use std::path::Path;

/// An importance matrix file.
pub(super) struct Known {
    file: String,
    all: Importances,
}

impl Known {
    /// Reads a file.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path)
            .map_err(|source| Error::Io { what: format!("cannot read {file}"), source })?;
        let all = Importances::parse(&bytes).map_err(|e| Error::Refused(format!("{file}: {e}")))?;
        Ok(Known { file, all })
    }

    /// Says in the new file where its importances come from, under llama.cpp's names.
    pub(super) fn describe(&self, writer: &mut Writer<'_>) {
        writer.kv(keys::FILE, self.file.as_str());
        if let Some(dataset) = self.all.datasets().first() {
            writer.kv(keys::DATASET, dataset.as_str());
        }
        writer.kv(keys::ENTRIES, self.all.len() as u32);
        if self.all.chunks() > 0 {
            writer.kv(keys::CHUNKS, self.all.chunks());
        }
    }

    /// Entries and chunks of text, for the report.
    pub(super) fn size(&self) -> (usize, u32) {
        (self.all.len(), self.all.chunks())
    }
}

/// Metadata keys.
mod keys {
    pub(super) const FILE: &str = "quantize.imatrix.file";
    pub(super) const DATASET: &str = "quantize.imatrix.dataset";
    pub(super) const ENTRIES: &str = "quantize.imatrix.entries_count";
    pub(super) const CHUNKS: &str = "quantize.imatrix.chunks_count";
}

/// What all those keys begin with.
pub(super) const PREFIX: &str = "quantize.imatrix.";

/// Which tensor is quantised with what.
pub(super) struct Assigned<'k> {
    /// The importances of every tensor's columns, in the file's order.
    pub(super) importances: Vec<Option<&'k [f32]>>,
    /// Matrices that go without although there is a file.
    pub(super) without: Vec<String>,
}

/// Finds every tensor's importances.
///
/// # Errors
/// Importances that do not fit, or are missing where the type needs them.
pub(super) fn assign<'k>(
    gguf: &Gguf<'_>,
    types: &[TensorType],
    mix: Option<Mix>,
    known: Option<&'k Known>,
) -> Result<Assigned<'k>, Error> {
    let mut assigned = Assigned { importances: Vec::new(), without: Vec::new() };
    for (tensor, &ty) in gguf.tensors().iter().zip(types) {
        let changed = tensor.ty != ty;
        let found = match known {
            Some(known) if changed => entry(tensor, known)?,
            _ => None,
        };
        if changed && found.is_none() {
            if mix.is_some_and(|mix| mix.needs_importance(tensor.name(), ty)) {
                return Err(missing(tensor, ty, known));
            }
            if known.is_some() && ty.block_len() > 1 && !is_vocabulary(tensor) {
                assigned.without.push(tensor.name().to_owned());
            }
        }
        assigned.importances.push(found);
    }
    Ok(assigned)
}

/// The importances of a tensor's columns. A vocabulary's are passed over if they do not fit, as they
/// are not those of rows that are looked up.
fn entry<'k>(tensor: &Tensor<'_>, known: &'k Known) -> Result<Option<&'k [f32]>, Error> {
    let Some(values) = known.all.get(tensor.name()) else { return Ok(None) };
    let needed = tensor.cols() * experts(tensor);
    if values.len() == needed {
        return Ok(Some(values));
    }
    if tensor.name() == "token_embd.weight" {
        return Ok(None);
    }
    Err(Error::Refused(format!(
        "{}: {} importances of `{}`, which needs {needed}: they were measured on another model",
        known.file,
        values.len(),
        tensor.name(),
    )))
}

/// Matrices in a tensor, each with importances of its own.
pub(super) fn experts(tensor: &Tensor<'_>) -> usize {
    tensor.shape.dims().iter().skip(2).product()
}

fn is_vocabulary(tensor: &Tensor<'_>) -> bool {
    matches!(tensor.name(), "token_embd.weight" | "output.weight")
}

fn missing(tensor: &Tensor<'_>, ty: TensorType, known: Option<&Known>) -> Error {
    let name = tensor.name();
    Error::Refused(match known {
        None => format!(
            "tensor `{name}` as {ty} is of no use unless it is known which columns matter: say \
             --imatrix with a file that `arclight imatrix` made of this model, or take a larger --type"
        ),
        Some(known) => format!(
            "{}: no importances of `{name}`, which {ty} cannot do without: measure them on more \
             text, or say --tensor-type for it",
            known.file
        ),
    })
}
