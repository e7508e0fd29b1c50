//! Importance matrices as they are measured: sums of squares and counts, which can be added to others.
//!
//! They are kept as llama.cpp's `llama-imatrix` keeps them: a GGUF file of the type `imatrix` with, for each matrix, a
//! tensor of sums (`.in_sum2`, `[experts, columns]`) and one of counts (`.counts`).

use std::collections::BTreeMap;
use std::io::Write;

use crate::error::shorten;
use crate::{Error, Gguf, OwnedValue, TensorType, Writer};

/// Endings of the two tensors of an entry.
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// Sums of squares of what matrices multiply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportanceSums {
    /// By name of the matrix.
    pub entries: BTreeMap<String, Sums>,
    /// Names of the texts.
    pub datasets: Vec<String>,
    /// Chunks of text.
    pub chunks: u32,
    /// Tokens of a chunk; 0 if the file does not say.
    pub chunk_size: u32,
}

/// Those of a matrix, or of the experts of a bank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sums {
    /// Sums of each column, those of one expert after another.
    pub squares: Vec<f32>,
    /// Tokens, of each expert.
    pub counts: Vec<f32>,
}

impl ImportanceSums {
    /// Reads a file.
    ///
    /// # Errors
    /// Those of [`Gguf::parse`], and what the variants about importances say, with the entry's name.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let gguf = Gguf::parse(bytes)?;
        let metadata = gguf.metadata();
        let datasets = metadata.strings("imatrix.datasets")?;
        let datasets = datasets.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let chunks = metadata.u32("imatrix.chunk_count")?;
        let chunk_size = metadata.opt_u32("imatrix.chunk_size")?.unwrap_or(0);
        let mut entries = BTreeMap::new();
        for tensor in gguf.tensors() {
            let partner = |entry: &str, ending: &'static str| {
                let missing =
                    || Error::ImportanceUnpaired { entry: shorten(entry), missing: ending };
                gguf.tensor(&format!("{entry}{ending}")).ok_or_else(missing)
            };
            if let Some(entry) = tensor.name().strip_suffix(COUNTS) {
                partner(entry, SUMS)?;
            } else if let Some(entry) = tensor.name().strip_suffix(SUMS) {
                let counts = partner(entry, COUNTS)?;
                let numbers = |tensor: &crate::Tensor<'_>| {
                    if tensor.ty != TensorType::F32 {
                        let tensor_name = shorten(tensor.name());
                        return Err(Error::ImportanceType { tensor: tensor_name, ty: tensor.ty });
                    }
                    let mut values = vec![0.0; tensor.elements()];
                    tensor.ty.dequantize(tensor.data, &mut values)?;
                    Ok(values)
                };
                let sums = Sums { squares: numbers(tensor)?, counts: numbers(counts)? };
                sums.check(entry)?;
                entries.insert(entry.to_owned(), sums);
            }
        }
        Ok(Self { entries, datasets, chunks, chunk_size })
    }

    /// Adds what was measured elsewhere, on the same model.
    ///
    /// # Errors
    /// [`Error::ImportanceCounts`] when a matrix has other columns or another number of experts there; nothing is added
    /// then.
    pub fn add(&mut self, other: &Self) -> Result<(), Error> {
        for (name, sums) in &other.entries {
            let Some(own) = self.entries.get(name) else { continue };
            if own.squares.len() != sums.squares.len() || own.counts.len() != sums.counts.len() {
                return Err(Error::ImportanceCounts {
                    entry: shorten(name),
                    sums: sums.squares.len(),
                    counts: sums.counts.len(),
                });
            }
        }
        for (name, sums) in &other.entries {
            let own = self.entries.entry(name.clone()).or_default();
            add(&mut own.squares, &sums.squares);
            add(&mut own.counts, &sums.counts);
        }
        self.datasets.extend_from_slice(&other.datasets);
        self.chunks = self.chunks.saturating_add(other.chunks);
        if self.chunk_size == 0 {
            self.chunk_size = other.chunk_size;
        }
        Ok(())
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of [`Writer::write_to`].
    pub fn write_to(&self, out: impl Write) -> Result<(), Error> {
        let mut writer = Writer::new();
        writer.kv("general.type", "imatrix");
        writer.kv("imatrix.datasets", OwnedValue::strings(&self.datasets));
        writer.kv("imatrix.chunk_count", self.chunks);
        writer.kv("imatrix.chunk_size", self.chunk_size);
        let bytes =
            |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        for (name, Sums { squares, counts }) in &self.entries {
            let cols = squares.len() / counts.len().max(1);
            // Of one count, as of one row anywhere, there is no second dimension.
            let dims = |cols| match counts.len() {
                1 => vec![cols],
                count => vec![cols, count],
            };
            writer.tensor(format!("{name}{SUMS}"), &dims(cols), TensorType::F32, bytes(squares));
            writer.tensor(format!("{name}{COUNTS}"), &dims(1), TensorType::F32, bytes(counts));
        }
        writer.write_to(out)
    }
}

