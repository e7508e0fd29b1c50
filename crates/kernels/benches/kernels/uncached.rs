//! One token's product with a matrix that no cache holds, beside plain loads of the same bytes.
//!
//! Memory may be shared with other programs, so products and loads take turns and the best of each
//! counts. Plain loads fetch nothing ahead by instruction, so a kernel that does can beat them.

use std::hint::black_box;
use std::time::Instant;

use arclight_kernels::{Kernels, Tiles, tile_bytes};
use gguf::TensorType;
use measure::probe::{Buffer, read_bytes};
use memory::{Error, HugePages, Policy};

use crate::COLS;
use crate::inputs::{Matrix, Product};

/// Several times the last cache level of one core of any machine.
const BYTES: usize = 256 << 20;
const TURNS: usize = 10;

/// Room for a matrix, on huge pages where the system has them.
pub(crate) struct Uncached {
    buffer: Buffer,
}

impl Uncached {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self { buffer: Buffer::new(BYTES, Policy::Default, HugePages::Transparent)? })
    }

    /// Bytes per second of the product with `matrix`, again and again in memory of its own, and of
    /// loads.
    pub(crate) fn rates(
        &mut self,
        kernels: &'static Kernels,
        ty: TensorType,
        matrix: &Matrix,
    ) -> [f64; 2] {
        let len = tile_bytes(ty, COLS);
        let whole = BYTES / matrix.bytes.len();
        let (words, _) = matrix.bytes.as_chunks::<8>();
        for copy in self.buffer.words_mut().chunks_exact_mut(words.len()) {
            for (to, word) in copy.iter_mut().zip(words) {
                *to = u64::from_ne_bytes(*word);
            }
        }
        let count = whole * matrix.tiles;
        let bytes = &self.buffer.bytes()[..count * len];
        let mut product = Product::noise(kernels, ty, COLS, 1, count);
        let mut best = [f64::INFINITY; 2];
        for _ in 0..TURNS {
            let start = Instant::now();
            product.run(Tiles::new(bytes, count, len, len));
            best[0] = best[0].min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            black_box(read_bytes(bytes));
            best[1] = best[1].min(start.elapsed().as_secs_f64());
        }
        best.map(|seconds| bytes.len() as f64 / seconds)
    }
}
