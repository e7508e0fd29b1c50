//! The executor's inner side: one thread walks the compiled stages.
//!
//! [`Thread::execute`] hands every instruction views of the buffers that it declares (see [`access`]).

mod access;
mod attention;
mod by_head;
mod copies;
mod experts;
mod grid;
mod items;
mod keys;
mod low;
mod matmul;
mod placing;
mod recurrent;
mod rows;
mod squares;
mod streams;
mod sums;
mod tree;
mod trial;

pub(crate) use attention::tile_tokens;
pub(crate) use copies::{copy_pages, page_bytes, read_page, write_page};
use experts::{Chosen, Desk};
use low::Sums;
use matmul::{After, NOTHING};
pub(crate) use matmul::{tiles_that_fit, tokens_that_fit};
use sums::{Partials, Summands};
pub(crate) use trial::{Trial, time};

use crate::book::Cost;
use crate::builder::Graph;
use crate::compile::Stage;
use crate::deal::Dealt;
use crate::instr::{Finish, Gather, Instr, InstrKind, Work};
use crate::load::WeightTable;
use crate::lower::Variant;
use crate::placement::share;
use crate::plan::{Mode, Plan};
use crate::profile::Watch;
use crate::state::State;
use crate::step::{Input, StepInput};
use crate::storage::{Places, Scratch};
use crate::tally::Tally;
use crate::tensor::Domain;
use crate::weight::SplitBy;
use access::Grant;
use kernels::Kernels;
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
struct Step<'a> {
    graph: &'a Graph,
    kernels: &'static Kernels,
    plan: &'a Plan,
    storage: &'a Places,
    weights: &'a WeightTable,
    /// Which threads take part ([`Plan::level`]).
    level: usize,
    /// The thread's number among all that do, and how many they are.
    among: (usize, usize),
    /// How every product is dealt while one way is tried ([`trial`]).
    trial: Option<Dealt<'a>>,
    /// Whether threads take over tiles of products ([`Stage::shared`]).
    shares: bool,
    /// f32 at the end of scratch that are for products with adapters.
    low_scratch: usize,
}

