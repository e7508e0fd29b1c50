//! Adapters of a graph: their checks, and the pairs beside each matrix.

use crate::adapter::{Low, LowRank, Lows};
use crate::error::{AdapterFault, Error};
use crate::graph::Graph;
use crate::placement::Cut;
use crate::weight::{Layout, Matrix, MatrixId, Part, SplitBy};
use gguf::TensorType;
use kernels::TILE_ROWS;
use std::collections::HashSet;

impl Graph {
    /// Checks adapters against the graph and finds the matrices that they stand beside; in place of those before.
    pub(crate) fn set_adapters(&mut self, adapters: &[&[LowRank]]) -> Result<(), Error> {
        let tables = self.ops.iter().filter_map(|node| node.op.does().table());
        let tables: HashSet<MatrixId> = tables.collect();
        let mut lows: Vec<Option<Lows>> = vec![None; self.tables.matrices.len()];
        for (adapter, pairs) in adapters.iter().enumerate() {
            let mut seen = HashSet::new();
            for (at, pair) in pairs.iter().enumerate() {
                let bad = |fault| Error::Adapter { tensor: pair.tensor.clone(), fault };
                if !seen.insert(&pair.tensor) {
                    return Err(bad(AdapterFault::Twice));
                }
                self.check(pair).map_err(bad)?;
                for (m, matrix) in self.tables.matrices.iter().enumerate() {
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
        self.tables.most_rank = pairs.map(Low::padded).max().unwrap_or(0);
        self.tables.lows = lows;
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
        if self.tables.vectors.iter().any(|vector| vector.name == *tensor) {
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
