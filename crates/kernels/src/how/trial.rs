//! Whether a kernel from elsewhere gives the bits that all kernels give.

use gguf::TensorType;

use super::{ImportError, Imported};
use crate::TILE_ROWS;
use crate::acts::{ActKind, Acts, act_kind};
use crate::isa::Isa;
use crate::kernels::Kernels;
use crate::matmul::{Piece, Tiles};
use crate::pack::{pack_tile, tile_bytes};
use crate::views::{Rows, RowsMut};

/// Pieces of the products that are tried, in units of 256 columns: one; a tree of three; four, of which the
/// last but one is long.
const PIECES: [&[(usize, usize)]; 3] =
    [&[(1, 0)], &[(1, 0), (1, 1), (1, 1)], &[(1, 0), (1, 1), (3, 0), (1, 2)]];
const UNIT: usize = 256;

/// Compares products of several sizes with the scalar kernel's.
pub(super) fn try_out(kernel: &Imported, kernels: &Kernels) -> Result<(), ImportError> {
    let scalar = Kernels::for_isa(Isa::Scalar).expect("always there");
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for pieces in PIECES {
        let pieces: Vec<Piece> =
            pieces.iter().map(|&(units, folds)| Piece { cols: units * UNIT, folds }).collect();
        let cols = pieces.iter().map(|piece| piece.cols).sum();
        for tiles in [1, 2, 5] {
            let packed = matrix(kernel.ty, tiles, &pieces, &mut noise);
            let len = packed.len() / tiles;
            let tiled = Tiles::new(&packed, tiles, len, len);
            for tokens in [1, 2, 3, 4, 7, 8, 13, 17] {
                let x: Vec<f32> = (0..tokens * cols).map(|_| noise.next()).collect();
                let width = tiles * TILE_ROWS;
                let mut got = vec![f32::NAN; tokens * width];
                let mut want = got.clone();
                let own = Inputs::new(kernels, kernel.ty, &x, cols);
                (kernel.run)(
                    tiled,
                    &pieces,
                    own.view(),
                    RowsMut::new(&mut got, tokens, width, width),
                );
                let plain = Inputs::new(scalar, kernel.ty, &x, cols);
                let out = RowsMut::new(&mut want, tokens, width, width);
                scalar.matmul(kernel.ty, tiled, &pieces, plain.view(), out);
                let wrong = got.iter().zip(&want).find(|(a, b)| a.to_bits() != b.to_bits());
                if let Some((&got, &want)) = wrong {
                    let name = kernel.name;
                    return Err(ImportError::Bits { name, tiles, cols, tokens, got, want });
                }
            }
        }
    }
    Ok(())
}

/// Packed tiles of noise, whose columns come in pieces.
fn matrix(ty: TensorType, tiles: usize, pieces: &[Piece], noise: &mut Noise) -> Vec<u8> {
    let mut packed = Vec::new();
    for _ in 0..tiles {
        for piece in pieces {
            let rows: Vec<Vec<u8>> = (0..TILE_ROWS)
                .map(|_| {
                    let values: Vec<f32> = (0..piece.cols).map(|_| noise.next()).collect();
                    let mut row = Vec::new();
                    ty.quantize(&values, &mut row).expect("asked before");
                    row
                })
                .collect();
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            let mut tile = vec![0; tile_bytes(ty, piece.cols)];
            pack_tile(ty, &rows, piece.cols, &mut tile);
            packed.extend(tile);
        }
    }
    packed
}

/// Activations in the form that kernels multiply.
struct Inputs {
    kind: ActKind,
    rows: usize,
    floats: Vec<f32>,
    words: Vec<u32>, // aligned bytes
    width: usize,    // floats or bytes of a row
}

impl Inputs {
    fn new(kernels: &Kernels, ty: TensorType, x: &[f32], cols: usize) -> Self {
        let (kind, rows) = (act_kind(ty), x.len() / cols);
        if kind == ActKind::F32 {
            return Self { kind, rows, floats: x.to_vec(), words: Vec::new(), width: cols };
        }
        let width = kernels.row_bytes(kind, cols);
        let mut words = vec![0; rows * width / 4];
        for (row, x) in bytes_mut(&mut words).chunks_exact_mut(width).zip(x.chunks_exact(cols)) {
            match kind {
                ActKind::Q8 => kernels.quantize_q8(x, row),
                _ => kernels.round_bf16(x, row),
            }
        }
        Self { kind, rows, floats: Vec::new(), words, width }
    }

    fn view(&self) -> Acts<'_> {
        let bytes = || Rows::new(bytes(&self.words), self.rows, self.width, self.width);
        match self.kind {
            ActKind::F32 => Acts::F32(Rows::new(&self.floats, self.rows, self.width, self.width)),
            ActKind::Bf16 => Acts::Bf16(bytes()),
            ActKind::Q8 => Acts::Q8(bytes()),
        }
    }
}

fn bytes(words: &[u32]) -> &[u8] {
    // SAFETY: any four bytes are a word, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 4) }
}

fn bytes_mut(words: &mut [u32]) -> &mut [u8] {
    // SAFETY: as in `bytes`; any four bytes are a word.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 4) }
}

/// Numbers between -1 and 1 by xorshift (Marsaglia 2003).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
