//! A blob that is not whole yet, and the record of what it has.
//!
//! Connections write at several places of one file, so its length says nothing. A second file, the map,
//! has a byte for each MiB, which is set when that MiB has been written: after Ctrl-C or a crash the rest
//! is fetched. Both names end in `.incomplete` behind eight characters, as `huggingface_hub` names its
//! own, whose tools remove them when they tidy up. A file `ETAG.incomplete` that an older
//! `huggingface_hub` began is taken over: it has its bytes from the beginning on.

use crate::Error;
use crate::cache::RepoFolder;
use crate::digest::Checksum;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Bytes that the map has a byte for.
pub(crate) const BLOCK: u64 = 1 << 20;

const DATA: &str = ".arclight.incomplete";
const MAP: &str = ".blockmap.incomplete";
const MAGIC: &str = "arclight block map 1";

/// A blob in the making. Whoever has it holds the blob's lock.
pub(crate) struct Partial {
    data: File,
    map: File,
    data_path: PathBuf,
    map_path: PathBuf,
    size: u64,
    /// Length of the map's first lines.
    head: u64,
    /// Bytes that each block has.
    have: Vec<u64>,
    /// Blocks from the beginning on that are whole.
    whole: usize,
}

/// A download that was not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The file's name in its repository.
    pub file: String,
    /// Bytes that are here.
    pub done: u64,
    /// Bytes of the whole file.
    pub size: u64,
    /// The files that hold it.
    pub(crate) paths: [PathBuf; 2],
}

impl Partial {
    /// Goes on with what is there of a blob, or begins.
    pub(crate) fn open(
        folder: &RepoFolder,
        file: &str,
        size: u64,
        checksum: &Checksum,
    ) -> Result<Partial, Error> {
        let path = |end: &str| folder.blob(&format!("{}{end}", checksum.hex()));
        let (data_path, map_path) = (path(DATA), path(MAP));
        let head = head(file, size);
        let have = read_map(&map_path, &head, size).filter(|_| length(&data_path) == Some(size));
        let from_start = match have {
            Some(_) => 0,
            None => {
                let old = path(".incomplete");
                let length = length(&old).filter(|length| *length < size).unwrap_or(0);
                if length > 0 {
                    fs::rename(&old, &data_path).map_err(Error::io("rename", &old))?;
                }
                length
            }
        };
        let open = |path: &Path, clear: bool| {
            let file =
                File::options().read(true).write(true).create(true).truncate(clear).open(path);
            file.map_err(Error::io("write", path))
        };
        let data = open(&data_path, have.is_none() && from_start == 0)?;
        data.set_len(size).map_err(Error::io("write", &data_path))?;
        let map = open(&map_path, have.is_none())?;
        let blocks = size.div_ceil(BLOCK) as usize;
        let have = match have {
            Some(have) => have,
            None => {
                let whole =
                    |at: usize| if (at as u64 + 1) * BLOCK <= from_start { BLOCK } else { 0 };
                let have: Vec<u64> = (0..blocks).map(whole).collect();
                let bits = have.iter().map(|have| if *have > 0 { b'1' } else { b'0' });
                let text: Vec<u8> = head.bytes().chain(bits).collect();
                crate::at::write_all(&map, &text, 0).map_err(Error::io("write", &map_path))?;
                have
            }
        };
        let head = head.len() as u64;
        let mut partial = Partial { data, map, data_path, map_path, size, head, have, whole: 0 };
        partial.advance();
        Ok(partial)
    }

    /// The file that connections write to.
    pub(crate) fn data(&self) -> &File {
        &self.data
    }

    pub(crate) fn data_path(&self) -> &Path {
        &self.data_path
    }

    /// Bytes that are here.
    pub(crate) fn done(&self) -> u64 {
        self.have.iter().sum()
    }

    /// Bytes from the beginning on that are here for good.
    pub(crate) fn beginning(&self) -> u64 {
        (self.whole as u64 * BLOCK).min(self.size)
    }

