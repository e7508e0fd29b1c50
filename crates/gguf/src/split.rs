//! Models split over several files, named `…-00001-of-00003.gguf`.
//!
//! The first part holds the metadata of the model; every part holds its own tensor directory and
//! three keys that say which part of what it is.

use std::path::{Path, PathBuf};

use crate::error::shorten;
use crate::{Error, Gguf, Metadata};

/// Which part a file is, from 0.
const NO: &str = "split.no";
/// How many parts the model has.
const COUNT: &str = "split.count";
/// How many tensors all parts have together.
const TENSORS: &str = "split.tensors.count";

impl<'a> Gguf<'a> {
    /// Parses a model from all of its parts, in order. The metadata is that of the first; tensors
    /// are those of all.
    ///
    /// # Errors
    /// [`Error::InPart`] for a fault in one of them, [`Error::SplitMismatch`] when they are out of
    /// order or incomplete, [`Error::DuplicateTensor`] when two hold a tensor of the same name.
    pub fn parse_split(parts: &[&'a [u8]]) -> Result<Self, Error> {
        let whole = Self::join(parts)?;
        match whole.others.first() {
            None => Ok(whole),
            Some(other) => in_part(other.part, Err(other.fault())),
        }
    }

    /// Parses a model from its one file, or from all of its parts in order, for a look at it: tensors of types that
    /// this crate does not read are [others](Gguf::others). [`Gguf::parse`] and [`Gguf::parse_split`] refuse them.
    ///
    /// # Errors
    /// As these two, but for such types.
    pub fn survey(parts: &[&'a [u8]]) -> Result<Self, Error> {
        let [one] = parts else { return Self::join(parts) };
        let gguf = Self::parse_part(one, 0)?;
        reject_lone_part(&gguf)?;
        Ok(gguf)
    }

    fn join(parts: &[&'a [u8]]) -> Result<Self, Error> {
        let (&first, rest) = parts.split_first().ok_or(Error::NoParts)?;
        let mut whole = parse_part(first, 0)?;
        if rest.is_empty() && whole.metadata.get(COUNT).is_none() {
            return Ok(whole);
        }
        check_place(&whole.metadata, 0, parts.len())?;
        let total = in_part(0, whole.metadata.u64(TENSORS))?;
        for (i, &bytes) in rest.iter().enumerate() {
            let part = parse_part(bytes, i + 1)?;
            check_place(&part.metadata, i + 1, parts.len())?;
            if let Some(claim) = in_part(i + 1, part.metadata.opt_u64(TENSORS))? {
                check(i + 1, TENSORS, claim, total)?;
            }
            let twice =
                |name: &str, offset| Error::DuplicateTensor { tensor: shorten(name), offset };
            for tensor in part.tensors {
                if whole.index.insert(tensor.name, Some(whole.tensors.len())).is_some() {
                    return Err(twice(tensor.name, tensor.offset));
                }
                whole.tensors.push(tensor);
            }
            for other in part.others {
                if whole.index.insert(other.name, None).is_some() {
                    return Err(twice(other.name, other.offset));
                }
                whole.others.push(other);
            }
        }
        check(0, TENSORS, total, (whole.tensors.len() + whole.others.len()) as u64)?;
        Ok(whole)
    }
}

fn parse_part(bytes: &[u8], part: usize) -> Result<Gguf<'_>, Error> {
    in_part(part, Gguf::parse_part(bytes, part))
}

fn in_part<T>(part: usize, result: Result<T, Error>) -> Result<T, Error> {
    result.map_err(|source| Error::InPart { part, source: Box::new(source) })
}

fn check_place(metadata: &Metadata<'_>, part: usize, count: usize) -> Result<(), Error> {
    check(part, COUNT, in_part(part, metadata.u64(COUNT))?, count as u64)?;
    check(part, NO, in_part(part, metadata.u64(NO))?, part as u64)
}

fn check(part: usize, key: &'static str, found: u64, expected: u64) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::SplitMismatch { part, key, found, expected })
}

/// Refuses a part that was opened as if it were a whole model: most of its tensors would be absent.
pub(crate) fn reject_lone_part(gguf: &Gguf<'_>) -> Result<(), Error> {
    match gguf.metadata.opt_u64(COUNT)? {
        Some(count) if count > 1 => Err(Error::LonePart { part: gguf.metadata.u64(NO)?, count }),
        _ => Ok(()),
    }
}

/// The paths of all parts of a split model, in order, given the path of one of them; `None` if the
/// file name does not end in `-00001-of-00003.gguf` or the like, with five digits each.
///
/// Only the name is looked at, not the file system.
pub fn split_paths(first: &Path) -> Option<Vec<PathBuf>> {
    let name = first.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, count) = name.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let (number, count) = (five_digits(number)?, five_digits(count)?);
    if !(1..=count).contains(&number) {
        return None;
    }
    let path = |i| first.with_file_name(format!("{stem}-{i:05}-of-{count:05}.gguf"));
    Some((1..=count).map(path).collect())
}

fn five_digits(s: &str) -> Option<u32> {
    (s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_all_parts_follow_from_one() {
        let want: Vec<PathBuf> =
            (1..=3).map(|i| format!("/m/qwen-4b-0000{i}-of-00003.gguf").into()).collect();
        assert_eq!(split_paths(Path::new("/m/qwen-4b-00001-of-00003.gguf")), Some(want.clone()));
        assert_eq!(split_paths(Path::new("/m/qwen-4b-00003-of-00003.gguf")), Some(want));
        assert_eq!(
            split_paths(Path::new("a-00001-of-00001.gguf")),
            Some(vec!["a-00001-of-00001.gguf".into()])
        );
    }

    #[test]
    fn other_names_are_not_parts() {
        for name in [
            "",
            "model.gguf",
            "model-00001-of-00003",
            "model-1-of-3.gguf",
            "model-00000-of-00003.gguf",
            "model-00004-of-00003.gguf",
            "model-00000-of-00000.gguf",
            "model-+0001-of-00003.gguf",
            "model-000001-of-00003.gguf",
            "00001-of-00003.gguf",
        ] {
            assert_eq!(split_paths(Path::new(name)), None, "{name}");
        }
    }
}
