//! Matrix products: one token by the bytes of weights, more by the multiplications.

use arclight_kernels::{Isa, Kernels, TILE_ROWS};
use gguf::TensorType;

use crate::inputs::{Matrix, Product};
use crate::uncached::Uncached;
use crate::{COLS, time};

/// Tiles that stay in the second cache level together.
pub(crate) const TILES: usize = 8;

pub(crate) fn report(
    label: &str,
    kernels: &'static Kernels,
    ty: TensorType,
    peak: f64,
    uncached: &mut Uncached,
) {
    let matrix = Matrix::noise(ty, COLS, TILES);
    print!("{label}");
    for tokens in [1, 2, 4, 8, 16, 32, 128] {
        let mut product = Product::noise(kernels, ty, COLS, tokens, TILES);
        product.check(&matrix);
        let seconds = time(|| product.run(matrix.view()));
        if tokens == 1 {
            print!("  {:6.1} GB/s", matrix.bytes.len() as f64 / seconds / 1e9);
            // Plain Rust is the specification: no faster from memory, and seconds for each pass.
            if kernels.isa() != Isa::Scalar {
                let [weights, loads] = uncached.rates(kernels, ty, &matrix);
                print!(" {:5.1} ({:3.0}%)", weights / 1e9, weights / loads * 100.0);
            }
        } else {
            let macs = (TILES * TILE_ROWS * COLS * tokens) as f64;
            print!(
                "  {tokens:3}: {:5.1} ({:2.0}%)",
                macs / seconds / 1e9,
                macs / seconds / peak * 100.0
            );
        }
    }
    println!();
}
