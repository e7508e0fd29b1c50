//! One tensor from a type to another.

use super::importance;
use arclight_engine::ModelFile;
use gguf::{Tensor, TensorType};
use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;

/// Values that a thread converts at a time.
const CHUNK: usize = 1 << 18;

/// Converts all rows and writes them in order; `done` hears of bytes of the source. Importances
/// are those of the columns, of one expert after another.
///
/// # Errors
/// What cannot be converted, by the tensor's name, or written.
pub(super) fn convert(
    file: &ModelFile,
    tensor: &Tensor<'_>,
    ty: TensorType,
    importance: Option<&[f32]>,
    threads: usize,
    out: &mut dyn Write,
    done: &dyn Fn(usize),
) -> io::Result<()> {
    let cols = tensor.cols();
    // Types of very few bits want some; vocabularies get them even if nothing is known.
    let flat = vec![1.0; if ty.can_quantize() { 0 } else { cols }];
    let of_expert = |i: usize| match importance {
        Some(importance) => Some(&importance[i * cols..][..cols]),
        None => (!flat.is_empty()).then_some(&flat[..]),
    };
    let rows = (CHUNK / cols).max(1);
    let experts = importance::experts(tensor);
    let each = tensor.rows() / experts;
    let chunks: Vec<(Range<usize>, Option<&[f32]>)> = (0..experts)
        .flat_map(|i| {
            let end = (i + 1) * each;
            let starts = (i * each..end).step_by(rows);
            starts.map(move |row| (row..(row + rows).min(end), of_expert(i)))
        })
        .collect();
    let made = |rows: &Range<usize>, importance| match tensor.ty == ty {
        true => file.rows(tensor, rows.clone()),
        false => converted(file, tensor, rows.clone(), ty, importance).map(Cow::Owned),
    };
    for turn in chunks.chunks(threads) {
        let parts: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = turn
                .iter()
                .map(|(rows, importance)| scope.spawn(|| made(rows, *importance)))
                .collect();
            threads.into_iter().map(|t| t.join().expect("conversion does not panic")).collect()
        });
        for (part, (rows, _)) in parts.into_iter().zip(turn) {
            let part =
                part.map_err(|e| io::Error::other(format!("tensor `{}`: {e}", tensor.name())))?;
            out.write_all(&part)?;
            done(rows.len() * tensor.row_bytes());
        }
    }
    Ok(())
}

fn converted(
    file: &ModelFile,
    tensor: &Tensor<'_>,
    rows: Range<usize>,
    to: TensorType,
    importance: Option<&[f32]>,
) -> Result<Vec<u8>, gguf::Error> {
    let mut floats = vec![0.0; rows.len() * tensor.cols()];
    file.values(tensor, rows, &mut floats)?;
    let mut blocks = Vec::new();
    match importance {
        Some(importance) => to.quantize_weighted(&floats, importance, &mut blocks)?,
        None => to.quantize(&floats, &mut blocks)?,
    }
    Ok(blocks)
}
