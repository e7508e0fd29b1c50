//! Adapters (LoRA) as files have them, and which of them a sequence has.
//!
//! A file is a GGUF file whose `general.type` is `adapter`: for a tensor `X` of the model it has `X.lora_a` and
//! `X.lora_b`, and `adapter.lora.alpha`, which over the rank is a factor on their product. A is F32 or F16 in memory:
//! what is stored otherwise becomes F32.

use crate::error::{AdapterFault, Error};
use crate::file::ModelFile;
use gguf::{Gguf, Tensor, TensorType};
use graph::{Adapted, LowMatrix, LowRank};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The ends of tensors' names.
const ENDS: [&str; 2] = [".lora_a", ".lora_b"];

/// An adapter in memory.
#[derive(Clone, PartialEq)]
pub struct Adapter {
    path: PathBuf,
    architecture: String,
    pairs: Vec<LowRank>,
    hash: [u8; 16],
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Adapter").field(&self.path).finish()
    }
}

impl Eq for Adapter {}

impl Adapter {
    /// Reads an adapter.
    ///
    /// # Errors
    /// When the file is malformed, no adapter or one of another kind, or a tensor has no partner or is no float.
    pub fn read(file: &ModelFile) -> Result<Adapter, Error> {
        let gguf = file.gguf()?;
        let path = file.path().to_owned();
        let bad = |fault| Error::Adapter { path: path.clone(), fault };
        let pairs = pairs(&gguf).map_err(bad)?;
        let architecture = text(&gguf, "general.architecture").map_err(bad)?;
        let hash = hash(&pairs);
        Ok(Adapter { path, architecture: architecture.unwrap_or_default(), pairs, hash })
    }

    /// Where it was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The architecture of the models that it is for.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// What it adds to which tensors.
    pub fn pairs(&self) -> &[LowRank] {
        &self.pairs
    }

    /// Bytes of its matrices.
    pub fn bytes(&self) -> usize {
        self.pairs.iter().map(|pair| pair.a.data.len() + pair.b.data.len()).sum()
    }

    /// Tells of all that it adds.
    pub(crate) fn hash(&self) -> [u8; 16] {
        self.hash
    }

    /// Whether a GGUF file says that it is an adapter.
    pub fn is_adapter(gguf: &Gguf<'_>) -> bool {
        matches!(text(gguf, "general.type"), Ok(Some(kind)) if kind == "adapter")
    }
}

/// An adapter that is loaded with a model.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterUse {
    /// What it is called.
    pub name: String,
    /// Its weights.
    pub adapter: Arc<Adapter>,
    /// Its factor in sequences of which nothing else is said; 0: they do not have it.
    pub scale: f32,
}

impl Eq for AdapterUse {}

fn text(gguf: &Gguf<'_>, key: &str) -> Result<Option<String>, AdapterFault> {
    let text = gguf.metadata().opt_str(key)?;
    Ok(text.map(str::to_owned))
}

fn pairs(gguf: &Gguf<'_>) -> Result<Vec<LowRank>, AdapterFault> {
    let kind = text(gguf, "general.type")?.unwrap_or_else(|| "not there".to_owned());
    if kind != "adapter" {
        return Err(AdapterFault::NoAdapter(kind));
    }
    let kind = text(gguf, "adapter.type")?.unwrap_or_else(|| "not there".to_owned());
    if kind != "lora" {
        return Err(AdapterFault::Kind(kind));
    }
    if gguf.metadata().get("adapter.alora.invocation_tokens").is_some() {
        return Err(AdapterFault::Invoked);
    }
    let alpha = gguf.metadata().opt_f32("adapter.lora.alpha")?.unwrap_or(0.0);
    let mut pairs = Vec::new();
    for tensor in gguf.tensors() {
        let name = tensor.name();
        let Some(of) = ENDS.iter().find_map(|end| name.strip_suffix(end)) else {
            return Err(AdapterFault::NoPair(name.to_owned()));
        };
        let partner = |end: &str| {
            let name = format!("{of}{end}");
            gguf.tensor(&name).ok_or(AdapterFault::Missing(name))
        };
        let (a, b) = (partner(ENDS[0])?, partner(ENDS[1])?);
        if name.ends_with(ENDS[1]) {
            continue; // with its partner
        }
        let (a, b) = (matrix(a)?, matrix(b)?);
        let scale = if alpha == 0.0 { 1.0 } else { alpha / a.rows as f32 };
        pairs.push(LowRank { tensor: of.to_owned(), a, b, scale });
    }
    if pairs.is_empty() {
        return Err(AdapterFault::Empty);
    }
    Ok(pairs)
}

fn matrix(tensor: &Tensor<'_>) -> Result<LowMatrix, AdapterFault> {
    let (rows, cols) = (tensor.rows(), tensor.cols());
    if matches!(tensor.ty, TensorType::F32 | TensorType::F16) {
        return Ok(LowMatrix { ty: tensor.ty, rows, cols, data: tensor.data.to_vec() });
    }
    let mut values = vec![0.0; rows * cols];
    tensor.ty.dequantize(tensor.data, &mut values)?;
    let data = values.iter().flat_map(|value: &f32| value.to_le_bytes()).collect();
    Ok(LowMatrix { ty: TensorType::F32, rows, cols, data })
}

fn hash(pairs: &[LowRank]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for LowRank { tensor, a, b, scale } in pairs {
        hasher.update(tensor.as_bytes());
        hasher.update(&scale.to_le_bytes());
        for matrix in [a, b] {
            hasher.update(&(matrix.rows as u64).to_le_bytes());
            hasher.update(&matrix.data);
        }
    }
    *hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes")
}

/// A set in the form that is compared: by number, without factors of zero.
pub(crate) fn normal(set: &[Adapted]) -> Vec<Adapted> {
    let mut set: Vec<Adapted> = set.iter().copied().filter(|one| one.scale != 0.0).collect();
    set.sort_by_key(|one| one.adapter);
    set
}

/// The set of sequences of which nothing is said.
pub(crate) fn usual_set(adapters: &[AdapterUse]) -> Vec<Adapted> {
    let all = adapters.iter().zip(0..);
    normal(&all.map(|(one, adapter)| Adapted { adapter, scale: one.scale }).collect::<Vec<_>>())
}

/// Whether a sequence can have such a set, of so many adapters.
pub(crate) fn check_set(set: &[Adapted], adapters: usize) -> Result<(), Error> {
    for (i, &Adapted { adapter, scale }) in set.iter().enumerate() {
        if adapter as usize >= adapters {
            return Err(Error::NoAdapter { adapter, adapters });
        }
        if set[..i].iter().any(|other| other.adapter == adapter) {
            return Err(Error::RepeatedAdapter(adapter));
        }
        if !scale.is_finite() {
            return Err(Error::BadScale { adapter, scale });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_that_do_the_same_are_the_same() {
        let one = |adapter, scale| Adapted { adapter, scale };
        let set = normal(&[one(2, 0.5), one(0, 0.0), one(1, -1.0)]);
        assert_eq!(set, [one(1, -1.0), one(2, 0.5)]);
    }
}
