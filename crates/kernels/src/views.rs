//! Views of rows in a wider buffer: what kernels read and write instead of raw pointers.
//!
//! Several threads write disjoint columns of one activation buffer at the same time, so a mutable
//! view cannot be a slice of the whole: it owns `rows` pieces of `width` elements, `stride`
//! elements apart, and nothing between them.

use std::marker::PhantomData;
use std::ptr::NonNull;

/// Read-only rows of `width` elements, `stride` elements apart.
#[derive(Debug)]
pub struct Rows<'a, T> {
    start: NonNull<T>,
    rows: usize,
    width: usize,
    stride: usize,
    data: PhantomData<&'a [T]>,
}

/// Rows of `width` elements, `stride` elements apart, that the holder alone may read and write.
#[derive(Debug)]
pub struct RowsMut<'a, T> {
    /// Given out for as long only as `self` is borrowed.
    rows: Rows<'a, T>,
    data: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Rows` is a set of `&[T]`.
unsafe impl<T: Sync> Send for Rows<'_, T> {}
// SAFETY: a `Rows` is a set of `&[T]`.
unsafe impl<T: Sync> Sync for Rows<'_, T> {}
// SAFETY: a `RowsMut` is a set of `&mut [T]`.
unsafe impl<T: Send> Send for RowsMut<'_, T> {}
// SAFETY: a shared `RowsMut` gives no access to its elements but what a shared slice gives.
unsafe impl<T: Sync> Sync for RowsMut<'_, T> {}

impl<T> Clone for Rows<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Rows<'_, T> {}

/// Panics unless `rows` rows of `width`, `stride` apart, lie within `len` elements.
fn check(len: usize, rows: usize, width: usize, stride: usize) {
    assert!(
        rows <= 1 || width <= stride,
        "rows of {width} elements overlap at a stride of {stride}"
    );
    let end =
        rows.checked_sub(1).map_or(Some(0), |last| last.checked_mul(stride)?.checked_add(width));
    assert!(
        end.is_some_and(|end| end <= len),
        "{rows} rows of {width} elements at a stride of {stride} do not fit in {len}"
    );
}

impl<'a, T> Rows<'a, T> {
    /// The rows that start at `data[0]`, `data[stride]`, ...
    ///
    /// # Panics
    ///
    /// If the rows do not fit in `data`, or overlap.
    pub fn new(data: &'a [T], rows: usize, width: usize, stride: usize) -> Self {
        check(data.len(), rows, width, stride);
        Self { start: NonNull::from(data).cast(), rows, width, stride, data: PhantomData }
    }

    /// As [`Rows::new`], for a buffer that others write beside these rows.
    ///
    /// # Safety
    ///
    /// `start` is aligned and not null; for `'a`, the `width` elements at `start + r * stride` are
    /// initialised, within one allocation and written by nobody, for every `r < rows`; and `width
    /// <= stride` if `rows > 1`.
    pub unsafe fn from_raw_parts(
        start: *const T,
        rows: usize,
        width: usize,
        stride: usize,
    ) -> Self {
        debug_assert!(rows <= 1 || width <= stride);
        // SAFETY: the caller promises that `start` is not null.
        let start = unsafe { NonNull::new_unchecked(start.cast_mut()) };
        Self { start, rows, width, stride, data: PhantomData }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Elements from the start of a row to the start of the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Where the first row begins, for views of the same rows.
    pub(crate) fn start(&self) -> *const T {
        self.start.as_ptr()
    }

    /// Row `r`.
    ///
    /// # Panics
    ///
    /// If there is no row `r`.
    #[inline(always)]
    pub fn row(&self, r: usize) -> &'a [T] {
        assert!(r < self.rows, "row {r} of {}", self.rows);
        // SAFETY: the constructor's contract covers the `width` elements of every row below `rows`.
        unsafe { std::slice::from_raw_parts(self.start.add(r * self.stride).as_ptr(), self.width) }
    }

    /// The rows `range`, as a view.
    ///
    /// # Panics
    ///
    /// If the range ends beyond the last row.
    pub fn sub(&self, range: std::ops::Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.rows,
            "rows {range:?} of {}",
            self.rows
        );
        let start = match range.is_empty() {
            true => self.start,
            // SAFETY: row `range.start` exists, so its first element is within the allocation.
            false => unsafe { self.start.add(range.start * self.stride) },
        };
        Self { start, rows: range.len(), ..*self }
    }
}

impl<'a, T> RowsMut<'a, T> {
    /// The rows that start at `data[0]`, `data[stride]`, ...
    ///
    /// # Panics
    ///
    /// If the rows do not fit in `data`, or overlap.
    pub fn new(data: &'a mut [T], rows: usize, width: usize, stride: usize) -> Self {
        check(data.len(), rows, width, stride);
        // SAFETY: the rows fit, and `data` is borrowed for as long.
        unsafe { Self::from_raw_parts(data.as_mut_ptr(), rows, width, stride) }
    }

    /// As [`RowsMut::new`], for columns of a buffer whose other columns belong to others.
    ///
    /// # Safety
    ///
    /// `start` is aligned and not null; for `'a`, the `width` elements at `start + r * stride` are
    /// initialised, within one allocation and accessed through this view only, for every `r <
    /// rows`; and `width <= stride` if `rows > 1`.
    pub unsafe fn from_raw_parts(start: *mut T, rows: usize, width: usize, stride: usize) -> Self {
        // SAFETY: the caller promises more.
        let rows = unsafe { Rows::from_raw_parts(start, rows, width, stride) };
        Self { rows, data: PhantomData }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows.rows
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.rows.width
    }

    /// Elements from the start of a row to the start of the next.
    pub fn stride(&self) -> usize {
        self.rows.stride
    }

    /// Row `r`.
    ///
    /// # Panics
    ///
    /// If there is no row `r`.
    #[inline(always)]
    pub fn row_mut(&mut self, r: usize) -> &mut [T] {
        let Rows { start, rows, width, stride, .. } = self.rows;
        assert!(r < rows, "row {r} of {rows}");
        // SAFETY: the constructor's contract covers the `width` elements of every row below `rows`,
        // and `self` is borrowed exclusively for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(start.add(r * stride).as_ptr(), width) }
    }

    /// The same rows for a shorter time.
    pub fn reborrow(&mut self) -> RowsMut<'_, T> {
        RowsMut { rows: self.rows, data: PhantomData }
    }

    /// The rows `range`, as a view.
    ///
    /// # Panics
    ///
    /// If the range ends beyond the last row.
    pub fn sub(&mut self, range: std::ops::Range<usize>) -> RowsMut<'_, T> {
        RowsMut { rows: self.rows.sub(range), data: PhantomData }
    }

    /// The same rows, read-only.
    pub fn as_rows(&self) -> Rows<'_, T> {
        self.rows
    }
}
