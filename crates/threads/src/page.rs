//! A value on a memory page of its own, in the node of the thread that makes it.
//!
//! A line that only threads of one node use is still slow if its home is another node: the home
//! keeps the directory that every miss asks. Linux gives a page to the node of the thread that
//! first writes to it, and the heap cannot promise whose page an allocation comes from.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public for the loom models"))]

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

/// See the module.
pub struct OwnPage<T>(NonNull<T>);

// SAFETY: it owns its value, as a box does.
unsafe impl<T: Send> Send for OwnPage<T> {}
// SAFETY: it gives out only shared references.
unsafe impl<T: Sync> Sync for OwnPage<T> {}

impl<T> OwnPage<T> {
    /// Maps a page and writes `value` to it from the calling thread.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn new(value: T) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096, "a page is aligned to 4 KiB") };
        // SAFETY: a new private mapping at an address of the kernel's choice; it disturbs nothing.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A huge page would put neighbouring pages into this thread's node too. A kernel without
        // huge pages refuses the advice and does not need it.
        // SAFETY: the range is the mapping made above.
        unsafe { libc::madvise(page, size_of::<T>(), libc::MADV_NOHUGEPAGE) };
        let page = NonNull::new(page.cast::<T>()).expect("mmap returned null without an error");
        // SAFETY: the mapping is writable, long enough, and aligned (asserted above).
        unsafe { page.write(value) };
        Ok(Self(page))
    }
}

impl<T> Deref for OwnPage<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: written by `new`, and alive until `drop`.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for OwnPage<T> {
    fn drop(&mut self) {
        // SAFETY: the value and the mapping are those of `new`, and nobody uses them any more.
        unsafe {
            self.0.drop_in_place();
            libc::munmap(self.0.as_ptr().cast(), size_of::<T>());
        }
    }
}
