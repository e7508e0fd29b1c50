//! One tensor from a type to another.

use super::importance;
use gguf::{Tensor, TensorType};
use std::io::{self, Write};

/// Values that a thread converts at a time.
const CHUNK: usize = 1 << 18;

/// Converts all rows and writes them in order; `done` hears of bytes of the source. Importances
/// are those of the columns, of one expert after another.
///
/// # Errors
/// What cannot be converted, by the tensor's name, or written.
pub(super) fn convert(
    tensor: &Tensor<'_>,
    ty: TensorType,
    importance: Option<&[f32]>,
    threads: usize,
    out: &mut dyn Write,
    done: &dyn Fn(usize),
) -> io::Result<()> {
    if tensor.ty == ty {
        out.write_all(tensor.data)?;
        done(tensor.data.len());
        return Ok(());
    }
    let cols = tensor.cols();
    // Types of very few bits want some; vocabularies get them even if nothing is known.
    let flat = vec![1.0; if ty.can_quantize() { 0 } else { cols }];
    let of_expert = |i: usize| match importance {
        Some(importance) => Some(&importance[i * cols..][..cols]),
        None => (!flat.is_empty()).then_some(&flat[..]),
    };
    let rows = (CHUNK / cols).max(1);
    let expert = tensor.data.len() / importance::experts(tensor);
    let chunks: Vec<(&[u8], Option<&[f32]>)> = tensor
        .data
        .chunks(expert)
        .enumerate()
        .flat_map(|(i, data)| {
            data.chunks(rows * tensor.row_bytes()).map(move |part| (part, of_expert(i)))
        })
        .collect();
    for turn in chunks.chunks(threads) {
        let parts: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = turn
                .iter()
                .map(|(part, importance)| {
                    scope.spawn(|| converted(tensor.ty, ty, part, *importance))
                })
                .collect();
            threads.into_iter().map(|t| t.join().expect("conversion does not panic")).collect()
        });
        for (part, (from, _)) in parts.into_iter().zip(turn) {
            let part =
                part.map_err(|e| io::Error::other(format!("tensor `{}`: {e}", tensor.name())))?;
            out.write_all(&part)?;
            done(from.len());
        }
    }
    Ok(())
}

fn converted(
    from: TensorType,
    to: TensorType,
    bytes: &[u8],
    importance: Option<&[f32]>,
) -> Result<Vec<u8>, gguf::Error> {
    let values = bytes.len() / from.block_bytes() * from.block_len();
    let mut floats = vec![0.0; values];
    from.dequantize(bytes, &mut floats)?;
    let mut blocks = Vec::new();
    match importance {
        Some(importance) => to.quantize_weighted(&floats, importance, &mut blocks)?,
        None => to.quantize(&floats, &mut blocks)?,
    }
    Ok(blocks)
}
