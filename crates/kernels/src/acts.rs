//! The forms of activations that matrices are multiplied with.

use gguf::TensorType;

use crate::matmul::Line;
use crate::q8::{BLOCK, Q8Block};
use crate::views::Rows;

/// What form of activations a matrix type is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActKind {
    /// As they are.
    F32,
    /// Rounded to bfloat16 by [`Kernels::round_bf16`](crate::Kernels::round_bf16).
    Bf16,
    /// Quantised to 8 bits in blocks of 32 by [`Kernels::quantize_q8`](crate::Kernels::quantize_q8).
    Q8,
}

/// The activations that a matrix of type `ty` is multiplied with.
pub const fn act_kind(ty: TensorType) -> ActKind {
    Line::of(ty).acts()
}

/// Bytes of a quantised row of `cols` activations: 64 for every 32. Rows must start at multiples of
/// 4 bytes, and are fastest at multiples of 64.
///
/// # Panics
///
/// If `cols` is not a multiple of 32.
pub const fn q8_row_bytes(cols: usize) -> usize {
    assert!(cols.is_multiple_of(BLOCK), "columns are not a multiple of 32");
    cols / BLOCK * size_of::<Q8Block>()
}

/// The most bytes that a row of `cols` activations of a kind takes on any instruction set.
///
/// # Panics
///
/// As [`q8_row_bytes`].
pub const fn most_row_bytes(kind: ActKind, cols: usize) -> usize {
    match kind {
        ActKind::F32 => cols * size_of::<f32>(),
        ActKind::Bf16 => cols.next_multiple_of(2) * size_of::<f32>(),
        ActKind::Q8 => q8_row_bytes(cols),
    }
}

/// Activations, one row per token.
#[derive(Clone, Copy, Debug)]
pub enum Acts<'a> {
    /// Rows of `cols` floats.
    F32(Rows<'a, f32>),
    /// Rows of [`Kernels::row_bytes`](crate::Kernels::row_bytes) bytes, made by the same kernels.
    Bf16(Rows<'a, u8>),
    /// Rows of [`q8_row_bytes`] bytes.
    Q8(Rows<'a, u8>),
}

impl Acts<'_> {
    /// Number of tokens.
    pub fn rows(&self) -> usize {
        match self {
            Self::F32(rows) => rows.rows(),
            Self::Bf16(rows) | Self::Q8(rows) => rows.rows(),
        }
    }
}

/// What a row stands for, whose columns have `bf16_bytes` each if it is of bfloat16.
pub(crate) fn unpack(kind: ActKind, bf16_bytes: usize, row: &[u8], out: &mut [f32]) {
    match (kind, bf16_bytes) {
        (ActKind::Bf16, 2) => {
            // Two columns in a word, the first of them lower.
            let words = row.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word));
            for (out, word) in out.chunks_mut(2).zip(words) {
                let both = [word << 16, word & 0xffff_0000];
                out.iter_mut().zip(both).for_each(|(out, bits)| *out = f32::from_bits(bits));
            }
        }
        (ActKind::F32 | ActKind::Bf16, _) => {
            let numbers = &row.as_chunks::<4>().0[..out.len()];
            out.iter_mut().zip(numbers).for_each(|(out, bits)| *out = f32::from_ne_bytes(*bits));
        }
        (ActKind::Q8, _) => {
            let blocks =
                &row.as_chunks::<{ size_of::<Q8Block>() }>().0[..out.len().div_ceil(BLOCK)];
            for (out, block) in out.chunks_mut(BLOCK).zip(blocks) {
                let (quants, rest) = block.split_at(BLOCK);
                let scale = f32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]);
                for (out, quant) in out.iter_mut().zip(quants) {
                    *out = scale * f32::from(*quant as i8);
                }
            }
        }
    }
}

/// Elements of which any bytes are a value.
///
/// # Safety
///
/// Any bytes are valid, and there is no padding.
pub(crate) unsafe trait Element: Copy {}

// SAFETY: integers and floats, 64 bytes together.
unsafe impl Element for Q8Block {}
// SAFETY: an integer.
unsafe impl Element for u32 {}
// SAFETY: floats.
unsafe impl Element for [f32; 2] {}

/// A row of bytes as elements, as many whole ones as fit.
#[inline]
pub(crate) fn elements_mut<T: Element>(row: &mut [u8]) -> &mut [T] {
    let start = row.as_mut_ptr().cast::<T>();
    assert!(start.is_aligned(), "quantised rows must be aligned to {}", align_of::<T>());
    // SAFETY: aligned, within the row, and valid whatever the bytes are and become.
    unsafe { std::slice::from_raw_parts_mut(start, row.len() / size_of::<T>()) }
}

/// Rows of bytes as rows of elements.
#[inline]
pub(crate) fn elements<T: Element>(rows: Rows<'_, u8>) -> Rows<'_, T> {
    let size = size_of::<T>();
    let (bytes, stride) = (rows.width(), rows.stride());
    if rows.rows() == 0 || bytes == 0 {
        return Rows::new(&[], rows.rows(), 0, 0);
    }
    assert!(
        stride.is_multiple_of(size) || rows.rows() == 1,
        "a stride of {stride} bytes is not whole elements of {size}"
    );
    // The view's own pointer: that of a row may reach nothing beyond it.
    let start = rows.start().cast::<T>();
    assert!(start.is_aligned(), "quantised rows must be aligned to {}", align_of::<T>());
    // SAFETY: the same memory for the same lifetime, in whole, aligned elements that any bytes are
    // valid for.
    unsafe { Rows::from_raw_parts(start, rows.rows(), bytes / size, stride / size) }
}
