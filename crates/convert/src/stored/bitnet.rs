//! BitNet's packed weights: four rows of -1, 0 and 1 in a row of bytes, and one scale.

use super::{Whole, needed};
use crate::array::{Array, Blocks};
use crate::dtype::Dtype;
use crate::error::Error;
use crate::folder::{Folder, Tensor};
use std::ops::Range;

/// Rows whose numbers are in one byte.
const ROWS: usize = 4;

/// The weights of which `name` is the scale; `divides`, if products are divided by it.
pub(super) fn of(folder: &Folder, name: &str, divides: bool) -> Result<Option<Whole>, Error> {
    let Some(weight) = name.strip_suffix("_scale").filter(|name| name.ends_with(".weight")) else {
        return Ok(None);
    };
    let (tensor, scale) = (needed(folder, weight, weight)?, needed(folder, name, weight)?);
    let array = packed(tensor, scale, divides)?;
    let parts = vec![name.to_owned(), weight.to_owned()];
    Ok(Some(Whole { name: weight.to_owned(), array, parts }))
}

fn packed(tensor: &Tensor, scale: &Tensor, divides: bool) -> Result<Array, Error> {
    let fault = |of: &Tensor, want: &str| Error::Shape {
        name: of.entry.name.clone(),
        shape: of.entry.shape.clone(),
        want: want.to_owned(),
    };
    let [rows, cols] = tensor.entry.shape[..] else {
        return Err(fault(tensor, "and should be a matrix of packed rows"));
    };
    if tensor.entry.dtype != Dtype::U8 {
        return Err(fault(tensor, &format!("of {:?}: it should be U8", tensor.entry.dtype)));
    }
    if scale.entry.shape.iter().product::<usize>() != 1 {
        return Err(fault(scale, "and should be one number"));
    }
    let scale = scale.values()[0];
    let scale = if divides { 1.0 / scale } else { scale };
    let whole = rows.checked_mul(ROWS).ok_or_else(|| fault(tensor, "which is too large"))?;
    Ok(Array::new(&[whole, cols], false, Packed { bytes: tensor.array(), rows, scale }))
}

struct Packed {
    bytes: Array,
    /// Rows of bytes: the first have the first quarter of rows in their lowest bits, and so on.
    rows: usize,
    scale: f32,
}

impl Blocks for Packed {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        for (row, out) in rows.zip(out.chunks_exact_mut(cols.len())) {
            let (quarter, line) = (row / self.rows, row % self.rows);
            self.bytes.read_block(line..line + 1, cols.clone(), out);
            for x in out {
                let bits = *x as u8 >> (2 * quarter) & 3;
                *x = (f32::from(bits) - 1.0) * self.scale;
            }
        }
    }
}
