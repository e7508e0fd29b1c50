//! How instructions state their work.

use super::{Choice, Dealt, Line, Memory, Per, RowsOf, What};
use crate::buffer::BufId;
use crate::claims::{Operand, Work};
use crate::plan::Plan;
use crate::tables::Tables;
use crate::tensor::Domain;
use crate::weight::{Matrix, MatrixId};
use kernels::{ActKind, KvTypes, Product, TILE_ROWS};

/// Bytes of an f32.
pub(crate) const FLOAT: usize = size_of::<f32>();

/// Where and for whom an instruction is executed.
#[derive(Copy, Clone)]
pub(crate) struct Desk<'a> {
    pub tables: &'a Tables,
    pub plan: &'a Plan,
    /// How keys and values are stored.
    pub kv: KvTypes,
    /// Which threads take part ([`Plan::level`]).
    pub level: usize,
    /// The team.
    pub place: usize,
    /// The stage of a pipeline that holds a matrix.
    pub home: &'a dyn Fn(MatrixId) -> usize,
}

/// What somebody has of a part of a matrix.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Owned {
    pub rows: usize,
    pub cols: usize,
    /// Packed, padding included.
    pub bytes: usize,
}

/// The product of rows of activations with what somebody has of each part of a matrix.
pub(crate) fn product(
    id: MatrixId,
    matrix: &Matrix,
    place: usize,
    of: RowsOf,
    owned: impl Fn(usize) -> Owned,
) -> Vec<Line> {
    let mut lines = Lines(Vec::new());
    let mut bytes = 0;
    for (p, part) in matrix.parts.iter().enumerate() {
        let own = owned(p);
        bytes += own.bytes;
        let kind = What::Multiply(Product::of(part.ty));
        lines.add(own.rows * own.cols, kind, Per::Row(of), Dealt::Team);
    }
    let weights = What::Read(Memory::Weights(id), place);
    lines.add(bytes, weights, Per::Step(of), Dealt::Team);
    lines.0
}

impl Desk<'_> {
    /// The node of the graph whose tensors the team works on.
    pub(crate) fn node(&self) -> usize {
        if self.tables.nodes() == 1 { 0 } else { self.place }
    }

    /// Where the buffers of a node of the graph lie.
    pub(crate) fn place_of(&self, node: usize) -> usize {
        if self.tables.nodes() == 1 { self.place } else { node }
    }

    /// All places that the graph's tensors lie in, as the team sees them.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.tables.nodes()).map(|node| self.place_of(node))
    }

    /// What the team has of part `p` of a matrix.
    fn owned(&self, matrix: &Matrix, p: usize) -> Owned {
        let node = self.node();
        let (rows, cols) = (matrix.rows(p, node).len(), matrix.cols(p, node).len());
        let bytes = rows.div_ceil(TILE_ROWS) * matrix.tile_bytes(p, node);
        Owned { rows, cols, bytes }
    }
}

/// Lines, but for those of nothing.
struct Lines(Vec<Line>);

impl Lines {
    fn add(&mut self, amount: usize, what: What, per: Per, dealt: Dealt) {
        if amount > 0 {
            self.0.push(Line { amount: amount as u64, what, per, dealt });
        }
    }
}

/// The lines of one instruction, as it states them.
pub(crate) struct Entry<'a> {
    pub desk: &'a Desk<'a>,
    lines: Lines,
    /// What a row is of.
    pub rows: RowsOf,
    /// Rows of each token.
    pub each: usize,
    /// Who has rows.
    dealt: Dealt,
}

/// Bytes of a slot of summands: rows of `width`, padded to whole tiles.
pub(crate) fn slot(width: usize) -> usize {
    width.next_multiple_of(TILE_ROWS) * FLOAT
}

