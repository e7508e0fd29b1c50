//! The tables of a graph, whose entries operators and instructions name by number.

use crate::adapter::Lows;
use crate::op::Rope;
use crate::state::State;
use crate::tensor::{Bundle, BundleInfo};
use crate::weight::{Matrix, MatrixId, Vector};

/// The tables of a graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    /// Memory nodes that the graph was built for.
    pub nodes: usize,
    pub bundles: Vec<BundleInfo>,
    pub matrices: Vec<Matrix>,
    pub vectors: Vec<Vector>,
    pub ropes: Vec<Rope>,
    pub states: Vec<State>,      // by operator
    pub lows: Vec<Option<Lows>>, // [matrix], or nothing
    pub most_rank: usize,        // of adapters, in whole tiles
}

impl Tables {
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    pub(crate) fn bundle(&self, b: Bundle) -> &BundleInfo {
        &self.bundles[b.0 as usize]
    }

    pub(crate) fn matrix(&self, m: MatrixId) -> &Matrix {
        &self.matrices[m.0 as usize]
    }

    /// The pairs beside a matrix, if there are any.
    pub(crate) fn lows(&self, matrix: MatrixId) -> Option<&Lows> {
        self.lows.get(matrix.0 as usize)?.as_ref()
    }
}
