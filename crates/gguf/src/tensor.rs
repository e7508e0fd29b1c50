//! Shapes and views of tensors.

use std::fmt;

use crate::error::shorten;
use crate::{Error, TensorType, types};

/// Most dimensions a tensor may have.
pub const MAX_DIMS: usize = 4;

/// One to four dimensions in GGUF order: the first is contiguous, the columns of a matrix.
///
/// No dimension is zero and the product fits a `usize`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_DIMS],
    rank: u8,
}

impl Shape {
    /// A shape of these dimensions; `None` if there are not 1 to 4, one is zero, or the product
    /// overflows.
    pub fn new(dims: &[usize]) -> Option<Self> {
        if dims.is_empty() || dims.len() > MAX_DIMS || dims.contains(&0) {
            return None;
        }
        dims.iter().try_fold(1usize, |product, &d| product.checked_mul(d))?;
        // Dimensions beyond the rank are 1, so that products need not look at it.
        let mut all = [1; MAX_DIMS];
        all[..dims.len()].copy_from_slice(dims);
        Some(Shape { dims: all, rank: dims.len() as u8 })
    }

    /// The dimensions, contiguous one first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank()]
    }

    /// Number of dimensions, 1 to 4.
    pub fn rank(&self) -> usize {
        self.rank.into()
    }

    /// Elements of a row: the first dimension.
    pub fn cols(&self) -> usize {
        self.dims[0]
    }

    /// Number of rows: the product of all dimensions but the first.
    pub fn rows(&self) -> usize {
        self.dims[1..].iter().product()
    }

    /// Number of elements: the product of all dimensions.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl fmt::Display for Shape {
    /// `[cols, rows]`, in GGUF order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

/// A view of one tensor of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tensor<'a> {
    pub(crate) name: &'a str,
    /// Dimensions, contiguous one first. The first is a whole number of blocks.
    pub shape: Shape,
    /// Element type.
    pub ty: TensorType,
    /// All elements, row after row: `ty.bytes_for(shape.elements())` bytes.
    pub data: &'a [u8],
    /// Where `data` starts in its file, in bytes from the start of the file.
    pub offset: u64,
    /// The file that holds `data`: 0, or the index of the part of a split model.
    pub part: usize,
}

impl<'a> Tensor<'a> {
    /// The tensor's name, e.g. `blk.0.attn_q.weight`.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Elements of a row.
    pub fn cols(&self) -> usize {
        self.shape.cols()
    }

    /// Number of rows: the product of all dimensions but the first.
    pub fn rows(&self) -> usize {
        self.shape.rows()
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.cols() / self.ty.block_len() * self.ty.block_bytes()
    }

    /// The bytes of row `i`.
    ///
    /// # Panics
    /// If `i` is not below [`rows`](Self::rows).
    pub fn row(&self, i: usize) -> &'a [u8] {
        assert!(i < self.rows(), "row {i} of tensor {:?} with {} rows", self.name, self.rows());
        &self.data[i * self.row_bytes()..][..self.row_bytes()]
    }
}

/// A tensor of a type that this crate does not read: what the directory of its file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherTensor<'a> {
    pub(crate) name: &'a str,
    /// Dimensions, contiguous one first.
    pub shape: Shape,
    /// Id of its type in the file.
    pub type_id: u32,
    /// Bytes from its first one up to the next tensor or the end of the file: those of its data, and padding.
    pub bytes: usize,
    /// Where its data start in its file.
    pub offset: u64,
    /// The file that holds it: 0, or the index of the part of a split model.
    pub part: usize,
    /// Where its type id stands in the file.
    pub(crate) type_offset: u64,
}

impl<'a> OtherTensor<'a> {
    /// The tensor's name.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The name of its type, if ggml defines or once defined such a type.
    pub fn type_name(&self) -> Option<&'static str> {
        types::unsupported_name(self.type_id)
    }

    /// Why a model with it cannot be loaded.
    pub fn fault(&self) -> Error {
        let (tensor, offset) = (shorten(self.name), self.type_offset);
        match self.type_name() {
            Some(name) => Error::UnsupportedType { tensor, offset, name },
            None => Error::UnknownType { tensor, offset, id: self.type_id },
        }
    }
}

impl fmt::Debug for Tensor<'_> {
    /// Without the data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {} {} at {} of part {}",
            self.name, self.ty, self.shape, self.offset, self.part
        )
    }
}