fn add(to: &mut Vec<f32>, of: &[f32]) {
    to.resize(of.len(), 0.0);
    to.iter_mut().zip(of).for_each(|(to, of)| *to += of);
}

impl Sums {
    /// Refuses counts that do not divide the sums.
    fn check(&self, entry: &str) -> Result<(), Error> {
        let (sums, counts) = (self.squares.len(), self.counts.len());
        match counts > 0 && sums.is_multiple_of(counts) {
            true => Ok(()),
            false => Err(Error::ImportanceCounts { entry: shorten(entry), sums, counts }),
        }
    }

    /// Means: experts that no token reached count 1 everywhere.
    pub(crate) fn means(mut self) -> Vec<f32> {
        let cols = self.squares.len() / self.counts.len().max(1);
        for (sums, count) in self.squares.chunks_exact_mut(cols.max(1)).zip(&self.counts) {
            match count.round() {
                count if count.is_nan() => sums.fill(f32::NAN),
                count if count > 0.0 => sums.iter_mut().for_each(|sum| *sum /= count),
                _ => sums.fill(1.0),
            }
        }
        self.squares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Importances;

    fn sums(squares: &[f32], counts: &[f32]) -> Sums {
        Sums { squares: squares.to_vec(), counts: counts.to_vec() }
    }

    fn measured(squares: &[f32], counts: &[f32]) -> ImportanceSums {
        ImportanceSums {
            entries: BTreeMap::from([("blk.0.x.weight".to_owned(), sums(squares, counts))]),
            datasets: vec!["text".to_owned()],
            chunks: 2,
            chunk_size: 512,
        }
    }

    fn written(of: &ImportanceSums) -> Vec<u8> {
        let mut file = Vec::new();
        of.write_to(&mut file).unwrap();
        file
    }

    #[test]
    fn what_is_written_is_read_again() {
        let of = measured(&[2.0, 4.0, 9.0, 3.0], &[2.0, 0.0]);
        let file = written(&of);
        assert_eq!(ImportanceSums::parse(&file).unwrap(), of);
        let means = Importances::parse(&file).unwrap();
        assert_eq!(means.get("blk.0.x.weight").unwrap(), [1.0, 2.0, 1.0, 1.0]);
        assert_eq!((means.chunks(), means.datasets()), (2, &["text".to_owned()][..]));
        let gguf = Gguf::parse(&file).unwrap();
        assert_eq!(gguf.metadata().str("general.type").unwrap(), "imatrix");
        let shape = |name: &str| gguf.tensor(name).unwrap().shape.dims().to_vec();
        assert_eq!(shape("blk.0.x.weight.in_sum2"), [2, 2]);
        assert_eq!(shape("blk.0.x.weight.counts"), [1, 2]);
        let file = written(&measured(&[2.0, 4.0], &[2.0]));
        let gguf = Gguf::parse(&file).unwrap();
        assert_eq!(gguf.tensor("blk.0.x.weight.counts").unwrap().shape.dims(), [1]);
    }

    #[test]
    fn sums_are_added_where_columns_are_the_same() {
        let mut all = measured(&[2.0, 4.0], &[2.0]);
        all.add(&measured(&[1.0, 1.0], &[3.0])).unwrap();
        assert_eq!(all.entries["blk.0.x.weight"], sums(&[3.0, 5.0], &[5.0]));
        assert_eq!((all.chunks, all.datasets.len()), (4, 2));
        let before = all.clone();
        let error = all.add(&measured(&[1.0, 1.0, 1.0], &[3.0])).unwrap_err().to_string();
        assert!(error.contains("blk.0.x.weight"), "{error}");
        assert_eq!(all, before);
    }
}
