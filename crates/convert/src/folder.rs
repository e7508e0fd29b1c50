//! A folder of the Hub: its JSON files, and its tensors by name, wherever they lie.

use crate::array::{Array, Blocks};
use crate::config::Config;
use crate::dtype::Dtype;
use crate::error::Error;
use crate::safetensors::{self, Entry};
use memory::MappedFile;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const INDEX: &str = "model.safetensors.index.json";

/// A folder with everything but its vocabulary read; tensors are mapped.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) config: Config,
    tensors: Vec<Tensor>,
    by_name: HashMap<String, usize>,
}

/// A stored tensor.
pub(crate) struct Tensor {
    file: Arc<MappedFile>,
    pub(crate) entry: Entry,
}

impl Folder {
    /// Opens a folder, or a file of tensors in one.
    pub(crate) fn open(path: &Path) -> Result<Folder, Error> {
        let kind = fs::metadata(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::NotFound { path: path.to_owned() },
            _ => Error::Read { path: path.to_owned(), source },
        })?;
        let folder = match kind.is_dir() {
            true => path.to_owned(),
            false => match path.parent() {
                Some(parent) if parent != Path::new("") => parent.to_owned(),
                _ => PathBuf::from("."),
            },
        };
        let config = json(&folder, "config.json")?
            .ok_or_else(|| Error::NoConfig { folder: folder.clone() })?;
        let mut opened = Folder {
            config: Config::new(config)?,
            path: folder,
            tensors: Vec::new(),
            by_name: HashMap::new(),
        };
        let index = opened.index()?;
        let named = |file: &str| path.file_name().is_some_and(|name| name == file);
        let index = index.filter(|index| kind.is_dir() || index.values().any(|file| named(file)));
        let files = match &index {
            Some(index) => opened.shards(index)?,
            None if kind.is_dir() => opened.files()?,
            None => vec![path.to_owned()],
        };
        for file in &files {
            opened.map(file)?;
        }
        for (name, file) in index.iter().flatten() {
            if !opened.by_name.contains_key(name) {
                let (path, name) = (opened.path.join(file), name.clone());
                return Err(Error::NotInShard { path, name });
            }
        }
        Ok(opened)
    }

    /// Which file has which tensor, if an index says so.
    fn index(&self) -> Result<Option<HashMap<String, String>>, Error> {
        let Some(index) = json(&self.path, INDEX)? else { return Ok(None) };
        let fault = |what: &str| Error::Config { file: INDEX, what: what.to_owned() };
        let map = index["weight_map"].as_object().ok_or_else(|| fault("it has no weight_map"))?;
        let pair = |(name, file): (&String, &Value)| {
            let file = file.as_str().filter(|file| Path::new(file).components().count() == 1);
            let file = file.ok_or_else(|| fault("a file in its weight_map is no file's name"))?;
            Ok((name.clone(), file.to_owned()))
        };
        map.iter().map(pair).collect::<Result<_, _>>().map(Some)
    }

    fn shards(&self, index: &HashMap<String, String>) -> Result<Vec<PathBuf>, Error> {
        let names: HashSet<&String> = index.values().collect();
        let mut paths: Vec<PathBuf> = names.into_iter().map(|name| self.path.join(name)).collect();
        paths.sort();
        let missing: Vec<&PathBuf> = paths.iter().filter(|path| !path.is_file()).collect();
        match missing[..] {
            [] => Ok(paths),
            [first, ..] => Err(Error::MissingShard {
                path: first.clone(),
                index: INDEX,
                missing: missing.len(),
                shards: paths.len(),
            }),
        }
    }

    /// The files of tensors of a folder without an index: those of the usual name, or all.
    fn files(&self) -> Result<Vec<PathBuf>, Error> {
        let fault = |source| Error::Read { path: self.path.clone(), source };
        let mut names: Vec<String> = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(fault)? {
            names.extend(entry.map_err(fault)?.file_name().into_string().ok());
        }
        let tensors = |name: &&String| name.ends_with(".safetensors");
        let mut found: Vec<String> = names.iter().filter(tensors).cloned().collect();
        if found.iter().any(|name| name.starts_with("model")) {
            found.retain(|name| name.starts_with("model"));
        }
        found.sort();
        if found.is_empty() {
            let pickled = names.iter().any(|name| name.ends_with(".bin") || name.ends_with(".pth"));
            return Err(Error::NoTensors { folder: self.path.clone(), pickled });
        }
        Ok(found.into_iter().map(|name| self.path.join(name)).collect())
    }

    fn map(&mut self, path: &Path) -> Result<(), Error> {
        let file = Arc::new(MappedFile::open(path)?);
        let fault = |what| Error::Safetensors { path: path.to_owned(), what };
        for entry in safetensors::entries(&file).map_err(fault)? {
            let at = self.tensors.len();
            if self.by_name.insert(entry.name.clone(), at).is_some() {
                return Err(Error::Twice { path: path.to_owned(), name: entry.name });
            }
            self.tensors.push(Tensor { file: file.clone(), entry });
        }
        Ok(())
    }

    /// The tensors of a module of its own in a folder below; `None` if there is none.
    pub(crate) fn of_module(&self, path: &str) -> Result<Option<Vec<(String, Array)>>, Error> {
        let path = self.path.join(path).join("model.safetensors");
        if !path.is_file() {
            return Ok(None);
        }
        let file = Arc::new(MappedFile::open(&path)?);
        let entries = safetensors::entries(&file);
        let entries = entries.map_err(|what| Error::Safetensors { path: path.clone(), what })?;
        let array = |entry: Entry| {
            let tensor = Tensor { file: file.clone(), entry };
            (tensor.entry.name.clone(), tensor.array())
        };
        Ok(Some(entries.into_iter().map(array).collect()))
    }

    /// All tensors, file by file in the order of their data.
    pub(crate) fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.by_name.get(name).map(|&at| &self.tensors[at])
    }

    /// A JSON file of the folder; `None` if there is none.
    pub(crate) fn json(&self, name: &str) -> Result<Option<Value>, Error> {
        json(&self.path, name)
    }

    /// Another file of the folder; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        read(&self.path.join(name))
    }

    /// A text file of the folder; `None` if there is none.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<String>, Error> {
        let Some(bytes) = self.read(name)? else { return Ok(None) };
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|_| Error::vocabulary(name, "it is no UTF-8"))
    }
}

