//! MXFP4 of gpt-oss: blocks of 32 numbers of 4 bits, and a power of two for each. The same bits in another order
//! are a type of files, so nothing is rounded.

use super::{Whole, needed, shaped};
use crate::array::{Array, Blocks};
use crate::dtype::Dtype;
use crate::error::Error;
use crate::folder::{Folder, Source};
use gguf::TensorType;
use std::ops::Range;

/// Bytes of a block's numbers.
const BYTES: usize = 16;

/// The tensor of which `name` are the numbers.
pub(super) fn of(folder: &Folder, name: &str) -> Result<Option<Whole>, Error> {
    let Some(stem) = name.strip_suffix("_blocks") else { return Ok(None) };
    let blocks = needed(folder, name, stem)?;
    let scales = needed(folder, &format!("{stem}_scales"), stem)?;
    let fault = |want: &str| Error::Shape {
        name: name.to_owned(),
        shape: blocks.entry.shape.clone(),
        want: want.to_owned(),
    };
    let [experts, rows, across, BYTES] = blocks.entry.shape[..] else {
        return Err(fault("and should be [experts, rows, blocks, 16]"));
    };
    if blocks.entry.dtype != Dtype::U8 || scales.entry.dtype != Dtype::U8 {
        return Err(fault("and it and its scales should be of U8"));
    }
    shaped(scales, &[experts, rows, across])?;
    let from = Mxfp4 { blocks: blocks.source(), scales: scales.source(), across };
    let shape = [experts, rows, across * 2 * BYTES];
    let array = Array::in_type(&shape, TensorType::MXFP4, from);
    let parts = vec![name.to_owned(), format!("{stem}_scales")];
    Ok(Some(Whole { name: stem.to_owned(), array, parts }))
}

struct Mxfp4 {
    blocks: Source,
    scales: Source,
    /// Blocks of a row.
    across: usize,
}

impl Blocks for Mxfp4 {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        let mut packed = Vec::new();
        let whole = self.across * 2 * BYTES;
        let mut line = vec![0.0; whole];
        for (row, out) in rows.zip(out.chunks_exact_mut(cols.len())) {
            packed.clear();
            self.packed(row..row + 1, &mut packed);
            let read = TensorType::MXFP4.dequantize(&packed, &mut line);
            debug_assert!(read.is_ok(), "a row is whole blocks");
            out.copy_from_slice(&line[cols.clone()]);
        }
    }

    fn packed(&self, rows: Range<usize>, out: &mut Vec<u8>) {
        for block in rows.start * self.across..rows.end * self.across {
            let pairs = &self.blocks.bytes()[block * BYTES..][..BYTES];
            // There neighbours share a byte, here number i and number i + 16.
            let number = |i: usize| pairs[i / 2] >> (i % 2 * 4) & 15;
            out.push(self.scales.bytes()[block]);
            out.extend((0..BYTES).map(|i| number(i) | number(i + BYTES) << 4));
        }
    }
}
