//! The executor's inner side: one thread walks the compiled stages.
//!
//! [`Thread::execute`] hands every instruction a [`Run`], which gives views of the buffers that it declares (see
//! [`access`]).

mod access;
mod areas;
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
mod replica;
mod rows;
mod shadow;
mod slots;
mod squares;
mod thread;
mod tree;
mod trial;

pub(crate) use access::{Source, Target};
pub(crate) use areas::{Area, PANEL_PRODUCT, SCRATCH, blocks, columns, copy, pieces};
pub(crate) use attention::tile_tokens;
pub(crate) use copies::{copy_pages, page_bytes, read_page, write_page};
pub(crate) use low::{A_ROWS, B_ROWS, LowSums, as_usize};
pub(crate) use matmul::{
    After, Epilogue, Gated, NOTHING, Partial, tiles_that_fit, tokens_that_fit,
};
pub(crate) use pieces::deal_pieces;
pub(crate) use placing::{HeadInputs, Layer};
pub(crate) use replica::{Form, LocalReplica, Replica, StepPart, replicate};
pub(crate) use rows::keep;
pub(crate) use shadow::Shadow;
pub(crate) use slots::{CHUNK, Chosen, Slots, sorting_room};
pub(crate) use thread::{Run, Step, Thread};
pub(crate) use tree::{LEVELS, Tree};
pub(crate) use trial::{Trial, time};

use crate::compile::Stage;
use crate::instr::Instr;
use crate::placement::share;
use crate::places::Scratch;
use crate::plan::Mode;
use crate::profile::Watch;
use crate::state::State;
use crate::tables::Tables;
use access::Grant;
use kernels::Kernels;
use shadow::Moment;
use threads::{Scope, View, Worker};

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
    let (tables, storage, weights) = (&graph.tables, places, weight_table);
    let trial = None;
    let low_scratch = low::scratch_len(tables);
    let step =
        Step { tables, kernels, plan, storage, weights, level, among, trial, shares, low_scratch };
    // Programs for several nodes begin with a scatter. A pipeline's are for one: its stages are what groups are for.
    if plan.mode == Mode::Pipeline && plan.places() > 1 {
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
    let pipeline = worker.view() == View::Groups;
    let mut thread = Thread::new(step, part, turn, worker);
    let (mut waits, mut met) = (0, 0);
    for stage in program {
        let shared = stage.shared.filter(|_| step.shares);
        let moment = epoch.map(|epoch| Moment { epoch, waits, met });
        for (at, instr) in stage.instrs.iter().enumerate() {
            thread.execute(instr, worker, shared == Some(at), moment, watch);
            match instr.view() {
                None => watch.done(),
                Some(view) => {
                    thread = Thread::new(step, part, turn, worker);
                    if view == View::Groups {
                        watch.met();
                    }
                }
            }
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
    // Every scatter has its gather.
    debug_assert_eq!(worker.view() == View::One, !pipeline, "the view after a program");
}

/// Scratch that a thread needs for `stages` in steps of up to `tokens` tokens.
pub(crate) fn scratch<'a>(
    tables: &Tables,
    stages: impl Iterator<Item = &'a Stage>,
    tokens: usize,
) -> Scratch {
    let attention = tables
        .states
        .iter()
        .filter_map(State::heads)
        .map(attention::scratch_len)
        .max()
        .unwrap_or(0);
    let floats = attention.max(SCRATCH);
    let instrs = stages.flat_map(|s| &s.instrs);
    let all = instrs.map(|instr| instr.does.scratch(tables, tokens));
    let all = all.fold(Scratch { floats, ..Scratch::default() }, Scratch::max);
    Scratch { floats: all.floats + low::scratch_len(tables), ..all }
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
            node: if step.tables.nodes() == 1 { 0 } else { place },
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
        let grant = Grant::new(
            self.step.storage,
            instr.claims(),
            self.place,
            self.id,
            &self.shares,
            moment,
        );
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
}