    /// What is missing, in pieces of at most so many bytes.
    pub(crate) fn missing(&self, piece: u64) -> Vec<(u64, u64)> {
        let piece = piece.div_ceil(BLOCK).max(1) * BLOCK;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for at in (0..self.have.len()).filter(|at| self.have[*at] < self.block(*at)) {
            let (from, to) = (at as u64 * BLOCK, at as u64 * BLOCK + self.block(at));
            match runs.last_mut() {
                Some((start, end)) if *end == from && to - *start <= piece => *end = to,
                _ => runs.push((from, to)),
            }
        }
        runs
    }

    /// Bytes of a block.
    fn block(&self, at: usize) -> u64 {
        BLOCK.min(self.size - at as u64 * BLOCK)
    }

    /// Records that bytes have been written. They follow those of the same block that were recorded before.
    pub(crate) fn wrote(&mut self, mut from: u64, mut bytes: u64) -> Result<(), Error> {
        while bytes > 0 {
            let at = (from / BLOCK) as usize;
            let here = bytes.min((at as u64 + 1) * BLOCK - from);
            self.have[at] += here;
            if self.have[at] == self.block(at) {
                let fault = Error::io("write", &self.map_path);
                crate::at::write_all(&self.map, b"1", self.head + at as u64).map_err(fault)?;
            }
            (from, bytes) = (from + here, bytes - here);
        }
        self.advance();
        Ok(())
    }

    fn advance(&mut self) {
        while self.whole < self.have.len() && self.have[self.whole] == self.block(self.whole) {
            self.whole += 1;
        }
    }

    /// Makes it the blob.
    pub(crate) fn finish(self, blob: &Path) -> Result<(), Error> {
        self.data.sync_all().map_err(Error::io("write", &self.data_path))?;
        fs::rename(&self.data_path, blob).map_err(Error::io("make", blob))?;
        fs::remove_file(&self.map_path).map_err(Error::io("remove", &self.map_path))
    }

    /// Removes all of it.
    pub(crate) fn discard(self) -> Result<(), Error> {
        for path in [&self.data_path, &self.map_path] {
            fs::remove_file(path).map_err(Error::io("remove", path))?;
        }
        Ok(())
    }
}

/// Removes what a crash has left beside a blob that is whole.
pub(crate) fn tidy(folder: &RepoFolder, checksum: &Checksum) -> Result<(), Error> {
    let path = folder.blob(&format!("{}{MAP}", checksum.hex()));
    match fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &path)(e)),
        _ => Ok(()),
    }
}

/// The unfinished downloads among a repository's blobs.
pub(crate) fn unfinished(blobs: &Path) -> Vec<Unfinished> {
    let maps = crate::cache::names(blobs).into_iter().filter(|name| name.ends_with(MAP));
    let read = |name: String| {
        let map_path = blobs.join(&name);
        let text = fs::read(&map_path).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut lines = text.splitn(4, '\n');
        if lines.next() != Some(MAGIC) {
            return None;
        }
        let size: u64 = lines.next()?.parse().ok()?;
        let file = lines.next()?.to_owned();
        let whole = lines.next()?.bytes().filter(|b| *b == b'1').count() as u64;
        let data_path = blobs.join(name.replace(MAP, DATA));
        if length(&data_path) != Some(size) {
            return None;
        }
        Some(Unfinished {
            file,
            done: (whole * BLOCK).min(size),
            size,
            paths: [data_path, map_path],
        })
    };
    maps.filter_map(read).collect()
}

fn head(file: &str, size: u64) -> String {
    format!("{MAGIC}\n{size}\n{}\n", file.replace('\n', " "))
}

fn length(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|m| m.len())
}