pub(crate) fn json(folder: &Path, name: &str) -> Result<Option<Value>, Error> {
    let path = folder.join(name);
    let Some(bytes) = read(&path)? else { return Ok(None) };
    let parsed = serde_json::from_slice(&bytes);
    // Python writes numbers that JSON does not have.
    parsed
        .or_else(|fault| without_infinities(&bytes).ok_or(fault))
        .map(Some)
        .map_err(|source| Error::Json { path, source })
}

/// JSON with null for each `Infinity` and `NaN` outside of texts.
fn without_infinities(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut parts: Vec<String> = text.split('"').map(str::to_owned).collect();
    let mut inside = false;
    let last = parts.len() - 1;
    for (n, part) in parts.iter_mut().enumerate() {
        if !inside {
            for word in ["-Infinity", "Infinity", "NaN"] {
                *part = part.replace(word, "null");
            }
        }
        // A quote behind an odd number of backslashes is part of a text.
        let escapes = part.len() - part.trim_end_matches('\\').len();
        if n < last && !(inside && escapes % 2 == 1) {
            inside = !inside;
        }
    }
    serde_json::from_str(&parts.join("\"")).ok()
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}

impl Tensor {
    fn bytes(&self) -> &[u8] {
        &self.file[self.entry.bytes.clone()]
    }

    /// All elements, of a tensor small enough to be held.
    pub(crate) fn values(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.entry.shape.iter().product()];
        self.entry.dtype.read(self.bytes(), &mut values);
        values
    }

    /// The elements as they are stored.
    pub(crate) fn array(&self) -> Array {
        let Entry { dtype, shape, bytes, .. } = &self.entry;
        // A number alone is a vector of one.
        let shape = if shape.is_empty() { &vec![1] } else { shape };
        let cols = if shape.len() < 2 { 1 } else { shape[shape.len() - 1] };
        let stored = Stored { file: self.file.clone(), dtype: *dtype, bytes: bytes.clone(), cols };
        Array::new(shape, *dtype == Dtype::F16, stored)
    }

    /// Where the bytes are, for readers of packed forms.
    pub(crate) fn source(&self) -> Source {
        Source { file: self.file.clone(), bytes: self.entry.bytes.clone() }
    }
}

/// The bytes of a stored tensor.
#[derive(Clone)]
pub(crate) struct Source {
    file: Arc<MappedFile>,
    bytes: Range<usize>,
}

impl Source {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.file[self.bytes.clone()]
    }
}

struct Stored {
    file: Arc<MappedFile>,
    dtype: Dtype,
    bytes: Range<usize>,
    cols: usize,
}

impl Blocks for Stored {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        let (data, size) = (&self.file[self.bytes.clone()], self.dtype.bits() / 8);
        let read = |elements: Range<usize>, out: &mut [f32]| {
            self.dtype.read(&data[elements.start * size..elements.end * size], out);
        };
        if cols.len() == self.cols {
            return read(rows.start * self.cols..rows.end * self.cols, out);
        }
        for (row, out) in rows.zip(out.chunks_exact_mut(cols.len())) {
            read(row * self.cols + cols.start..row * self.cols + cols.end, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_none_are_null() {
        let read = |text: &str| without_infinities(text.as_bytes());
        let value =
            read(r#"{"a": [0.0, Infinity, -Infinity], "b": "NaN \" NaN", "c": NaN}"#).unwrap();
        assert_eq!(
            value,
            serde_json::json!({"a": [0.0, null, null], "b": "NaN \" NaN", "c": null})
        );
        assert!(read("{").is_none());
    }
}
