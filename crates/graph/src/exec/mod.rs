//! The executor's inner side: one thread walks the compiled stages.
//!
//! [`Thread::execute`] hands every instruction a [`Run`], which gives views of the buffers that it declares (see
//! [`access`]).

mod access;
mod attention;
mod by_head;
mod copies;
mod grid;
mod items;
mod keys;
mod low;
mod matmul;
mod pieces;
mod placing;
mod rows;
mod shadow;
mod slots;
mod squares;
mod tree;
mod trial;

pub(crate) use access::{Source, StatePages, Target};
pub(crate) use attention::tile_tokens;
pub(crate) use copies::{copy_pages, page_bytes, read_page, write_page};
pub(crate) use low::{A_ROWS, B_ROWS, LowSums, as_usize};
pub(crate) use matmul::{
    After, Area, Epilogue, Gated, NOTHING, PANEL_PRODUCT, Partial, SCRATCH, blocks, columns, copy,
    pieces,
};
pub(crate) use matmul::{tiles_that_fit, tokens_that_fit};
pub(crate) use pieces::deal_pieces;
pub(crate) use placing::{HeadInputs, Layer};
pub(crate) use rows::keep;
pub(crate) use shadow::Shadow;
pub(crate) use slots::{CHUNK, Chosen, Slots, sorting_room};
pub(crate) use tree::{LEVELS, Tree};
pub(crate) use trial::{Trial, time};

use crate::book::Cost;
use crate::buffer::BufId;
use crate::builder::Graph;
use crate::claims::Work;
use crate::compile::Stage;
use crate::deal::Dealt;
use crate::instr::Instr;
use crate::load::WeightTable;
use crate::placement::share;
use crate::plan::{Mode, Plan};
use crate::profile::Watch;
use crate::state::State;
use crate::step::{Input, StepInput};
use crate::storage::{Places, Scratch};
use crate::tally::Tally;
use crate::tensor::Domain;
use crate::variant::Variant;
use crate::weight::VectorId;
use access::Grant;
use kernels::Kernels;
use shadow::Moment;
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
    pub weight_table: WeightTable,
}

/// A replica in its group's own memory: even its first level must not lie beside the others'.
pub(crate) struct LocalReplica(Box<Replica>);

impl LocalReplica {
    /// Moves it to where the calling thread allocates.
    pub(crate) fn new(replica: Replica) -> LocalReplica {
        LocalReplica(Box::new(replica))
    }
}

impl std::ops::Deref for LocalReplica {
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
pub(crate) struct StepPart<'a> {
    pub input: &'a StepInput,
    pub variant: Variant,
    /// Rows of logits of the parts before.
    pub logits_before: usize,
    /// Their hidden states.
    pub hidden_before: usize,
    /// Which part it is, and who is told of the experts that it chooses.
    pub at: usize,
    pub tally: Option<&'a Tally>,
}

/// A step as one thread sees it.
pub(crate) struct Step<'a> {
    pub graph: &'a Graph,
    pub kernels: &'static Kernels,
    pub plan: &'a Plan,
    pub storage: &'a Places,
    pub weights: &'a WeightTable,
    /// Which threads take part ([`Plan::level`]).
    pub level: usize,
    /// The thread's number among all that do, and how many they are.
    pub among: (usize, usize),
    /// How every product is dealt while one way is tried ([`trial`]).
    pub trial: Option<Dealt<'a>>,
    /// Whether threads take over tiles of products ([`Stage::shared`]).
    pub shares: bool,
    /// f32 at the end of scratch that are for products with adapters.
    pub low_scratch: usize,
}

/// Runs a step, whose parts follow each other (there is one except in a pipeline), as one thread of
/// those that take part at its level. `replicas` are those of the groups; `watch` hears of it.
pub(crate) fn run<W: Watch>(
    replicas: &[LocalReplica],
    kernels: &'static Kernels,
    parts: &[StepPart<'_>],
    level: usize,
    shares: bool,
    worker: &mut Worker,
    watch: &mut W,
) {
    let among = (worker.rank(), worker.size());
    let Replica { graph, plan, programs, places, weight_table } = &*replicas[worker.home()];
    let (storage, weights, trial) = (places, weight_table, None);
    let low_scratch = low::scratch_len(graph);
    let step =
        Step { graph, kernels, plan, storage, weights, level, among, trial, shares, low_scratch };
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
            let epoch = storage.shadow.as_ref().map(|shadow| shadow.epoch(round));
            walk(&step, parts[at], at % 2, epoch, program, worker, watch);
        }
        if round + 1 < rounds {
            worker.wait(Scope::Global);
            watch.met();
        }
    }
}