/// Bytes that each block has, if the map is of this file.
fn read_map(path: &Path, head: &str, size: u64) -> Option<Vec<u64>> {
    let text = fs::read(path).ok()?;
    let bits = text.strip_prefix(head.as_bytes())?;
    let blocks = size.div_ceil(BLOCK);
    if bits.len() as u64 != blocks {
        return None;
    }
    let bytes = |at: usize| BLOCK.min(size - at as u64 * BLOCK);
    Some(
        bits.iter().enumerate().map(|(at, bit)| if *bit == b'1' { bytes(at) } else { 0 }).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Repo, Site};

    const SIZE: u64 = 4 * BLOCK + 100;

    fn folder(root: &Path) -> RepoFolder {
        let repo = Repo { site: Site::HuggingFace, owner: "o".into(), name: "r".into() };
        let folder = RepoFolder::new(root, &repo);
        folder.create().unwrap();
        folder
    }

    fn checksum() -> Checksum {
        Checksum::sha256(&"a".repeat(64)).unwrap()
    }

    fn open(folder: &RepoFolder) -> Partial {
        Partial::open(folder, "m.gguf", SIZE, &checksum()).unwrap()
    }

    #[test]
    fn whole_blocks_survive_and_begun_ones_do_not() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let mut partial = open(&folder);
        assert_eq!(partial.missing(u64::MAX / 2), [(0, SIZE)]);
        partial.wrote(BLOCK, BLOCK - 1).unwrap();
        partial.wrote(4 * BLOCK, 100).unwrap();
        partial.wrote(0, BLOCK).unwrap();
        assert_eq!((partial.done(), partial.beginning()), (2 * BLOCK + 99, BLOCK));
        drop(partial);
        let partial = open(&folder);
        assert_eq!((partial.done(), partial.beginning()), (BLOCK + 100, BLOCK));
        assert_eq!(partial.missing(2 * BLOCK), [(BLOCK, 3 * BLOCK), (3 * BLOCK, 4 * BLOCK)]);
        let listed = unfinished(&folder.blobs());
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].file.as_str(), listed[0].size), ("m.gguf", SIZE));
    }

    #[test]
    fn bytes_across_blocks_are_recorded_in_each() {
        let root = tempfile::tempdir().unwrap();
        let mut partial = open(&folder(root.path()));
        partial.wrote(0, 2 * BLOCK + 5).unwrap();
        partial.wrote(2 * BLOCK + 5, SIZE - 2 * BLOCK - 5).unwrap();
        assert_eq!((partial.beginning(), partial.missing(1)), (SIZE, vec![]));
    }

    #[test]
    fn a_beginning_of_huggingface_hub_is_taken_over() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let old = folder.blob(&format!("{}.incomplete", checksum().hex()));
        fs::write(&old, vec![7; BLOCK as usize + 9]).unwrap();
        let partial = open(&folder);
        assert_eq!(partial.missing(u64::MAX / 2), [(BLOCK, SIZE)]);
        let mut byte = [0];
        crate::at::read_exact(partial.data(), &mut byte, 3).unwrap();
        assert_eq!((byte[0], old.exists()), (7, false));
    }

    #[test]
    fn a_map_beside_a_whole_blob_is_no_download() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let partial = open(&folder);
        let (data, map) = (partial.data_path.clone(), partial.map_path.clone());
        drop(partial);
        // A crash between the last two steps of `finish`.
        fs::rename(&data, folder.blob(checksum().hex())).unwrap();
        assert!(map.exists() && unfinished(&folder.blobs()).is_empty());
        tidy(&folder, &checksum()).unwrap();
        tidy(&folder, &checksum()).unwrap();
        assert!(!map.exists());
    }

    #[test]
    fn a_map_of_something_else_counts_for_nothing() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let mut partial = open(&folder);
        partial.wrote(0, BLOCK).unwrap();
        drop(partial);
        let other = Partial::open(&folder, "m.gguf", SIZE - 1, &checksum()).unwrap();
        assert_eq!(other.done(), 0);
        drop(other);
        // Nor does a map without its file.
        let partial = open(&folder);
        fs::remove_file(partial.data_path()).unwrap();
        drop(partial);
        assert_eq!(open(&folder).done(), 0);
    }
}
