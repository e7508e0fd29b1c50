//! Systems that place memory by themselves. What would make something faster is taken and does nothing; what would have to
//! tell or to do something is refused as unsupported.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

use topology::NodeId;

use super::{Advice, Pages, Place};

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Bytes that places and lengths are multiples of here; pages of some systems are larger, which nothing depends on.
pub(crate) fn page_size() -> usize {
    4096
}

/// Nothing: the system decides.
///
/// # Safety
/// None; Linux has some.
pub(crate) unsafe fn place(
    _: *mut u8,
    _: usize,
    _: Place,
    _: impl IntoIterator<Item = NodeId>,
) -> io::Result<()> {
    Ok(())
}

pub(crate) fn nodes_of(_: &[*const u8], _: &mut [i32]) -> io::Result<()> {
    unsupported()
}

/// Nothing: the system decides.
///
/// # Safety
/// None; Linux has some.
pub(crate) unsafe fn advise(_: *mut u8, _: usize, _: Advice) -> io::Result<()> {
    Ok(())
}

pub(crate) fn uncache(_: &File, _: u64, _: u64) -> io::Result<()> {
    unsupported()
}

/// # Safety
/// None; Linux has some.
pub(crate) unsafe fn in_core(_: *mut u8, _: usize, _: &mut [u8]) -> io::Result<()> {
    unsupported()
}

pub(crate) fn direct_alignment(_: &File) -> Option<(usize, usize)> {
    None
}

pub(crate) fn open_direct(_: &Path) -> io::Result<File> {
    unsupported()
}

pub(crate) fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<usize> {
    unsupported()
}

/// Zeroed heap memory; systems back large allocations with pages on the first write.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its range of addresses, which mean the same on every thread.
unsafe impl Send for Mapping {}
// SAFETY: it gives no access by itself.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` is more than zero, `align` a power of two.
    pub(crate) fn new(len: usize, align: usize, pages: Pages) -> io::Result<Self> {
        if pages == Pages::Huge {
            return unsupported();
        }
        let layout = Layout::from_size_align(len, align)
            .ok()
            .filter(|layout| layout.size() > 0)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the size is not zero.
        let start =
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, layout })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, and dropped once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