impl<'a> Entry<'a> {
    pub(crate) fn new(
        desk: &'a Desk<'a>,
        domain: Domain,
        work: Option<Work>,
        rows: Option<RowsOf>,
    ) -> Entry<'a> {
        let dealt = match work {
            Some(Work::Private) => Dealt::Each,
            Some(Work::Rows) | None => Dealt::Team,
        };
        let (of_domain, each) = match domain {
            Domain::Slots(each) => (RowsOf::Tokens, each),
            Domain::Tokens => (RowsOf::Tokens, 1),
            Domain::Outputs => (RowsOf::Outputs, 1),
        };
        Entry { desk, lines: Lines(Vec::new()), rows: rows.unwrap_or(of_domain), each, dealt }
    }

    pub(crate) fn lines(self) -> Vec<Line> {
        self.lines.0
    }

    pub(crate) fn tables(&self) -> &'a Tables {
        self.desk.tables
    }

    /// An amount of something for each unit of something.
    pub(crate) fn per(&mut self, per: Per, what: What, amount: usize) {
        self.lines.add(amount, what, per, self.dealt);
    }

    /// Bytes of each row, from the team's own memory.
    pub(crate) fn read(&mut self, buf: BufId, bytes: usize) {
        self.read_from(buf, self.desk.place, bytes);
    }

    pub(crate) fn read_from(&mut self, buf: BufId, place: usize, bytes: usize) {
        self.per(Per::Row(self.rows), What::Read(Memory::Rows(buf), place), bytes);
    }

    pub(crate) fn write(&mut self, buf: BufId, bytes: usize) {
        self.write_to(buf, self.desk.place, bytes);
    }

    pub(crate) fn write_to(&mut self, buf: BufId, place: usize, bytes: usize) {
        self.per(Per::Row(self.rows), What::Write(Memory::Rows(buf), place), bytes);
    }

    /// Bytes of each row, to the copies of all nodes.
    pub(crate) fn write_everywhere(&mut self, buf: BufId, bytes: usize) {
        let desk = self.desk;
        desk.places().for_each(|place| self.write_to(buf, place, bytes));
    }

    /// Elements of each row that are normed, added, quantised or joined.
    pub(crate) fn pass(&mut self, elements: usize) {
        self.per(Per::Row(self.rows), What::Pass, elements);
    }

    /// A row from one buffer to another.
    pub(crate) fn copy(&mut self, x: BufId, out: BufId, width: usize) {
        self.read(x, width * FLOAT);
        self.write(out, width * FLOAT);
    }

    /// A product and what it reads; where it writes is the caller's to say.
    pub(crate) fn product(&mut self, id: MatrixId, acts: Operand) {
        let (desk, matrix) = (self.desk, self.desk.tables.matrix(id));
        let own = product(id, matrix, desk.place, self.rows, |p| desk.owned(matrix, p));
        self.lines.0.extend(own);
        self.acts(matrix, acts, 1);
    }

    /// The rows of activations that a matrix takes, `rows` of each token.
    fn acts(&mut self, matrix: &Matrix, acts: Operand, rows: usize) {
        let cols = matrix.input_width(self.desk.node());
        for kind in [ActKind::F32, ActKind::Bf16, ActKind::Q8] {
            if matrix.takes(kind) {
                self.read(acts.of(kind), rows * kernels::most_row_bytes(kind, cols));
            }
        }
    }

    /// The products with the experts that were chosen, and what they read.
    pub(crate) fn experts(&mut self, id: MatrixId, route: usize, chosen: usize, acts: Operand) {
        let (desk, matrix) = (self.desk, self.desk.tables.matrix(id));
        let bank = matrix.bank.as_ref().expect("a bank of experts");
        let each = matrix.parts.len() / bank.classes();
        for (p, part) in matrix.parts.iter().enumerate() {
            let (class, own) = (p / each, desk.owned(matrix, p));
            let choice = Choice {
                route: route as u32,
                class: class as u32,
                members: bank.members(class) as u32,
                experts: bank.experts as u32,
                chosen: chosen as u32,
            };
            let weights = What::Read(Memory::Weights(id), desk.place);
            self.per(Per::Expert(choice), weights, own.bytes);
            let kind = What::Multiply(Product::of(part.ty));
            self.per(Per::Slot(choice), kind, own.rows * own.cols);
        }
        self.acts(matrix, acts, chosen);
    }

    /// Bytes of a sequence's state, which are read and written.
    pub(crate) fn state(&mut self, state: usize, bytes: usize) {
        let place = self.desk.place;
        for what in [What::Read, What::Write] {
            self.per(Per::Sequence, what(Memory::State(state), place), bytes);
        }
    }

    /// Rows of all parts that the team has.
    pub(crate) fn own_rows(&self, id: MatrixId) -> usize {
        let matrix = self.desk.tables.matrix(id);
        (0..matrix.parts.len()).map(|p| matrix.rows(p, self.desk.node()).len()).sum()
    }

    /// The team's part of what all teams share.
    pub(crate) fn part(&self, all: usize) -> usize {
        let desk = self.desk;
        let groups = desk.plan.group_threads_at(desk.level);
        let threads = groups.last().map_or(1, |last| last.end);
        all * groups[desk.place].len() / threads
    }
}
