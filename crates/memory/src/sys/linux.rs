//! Linux's system calls.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

use topology::NodeId;

use super::{Advice, Pages, Place};

/// Linux can be built for at most 1024 memory nodes.
const MAX_NODES: usize = 1024;

/// Bytes in a page of the kernel.
pub(crate) fn page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        // SAFETY: sysconf has no preconditions.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).expect("every system has a page size")
    })
}

/// `linux/mempolicy.h`: move pages that this process alone has.
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// Says where the pages of a range come from.
///
/// # Safety
/// The range is a mapping of the caller's.
pub(crate) unsafe fn place(
    start: *mut u8,
    len: usize,
    place: Place,
    nodes: impl IntoIterator<Item = NodeId>,
) -> io::Result<()> {
    let (mode, flags) = match place {
        Place::Bound => (libc::MPOL_BIND, 0),
        Place::Interleaved => (libc::MPOL_INTERLEAVE, 0),
        Place::Moved => (libc::MPOL_PREFERRED, MPOL_MF_MOVE),
    };
    let mut mask = [0_u64; MAX_NODES / 64];
    for node in nodes {
        let node = node.0 as usize;
        let word = mask.get_mut(node / 64).ok_or(io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (node % 64);
    }
    // The kernel takes the length of the mask plus one.
    // SAFETY: the kernel reads the mask and changes only the policy of the caller's range.
    let failed = unsafe {
        libc::syscall(libc::SYS_mbind, start, len, mode, mask.as_ptr(), MAX_NODES + 1, flags) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// For each page address its memory node, or a negative error number. Moves nothing.
pub(crate) fn nodes_of(pages: &[*const u8], status: &mut [i32]) -> io::Result<()> {
    assert_eq!(pages.len(), status.len());
    // SAFETY: without target nodes the call only reports; it reads `pages` and writes `status`,
    // both of the given length. Addresses that are not mapped become error numbers.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0_usize,
            pages.len(),
            pages.as_ptr(),
            std::ptr::null::<i32>(),
            status.as_mut_ptr(),
            0_usize,
        ) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tells the kernel about a range.
///
/// # Safety
/// The range is a mapping of the caller's, starts on a page, and may lose what the advice takes.
pub(crate) unsafe fn advise(start: *mut u8, len: usize, advice: Advice) -> io::Result<()> {
    let advice = match advice {
        Advice::Huge => libc::MADV_HUGEPAGE,
        Advice::NoHuge => libc::MADV_NOHUGEPAGE,
        Advice::Populate => libc::MADV_POPULATE_WRITE,
        Advice::DontNeed => libc::MADV_DONTNEED,
        Advice::Sequential => libc::MADV_SEQUENTIAL,
        Advice::WillNeed => libc::MADV_WILLNEED,
    };
    // SAFETY: by this function's contract.
    let failed = unsafe { libc::madvise(start.cast(), len, advice) != 0 };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Asks the kernel to take the pages that lie wholly in a part of a file out of its page cache. Pages
/// that a process has mapped or that are not written back yet stay.
pub(crate) fn uncache(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let advice = libc::POSIX_FADV_DONTNEED;
    // SAFETY: the descriptor is open; the call takes no memory of this process.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, len, advice) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// For each page of a mapping whether memory holds it, in bit 0 of a byte.
///
/// # Safety
/// The range is a mapping of the caller's and starts on a page; `pages` has a byte for each of its pages.
pub(crate) unsafe fn in_core(start: *mut u8, len: usize, pages: &mut [u8]) -> io::Result<()> {
    assert_eq!(pages.len(), len.div_ceil(page_size()));
    // SAFETY: by this function's contract; the kernel writes a byte for each page.
    let failed = unsafe { libc::mincore(start.cast(), len, pages.as_mut_ptr()) != 0 };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What addresses and file offsets must be multiples of when a file is read past the page cache, as its
/// file system says; `None` if it does not say.
pub(crate) fn direct_alignment(file: &File) -> Option<(usize, usize)> {
    let mut stat = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let (flags, mask) = (libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
    // SAFETY: the path is empty and ends with a zero; the kernel writes to `stat`, which lives.
    let failed =
        unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, mask, stat.as_mut_ptr()) != 0 };
    // SAFETY: numbers, all bits of which are values, zero from the beginning.
    let stat = unsafe { stat.assume_init() };
    let said = !failed && stat.stx_mask & libc::STATX_DIOALIGN != 0;
    said.then_some((stat.stx_dio_mem_align as usize, stat.stx_dio_offset_align as usize))
}

/// Opens a file for reads past the page cache (`O_DIRECT`).
pub(crate) fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)
}

pub(crate) fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(to, offset)
}

/// An anonymous private mapping.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: it owns its range of addresses, which mean the same on every thread.
unsafe impl Send for Mapping {}
// SAFETY: it gives no access by itself.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` is a multiple of the page size; `align` is one too, and a power of two.
    pub(crate) fn new(len: usize, align: usize, pages: Pages) -> io::Result<Self> {
        let flags = match pages {
            Pages::Reserved => libc::MAP_NORESERVE,
            Pages::Huge => libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
        };
        // The kernel aligns to its page (or to the huge page of the pool): for more, map more and
        // give the ends back.
        let aligned = align <= page_size() || pages == Pages::Huge;
        let slack = if aligned { 0 } else { align };
        let total = len.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                total,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.cast::<u8>();
        if aligned {
            return Ok(Self { start, len });
        }
        let before = start.addr().next_multiple_of(align) - start.addr();
        // SAFETY: `before < align = slack`, so all three parts lie in the new mapping; the two
        // that are given back are whole pages that nobody knows of.
        unsafe {
            let map = Self { start: start.add(before), len };
            for (part, len) in [(start, before), (map.start.add(len), slack - before)] {
                if len > 0 {
                    libc::munmap(part.cast(), len);
                }
            }
            Ok(map)
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; that no slice of it is in use is the contract of those who made
        // one from a block.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: usize = 2 << 20;

    /// The kernel happens to align mappings of whole huge pages, so this asks for less.
    #[test]
    fn a_mapping_is_aligned_beyond_a_page_and_keeps_only_its_length() {
        let page = page_size();
        let new = |n| Mapping::new(n * page, HUGE, Pages::Reserved).unwrap();
        let maps: Vec<_> = (1..6).map(new).collect();
        for map in &maps {
            assert_eq!(map.start.addr() % HUGE, 0);
            // SAFETY: the first and last byte of our own mapping.
            unsafe {
                map.start.write(1);
                map.start.add(map.len - 1).write(1);
            }
        }
        let listed = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let sizes = |start: usize| {
            let line = listed.lines().find(|line| line.starts_with(&format!("{start:x}-")))?;
            let (_, end) = line.split(' ').next()?.split_once('-')?;
            Some(usize::from_str_radix(end, 16).ok()? - start)
        };
        // The kernel lists neighbours of one kind together, but these are apart by nearly a huge
        // page, and the heap's mappings are of another kind (reserved).
        for map in &maps {
            assert_eq!(sizes(map.start.addr()), Some(map.len));
        }
    }
}
