//! The system calls that libc has no functions for, and the page size.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use topology::NodeId;

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

/// Sets the policy (`MPOL_BIND`, `MPOL_INTERLEAVE`) of a range with these nodes. Pages that are there
/// already stay, unless `flags` say [`MPOL_MF_MOVE`].
///
/// # Safety
/// The range is a mapping of the caller's.
pub(crate) unsafe fn set_policy(
    start: *mut u8,
    len: usize,
    mode: i32,
    nodes: impl IntoIterator<Item = NodeId>,
    flags: libc::c_int,
) -> io::Result<()> {
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

/// `linux/mempolicy.h`: move pages that this process alone has.
pub(crate) const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// `madvise`.
///
/// # Safety
/// The range is a mapping of the caller's, starts on a page, and may lose what `advice` takes.
pub(crate) unsafe fn advise(start: *mut u8, len: usize, advice: i32) -> io::Result<()> {
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