/// Runs a step, whose parts follow each other (there is one except in a pipeline), as one thread of
/// those that take part at its level. `replicas` are those of the groups; `watch` hears of it.
pub(crate) fn run<W: Watch>(
    replicas: &[LocalReplica],
    kernels: &'static Kernels,
    (parts, level, shares): (&[StepPart<'_>], usize, bool),
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
    part: StepPart<'_>,
    turn: usize,
    program: &[Stage],
    worker: &mut Worker,
    watch: &mut W,
) {
    let thread = Thread::new(step, part, turn, worker);
    for stage in program {
        let shared = stage.shared.filter(|_| step.shares);
        for (at, instr) in stage.instrs.iter().enumerate() {
            thread.execute(instr, (worker, shared == Some(at)), watch);
            watch.done();
        }
        if let Some(wait) = &stage.wait {
            worker.wait(wait.scope);
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
    let of = |instr: &Instr| match &instr.kind {
        InstrKind::Residual { sum, also, width, finish, .. } => {
            let also = also.as_ref().map(|also| &also.sum);
            Scratch { floats: sums::scratch_len((sum, also), *width, finish), ..Scratch::default() }
        }
        InstrKind::Recurrence { spec, .. } => {
            Scratch { floats: recurrent::scratch_len(spec), ..Scratch::default() }
        }
        InstrKind::Concat { width, .. } => Scratch { floats: 2 * width, ..Scratch::default() },
        InstrKind::Streams { count, width, .. } => {
            Scratch { floats: streams::scratch_len(*count, *width), ..Scratch::default() }
        }
        _ => experts::room(graph, instr, tokens),
    };
    let instrs = stages.flat_map(|s| &s.instrs);
    let all = instrs.map(of).fold(Scratch { floats, ..Scratch::default() }, Scratch::max);
    Scratch { floats: all.floats + low::scratch_len(graph), ..all }
}

/// One thread's view of the step.
struct Thread<'a> {
    step: &'a Step<'a>,
    input: Input<'a>,
    /// The part of the step, and who is told of the experts that it chooses.
    part: usize,
    tally: Option<&'a Tally>,
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
    /// Its share of the step's tokens, and of its outputs.
    shares: [Range<usize>; 2],
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
    fn execute<W: Watch>(&self, instr: &Instr, (worker, shared): (&mut Worker, bool), watch: &W) {
        let domain = instr.domain;
        let grant = Grant::new(self.step.storage, instr, self.place, self.id, &self.shares);
        // SAFETY: every view below is of a buffer that the instruction declares, and what is done with
        // it stays in the thread's share: rows as `rows` gives them, tiles and items as they are
        // dealt. No two views of one buffer are used at a time.
        let source = |buf| unsafe { grant.source(buf) };
        // SAFETY: as above.
        let target = |buf| unsafe { grant.target(buf) };
        // SAFETY: as above. Tokens of a page are dealt to one thread, and a range that is appended to is
        // read by the item that appends.
        let pages = |buf, cache| unsafe { grant.pages(buf, cache) };
        if let Some(squares) = watch.squares() {
            self.sum_squares(instr, squares, source);
        }
        let [floats, words, bytes] = self.step.storage.scratch(self.id);
        // SAFETY: the block is this thread's own, and this is the only slice of it.
        let scratch = unsafe { floats.as_mut_slice::<f32>() };
        // Its end is for products with adapters.
        let (scratch, room) = scratch.split_at_mut(scratch.len() - self.step.low_scratch);
        // SAFETY: as above.
        let (words, bytes) = unsafe { (words.as_mut_slice::<u32>(), bytes.as_mut_slice::<u8>()) };
        let rows = instr.work.map_or(0..0, |work| self.rows(domain, work));
        match &instr.kind {
            InstrKind::RopeTable { rope, out } => self.rope_table(*rope, target(*out)),
            InstrKind::Embed { table, scale, added, insets, out } => {
                self.embed(*table, *scale, (*added, *insets), target(*out));
            }
            InstrKind::Receive { from, out, width } => {
                let (from, mut out) = (source(from[self.turn]), target(*out));
                for row in rows {
                    out.row(row, *width).copy_from_slice(from.row(row, *width));
                }
            }
            InstrKind::Send { x, to, width } => {
                let (x, mut to) = (source(*x), target(to[self.turn]));
                for row in rows {
                    let mut to = to.columns_on(self.place + 1, row..row + 1, 0..*width);
                    to.row_mut(0).copy_from_slice(x.row(row, *width));
                }
            }
            InstrKind::Load { x, out, width } => {
                let (x, mut out) = (source(*x), target(*out));
                for row in 0..self.count(domain) {
                    out.row(row, *width).copy_from_slice(x.row(row, *width));
                }
            }
            InstrKind::Norm { x, norm, out } => {
                self.norm(source(*x), norm, target(*out), rows);
            }
            InstrKind::Quantize { x, kind, matrix, out } => {
                self.quantize(source(*x), (*kind, *matrix), target(*out), rows, scratch);
            }
            InstrKind::LoraA { x, matrix, out, .. } => {
                self.lora_a(source(*x), (*matrix, domain), target(*out), room);
            }
            InstrKind::LoraB { low, matrix, out } => {
                let low = Sums { of: source(*low), matrix: *matrix, domain };
                self.lora_b(low, target(*out), room);
            }
            InstrKind::MatMul {
                acts,
                carried,
                matrix,
                activation,
                out,
                push,
                splits,
                told,
                low,
            } => {
                let (acts, mut out, rows) = (acts.map(source), target(*out), self.count(domain));
                let of = self.step.graph.matrix(*matrix);
                let carried = carried.map(source);
                let after = After { activation: *activation, ..NOTHING };
                let mut told = told.map(|(what, to)| (what, target(to)));
                let low = low.map(|low| Sums { of: source(low), matrix: *matrix, domain });
                self.product_of(*matrix, rows, shared.then_some(worker), |own| match of.split {
                    SplitBy::Rows if let Some(by_head) = &of.by_head => {
                        self.matmul_by_head(own, acts, carried, by_head, &mut out);
                    }
                    SplitBy::Rows => {
                        let then = (after, &mut told);
                        self.matmul(own, acts, *matrix, then, (low, &mut *room), &mut out);
                    }
                    SplitBy::Cols => {
                        let way = (*push, *splits);
                        self.matmul_partial(own, acts, *matrix, &mut out, way, scratch);
                    }
                });
            }
            InstrKind::Logits { acts, matrix, scale, cap, out, low } => {
                let after = After { scale: *scale, cap: *cap, ..NOTHING };
                let (acts, rows) = (acts.map(source), self.input.logits);
                let low = low.map(|low| Sums { of: source(low), matrix: *matrix, domain });
                let mut out = target(*out);
                self.product_of(*matrix, rows, shared.then_some(worker), |own| {
                    let then = (after, &mut None);
                    self.matmul(own, acts, *matrix, then, (low, &mut *room), &mut out);
                });
            }
            // Every node has them all.
            InstrKind::Hidden { .. } if self.node > 0 => {}
            InstrKind::Hidden { x, out, width, at } => {
                let (x, mut out) = (source(*x), target(*out));
                let (logits, before) = (self.input.logits, self.hidden_before);
                for row in rows.filter(|row| *row >= logits) {
                    let to = out.row(before + row - logits, at + width);
                    to[*at..].copy_from_slice(x.row(row, *width));
                }
            }
            InstrKind::Gated { acts, matrix, activation, out, low } => {
                let (acts, rows) = (acts.map(source), self.count(domain));
                let low = low.map(|low| Sums { of: source(low), matrix: *matrix, domain });
                let (of, mut out) = ((*matrix, *activation), target(*out));
                self.product_of(*matrix, rows, shared.then_some(worker), |own| {
                    self.gated(own, acts, of, (low, &mut *room), &mut out, scratch);
                });
            }
            InstrKind::Choose { scores, router, out } => {
                self.choose(source(*scores), router, target(*out), rows, scratch);
            }
            InstrKind::ExpertsUp { acts, chosen, count, bank, expert, route, out } => {
                let (acts, tokens) = (acts.map(source), self.count(domain));
                let chosen = Chosen { of: source(*chosen), count: *count, tokens };
                let desk = Desk { floats: scratch, words, bytes };
                self.experts_up(acts, chosen, (*bank, *expert, *route), target(*out), desk);
            }
            InstrKind::ExpertsDown { acts, chosen, count, bank, leaves, out, push, .. } => {
                let (acts, tokens) = (acts.map(source), self.count(domain));
                let chosen = Chosen { of: source(*chosen), count: *count, tokens };
                let desk = Desk { floats: scratch, words, bytes };
                let of = (*bank, &*leaves[self.node], *push);
                self.experts_down(acts, chosen, of, target(*out), desk);
            }
            InstrKind::Prepare { from, place, spec, cache } => {
                let place = place.map(source);
                let from = source(from.keys());
                self.prepare(from, place, spec, pages(*cache, spec.cache), scratch);
            }
            InstrKind::AttendFused { from, place, spec, out, cache } => {
                let (place, pages) = (place.map(source), pages(*cache, spec.cache));
                let out = target(*out);
                self.attend_fused(source(from.qkv), place, spec, &pages, out, scratch, worker);
            }
            InstrKind::AttendSplit { from, place, append, spec, states, cache } => {
                let (place, pages) = (place.map(source), pages(*cache, spec.cache));
                let states = target(*states);
                self.attend_split(source(from.qkv), place, *append, spec, pages, states, scratch);
            }
            InstrKind::Join { states, spec, out } => {
                self.join(source(*states), spec, target(*out), rows, scratch);
            }
            InstrKind::Convolution { x, state, spec, out } => {
                let state = pages(*state, spec.state);
                self.convolution(source(*x), spec, state, target(*out));
            }
            InstrKind::Recurrence { x, raw, state, spec, out, squares } => {
                let (from, state) = ((source(*x), source(*raw)), pages(*state, spec.state));
                let to = (target(*out), squares.map(target));
                self.recurrence(from, spec, state, to, scratch);
            }
            InstrKind::Tell { x, runs, unit, out, .. } => {
                let runs = &runs[self.node];
                self.tell_squares(source(*x), (runs, *unit), target(*out), rows);
            }
            InstrKind::Modulation { x, gate, squares, width, spec, out } => {
                let from = (source(*x), gate.map(source), squares.map(source));
                self.modulation(from, (spec, width[self.node]), target(*out), rows);
            }
            InstrKind::Blend { x, y, width, norm, scale, factor, out } => {
                let from = (source(*x), source(*y));
                self.blend(from, (norm, *scale, *factor), *width, target(*out), rows);
            }
            InstrKind::Streams { x, y, z, count, width, what, out } => {
                let from = (source(*x), y.map(source), z.map(source));
                let of = (what, *count, *width);
                self.streams(from, of, target(*out), rows, scratch);
            }
            InstrKind::Residual { x, partial, also, finish, out, width, gather, sum } => {
                let pushed = *gather == Gather::Push;
                let summands = Summands { of: source(*partial), pushed, sum };
                let delta = |finish: &Finish| {
                    finish.delta.map(|(of, matrix)| Sums { of: source(of), matrix, domain })
                };
                let first = Partials { summands, finish, delta: delta(finish), width: *width };
                let second = also.as_ref().map(|also| {
                    let summands = Summands { of: source(also.partial), pushed, sum: &also.sum };
                    let finish = &also.finish;
                    Partials { summands, finish, delta: delta(finish), width: *width }
                });
                let parts = (first, second);
                // The stream is mostly updated in place.
                let (x, out) = ((x != out).then(|| source(*x)), target(*out));
                match gather {
                    Gather::Push | Gather::Pull => {
                        self.residual(x, parts, out, rows, scratch);
                    }
                    Gather::Scatter => self.scatter(x, parts, out, self.count(domain), scratch),
                }
            }
            InstrKind::Remember { x, out, width } => {
                let (x, mut out) = (source(*x), target(*out));
                for row in rows {
                    out.row(row, *width).copy_from_slice(x.row(row, *width));
                }
            }
            InstrKind::Recall { from, out, width } => {
                self.recall(from.map(source), *width, target(*out), rows);
            }
            InstrKind::Concat { x, y, norms, width, matrix, out } => {
                let of = (norms, *width, *matrix);
                self.concat([source(*x), source(*y)], of, target(*out), rows, scratch);
            }
            InstrKind::Rows { x, from, matrix, width, out } => {
                let own = matrix.map(|m| self.step.graph.matrix(m).cols(0, self.node));
                let own = own.unwrap_or(0..*width);
                let columns = from + own.start..from + own.end;
                let x = x.filter(|x| x != out).map(source);
                let stays = matches!(&instr.kind, InstrKind::Rows { x: Some(x), .. } if x == out);
                self.insert_rows((x, stays), columns, target(*out), rows);
            }
            InstrKind::Merge { x, count, how, width, out } => {
                self.merge(source(*x), (*count, *how, *width), target(*out), rows);
            }
            InstrKind::Select { x, out, width } => {
                let (x, mut out) = (source(*x), target(*out));
                for row in rows {
                    let from = self.input.outputs[row] as usize;
                    out.row(row, *width).copy_from_slice(x.row(from, *width));
                }
            }
        }
    }

    /// Rows of a domain in this step.
    fn count(&self, domain: Domain) -> usize {
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
    fn place_of(&self, node: usize) -> usize {
        if self.step.graph.nodes() == 1 { self.place } else { node }
    }
}
