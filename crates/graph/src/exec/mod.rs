//! The executor's inner side: one thread walks the compiled stages.
//!
//! This is where blocks of memory become slices. The safety argument is the compiler's: every
//! instruction states what it touches (`Instr::accesses`), each thread touches only its share under
//! the instruction's deal, and between two conflicting accesses stands a wait of sufficient scope.

mod attention;
mod copies;
mod grid;
mod items;
mod keys;
mod matmul;
mod placing;
mod rows;
mod sums;
mod tree;
mod trial;

pub(crate) use attention::tile_tokens;
pub(crate) use copies::copy_pages;
use matmul::{After, NOTHING};
pub(crate) use matmul::{tiles_that_fit, tokens_that_fit};
use sums::Partials;
pub(crate) use trial::{Trial, time};

use crate::buffer::BufId;
use crate::builder::Graph;
use crate::compile::Stage;
use crate::counts::Cost;
use crate::deal::Dealt;
use crate::instr::{Gather, Instr, Kind, Work};
use crate::load::Shelves;
use crate::lower::Variant;
use crate::placement::share;
use crate::plan::{Mode, Plan};
use crate::profile::Watch;
use crate::step::{Input, Prepared};
use crate::storage::Places;
use crate::tensor::Domain;
use crate::weight::SplitBy;
use kernels::{Kernels, RowsMut};
use memory::Block;
use std::collections::HashMap;
use std::ops::Range;
use threads::{Scope, View, Worker};

/// What a group of threads looks up at every step: a replica of its own, so that nothing is read
/// from another node.
#[derive(Clone)]
pub(crate) struct Replica {
    pub graph: Graph,
    pub plan: Plan,
    pub programs: HashMap<Variant, Form>,
    pub places: Places,
    pub shelves: Shelves,
}

/// A replica in its group's own memory: even its first level must not lie beside the others'.
pub(crate) struct Near(Box<Replica>);

impl Near {
    /// Moves it to where the calling thread allocates.
    pub(crate) fn new(replica: Replica) -> Near {
        Near(Box::new(replica))
    }
}

impl std::ops::Deref for Near {
    type Target = Replica;

    fn deref(&self) -> &Replica {
        &self.0
    }
}

/// A graph in one form.
#[derive(Clone)]
pub(crate) struct Form {
    /// What the threads do: one program, or one for each stage of a pipeline.
    pub stages: Vec<Vec<Stage>>,
    /// What they cost at each level in each place.
    pub costs: Vec<Vec<Cost>>, // [level][place]
}

/// A part of a step.
#[derive(Copy, Clone)]
pub(crate) struct Part<'a> {
    pub input: &'a Prepared,
    pub variant: Variant,
    /// Rows of logits of the parts before.
    pub logits_before: usize,
    /// Their hidden states.
    pub hidden_before: usize,
}

/// A step as one thread sees it.
struct Step<'a> {
    graph: &'a Graph,
    kernels: &'static Kernels,
    plan: &'a Plan,
    storage: &'a Places,
    weights: &'a Shelves,
    /// Which threads take part ([`Plan::level`]).
    level: usize,
    /// The thread's number among all that do, and how many they are.
    among: (usize, usize),
    /// How every product is dealt while one way is tried ([`trial`]).
    trial: Option<Dealt<'a>>,
}

/// Runs a step, whose parts follow each other (there is one except in a pipeline), as one thread of
/// those that take part at its level. `replicas` are those of the groups; `watch` hears of it.
pub(crate) fn run<W: Watch>(
    replicas: &[Near],
    kernels: &'static Kernels,
    (parts, level): (&[Part<'_>], usize),
    worker: &mut Worker,
    watch: &mut W,
) {
    let among = (worker.rank(), worker.size());
    let Replica { graph, plan, programs, places, shelves } = &*replicas[worker.home()];
    let (storage, weights, trial) = (places, shelves, None);
    let step = Step { graph, kernels, plan, storage, weights, level, among, trial };
    if plan.places() > 1 {
        worker.switch(View::Groups);
        watch.met();
    }
    let stages = if plan.mode == Mode::Pipeline { plan.groups.len() } else { 1 };
    let stage = if stages > 1 { worker.group() } else { 0 };
    let rounds = parts.len() + stages - 1;
    for round in 0..rounds {
        // In round r, stage s works on part r - s.
        if let Some(at) = round.checked_sub(stage).filter(|&at| at < parts.len()) {
            let program = &programs[&parts[at].variant].stages[stage];
            watch.part(at);
            walk(&step, parts[at], at % 2, program, worker, watch);
        }
        if round + 1 < rounds {
            worker.wait(Scope::Global);
            watch.met();
        }
    }
}

fn walk<W: Watch>(
    step: &Step<'_>,
    part: Part<'_>,
    turn: usize,
    program: &[Stage],
    worker: &mut Worker,
    watch: &mut W,
) {
    let thread = Thread::new(step, part, turn, worker);
    for stage in program {
        for instr in &stage.instrs {
            thread.execute(instr, worker);
            watch.done();
        }
        if let Some(wait) = &stage.wait {
            worker.wait(wait.scope);
            watch.done();
        }
    }
}

/// f32 of kernel scratch that a thread needs for `stages`.
pub(crate) fn scratch_len<'a>(graph: &Graph, stages: impl Iterator<Item = &'a Stage>) -> usize {
    let attention =
        graph.caches.iter().map(|c| attention::scratch_len(&c.heads)).max().unwrap_or(0);
    let sums = stages.flat_map(|s| &s.instrs).filter_map(|i| match &i.kind {
        Kind::Residual { sum, width, finish, .. } => Some(sums::scratch_len(sum, *width, finish)),
        _ => None,
    });
    attention.max(matmul::SCRATCH).max(sums.max().unwrap_or(0))
}

/// One thread's view of the step.
struct Thread<'a> {
    step: &'a Step<'a>,
    input: Input<'a>,
    /// Rows of logits and hidden states before this part's.
    logits_before: usize,
    hidden_before: usize,
    /// Which of two alternating buffers this part of the step uses.
    turn: usize,
    /// The node of the graph whose tensors it works on.
    node: usize,
    /// Where its team's buffers lie.
    place: usize,
    /// Its group, whose memory is near.
    group: usize,
    /// Its number in the team, and the team's size.
    rank: usize,
    size: usize,
    /// Its number in the pool.
    id: usize,
}

