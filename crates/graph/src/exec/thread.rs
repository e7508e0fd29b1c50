//! One thread's view of a step, and of an instruction.

use super::access::{Grant, Source, StatePages, Target};
use crate::buffer::BufId;
use crate::claims::Work;
use crate::deal::Dealt;
use crate::load::WeightTable;
use crate::places::Places;
use crate::plan::Plan;
use crate::step::Input;
use crate::tables::Tables;
use crate::tally::Tally;
use crate::tensor::Domain;
use crate::weight::VectorId;
use kernels::Kernels;
use std::ops::Range;
use threads::Worker;

/// A step as one thread sees it.
pub(crate) struct Step<'a> {
    pub tables: &'a Tables,
    pub kernels: &'static Kernels,
    pub plan: &'a Plan,
    pub storage: &'a Places,
    pub weights: &'a WeightTable,
    /// Which threads take part ([`Plan::level`]).
    pub level: usize,
    /// The thread's number among all that do, and how many they are.
    pub among: (usize, usize),
    /// How every product is dealt while one way is tried ([`super::trial`]).
    pub trial: Option<Dealt<'a>>,
    /// Whether threads take over tiles of products ([`Stage::shared`](crate::compile::Stage::shared)).
    pub shares: bool,
    /// f32 at the end of scratch that are for products with adapters.
    pub low_scratch: usize,
}

/// What one thread does an instruction with.
pub(crate) struct Run<'r> {
    pub thread: &'r Thread<'r>,
    pub(super) grant: &'r Grant<'r>,
    /// What the rows are.
    pub domain: Domain,
    /// The thread's own; none where work is in tiles or items.
    pub rows: Range<usize>,
    /// The thread's scratch: f32.
    pub scratch: &'r mut [f32],
    /// u32.
    pub words: &'r mut [u32],
    /// Bytes.
    pub bytes: &'r mut [u8],
    /// f32 for products with adapters.
    pub room: &'r mut [f32],
    pub worker: &'r mut Worker,
    /// Whether threads take over tiles of a product from each other.
    pub shared: bool,
}

impl<'r> Run<'r> {
    /// A view to read a buffer.
    pub(crate) fn source(&self, buf: BufId) -> Source<'r> {
        // SAFETY: the view is of a buffer that the instruction declares, and waits stand between what is declared and
        // what others write.
        unsafe { self.grant.source(buf) }
    }

    /// A view to write a buffer.
    pub(crate) fn target(&self, buf: BufId) -> Target<'r> {
        // SAFETY: as above, and writes stay in the thread's share: rows as `rows` gives them, tiles and items as they
        // are dealt. No two views of one buffer are used at a time.
        unsafe { self.grant.target(buf) }
    }

    /// A view of the pages of a state.
    pub(crate) fn pages(&self, buf: BufId, state: usize) -> StatePages<'r> {
        // SAFETY: as above. Tokens of a page are dealt to one thread, and a range that is appended to is read by the
        // item that appends.
        unsafe { self.grant.pages(buf, state) }
    }

    pub(crate) fn tables(&self) -> &'r Tables {
        self.thread.step.tables
    }

    pub(crate) fn kernels(&self) -> &'static Kernels {
        self.thread.step.kernels
    }

    /// A vector of weights.
    pub(crate) fn vector(&self, of: VectorId) -> &'r [f32] {
        self.thread.step.weights.vector(of, self.thread.group)
    }

    /// Rows of the domain in this step.
    pub(crate) fn count(&self) -> usize {
        self.thread.count(self.domain)
    }

    /// Copies the thread's rows from one buffer to another.
    pub(crate) fn copy_rows(self, from: BufId, to: BufId, width: usize) {
        let (from, mut to) = (self.source(from), self.target(to));
        for row in self.rows {
            to.row(row, width).copy_from_slice(from.row(row, width));
        }
    }
}

/// One thread's view of the step.
pub(crate) struct Thread<'a> {
    pub step: &'a Step<'a>,
    pub input: Input<'a>,
    /// The part of the step, and who is told of the experts that it chooses.
    pub part: usize,
    pub tally: Option<&'a Tally>,
    /// Rows of logits and hidden states before this part's.
    pub logits_before: usize,
    pub hidden_before: usize,
    /// Which of two alternating buffers this part of the step uses.
    pub turn: usize,
    /// The node of the graph whose tensors it works on.
    pub node: usize,
    /// Where its team's buffers lie.
    pub place: usize,
    /// Its group, whose memory is near.
    pub group: usize,
    /// Its number in the team, and the team's size.
    pub rank: usize,
    pub size: usize,
    /// Its number in the pool.
    pub id: usize,
    /// Its share of the step's tokens, and of its outputs.
    pub shares: [Range<usize>; 2],
}

impl Thread<'_> {
    /// Rows of a domain in this step.
    pub(crate) fn count(&self, domain: Domain) -> usize {
        match domain {
            Domain::Tokens => self.input.tokens.len(),
            Domain::Outputs => self.input.outputs.len(),
            Domain::Slots(each) => each * self.input.tokens.len(),
        }
    }

    /// The rows that this thread works on.
    pub(super) fn rows(&self, domain: Domain, work: Work) -> Range<usize> {
        match (work, domain) {
            (Work::Private, _) => 0..self.count(domain),
            (Work::Rows, Domain::Tokens) => self.shares[0].clone(),
            (Work::Rows, Domain::Outputs) => self.shares[1].clone(),
            (Work::Rows, Domain::Slots(each)) => {
                self.shares[0].start * each..self.shares[0].end * each
            }
        }
    }

    /// Where the buffers of the graph's node `node` lie.
    pub(crate) fn place_of(&self, node: usize) -> usize {
        if self.step.tables.nodes() == 1 { self.place } else { node }
    }
}
