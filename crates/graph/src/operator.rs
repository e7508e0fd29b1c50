//! Operators: the statements that each makes, and the lowering that it appends its instructions to.
//!
//! An [`Operator`] is what a model's definition appends to the static list: operands and parameters. Lowering
//! makes [`Instruction`]s of it, over buffers. Both are implemented in one file for each operator, under
//! `operators`: its operands, what it touches, what it costs, its name and the work of one thread. Nothing else
//! of this crate lists all operators.

use crate::buffer::{BufId, Buffers, Home, Pool as Storage};
use crate::claims::{Gather, Work};
use crate::instr::{Instr, Instruction};
use crate::list::Append;
use crate::sum::Sum;
use crate::tables::Tables;
use crate::tensor::{Bundle, Domain};
use crate::variant::Variant;
use crate::weight::{Clamp, MatrixId, VectorId};
use std::any::Any;
use std::collections::HashMap;
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

/// An operator in its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// What it gives.
    pub out: Bundle,
    /// The layer it belongs to; `None` before the first and after the last.
    pub layer: Option<usize>,
    /// How it follows the operator before it.
    pub append: Append,
}

/// How summands become a sum, and what it goes through then: a factor, a bias, limits.
pub(crate) struct Summed {
    pub sum: Sum,
    pub product: Option<VectorId>,
    pub bias: Option<VectorId>,
    pub clamp: Option<Clamp>,
}

/// What operators append their instructions to.
pub(crate) struct Lowering<'a> {
    pub tables: &'a Tables,
    /// The static list.
    pub ops: &'a [Node],
    /// Elements of a hidden state that the caller gets.
    pub hidden: usize,
    pub variant: Variant,
    pub buffers: &'a mut Buffers,
    pub values: HashMap<Bundle, BufId>,
    /// Results that are summands.
    pub sums: HashMap<Bundle, Summed>,
    /// Sums of tiles that every node has, beside results.
    pub told: HashMap<Bundle, BufId>,
    /// Results of A of adapters beside products that are summands.
    pub lows: HashMap<Bundle, (BufId, MatrixId)>,
    pub last_use: HashMap<Bundle, usize>,
    pub out: Vec<Instr>,
}

impl Lowering<'_> {
    /// Appends an instruction that is dealt in tiles or items.
    pub(crate) fn push(
        &mut self,
        layer: Option<usize>,
        domain: Domain,
        does: impl Instruction + 'static,
    ) {
        self.out.push(Instr::new(layer, domain, None, does));
    }

    /// Appends an instruction that is dealt by rows.
    pub(crate) fn push_rows(
        &mut self,
        layer: Option<usize>,
        domain: Domain,
        work: Work,
        does: impl Instruction + 'static,
    ) {
        self.out.push(Instr::new(layer, domain, Some(work), does));
    }

    /// As [`Lowering::push`], of an operator and the rows of its result.
    pub(crate) fn emit(&mut self, node: &Node, does: impl Instruction + 'static) {
        self.push(node.layer, self.tables.bundle(node.out).domain, does);
    }

    /// As [`Lowering::push_rows`], of an operator and the rows of its result.
    pub(crate) fn emit_rows(&mut self, node: &Node, work: Work, does: impl Instruction + 'static) {
        self.push_rows(node.layer, self.tables.bundle(node.out).domain, work, does);
    }

    /// How row-wise work on an operator's result is dealt.
    pub(crate) fn work(&self, node: &Node) -> Work {
        self.variant.work(self.tables.bundle(node.out).domain)
    }

    /// Elements of a bundle's row.
    pub(crate) fn width(&self, b: Bundle) -> usize {
        self.tables.bundle(b).width
    }

    /// The buffer that holds a bundle.
    pub(crate) fn value(&self, b: Bundle) -> BufId {
        self.values[&b]
    }

    /// Index of the operator that gives a bundle.
    pub(crate) fn position(&self, out: Bundle) -> usize {
        let at = self.ops.iter().position(|n| n.out == out);
        at.expect("an operator of this graph")
    }

    /// Whether an operator is the last that reads a bundle.
    pub(crate) fn is_last_use(&self, of: Bundle, node: &Node) -> bool {
        self.last_use.get(&of) == Some(&self.position(node.out))
    }

    /// The buffer of an operator's result, as its row-wise work is dealt.
    pub(crate) fn own_buffer(&mut self, role: &str, node: &Node) -> BufId {
        self.buffer(role, node.out, node.layer, self.work(node))
    }

    /// f32 rows as wide as bundle `b` on each node, padded to whole tiles.
    pub(crate) fn widths(&self, b: Bundle) -> Vec<usize> {
        self.tables.bundle(b).row_bytes().collect()
    }

    pub(crate) fn rows(&self, domain: Domain, work: Work) -> Storage {
        match (domain, work) {
            (Domain::Slots(each), Work::Private) => Storage::PrivateSlots(each),
            (Domain::Slots(each), Work::Rows) => Storage::Slots(each),
            (_, Work::Private) => Storage::Private,
            (Domain::Tokens, Work::Rows) => Storage::Tokens,
            (Domain::Outputs, Work::Rows) => Storage::Outputs,
        }
    }

    /// The buffer of role `role` for bundle `b`: in the layer's half of the double buffer, or one
    /// per thread when the work is private.
    pub(crate) fn buffer(
        &mut self,
        role: &str,
        b: Bundle,
        layer: Option<usize>,
        work: Work,
    ) -> BufId {
        let widths = self.widths(b);
        let rows = self.rows(self.tables.bundle(b).domain, work);
        match work {
            Work::Private => self.buffers.declare(role, Home::Thread, rows, &widths),
            Work::Rows => {
                let half = layer.map_or(0, |l| l % 2);
                self.buffers.declare(&format!("{role}.{half}"), Home::Node, rows, &widths)
            }
        }
    }

    /// The buffer of the summands `b`: a row has a slot per root of `sum`, of all nodes when they are
    /// pushed, of the node itself otherwise.
    pub(crate) fn partial(
        &mut self,
        role: &str,
        b: Bundle,
        layer: Option<usize>,
        sum: &Sum,
    ) -> BufId {
        let half = layer.map_or(0, |l| l % 2);
        let slot = self.widths(b)[0];
        let roots = |n: usize| match self.variant.gather {
            Gather::Push => sum.roots(),
            Gather::Pull | Gather::Scatter => sum.slots[n].len(),
        };
        let bytes: Vec<usize> = (0..self.tables.nodes()).map(|n| roots(n) * slot).collect();
        let (role, rows) = match self.variant.gather {
            Gather::Push => (format!("{role}.all.{half}"), Storage::Private),
            Gather::Pull | Gather::Scatter => (format!("{role}.{half}"), Storage::Tokens),
        };
        self.buffers.declare(&role, Home::Node, rows, &bytes)
    }

    /// The buffer of what is told of the tiles of `rows` rows, `numbers` of each, on every node.
    pub(crate) fn told(&mut self, rows: usize, numbers: usize, layer: Option<usize>) -> BufId {
        let bytes = rows / kernels::TILE_ROWS * numbers * size_of::<f32>();
        let role = format!("squares.{}", layer.map_or(0, |l| l % 2));
        let widths = vec![bytes; self.tables.nodes()];
        self.buffers.declare(&role, Home::Node, Storage::Tokens, &widths)
    }

    pub(crate) fn remembered(&mut self, x: Bundle) -> [BufId; 2] {
        let widths = self.widths(x);
        self.buffers.remembered(&widths)
    }
}
