//! Columns of a tensor as rows of a matrix ([`Layout::Columns`](crate::Layout)).

use crate::weight::WeightView;
use gguf::TensorType;
use kernels::TILE_ROWS;

/// Columns `first..first + 16` of the next `rows` rows of a tensor, as rows: `[16, rows]`.
pub(super) fn turned(data: &[u8], view: &WeightView<'_>, first: usize, rows: usize) -> Vec<f32> {
    let (block, bytes) = (view.ty.block_len(), view.ty.block_bytes());
    let row_bytes = view.cols / block * bytes;
    // The blocks that hold these columns: one, or several of one element.
    let (from, to) = (first / block, (first + TILE_ROWS).div_ceil(block));
    let (mut values, mut out) = (vec![0.0; (to - from) * block], vec![0.0; TILE_ROWS * rows]);
    for row in 0..rows {
        let blocks = &data[row * row_bytes + from * bytes..row * row_bytes + to * bytes];
        view.ty.dequantize(blocks, &mut values).expect("whole blocks");
        for (r, value) in values[first - from * block..][..TILE_ROWS].iter().enumerate() {
            out[r * rows + row] = *value;
        }
    }
    out
}

/// Packs a tile of rows of `cols` floats as a type without blocks.
pub(super) fn pack_floats(ty: TensorType, rows: &[f32], cols: usize, to: &mut [u8]) {
    let packable = |row: &[f32]| {
        let mut bytes = Vec::new();
        ty.quantize(row, &mut bytes).expect("elements are blocks of their own");
        bytes
    };
    let rows: Vec<Vec<u8>> = rows.chunks_exact(cols).map(packable).collect();
    let views: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    kernels::pack_tile(ty, &views, cols, to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_blocks_become_rows() {
        for ty in [TensorType::F32, TensorType::BF16, TensorType::Q8_0, TensorType::Q4_K] {
            let (rows, cols) = (24, 512);
            let values: Vec<f32> = (0..rows * cols).map(|i| (i as f32 * 0.37).sin()).collect();
            let mut data = Vec::new();
            ty.quantize(&values, &mut data).unwrap();
            let mut stored = vec![0.0; rows * cols];
            ty.dequantize(&data, &mut stored).unwrap();
            let view = WeightView { ty, rows, cols, data: &data };
            for first in [0, 16, 240, 496] {
                let got = turned(&data, &view, first, rows);
                for (at, value) in got.iter().enumerate() {
                    let (col, row) = (first + at / rows, at % rows);
                    assert_eq!(*value, stored[row * cols + col], "{ty}: row {row}, column {col}");
                }
            }
        }
    }
}
