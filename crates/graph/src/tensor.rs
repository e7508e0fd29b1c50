//! Bundles: what operators take and give.
//!
//! A bundle is one tensor, or one tensor per memory node (the paper's `tensor_ptrs`, §A.1), so that a
//! model is written once for any number of nodes. Its widths are known when the graph is built, the
//! place of its data when it is compiled.

use crate::placement::Placement;

/// Index of a bundle in its graph.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bundle(pub(crate) u32);

/// What the rows of an activation are.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// One row per token of the step.
    Tokens,
    /// One row per token whose logits are asked for.
    Outputs,
    /// So many rows per token: one for each expert that it goes to, those of an expert beside each other.
    Slots(usize),
}

/// One tensor, or one per node, under one placement: `[rows of the domain, width]` of f32.
#[derive(Clone, Debug)]
pub struct BundleInfo {
    /// Elements of a row of each tensor: one entry for `Whole`, otherwise one per node.
    pub widths: Vec<usize>,
    /// How the tensors make up the value.
    pub placement: Placement,
    /// Elements of a row of the whole value.
    pub width: usize,
    /// What its rows are.
    pub domain: Domain,
}

impl BundleInfo {
    /// Bytes of a row of each tensor, padded to whole tiles.
    pub(crate) fn row_bytes(&self) -> impl Iterator<Item = usize> {
        let padded = |width: &usize| width.next_multiple_of(kernels::TILE_ROWS) * size_of::<f32>();
        self.widths.iter().map(padded)
    }
}
