//! Adapters of low rank (LoRA; Hu et al., 2021): `y += scale * B(Ax)` beside the product with a matrix.
//!
//! Each sequence of a step has its own adapters. A step in which no sequence has any runs the programs of a graph
//! without adapters. The others have two more products for each matrix: `Ax`, whose columns are summed in segments
//! that do not depend on the nodes, and `B` of their sum, which is added by who has the rows.
//!
//! Limits: banks of experts, matrices by head and tables of embeddings have none.

use crate::placement::Cut;
use crate::weight::Matrix;
use gguf::TensorType;
use kernels::TILE_ROWS;
use std::ops::Range;

/// A matrix of an adapter, as floats.
#[derive(Clone, Debug, PartialEq)]
pub struct LowMatrix {
    /// F32 or F16.
    pub ty: TensorType,
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
    /// The rows, one after the other.
    pub data: Vec<u8>,
}

/// What an adapter adds to the products with a tensor: `scale * b(a·x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct LowRank {
    /// The model's tensor.
    pub tensor: String,
    /// `[rank, columns of the tensor]`
    pub a: LowMatrix,
    /// `[rows of the tensor, rank]`
    pub b: LowMatrix,
    /// Factor on the product, beside the one that a sequence has it with.
    pub scale: f32,
}

/// An adapter of a sequence, and the factor that it has there.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Adapted {
    /// Its number among those of the executor.
    pub adapter: u32,
    /// The factor.
    pub scale: f32,
}

/// A pair beside a part of a matrix.
#[derive(Clone, Debug)]
pub(crate) struct Low {
    pub adapter: u32,
    /// Which of the adapter's pairs it is.
    pub pair: usize,
    pub part: usize,
    pub rank: usize,
    pub scale: f32,
    /// Types of A and B.
    pub types: [TensorType; 2],
    /// Where its sums begin in a row, in f32.
    pub at: usize,
}

impl Low {
    /// Tiles of A.
    pub(crate) fn tiles(&self) -> usize {
        self.rank.div_ceil(TILE_ROWS)
    }

    /// f32 of the sums of a segment.
    pub(crate) fn padded(&self) -> usize {
        self.tiles() * TILE_ROWS
    }

    /// Bytes of a tile of A on a node, of a segment after the other.
    pub(crate) fn a_tile_bytes(&self, lows: &Lows, node: usize) -> usize {
        let of = |segment: Range<usize>| kernels::tile_bytes(self.types[0], segment.len());
        lows.columns.segments(lows.node(node)).map(of).sum()
    }

    /// Bytes of a tile of B.
    pub(crate) fn b_tile_bytes(&self) -> usize {
        kernels::tile_bytes(self.types[1], self.rank)
    }
}

/// All pairs beside a matrix.
#[derive(Clone, Debug)]
pub(crate) struct Lows {
    pub pairs: Vec<Low>,
    /// The matrix's columns, in segments whose products with A are summed apart.
    pub columns: Cut,
    /// Whether nodes share the columns, and tell each other of the sums.
    pub told: bool,
    /// f32 of a row of sums.
    pub width: usize,
}

impl Lows {
    /// The node of `columns` that a node is: where columns are not shared, all have all of them.
    pub(crate) fn node(&self, node: usize) -> usize {
        if self.told { node } else { 0 }
    }

    /// Bytes of all A and B on a node, in the order in which they are packed.
    pub(crate) fn bytes(&self, matrix: &Matrix, node: usize) -> impl Iterator<Item = [usize; 2]> {
        self.pairs.iter().map(move |low| {
            let tiles = matrix.rows(low.part, node).len().div_ceil(TILE_ROWS);
            [low.tiles() * low.a_tile_bytes(self, node), tiles * low.b_tile_bytes()]
        })
    }
}
