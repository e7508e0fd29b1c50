//! Importance matrices: how much each column of each matrix matters, as measured on text.
//!
//! Two formats of llama.cpp's `llama-imatrix` are read. The current one is a GGUF file with a tensor of
//! sums of squares and one of counts for each matrix (and for each expert of it). The old one has
//! no magic number: a count of entries, then for each its name, a count, and sums of means; behind
//! them, perhaps, the number of chunks and the text's name. Both are little endian.
//!
//! A value is the mean square of a matrix product's input in that column. Experts that the text
//! never reached count 1 everywhere.

use std::collections::BTreeMap;

use crate::cursor::{Cursor, MAX_NAME, What};
use crate::error::shorten;
use crate::importance_sums::ImportanceSums;
use crate::{Error, MAGIC};

/// An importance matrix file.
#[derive(Debug, Clone, PartialEq)]
pub struct Importances {
    entries: BTreeMap<String, Vec<f32>>,
    datasets: Vec<String>,
    chunks: u32,
}

impl Importances {
    /// Reads a file in either format.
    ///
    /// # Errors
    /// Those of [`Gguf::parse`](crate::Gguf::parse) for such files, [`Error::NotImportances`] for what is neither, and
    /// what the other variants about importances say, with the entry's name.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let all = match bytes.starts_with(&MAGIC) {
            true => Self::current(bytes)?,
            false => Self::old(bytes)?,
        };
        if all.entries.is_empty() {
            return Err(Error::NoImportances);
        }
        for (entry, values) in &all.entries {
            if let Some(index) = values.iter().position(|v| !(v.is_finite() && *v >= 0.0)) {
                let (entry, value) = (shorten(entry), values[index]);
                return Err(Error::ImportanceValue { entry, index, value });
            }
        }
        Ok(all)
    }

    /// The importances of a matrix's columns, those of one expert after another.
    pub fn get(&self, tensor: &str) -> Option<&[f32]> {
        self.entries.get(tensor).map(Vec::as_slice)
    }

    /// Number of matrices.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none; a file that parses has some.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Names of the texts that were used, as far as the file says.
    pub fn datasets(&self) -> &[String] {
        &self.datasets
    }

    /// Chunks of text that were used; 0 if the file does not say.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    fn current(bytes: &[u8]) -> Result<Self, Error> {
        let ImportanceSums { entries, datasets, chunks, .. } = ImportanceSums::parse(bytes)?;
        let entries = entries.into_iter().map(|(name, sums)| (name, sums.means())).collect();
        Ok(Self { entries, datasets, chunks })
    }

    fn old(bytes: &[u8]) -> Result<Self, Error> {
        let cursor = &mut Cursor::new(bytes);
        let begin = || Error::NotImportances { found: bytes[..bytes.len().min(4)].to_vec() };
        // An entry has three counts, a name and a value.
        let most = bytes.len() as u64 / 17;
        let count = cursor.u32(What::Header("number of entries")).map_err(|_| begin())?;
        if u64::from(count) > most {
            return Err(begin());
        }
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let (entry, values) = old_entry(cursor)?;
            let offset = cursor.offset();
            if entries.insert(entry.to_owned(), values).is_some() {
                return Err(Error::DuplicateTensor { tensor: shorten(entry), offset });
            }
        }
        let (mut datasets, mut chunks) = (Vec::new(), 0);
        if cursor.remaining() > 0 {
            chunks = cursor.u32(What::Header("number of chunks"))?;
        }
        if cursor.remaining() > 0 {
            let length = cursor.u32(What::Header("length of the dataset's name"))?;
            let name = cursor.take(length.into(), What::Header("name of the dataset"))?;
            datasets.extend((length > 0).then(|| String::from_utf8_lossy(name).into_owned()));
        }
        Ok(Self { entries, datasets, chunks })
    }
}

/// An entry of the old format, whose sums are those of means.
fn old_entry<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a str, Vec<f32>), Error> {
    let header = What::Header("name of an entry");
    let offset = cursor.offset();
    let length = u64::from(cursor.u32(header)?);
    if length > MAX_NAME {
        return Err(Error::NameTooLong { what: header.to_string(), offset, length });
    }
    let offset = cursor.offset();
    let entry = std::str::from_utf8(cursor.take(length, header)?)
        .map_err(|_| Error::NameNotUtf8 { what: header.to_string(), offset })?;
    let calls = cursor.u32(What::Tensor(entry))? as i32;
    let count = u64::from(cursor.u32(What::Tensor(entry))?);
    let bytes = cursor.take(4 * count, What::Tensor(entry))?;
    // Without calls the sums are means already.
    let calls = if calls > 0 { calls as f32 } else { 1.0 };
    let values = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b) / calls);
    Ok((entry, values.collect()))
}
