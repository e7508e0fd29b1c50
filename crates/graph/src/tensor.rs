//! Tensor headers and bundles.
//!
//! A tensor has a header (name, width, operator, sources) and data; the header is known when the
//! graph is built, the data's place when it is compiled. A bundle is what operators take and give:
//! one tensor, or one tensor per memory node (the paper's `tensor_ptrs`, §A.1), so that a model is
//! written once for any number of nodes.

use crate::placement::Placement;

/// Index of a tensor header in its graph.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub(crate) u32);

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
}

/// The metadata of one tensor: `[rows of the domain, width]` of f32 on one node.
#[derive(Clone, Debug)]
pub struct Header {
    /// `layer.name`, for people.
    pub name: String,
    /// Elements of a row on this tensor's node.
    pub width: usize,
    /// What its rows are.
    pub domain: Domain,
    /// The group that owns it.
    pub node: usize,
    /// Tensors that its operator reads.
    pub sources: Vec<TensorId>,
}

/// One tensor, or one per node, under one placement.
#[derive(Clone, Debug)]
pub struct BundleInfo {
    /// One entry for `Whole`, otherwise one per node.
    pub tensors: Vec<TensorId>,
    /// How the tensors make up the value.
    pub placement: Placement,
    /// Elements of a row of the whole value.
    pub width: usize,
    /// What its rows are.
    pub domain: Domain,
}