impl<'a> Thread<'a> {
    fn new(step: &'a Step<'a>, part: Part<'a>, turn: usize, worker: &Worker) -> Thread<'a> {
        let place = worker.group();
        Thread {
            step,
            input: part.input.input(),
            logits_before: part.logits_before,
            hidden_before: part.hidden_before,
            turn,
            node: if step.graph.nodes() == 1 { 0 } else { place },
            place,
            group: worker.home(),
            rank: worker.rank(),
            size: worker.size(),
            id: worker.thread(),
        }
    }

    fn execute(&self, instr: &Instr, worker: &mut Worker) {
        let domain = instr.domain;
        match &instr.kind {
            Kind::RopeTable { rope, out } => self.rope_table(*rope, *out),
            Kind::Embed { table, scale, out } => self.embed(*table, *scale, *out),
            Kind::Receive { from, out, width, work } => {
                let from = from[self.turn];
                for row in self.rows(domain, *work) {
                    self.row_mut(*out, row, *width).copy_from_slice(self.row(from, row, *width));
                }
            }
            Kind::Send { x, to, width, .. } => {
                let (to, next) = (to[self.turn], self.place + 1);
                let (to, stride) = (self.step.storage.on(to, next), self.stride(to, next));
                for row in self.rows(domain, Work::Rows) {
                    let from = self.row(*x, row, *width);
                    let mut to = self.columns_of(to, stride, row..row + 1, 0..*width);
                    to.row_mut(0).copy_from_slice(from);
                }
            }
            Kind::Load { x, out, width } => {
                for row in 0..self.count(domain) {
                    self.row_mut(*out, row, *width).copy_from_slice(self.row(*x, row, *width));
                }
            }
            Kind::Norm { x, norm, out, work } => {
                self.norm(*x, norm, *out, self.rows(domain, *work));
            }
            Kind::Quantize { x, kind, matrix, out, work } => {
                let cols = self.step.graph.matrix(*matrix).input_width(self.node);
                self.quantize(*x, *kind, cols, *out, self.rows(domain, *work));
            }
            Kind::MatMul { acts, matrix, activation, out, push, splits, squares } => {
                let rows = self.count(domain);
                match self.step.graph.matrix(*matrix).split {
                    SplitBy::Rows => {
                        let after = After { activation: *activation, squares: *squares, ..NOTHING };
                        self.matmul(*acts, *matrix, after, *out, rows);
                    }
                    SplitBy::Cols => {
                        self.matmul_partial(*acts, *matrix, *out, (*push, *splits), rows);
                    }
                }
            }
            Kind::Logits { acts, matrix, scale, cap, out } => {
                let after = After { scale: *scale, cap: *cap, ..NOTHING };
                self.matmul(*acts, *matrix, after, *out, self.input.logits);
            }
            // Every node has them all.
            Kind::Hidden { .. } if self.node > 0 => {}
            Kind::Hidden { x, out, width } => {
                let (logits, before) = (self.input.logits, self.hidden_before);
                for row in self.rows(domain, Work::Rows).filter(|row| *row >= logits) {
                    let from = self.row(*x, row, *width);
                    self.row_mut(*out, before + row - logits, *width).copy_from_slice(from);
                }
            }
            Kind::Gated { acts, matrix, activation, out } => {
                self.gated(*acts, *matrix, *activation, *out, self.count(domain));
            }
            Kind::Prepare { qkv, place, spec, .. } => self.prepare(*qkv, *place, spec),
            Kind::AttendFused { qkv, place, spec, out, .. } => {
                self.attend_fused(*qkv, *place, spec, *out, worker);
            }
            Kind::AttendSplit { qkv, place, append, spec, states, .. } => {
                self.attend_split(*qkv, *place, *append, spec, *states);
            }
            Kind::Join { states, spec, out, work } => {
                self.join(*states, spec, *out, self.rows(domain, *work));
            }
            Kind::Residual { x, partial, finish, out, width, work, gather, sum } => {
                let pushed = *gather == Gather::Push;
                let parts = Partials { buf: *partial, pushed, sum, finish };
                let (rows, width) = (self.rows(domain, *work), *width);
                match gather {
                    Gather::Push | Gather::Pull => self.residual(*x, parts, *out, width, rows),
                    Gather::Scatter => self.scatter(*x, parts, *out, width, self.count(domain)),
                }
            }
            Kind::Select { x, out, width, work } => {
                for row in self.rows(domain, *work) {
                    let from = self.input.outputs[row] as usize;
                    self.row_mut(*out, row, *width).copy_from_slice(self.row(*x, from, *width));
                }
            }
        }
    }

    /// Rows of a domain in this step.
    fn count(&self, domain: Domain) -> usize {
        match domain {
            Domain::Tokens => self.input.tokens.len(),
            Domain::Outputs => self.input.outputs.len(),
        }
    }

    /// The rows that this thread works on.
    fn rows(&self, domain: Domain, work: Work) -> Range<usize> {
        let count = self.count(domain);
        match work {
            Work::Private => 0..count,
            Work::Rows => share(count, self.size, self.rank),
        }
    }

    fn block(&self, buf: BufId) -> Block {
        self.step.storage.of(buf, self.place, self.id)
    }

    /// Where the buffers of the graph's node `node` lie.
    fn place_of(&self, node: usize) -> usize {
        if self.step.graph.nodes() == 1 { self.place } else { node }
    }

    /// Bytes from one row of a buffer to the next, in `place`.
    fn stride(&self, buf: BufId, place: usize) -> usize {
        self.step.storage.stride(buf, place)
    }

    /// The bytes of one row.
    fn row_block(&self, buf: BufId, row: usize) -> Block {
        let stride = self.stride(buf, self.place);
        self.block(buf).sub(row * stride, stride)
    }

    /// Row `row` of a buffer of f32, for reading.
    fn row(&self, buf: BufId, row: usize, width: usize) -> &'a [f32] {
        // SAFETY: `buf` is among this instruction's reads, and no thread writes it before the next
        // wait unless it is this one (the module's argument).
        let row = unsafe { self.row_block(buf, row).as_slice::<f32>() };
        &row[..width]
    }

