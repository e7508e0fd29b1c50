//! The system calls that libc has no functions for, and the page size.

use std::io;
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
