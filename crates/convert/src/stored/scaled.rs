//! Numbers of 8 bits, and a scale for each block, each row or the whole.

use super::{Whole, needed};
use crate::array::{Array, Blocks};
use crate::dtype::Dtype;
use crate::error::Error;
use crate::folder::{Folder, Tensor};
use std::ops::Range;

/// The weights of which `name` are the scales.
pub(super) fn of(
    folder: &Folder,
    name: &str,
    ending: &str,
    block: Option<(usize, usize)>,
) -> Result<Option<Whole>, Error> {
    let Some(weight) = name.strip_suffix(ending) else { return Ok(None) };
    // Scales of activations end alike.
    let scales = ending == "_scale_inv" || weight.ends_with("weight") || weight.ends_with("_proj");
    if !scales {
        return Ok(None);
    }
    let (tensor, scale) = (needed(folder, weight, weight)?, needed(folder, name, weight)?);
    let array = scaled(tensor, scale, block)?;
    let parts = vec![name.to_owned(), weight.to_owned()];
    Ok(Some(Whole { name: weight.to_owned(), array, parts }))
}

fn scaled(tensor: &Tensor, scale: &Tensor, block: Option<(usize, usize)>) -> Result<Array, Error> {
    let shape = &tensor.entry.shape;
    let fault = |want: String| Error::Shape {
        name: scale.entry.name.clone(),
        shape: scale.entry.shape.clone(),
        want,
    };
    if !matches!(tensor.entry.dtype, Dtype::E4M3 | Dtype::E5M2 | Dtype::I8) {
        return Err(Error::Shape {
            name: tensor.entry.name.clone(),
            shape: shape.clone(),
            want: format!("of {:?}: beside scales it should be of 8 bits", tensor.entry.dtype),
        });
    }
    let [.., rows, cols] = shape[..] else {
        return Err(fault(format!("and what it scales is {shape:?}, no matrix")));
    };
    let members: usize = shape[..shape.len() - 2].iter().product();
    let count: usize = scale.entry.shape.iter().product();
    // How many rows and columns have a scale together.
    let (high, wide) = match block {
        _ if count == 1 => (members * rows, cols),
        Some((high, wide)) if count == members * rows.div_ceil(high) * cols.div_ceil(wide) => {
            (high, wide)
        }
        _ if count == members * rows => (1, cols),
        _ if count == members => (rows, cols),
        _ => {
            return Err(fault(format!(
                "which are no scales of {shape:?}{}",
                block.map_or(String::new(), |(r, c)| format!(" in blocks of {r} by {c}"))
            )));
        }
    };
    let across = cols.div_ceil(wide);
    let (of_member, rows) = match count {
        1 => (1, members * rows),
        _ => (rows.div_ceil(high), rows),
    };
    let scales = scale.array().reshaped(&[count / across, across]);
    let from = Scaled { weight: tensor.array(), scales, rows, of_member, high, wide, across };
    Ok(Array::new(shape, false, from))
}

struct Scaled {
    weight: Array,
    /// A row for each row of blocks.
    scales: Array,
    /// Rows of a member.
    rows: usize,
    /// Rows of blocks of a member.
    of_member: usize,
    high: usize,
    wide: usize,
    /// Blocks in a row of them.
    across: usize,
}

impl Blocks for Scaled {
    fn block(&self, rows: Range<usize>, cols: Range<usize>, out: &mut [f32]) {
        self.weight.read_block(rows.clone(), cols.clone(), out);
        let mut scales = vec![0.0; self.across];
        let mut read = None;
        for (row, out) in rows.zip(out.chunks_exact_mut(cols.len())) {
            let line = row / self.rows * self.of_member + row % self.rows / self.high;
            if read != Some(line) {
                self.scales.read_block(line..line + 1, 0..self.across, &mut scales);
                read = Some(line);
            }
            for (x, col) in out.iter_mut().zip(cols.clone()) {
                *x *= scales[col / self.wide];
            }
        }
    }
}
