//! Files that are read past the page cache: into buffers of this process, with nothing kept behind.
//!
//! Addresses and offsets of such reads are multiples of what the file system says (`statx`), or of 4096
//! where it does not say. So what is read begins before what is wanted and ends after it, and a
//! [`Stage`] tells which of its bytes were wanted.
//!
//! Limits: a file system without such reads refuses the file; nothing is read another way instead.
//! Sources: `open(2)` (`O_DIRECT`), `statx(2)` (`STATX_DIOALIGN`).

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use crate::arena::{Arena, ArenaOptions, HugePages};
use crate::block::Block;
use crate::error::Error;
use crate::policy::Policy;
use crate::sys;

/// Bytes of one read: enough that a disk is busy with it, few enough to end soon.
const READ_BYTES: usize = 8 << 20;

/// Where a file system does not say.
const USUAL_ALIGNMENT: usize = 4096;

/// Of every buffer; no file system is known to want more.
const STAGE_ALIGNMENT: usize = 64 << 10;

/// From this size on a buffer is worth huge pages, which the kernel pins faster for the device.
const HUGE: usize = 2 << 20;

/// A file open for reads past the page cache.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    path: PathBuf,
    len: u64,
    /// Addresses and offsets are multiples of it; a power of two.
    align: usize,
}

impl DirectFile {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be opened, or its file system has no such reads.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let owned = || path.to_owned();
        let file = sys::open_direct(path).map_err(|source| match source.raw_os_error() {
            Some(libc::EINVAL) => Error::NoDirect { path: owned() },
            Some(libc::ENOENT) => Error::NotFound { path: owned() },
            Some(libc::EACCES) => Error::Permission { path: owned() },
            _ if source.kind() == io::ErrorKind::Unsupported => Error::NoDirect { path: owned() },
            _ => Error::Open { path: owned(), source },
        })?;
        let len = file.metadata().map_err(|source| Error::Open { path: owned(), source })?.len();
        let align = match sys::direct_alignment(&file) {
            // The file system has such reads, but not of this file.
            Some((_, 0)) => return Err(Error::NoDirect { path: owned() }),
            Some((memory, offset)) => memory.max(offset).next_power_of_two(),
            None => USUAL_ALIGNMENT,
        };
        Ok(Self { file, path: owned(), len, align })
    }

    /// Bytes that a [`Stage`] must have for [`read`](Self::read) of `range`.
    pub fn stage_bytes(&self, range: &Range<u64>) -> usize {
        let around = self.around(range);
        around.end.saturating_sub(around.start) as usize
    }

    /// Reads the bytes `range` of the file, which `stage` gives afterwards.
    ///
    /// # Errors
    /// The file has no such bytes, reading fails, or the stage is too small.
    pub fn read(&self, range: Range<u64>, stage: &mut Stage) -> Result<(), Error> {
        let around = self.around(&range);
        let bytes = self.stage_bytes(&range);
        let wanted = range.end.saturating_sub(range.start) as usize;
        let before = (range.start - around.start) as usize;
        let fault = |source| Error::Read {
            path: self.path.clone(),
            at: range.start,
            bytes: wanted,
            source,
        };
        if range.start > range.end || range.end > self.len {
            return Err(fault(io::ErrorKind::UnexpectedEof.into()));
        }
        let to = stage
            .room(bytes, self.align)
            .ok_or_else(|| fault(io::Error::other("the buffer is too small or wrongly aligned")))?;
        let mut got = 0;
        while got < before + wanted {
            let end = bytes.min(got + READ_BYTES);
            let read = match sys::read_at(&self.file, &mut to[got..end], around.start + got as u64)
            {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // Some file systems refuse only when they are to read.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                    return Err(Error::NoDirect { path: self.path.clone() });
                }
                result => result.map_err(fault)?,
            };
            let next = got + read;
            // A read that was cut short goes on where it may begin.
            let again = next - next % self.align;
            if next >= before + wanted {
                got = next;
            } else if again > got {
                got = again;
            } else {
                return Err(fault(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        stage.wanted = before..before + wanted;
        Ok(())
    }

    /// Length of the file when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file had no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What is read for a range.
    fn around(&self, range: &Range<u64>) -> Range<u64> {
        let align = self.align as u64;
        let end = range.end.checked_next_multiple_of(align).unwrap_or(range.end);
        range.start - range.start % align..end
    }
}

/// A buffer for one [read](DirectFile::read) at a time: the bytes that were wanted last.
#[derive(Debug)]
pub struct Stage {
    block: Block,
    wanted: Range<usize>,
    // Below what lies in it.
    _arena: Arena,
}

impl Stage {
    /// A buffer of at least so many bytes. They take memory when they are first read to.
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn new(bytes: usize) -> Result<Self, Error> {
        let huge = if bytes < HUGE { HugePages::Off } else { HugePages::Transparent };
        let options = ArenaOptions { policy: Policy::Default, huge, name: "stage" };
        let mut arena = Arena::new(bytes.saturating_add(STAGE_ALIGNMENT), &options)?;
        let block = arena.alloc(bytes, STAGE_ALIGNMENT)?;
        Ok(Self { block, wanted: 0..0, _arena: arena })
    }

    /// Bytes that it has room for.
    pub fn capacity(&self) -> usize {
        self.block.len()
    }

    /// The first `bytes` bytes, if there are so many and the first is aligned.
    fn room(&mut self, bytes: usize, align: usize) -> Option<&mut [u8]> {
        if bytes > self.block.len() || !self.block.addr().is_multiple_of(align) {
            return None;
        }
        self.wanted = 0..0;
        // SAFETY: the arena lives as long as `self`, which alone has the block and is borrowed mutably.
        Some(unsafe { self.block.sub(0, bytes).as_mut_slice() })
    }
}

impl Deref for Stage {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the arena lives as long as `self`, and writers need `&mut self`.
        let all: &[u8] = unsafe { self.block.as_slice() };
        &all[self.wanted.clone()]
    }
}
