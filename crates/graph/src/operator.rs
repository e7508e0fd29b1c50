//! What an operator has to state.
//!
//! An [`Operator`] is what a model's definition appends to the static list: operands and parameters. Lowering
//! makes [`Instruction`](crate::instr::Instruction)s of it, over buffers. Both are implemented in one file for each
//! operator, under `operators`: its operands, what it touches, what it costs, its name and the work of one thread.
//! Nothing else of this crate lists all operators.

use crate::buffer::BufId;
use crate::graph::Node;
use crate::lowering::Lowering;
use crate::tensor::Bundle;
use crate::weight::{MatrixId, VectorId};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// An operator of a model's graph.
pub(crate) trait Operator: Any + fmt::Debug + Send + Sync {
    /// Name in listings.
    fn name(&self) -> &'static str;

    /// The bundles that it reads.
    fn inputs(&self) -> Vec<Bundle>;

    /// The vectors that it reads, except scales and biases of its matrix.
    fn vectors(&self) -> Vec<VectorId> {
        Vec::new()
    }

    /// The matrix that it multiplies by.
    fn product(&self) -> Option<MatrixId> {
        None
    }

    /// The matrix of which it looks rows up.
    fn table(&self) -> Option<MatrixId> {
        None
    }

    /// The states that it keeps of every sequence.
    fn states(&self) -> Range<usize> {
        0..0
    }

    /// Appends its instructions, and returns the buffer that holds its result.
    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId;
}

/// An operator and its operands.
#[derive(Clone, Debug)]
pub struct Op(Arc<dyn Operator>);

impl Op {
    pub(crate) fn new(operator: impl Operator) -> Op {
        Op(Arc::new(operator))
    }

    /// The operator's name in listings.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// What it states.
    pub(crate) fn does(&self) -> &dyn Operator {
        &*self.0
    }

    /// The operator, if it is of this type.
    pub(crate) fn get<O: Operator>(&self) -> Option<&O> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }

    /// The same to change, while the graph is built.
    pub(crate) fn get_mut<O: Operator>(&mut self) -> Option<&mut O> {
        let any: &mut dyn Any = Arc::get_mut(&mut self.0)?;
        any.downcast_mut()
    }
}
