//! What an operator has to state, and what one of its instructions has.
//!
//! An [`Operator`] is what a model's definition appends to the static list: operands and parameters. Lowering
//! makes [`Instruction`]s of it, over buffers. Both are implemented in one file for each operator, under
//! `operators`: its operands, what it touches, what it costs, its name and the work of one thread. Nothing else
//! of this crate lists all operators.

use crate::book::{Entry, RowsOf};
use crate::buffer::BufId;
use crate::builder::{Graph, Node};
use crate::exec::Run;
use crate::instr::{Claims, Operand};
use crate::lower::Lowering;
use crate::squares::Squares;
use crate::storage::Scratch;
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

/// What threads execute.
pub(crate) trait Instruction: Boxed + fmt::Debug + Send + Sync {
    /// Name in listings.
    fn name(&self) -> &'static str;

    /// States every buffer that it reads or writes, and how far each access reaches.
    fn claims(&self, claims: &mut Claims);

    /// States what a team does for it.
    fn work(&self, entry: &mut Entry<'_>);

    /// Does one thread's part.
    fn run(&self, run: Run<'_>);

    /// The product that it is, if it is one.
    fn multiplies(&self) -> Option<Multiplies> {
        None
    }

    /// The bank of experts that it multiplies by the chosen ones of.
    fn bank(&self) -> Option<MatrixId> {
        None
    }

    /// What its rows are, if not those of its domain.
    fn rows_of(&self) -> Option<RowsOf> {
        None
    }

    /// Scratch of a thread in steps of up to `tokens` tokens, beyond that of products and attention.
    fn scratch(&self, _graph: &Graph, _tokens: usize) -> Scratch {
        Scratch::default()
    }

    /// Sums the squares of what it multiplies ([`crate::squares`]).
    fn sum_squares(&self, _run: &Run<'_>, _to: &Squares) {}

    /// Whether nodes have different parts of what it reads and writes; the split of its matrix decides where it
    /// has one.
    fn is_split(&self, _graph: &Graph) -> bool {
        false
    }

    /// Whether its items are shared as tasks.
    fn has_tasks(&self) -> bool {
        false
    }

    /// Name in profiles: that of its matrix, if it has one.
    fn label<'g>(&'g self, graph: &'g Graph) -> &'g str {
        let matrix = self.multiplies().map(|of| of.matrix).or(self.bank());
        matrix.map_or(self.name(), |matrix| &graph.matrix(matrix).name)
    }
}

/// A product with a matrix.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Multiplies {
    /// Its activations.
    pub acts: Operand,
    pub matrix: MatrixId,
    /// Whether it is one with two matrices.
    pub paired: bool,
}

/// Copies of instructions: every node has its own.
pub(crate) trait Boxed {
    fn boxed(&self) -> Box<dyn Instruction>;
}

impl<I: Instruction + Clone + 'static> Boxed for I {
    fn boxed(&self) -> Box<dyn Instruction> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Instruction> {
    fn clone(&self) -> Box<dyn Instruction> {
        (**self).boxed()
    }
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
