//! Claims: the buffers that instructions touch.
//!
//! Every instruction states for each buffer whether it reads or writes it and how far its access
//! reaches: what the same thread wrote, what its group wrote, or what all groups wrote. Waits are
//! derived from these statements alone.

use crate::buffer::BufId;
use crate::tensor::Domain;
use kernels::ActKind;

/// Who does row-wise work.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Every thread does all rows for itself.
    Private,
    /// The rows are dealt over the threads of the node.
    Rows,
}

/// How the summands of all nodes come together; all ways give the same bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Gather {
    /// One shot, for few rows: who computes a summand writes it into every node's copy, so that
    /// readers stay on their node.
    Push,
    /// One shot, for more: every node's threads read the summands of all nodes.
    Pull,
    /// Reduce-scatter and all-gather, for many: each thread of the machine sums its share once and
    /// writes it to every node, which costs another global wait. Both go round from the thread's
    /// own node on, so that no node is visited by all at once (Sandwich, §6.2).
    Scatter,
}

/// Activations of a matrix product: buffers, or views of them.
#[derive(Copy, Clone, Debug)]
pub struct Operand<B = BufId> {
    /// As f32, for parts with weights of type F32 or F16.
    pub f32: Option<B>,
    /// Rounded to bfloat16, for parts with such weights.
    pub bf16: Option<B>,
    /// As blocks of 8-bit integers, for parts with quantised weights.
    pub q8: Option<B>,
}

/// How an instruction deals its work over the threads of a group. Two accesses dealt alike touch
/// the same elements in the same thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Deal {
    /// Contiguous shares of the step's tokens.
    Tokens,
    /// Contiguous shares of the step's outputs.
    Outputs,
    /// Shares of one instruction's tiles or items; equal to no other.
    Items,
}

/// How far an access reaches.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only what this thread owns under the given deal.
    Own(Deal),
    /// Anything on this thread's node.
    Group,
    /// The copies of all nodes.
    All,
    /// What one stage of a pipeline hands to the next. All groups meet between the rounds of a step,
    /// and the two sides take turns with two buffers, so no wait within a round orders them.
    Round,
}

/// One use of a buffer.
#[derive(Copy, Clone, Debug)]
pub struct Access {
    /// Which buffer.
    pub buffer: BufId,
    /// Whether it is written (reading included).
    pub write: bool,
    /// How far.
    pub reach: Reach,
}

/// What an instruction touches, as it states it.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    /// The instruction's name in listings.
    pub name: &'static str,
    pub domain: Domain,
    work: Option<Work>,
    pub all: Vec<Access>,
}

impl Claims {
    /// Returns no claims yet, for an instruction whose rows are dealt by `work`.
    pub(crate) fn new(name: &'static str, domain: Domain, work: Option<Work>) -> Claims {
        Claims { name, domain, work, all: Vec::new() }
    }

    /// What the same thread has of rows that are dealt.
    pub(crate) fn own(&self) -> Reach {
        Reach::Own(match self.domain {
            Domain::Tokens | Domain::Slots(_) => Deal::Tokens,
            Domain::Outputs => Deal::Outputs,
        })
    }

    /// The reach of row-wise work that is dealt so.
    pub(crate) fn by(&self, work: Work) -> Reach {
        match work {
            Work::Private => Reach::Group,
            Work::Rows => self.own(),
        }
    }

    /// The reach of the instruction's own rows.
    pub(crate) fn rows(&self) -> Reach {
        self.work.map_or(ITEMS, |work| self.by(work))
    }

    /// It reads a buffer.
    pub(crate) fn read(&mut self, buffer: impl IntoIterator<Item = BufId>, reach: Reach) {
        self.all.extend(buffer.into_iter().map(|buffer| Access { buffer, write: false, reach }));
    }

    /// It writes a buffer.
    pub(crate) fn write(&mut self, buffer: impl IntoIterator<Item = BufId>, reach: Reach) {
        self.all.extend(buffer.into_iter().map(|buffer| Access { buffer, write: true, reach }));
    }

    /// Its rows are made of the same rows of other buffers.
    pub(crate) fn row_by_row(&mut self, from: impl IntoIterator<Item = BufId>, to: BufId) {
        let rows = self.rows();
        self.read(from, rows);
        self.write([to], rows);
    }
}

/// Only tiles or items of the thread's own.
pub(crate) const ITEMS: Reach = Reach::Own(Deal::Items);

impl Operand {
    /// The buffers that the product reads.
    pub fn buffers(&self) -> impl Iterator<Item = BufId> + use<> {
        self.f32.into_iter().chain(self.bf16).chain(self.q8)
    }

    pub(crate) fn map<V>(self, view: impl Fn(BufId) -> V) -> Operand<V> {
        Operand { f32: self.f32.map(&view), bf16: self.bf16.map(&view), q8: self.q8.map(view) }
    }
}

impl<B: Copy> Operand<B> {
    /// The activations of this kind, which some part of the matrix takes.
    pub fn of(&self, kind: ActKind) -> B {
        let buffer = match kind {
            ActKind::F32 => self.f32,
            ActKind::Bf16 => self.bf16,
            ActKind::Q8 => self.q8,
        };
        buffer.expect("lowering has declared what every part takes")
    }
}
