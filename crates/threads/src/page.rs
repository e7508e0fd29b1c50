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
pub struct OwnPage<T: ?Sized>(NonNull<T>);

// SAFETY: it owns its value, as a box does.
unsafe impl<T: Send + ?Sized> Send for OwnPage<T> {}
// SAFETY: it gives out only shared references.
unsafe impl<T: Sync + ?Sized> Sync for OwnPage<T> {}

/// Room for `len` values of type `T` on fresh pages.
fn map<T>(len: usize) -> io::Result<NonNull<T>> {
    const { assert!(align_of::<T>() <= 4096, "a page is aligned to 4 KiB") };
    let bytes = size_of::<T>().checked_mul(len).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(fresh(bytes)?.cast())
}

#[cfg(all(target_os = "linux", not(miri)))]
fn fresh(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new private mapping at an address of the kernel's choice; it disturbs nothing.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
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
    unsafe { libc::madvise(page, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(NonNull::new(page.cast()).expect("mmap returned null without an error"))
}

/// # Safety
/// The bytes are those of [`fresh`], and nobody uses them any more.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe fn give_back(pages: NonNull<u8>, bytes: usize) {
    // SAFETY: by this contract.
    unsafe { libc::munmap(pages.as_ptr().cast(), bytes) };
}

/// On pages of the heap: where they lie is the system's affair.
#[cfg(any(miri, not(target_os = "linux")))]
fn fresh(bytes: usize) -> io::Result<NonNull<u8>> {
    let layout = layout(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: the size is not zero.
    let pages = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(pages).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// # Safety
/// The bytes are those of [`fresh`], and nobody uses them any more.
#[cfg(any(miri, not(target_os = "linux")))]
unsafe fn give_back(pages: NonNull<u8>, bytes: usize) {
    let layout = layout(bytes).expect("it was allocated by the same");
    // SAFETY: by this contract.
    unsafe { std::alloc::dealloc(pages.as_ptr(), layout) };
}

/// `None` for no bytes, which Linux refuses too, and for more than there can be.
#[cfg(any(miri, not(target_os = "linux")))]
fn layout(bytes: usize) -> Option<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(bytes, 4096).ok().filter(|layout| layout.size() > 0)
}

impl<T> OwnPage<T> {
    /// Maps a page and writes `value` to it from the calling thread.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn new(value: T) -> io::Result<Self> {
        let page = map::<T>(1)?;
        // SAFETY: the mapping is writable, long enough, and aligned (asserted in `map`).
        unsafe { page.write(value) };
        Ok(Self(page))
    }
}

impl<T> OwnPage<[T]> {
    /// Maps pages for `len` values, at least one, and writes `value(0)`, `value(1)`, ... to them
    /// from the calling thread.
    ///
    /// # Errors
    /// Those of `mmap`, which refuses an empty mapping.
    pub fn slice(len: usize, mut value: impl FnMut(usize) -> T) -> io::Result<Self> {
        let pages = map::<T>(len)?;
        for at in 0..len {
            // SAFETY: the mapping is writable, `len` values long, and aligned (asserted in `map`).
            unsafe { pages.add(at).write(value(at)) };
        }
        Ok(Self(NonNull::slice_from_raw_parts(pages, len)))
    }
}

impl<T: ?Sized> Deref for OwnPage<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: written by the constructor, and alive until `drop`.
        unsafe { self.0.as_ref() }
    }
}

impl<T: ?Sized> Drop for OwnPage<T> {
    fn drop(&mut self) {
        // SAFETY: the values and the mapping are those of the constructor, and nobody uses them any
        // more; the size is asked for while the value is alive.
        unsafe {
            let bytes = size_of_val(self.0.as_ref());
            self.0.drop_in_place();
            give_back(self.0.cast(), bytes);
        }
    }
}
