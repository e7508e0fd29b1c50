//! What can go wrong with files and memory.

use std::io;
use std::path::PathBuf;

use topology::NodeId;

/// One variant per cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such file.
    #[error("{path}: no such file")]
    NotFound {
        /// As given.
        path: PathBuf,
    },
    /// The path names a directory.
    #[error("{path}: is a directory; name the file inside it")]
    Directory {
        /// As given.
        path: PathBuf,
    },
    /// The path names a device, a pipe or a socket, which cannot be mapped.
    #[error("{path}: is not a regular file")]
    NotRegular {
        /// As given.
        path: PathBuf,
    },
    /// The file has no bytes.
    #[error("{path}: the file is empty; was its download interrupted?")]
    Empty {
        /// As given.
        path: PathBuf,
    },
    /// This user may not read the file, or not enter a directory on the way.
    #[error("{path}: permission denied")]
    Permission {
        /// As given.
        path: PathBuf,
    },
    /// The file could not be opened or mapped for another reason.
    #[error("{path}: cannot map the file: {source}")]
    Map {
        /// As given.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// There is no address space for a file that is made as it is read.
    #[error("cannot reserve {bytes} bytes of address space: {source}")]
    AddressSpace {
        /// How much.
        bytes: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// The file could not be opened for reads past the page cache.
    #[error("{path}: cannot open the file: {source}")]
    Open {
        /// As given.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Bytes that do not belong to the mapping they were said to be part of.
    #[error("{path}: {len} bytes to advise on or release do not lie in the mapped file")]
    Outside {
        /// The mapped file.
        path: PathBuf,
        /// Length of the foreign slice.
        len: usize,
    },
    /// The kernel did not take advice about a mapped file.
    #[error("{path}: madvise: {source}")]
    Advise {
        /// The mapped file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel did not take a part of a file out of its page cache.
    #[error("{path}: posix_fadvise: {source}")]
    Uncache {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel does not tell which pages of a file it holds.
    #[error("{path}: mincore: {source}")]
    Mincore {
        /// The mapped file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file system has no way past the page cache.
    #[error(
        "{path}: its file system refuses reads past the page cache (O_DIRECT); load with --load mapped, \
         or copy the file to a disk with another file system"
    )]
    NoDirect {
        /// As given.
        path: PathBuf,
    },
    /// A read past the page cache failed.
    #[error("{path}: reading {bytes} bytes at {at} past the page cache: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        at: u64,
        /// How many.
        bytes: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel gave no address space for an arena.
    #[error("cannot map {bytes} bytes for arena `{arena}`: {source}")]
    Reserve {
        /// The arena's name.
        arena: &'static str,
        /// Its size.
        bytes: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// A memory node has too little left for what is to be bound to it.
    #[error(
        "memory node {node} has {} MiB available, {} MiB are needed there; free some, use other \
         nodes, or make the model or its context smaller",
        available >> 20,
        needed.div_ceil(1 << 20)
    )]
    NoRoom {
        /// The node.
        node: NodeId,
        /// Bytes to be written there, and the margin.
        needed: u64,
        /// Bytes that can be had.
        available: u64,
    },
    /// An arena has too little left for a block.
    #[error("arena `{arena}` is exhausted: {wanted} bytes wanted, {left} of {capacity} left")]
    Exhausted {
        /// The arena's name.
        arena: &'static str,
        /// Size of the block.
        wanted: usize,
        /// What is left in the arena after alignment.
        left: usize,
        /// The arena's size.
        capacity: usize,
    },
    /// An alignment that is zero or no power of two.
    #[error("arena `{arena}`: alignment {align} is not a power of two")]
    Alignment {
        /// The arena's name.
        arena: &'static str,
        /// As given.
        align: usize,
    },
    /// The kernel does not tell where pages are.
    #[error(
        "cannot ask which memory node holds a page: move_pages: {0}; a container needs CAP_SYS_NICE for it"
    )]
    PageQuery(#[source] io::Error),
    /// `/proc/self/smaps` cannot be read.
    #[error("cannot ask for the size of pages: /proc/self/smaps: {0}")]
    Smaps(#[source] io::Error),
    /// `/proc/self/status` cannot be read.
    #[error("/proc/self/status: {0}")]
    Status(#[source] io::Error),
    /// `/proc/self/status` lacks a field.
    #[error("/proc/self/status has no readable field {0}")]
    StatusField(&'static str),
}
