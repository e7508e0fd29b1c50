//! Adapters of low rank (LoRA; Hu et al., 2021): `y += scale * B(Ax)` beside the product with a matrix.
//!
//! Each sequence of a step has its own adapters. A step in which no sequence has any runs the programs of a graph
//! without adapters. The others have two more products for each matrix: `Ax`, whose columns are summed in segments
//! that do not depend on the nodes, and `B` of their sum, which is added by who has the rows.
//!
//! Limits: banks of experts, matrices by head and tables of embeddings have none.

use crate::builder::Graph;
use crate::error::{AdapterFault, Error};
use crate::placement::Cut;
use crate::weight::{Layout, Matrix, MatrixId, Part, SplitBy};
use gguf::TensorType;
use kernels::TILE_ROWS;
use std::collections::HashSet;
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

impl Graph {
    /// The pairs beside a matrix, if there are any.
    pub(crate) fn lows(&self, matrix: MatrixId) -> Option<&Lows> {
        self.lows.get(matrix.0 as usize)?.as_ref()
    }

    /// Checks adapters against the graph and finds the matrices that they stand beside; in place of those before.
    pub(crate) fn set_adapters(&mut self, adapters: &[&[LowRank]]) -> Result<(), Error> {
        let tables = self.ops.iter().filter_map(|node| node.op.does().table());
        let tables: HashSet<MatrixId> = tables.collect();
        let mut lows: Vec<Option<Lows>> = vec![None; self.matrices.len()];
        for (adapter, pairs) in adapters.iter().enumerate() {
            let mut seen = HashSet::new();
            for (at, pair) in pairs.iter().enumerate() {
                let bad = |fault| Error::Adapter { tensor: pair.tensor.clone(), fault };
                if !seen.insert(&pair.tensor) {
                    return Err(bad(AdapterFault::Twice));
                }
                self.check(pair).map_err(bad)?;
                for (m, matrix) in self.matrices.iter().enumerate() {
                    let parts = matrix.parts.iter().enumerate();
                    for (part, of) in parts.filter(|(_, part)| part.name == pair.tensor) {
                        if tables.contains(&MatrixId(m as u32)) {
                            return Err(bad(AdapterFault::Embedding));
                        }
                        adaptable(matrix, of).map_err(bad)?;
                        let lows = lows[m].get_or_insert_with(|| lows_of(matrix));
                        let types = [pair.a.ty, pair.b.ty];
                        let (rank, scale, adapter) = (pair.a.rows, pair.scale, adapter as u32);
                        let (at, pair) = (lows.width, at);
                        let low = Low { adapter, pair, part, rank, scale, types, at };
                        lows.width += low.padded() * lows.columns.leaf_count();
                        lows.pairs.push(low);
                    }
                }
            }
        }
        let pairs = lows.iter().flatten().flat_map(|lows| &lows.pairs);
        self.most_rank = pairs.map(Low::padded).max().unwrap_or(0);
        self.lows = lows;
        Ok(())
    }

    /// Whether a pair has the shapes that its tensor wants.
    fn check(&self, pair: &LowRank) -> Result<(), AdapterFault> {
        let LowRank { tensor, a, b, .. } = pair;
        let spec = self.tensors.iter().find(|spec| spec.name == *tensor);
        let spec = spec.ok_or(AdapterFault::Unknown)?;
        if spec.experts.is_some() {
            return Err(AdapterFault::Bank);
        }
        let (wanted, got) =
            ([a.rows, spec.cols, spec.rows, a.rows], [a.rows, a.cols, b.rows, b.cols]);
        if a.rows == 0 || wanted != got {
            return Err(AdapterFault::Shape {
                a: [a.rows, a.cols],
                b: [b.rows, b.cols],
                rows: spec.rows,
                cols: spec.cols,
            });
        }
        // A matrix that the model has and does not multiply by may have a pair, which then does nothing.
        if self.vectors.iter().any(|vector| vector.name == *tensor) {
            return Err(AdapterFault::NoMatrix);
        }
        for matrix in [a, b] {
            assert!(matches!(matrix.ty, TensorType::F32 | TensorType::F16), "floats");
            let bytes = matrix.rows * matrix.cols * matrix.ty.block_bytes();
            assert_eq!(matrix.data.len(), bytes, "whole rows");
        }
        Ok(())
    }
}

/// Whether something can stand beside a part.
fn adaptable(matrix: &Matrix, part: &Part) -> Result<(), AdapterFault> {
    if matrix.bank.is_some() {
        return Err(AdapterFault::Bank);
    }
    if matrix.by_head.is_some() || matches!(part.layout, Layout::Columns { .. }) {
        return Err(AdapterFault::ByHead);
    }
    Ok(())
}

/// No pairs beside a matrix yet.
fn lows_of(matrix: &Matrix) -> Lows {
    let part = &matrix.parts[0];
    let told = matrix.split == SplitBy::Cols;
    let columns = match told {
        true => part.cut.clone(),
        false => Cut::summed(part.cols, TILE_ROWS, 1, &1.into()),
    };
    Lows { pairs: Vec::new(), columns, told, width: 0 }
}