    /// Row `row` of a buffer of f32, for writing; only for rows that are this thread's share.
    fn row_mut(&self, buf: BufId, row: usize, width: usize) -> &'a mut [f32] {
        // SAFETY: the row belongs to this thread under the instruction's deal, or the buffer is its
        // own; callers hold one such slice of a row at a time.
        let row = unsafe { self.row_block(buf, row).as_mut_slice::<f32>() };
        &mut row[..width]
    }

    /// The first `bytes` bytes of row `row` of a quantised buffer, for writing; only for rows that are
    /// this thread's share.
    fn bytes_mut(&self, buf: BufId, row: usize, bytes: usize) -> &'a mut [u8] {
        // SAFETY: as in `row_mut`.
        let row = unsafe { self.row_block(buf, row).as_mut_slice::<u8>() };
        &mut row[..bytes]
    }

    /// Columns `cols` of rows `rows` of a buffer of f32, for writing.
    fn columns(&self, buf: BufId, rows: Range<usize>, cols: Range<usize>) -> RowsMut<'a, f32> {
        self.columns_of(self.block(buf), self.stride(buf, self.place), rows, cols)
    }

    /// The same of the copy of the graph's node `node`.
    fn columns_on(
        &self,
        node: usize,
        buf: BufId,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> RowsMut<'a, f32> {
        let place = self.place_of(node);
        self.columns_of(self.step.storage.on(buf, place), self.stride(buf, place), rows, cols)
    }

    fn columns_of(
        &self,
        block: Block,
        stride: usize,
        rows: Range<usize>,
        cols: Range<usize>,
    ) -> RowsMut<'a, f32> {
        let stride = stride / size_of::<f32>();
        assert!(cols.end <= stride && rows.end * stride * size_of::<f32>() <= block.len());
        let at = rows.start * stride + cols.start;
        debug_assert!(block.addr().is_multiple_of(align_of::<f32>()));
        #[expect(clippy::cast_ptr_alignment, reason = "buffers begin on cache lines")]
        let start = block.as_ptr().cast::<f32>();
        // SAFETY: the columns lie inside the block (checked above) and are this thread's share.
        unsafe {
            let ptr = start.add(at);
            RowsMut::from_raw_parts(ptr, rows.len(), cols.len(), stride)
        }
    }

    /// This thread's kernel scratch.
    fn scratch(&self) -> &'a mut [f32] {
        // SAFETY: the block is this thread's own, and each instruction takes it once.
        unsafe { self.step.storage.scratch(self.id).as_mut_slice::<f32>() }
    }
}
