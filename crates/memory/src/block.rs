//! Blocks: pieces of an arena that threads share by agreement.
//!
//! A tensor's memory is written by many threads at once, each its own rows, and read by others
//! after a barrier. The borrow checker cannot see barriers, so a [`Block`] is a plain address and
//! a length that can be copied to every thread; turning it into a slice is the unsafe step, and
//! its caller (the executor of the graph) answers for who reads and writes when.

use std::fmt;

/// A number whose every bit pattern is a value.
pub trait Pod: sealed::Sealed + Copy + Send + Sync + 'static {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! pod {
    ($($number:ty)*) => {$(
        impl sealed::Sealed for $number {}
        impl Pod for $number {}
    )*};
}
pod!(u8 i8 u16 i32 u32 f32 u64);

/// A piece of an arena's memory. Zero until somebody writes to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Block {
    start: *mut u8,
    len: usize,
}

// SAFETY: a block by itself touches nothing; `as_slice` and `as_mut_slice` have the contracts.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// # Safety
    /// The bytes are mapped, readable, writable and initialised for as long as their arena lives.
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte, as a number.
    pub fn addr(&self) -> usize {
        self.start.addr()
    }

    /// The first byte, for views that a slice cannot describe: columns of rows that other threads
    /// write beside. Dereferencing it has the contracts of `as_slice` and `as_mut_slice`.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// The part of `len` bytes that begins at `offset`.
    ///
    /// # Panics
    /// The part does not lie in the block.
    pub fn sub(&self, offset: usize, len: usize) -> Self {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "{len} bytes at {offset} do not lie in a block of {}",
            self.len
        );
        // SAFETY: `offset` is at most the block's length.
        Self { start: unsafe { self.start.add(offset) }, len }
    }

    /// The block's bytes as numbers.
    ///
    /// # Panics
    /// The block is not aligned for `T`, or its length is no multiple of `T`'s size.
    ///
    /// # Safety
    /// For as long as `'a` lasts the block's arena is alive and nobody writes to these bytes.
    pub unsafe fn as_slice<'a, T: Pod>(&self) -> &'a [T] {
        let (start, len) = self.elements::<T>();
        // SAFETY: aligned and in bounds (checked), initialised (the kernel's zeros at least), any
        // bits are a `T`; alive and not written to, by this contract.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// The block's bytes as numbers to write.
    ///
    /// # Panics
    /// As [`Self::as_slice`].
    ///
    /// # Safety
    /// For as long as `'a` lasts the block's arena is alive and nobody else reads or writes these
    /// bytes.
    #[allow(clippy::mut_from_ref, reason = "a block is an address; the contract is the caller's")]
    pub unsafe fn as_mut_slice<'a, T: Pod>(&self) -> &'a mut [T] {
        let (start, len) = self.elements::<T>();
        // SAFETY: as in `as_slice`; exclusive by this contract.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    fn elements<T: Pod>(&self) -> (*mut T, usize) {
        let start = self.start.cast::<T>();
        let name = std::any::type_name::<T>();
        assert!(start.is_aligned(), "a block at {start:p} is not aligned for {name}");
        assert!(
            self.len.is_multiple_of(size_of::<T>()),
            "a block of {} bytes holds no whole number of {name}",
            self.len
        );
        (start, self.len / size_of::<T>())
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes at {:p})", self.len, self.start)
    }
}
