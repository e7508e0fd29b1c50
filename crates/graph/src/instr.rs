//! Instructions: what threads execute.
//!
//! An [`Instruction`] states what it touches ([`Claims`]), what it costs, its name and the work of one thread.

use crate::book::{Desk, Entry, Line, RowsOf};
use crate::claims::{Access, Claims, Operand, Work};
use crate::exec::Run;
use crate::places::Scratch;
use crate::squares::Squares;
use crate::tables::Tables;
use crate::tensor::Domain;
use crate::weight::MatrixId;
use std::fmt;
use threads::View;

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

    /// How the pool's threads are seen from it on, if it changes that.
    fn view(&self) -> Option<View> {
        None
    }

    /// What its rows are, if not those of its domain.
    fn rows_of(&self) -> Option<RowsOf> {
        None
    }

    /// Scratch of a thread in steps of up to `tokens` tokens, beyond that of products and attention.
    fn scratch(&self, _tables: &Tables, _tokens: usize) -> Scratch {
        Scratch::default()
    }

    /// Sums the squares of what it multiplies ([`crate::squares`]).
    fn sum_squares(&self, _run: &Run<'_>, _to: &Squares) {}

    /// Whether nodes have different parts of what it reads and writes; the split of its matrix decides where it
    /// has one.
    fn is_split(&self, _tables: &Tables) -> bool {
        false
    }

    /// Whether its items are shared as tasks.
    fn has_tasks(&self) -> bool {
        false
    }

    /// Name in profiles: that of its matrix, if it has one.
    fn label<'g>(&'g self, tables: &'g Tables) -> &'g str {
        let matrix = self.multiplies().map(|of| of.matrix).or(self.bank());
        matrix.map_or(self.name(), |matrix| &tables.matrix(matrix).name)
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

/// An instruction in its place.
#[derive(Clone, Debug)]
pub struct Instr {
    /// Layer, for people and for double buffering.
    pub layer: Option<usize>,
    /// What its rows are.
    pub domain: Domain,
    /// How its rows are dealt; `None` where its work is in tiles or items.
    pub work: Option<Work>,
    pub(crate) does: Box<dyn Instruction>,
    claims: Claims,
}

impl Instr {
    pub(crate) fn new(
        layer: Option<usize>,
        domain: Domain,
        work: Option<Work>,
        does: impl Instruction + 'static,
    ) -> Instr {
        let mut claims = Claims::new(does.name(), domain, work);
        does.claims(&mut claims);
        Instr { layer, domain, work, does: Box::new(does), claims }
    }

    /// Everything this instruction reads and writes.
    pub fn accesses(&self) -> &[Access] {
        &self.claims.all
    }

    /// The claims.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Declares something else, to show that it is noticed.
    #[cfg(test)]
    pub(crate) fn redeclare(&mut self, change: impl FnOnce(&mut Vec<Access>)) {
        change(&mut self.claims.all);
    }

    /// What the team of a place does for this instruction.
    pub(crate) fn lines(&self, desk: &Desk<'_>) -> Vec<Line> {
        let mut entry = Entry::new(desk, self.domain, self.work, self.does.rows_of());
        self.does.work(&mut entry);
        entry.lines()
    }

    /// Name in listings.
    pub fn name(&self) -> &'static str {
        self.claims.name
    }

    /// The matrix that it multiplies by. What it reads of it is in the book ([`crate::Line`]).
    pub fn matrix(&self) -> Option<MatrixId> {
        self.does.multiplies().map(|of| of.matrix)
    }

    /// How the pool's threads are seen from it on, if it is a scatter or a gather.
    pub fn view(&self) -> Option<View> {
        self.does.view()
    }

    /// The bank of experts that it multiplies by what was chosen of.
    pub fn bank(&self) -> Option<MatrixId> {
        self.does.bank()
    }
}
