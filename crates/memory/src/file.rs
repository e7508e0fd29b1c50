//! Mapped files: the source that weights are copied from, and what the page cache has of them.

use std::fs::{self, File};
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};

use crate::Error;
use crate::sys;

/// A model file as a slice of bytes; never empty.
///
/// The mapping is read-only and private, so nothing here can change the file. The kernel reads
/// pages when they are first looked at and keeps them in its page cache; a loader that has copied a
/// tensor to its arena [releases](MappedFile::release) the pages, so that the process does not
/// count the model twice. Where memory does not hold both, it takes them
/// [out of the page cache](MappedFile::uncache) as well.
///
/// Limit, as with every mapped file: if another process truncates the file, a later look at the
/// missing pages ends this process with SIGBUS; if it writes to the file, the bytes may change.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
    file: File,
    path: PathBuf,
}

/// How a part of a file is about to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// From front to back: read far ahead.
    Sequential,
    /// Soon: begin reading it from the disk now.
    WillNeed,
}

impl MappedFile {
    /// Maps a file.
    ///
    /// # Errors
    /// There is no such file, it is a directory or another thing that is no regular file, it is
    /// empty, this user may not read it, or the system cannot map it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source: io::Error| {
            let path = path.to_owned();
            match source.kind() {
                io::ErrorKind::NotFound => Error::NotFound { path },
                io::ErrorKind::PermissionDenied => Error::Permission { path },
                _ => Error::Map { path, source },
            }
        };
        // Before opening: to open a pipe would wait for its writer.
        let kind = fs::metadata(path).map_err(failed)?;
        if kind.is_dir() {
            return Err(Error::Directory { path: path.to_owned() });
        }
        if !kind.is_file() {
            return Err(Error::NotRegular { path: path.to_owned() });
        }
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() == 0 {
            return Err(Error::Empty { path: path.to_owned() });
        }
        let map = map(&file).map_err(failed)?;
        Ok(Self { map, file, path: path.to_owned() })
    }

    /// Maps the same file again, even if the path has another by now: what one mapping
    /// [releases](MappedFile::release) the other keeps.
    ///
    /// # Errors
    /// The system cannot map it, or the file has grown shorter or longer since.
    pub fn again(&self) -> Result<Self, Error> {
        let failed = |source| Error::Map { path: self.path.clone(), source };
        let file = self.file.try_clone().map_err(failed)?;
        let map = map(&file).map_err(failed)?;
        match map.len() == self.map.len() {
            true => Ok(Self { map, file, path: self.path.clone() }),
            false => Err(failed(io::Error::other("the file has changed its length"))),
        }
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the pages that lie wholly in `part` out of this process's memory. The bytes remain
    /// readable: the next look at them brings them back from the page cache or the disk.
    ///
    /// # Errors
    /// `part` is not a part of this mapping, or the kernel refuses.
    pub fn release(&self, part: &[u8]) -> Result<(), Error> {
        let Range { start, end } = self.range(part)?;
        let page = sys::page_size();
        let start = start.next_multiple_of(page);
        // The page that holds the file's end holds nothing else.
        let end = if end == self.map.len() { end } else { end - end % page };
        self.advise_range(start..end, sys::Advice::DontNeed)
    }

    /// Takes the pages that lie wholly in `part` out of this process's memory and out of the page cache.
    /// The bytes remain readable: the next look at them brings them back from the disk. Pages that others
    /// have mapped stay.
    ///
    /// # Errors
    /// `part` is not a part of this mapping, or the kernel refuses.
    pub fn uncache(&self, part: &[u8]) -> Result<(), Error> {
        // Mapped pages would stay.
        self.release(part)?;
        let Range { start, end } = self.range(part)?;
        // The kernel leaves pages that are there in part; of the file's last one nothing else is.
        let end = if end == self.map.len() { end.next_multiple_of(sys::page_size()) } else { end };
        // A length of zero would mean all that follows.
        if start == end {
            return Ok(());
        }
        sys::uncache(&self.file, start as u64, (end - start) as u64)
            .map_err(|source| Error::Uncache { path: self.path.clone(), source })
    }

    /// Bytes of the file in the page cache, whoever brought them there, in whole pages. (To whoever could
    /// not write to the file the kernel counts only what this process has mapped.)
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn cached_bytes(&self) -> Result<usize, Error> {
        let page = sys::page_size();
        let mut pages = vec![0; self.map.len().div_ceil(page)];
        let start = self.map.as_ptr().cast_mut();
        // SAFETY: all of our mapping; `pages` has a byte for each of its pages.
        unsafe { sys::in_core(start, self.map.len(), &mut pages) }
            .map_err(|source| Error::Mincore { path: self.path.clone(), source })?;
        Ok(pages.iter().filter(|&&held| held & 1 != 0).count() * page)
    }

    /// Where in the file `part` lies.
    ///
    /// # Errors
    /// `part` is not a part of this mapping.
    pub fn place(&self, part: &[u8]) -> Result<Range<u64>, Error> {
        self.range(part).map(|range| range.start as u64..range.end as u64)
    }

    /// Tells the kernel how `part`, and what shares pages with it, is about to be read.
    ///
    /// # Errors
    /// `part` is not a part of this mapping, or the kernel refuses.
    pub fn advise(&self, part: &[u8], advice: Advice) -> Result<(), Error> {
        let Range { start, end } = self.range(part)?;
        let advice = match advice {
            Advice::Sequential => sys::Advice::Sequential,
            Advice::WillNeed => sys::Advice::WillNeed,
        };
        self.advise_range(start - start % sys::page_size()..end, advice)
    }

    /// Where `part` lies in the mapping, in bytes.
    fn range(&self, part: &[u8]) -> Result<Range<usize>, Error> {
        let (base, at) = (self.map.as_ptr().addr(), part.as_ptr().addr());
        let start = at.checked_sub(base).filter(|start| start + part.len() <= self.map.len());
        let outside = || Error::Outside { path: self.path.clone(), len: part.len() };
        start.map(|start| start..start + part.len()).ok_or_else(outside)
    }

    /// `range.start` is a multiple of the page size.
    fn advise_range(&self, range: Range<usize>, advice: sys::Advice) -> Result<(), Error> {
        if range.is_empty() {
            return Ok(());
        }
        let start = self.map[range.start..].as_ptr().cast_mut();
        // SAFETY: the range lies in our mapping and starts on a page, and none of the advice given
        // here loses data: pages of a private mapping that was never written come back from the
        // file.
        unsafe { sys::advise(start, range.len(), advice) }
            .map_err(|source| Error::Advise { path: self.path.clone(), source })
    }
}

fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the mapping is private and read-only. That nobody truncates or changes the file under
    // it cannot be enforced; it is the documented limit of `MappedFile`.
    unsafe { MmapOptions::new().map_copy_read_only(file) }
}

impl Deref for MappedFile {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.map
    }
}
