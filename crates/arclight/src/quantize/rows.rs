//! One tensor from a type to another.

use gguf::{Tensor, TensorType};
use std::io::{self, Write};

/// Values that a thread converts at a time.
const CHUNK: usize = 1 << 18;

/// Converts all rows and writes them in order; `done` hears of bytes of the source.
///
/// # Errors
/// What cannot be converted, by the tensor's name, or written.
pub(super) fn convert(
    tensor: &Tensor<'_>,
    ty: TensorType,
    threads: usize,
    out: &mut dyn Write,
    done: &dyn Fn(usize),
) -> io::Result<()> {
    if tensor.ty == ty {
        out.write_all(tensor.data)?;
        done(tensor.data.len());
        return Ok(());
    }
    let rows = (CHUNK / tensor.cols()).max(1);
    let chunks: Vec<&[u8]> = tensor.data.chunks(rows * tensor.row_bytes()).collect();
    for turn in chunks.chunks(threads) {
        let parts: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                turn.iter().map(|part| scope.spawn(|| converted(tensor.ty, ty, part))).collect();
            threads.into_iter().map(|t| t.join().expect("conversion does not panic")).collect()
        });
        for (part, from) in parts.into_iter().zip(turn) {
            let part =
                part.map_err(|e| io::Error::other(format!("tensor `{}`: {e}", tensor.name())))?;
            out.write_all(&part)?;
            done(from.len());
        }
    }
    Ok(())
}

fn converted(from: TensorType, to: TensorType, bytes: &[u8]) -> Result<Vec<u8>, gguf::Error> {
    let values = bytes.len() / from.block_bytes() * from.block_len();
    let mut floats = vec![0.0; values];
    from.dequantize(bytes, &mut floats)?;
    let mut blocks = Vec::new();
    to.quantize(&floats, &mut blocks)?;
    Ok(blocks)
}