fn walk<W: Watch>(
    step: &Step<'_>,
    part: StepPart<'_>,
    turn: usize,
    epoch: Option<u64>,
    program: &[Stage],
    worker: &mut Worker,
    watch: &mut W,
) {
    let thread = Thread::new(step, part, turn, worker);
    let (mut waits, mut met) = (0, 0);
    for stage in program {
        let shared = stage.shared.filter(|_| step.shares);
        let moment = epoch.map(|epoch| Moment { epoch, waits, met });
        for (at, instr) in stage.instrs.iter().enumerate() {
            thread.execute(instr, worker, shared == Some(at), moment, watch);
            watch.done();
        }
        if let Some(wait) = &stage.wait {
            worker.wait(wait.scope);
            waits += 1;
            if wait.scope == Scope::Global {
                met = waits;
            }
            watch.done();
        }
    }
}

/// Scratch that a thread needs for `stages` in steps of up to `tokens` tokens.
pub(crate) fn scratch<'a>(
    graph: &Graph,
    stages: impl Iterator<Item = &'a Stage>,
    tokens: usize,
) -> Scratch {
    let attention =
        graph.states.iter().filter_map(State::heads).map(attention::scratch_len).max().unwrap_or(0);
    let floats = attention.max(matmul::SCRATCH);
    let instrs = stages.flat_map(|s| &s.instrs);
    let all = instrs.map(|instr| instr.does.scratch(graph, tokens));
    let all = all.fold(Scratch { floats, ..Scratch::default() }, Scratch::max);
    Scratch { floats: all.floats + low::scratch_len(graph), ..all }
}

/// What one thread does an instruction with.
pub(crate) struct Run<'r> {
    pub thread: &'r Thread<'r>,
    grant: &'r Grant<'r>,
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

    pub(crate) fn graph(&self) -> &'r Graph {
        self.thread.step.graph
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

impl<'a> Thread<'a> {
    fn new(step: &'a Step<'a>, part: StepPart<'a>, turn: usize, worker: &Worker) -> Thread<'a> {
        let (input, place) = (part.input.input(), worker.group());
        let (rank, size) = (worker.rank(), worker.size());
        let counts = [input.tokens.len(), input.outputs.len()];
        Thread {
            step,
            input,
            part: part.at,
            tally: part.tally,
            logits_before: part.logits_before,
            hidden_before: part.hidden_before,
            turn,
            node: if step.graph.nodes() == 1 { 0 } else { place },
            place,
            group: worker.home(),
            rank,
            size,
            id: worker.thread(),
            shares: counts.map(|count| share(count, size, rank)),
        }
    }

    /// Does the thread's part of an instruction; with `shared`, also what others of its group have not begun of theirs.
    fn execute<W: Watch>(
        &self,
        instr: &Instr,
        worker: &mut Worker,
        shared: bool,
        moment: Option<Moment>,
        watch: &W,
    ) {
        let domain = instr.domain;
        let grant = Grant::new(self.step.storage, instr, self.place, self.id, &self.shares, moment);
        let [floats, words, bytes] = self.step.storage.scratch(self.id);
        // SAFETY: the block is this thread's own, and this is the only slice of it.
        let scratch = unsafe { floats.as_mut_slice::<f32>() };
        // Its end is for products with adapters.
        let (scratch, room) = scratch.split_at_mut(scratch.len() - self.step.low_scratch);
        // SAFETY: as above.
        let (words, bytes) = unsafe { (words.as_mut_slice::<u32>(), bytes.as_mut_slice::<u8>()) };
        let rows = instr.work.map_or(0..0, |work| self.rows(domain, work));
        let (thread, grant) = (self, &grant);
        let run = Run { thread, grant, domain, rows, scratch, words, bytes, room, worker, shared };
        if let Some(squares) = watch.squares() {
            instr.does.sum_squares(&run, squares);
        }
        instr.does.run(run);
    }

    /// Rows of a domain in this step.
    pub(crate) fn count(&self, domain: Domain) -> usize {
        match domain {
            Domain::Tokens => self.input.tokens.len(),
            Domain::Outputs => self.input.outputs.len(),
            Domain::Slots(each) => each * self.input.tokens.len(),
        }
    }

    /// The rows that this thread works on.
    fn rows(&self, domain: Domain, work: Work) -> Range<usize> {
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
        if self.step.graph.nodes() == 1 { self.place } else { node }
    }
}
