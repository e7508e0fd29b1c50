//! What steps cost by the book: waits, bytes streamed, bytes exchanged between places.
//!
//! The book follows from the programs and the shapes of the steps, so it can be held against what
//! the pool, the kernel and the machine's counters have measured.

use crate::builder::Graph;
use crate::cache::{Cache, KV_CLASSES};
use crate::compile::{Stage, count_waits};
use crate::exec::{Part, Replica};
use crate::instr::{Gather, Instr, Kind};
use crate::op::Op;
use crate::placement::Cut;
use crate::plan::{Mode, Plan};
use crate::stages::Spans;
use crate::step::Seen;
use crate::storage::Limits;
use crate::tensor::Domain;
use kernels::TILE_ROWS;
use std::ops::Range;

/// Sums over all steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps.
    pub steps: u64,
    /// Tokens in them.
    pub tokens: u64,
    /// One entry per place.
    pub places: Vec<PlaceCounts>,
    /// Waits of each thread that took part, by the level of the steps ([`Plan::level`]):
    /// `[level][place]`.
    pub waits: Vec<Vec<WaitCounts>>,
}

/// Waits of one thread.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// For its group.
    pub local: u64,
    /// For all groups.
    pub global: u64,
}

impl std::ops::AddAssign for WaitCounts {
    fn add_assign(&mut self, other: WaitCounts) {
        self.local += other.local;
        self.global += other.global;
    }
}

/// What the team of one place did. Bytes are those of all its threads together.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    /// Bytes of weights that were streamed.
    pub weights: u64,
    /// Bytes of keys and values that were read.
    pub kv: u64,
    /// Bytes that were read from or written to the memory of other places: summands, rows of the
    /// embedding, logits, the residual stream between stages.
    pub exchanged: u64,
}

/// What a program costs in one place.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Cost {
    weights: u64,
    exchanged_per_token: u64,
    exchanged_per_output: u64, // row of logits
    exchanged_per_hidden: u64,
    /// Of a key that a tile of tokens sees, by class.
    kv_per_key: [u64; KV_CLASSES],
    waits: WaitCounts,
}

impl Cost {
    /// The cost of `program` in `place` with the threads of a level.
    pub(crate) fn of(
        program: &[Stage],
        graph: &Graph,
        plan: &Plan,
        spans: &Spans,
        limits: Limits,
        (level, place): (usize, usize),
    ) -> Cost {
        let node = if graph.nodes() == 1 { 0 } else { place };
        let (waits, global) = count_waits(program);
        // One team of several groups: all of its waits are for all groups.
        let local = if plan.places() == 1 && plan.groups.len() > 1 { 0 } else { waits - global };
        let waits = WaitCounts { local: local as u64, global: (waits - local) as u64 };
        let mut cost = Cost { waits, ..Cost::default() };
        let caches = graph.caches.iter().enumerate();
        let held = caches.filter(|(c, _)| spans.len() == 1 || spans.holds_cache(graph, *c, place));
        for (_, Cache { heads, class }) in held {
            let token = heads.kv_len(node) * 2 * limits.kv.token_bytes(heads.dim);
            cost.kv_per_key[*class] += token as u64;
        }
        for instr in program.iter().flat_map(|s| &s.instrs) {
            cost.weights += instr.matrix().map_or(0, |m| graph.matrix(m).node_bytes(node)) as u64;
            let bytes = exchanged(instr, graph, plan, (level, place)) as u64;
            match (&instr.kind, instr.domain) {
                (Kind::Hidden { .. }, _) => cost.exchanged_per_hidden += bytes,
                (_, Domain::Tokens) => cost.exchanged_per_token += bytes,
                (_, Domain::Outputs) => cost.exchanged_per_output += bytes,
            }
        }
        cost
    }
}

/// Bytes per row that an instruction moves between `place` and others. What rows of the embedding
/// cost depends on the tokens and is left to [`Counts::add`].
fn exchanged(instr: &Instr, graph: &Graph, plan: &Plan, (level, place): (usize, usize)) -> usize {
    let (nodes, float) = (graph.nodes(), size_of::<f32>());
    let slot = |width: usize| width.next_multiple_of(TILE_ROWS) * float;
    match &instr.kind {
        Kind::MatMul { matrix, push: true, splits, .. } => {
            let m = graph.matrix(*matrix);
            let roots = m.sum(*splits).map_or(0, |s| s.slots[place.min(nodes - 1)].len());
            roots * slot(m.parts[0].rows) * (nodes - 1)
        }
        Kind::MatMul { matrix, squares: Some(_), .. } => {
            let held = |cut: &Cut| cut.first_held(place.min(nodes - 1)).len();
            let rows: usize = graph.matrix(*matrix).parts[..2].iter().map(|p| held(&p.cut)).sum();
            rows / TILE_ROWS * float * (nodes - 1)
        }
        Kind::Residual { gather: Gather::Pull, width, sum, .. } if nodes > 1 => {
            (sum.roots() - sum.slots[place].len()) * slot(*width)
        }
        Kind::Residual { gather: Gather::Scatter, width, sum, .. } => {
            // The team's part of the rows: others' summands come, the sum goes to the others.
            let messages = sum.roots() - sum.slots[place].len() + nodes - 1;
            let groups = plan.group_threads_at(level);
            let threads = groups.last().map_or(1, |last| last.end);
            messages * slot(*width) * groups[place].len() / threads
        }
        Kind::Logits { matrix, .. } if place > 0 && nodes > 1 => {
            graph.matrix(*matrix).rows(0, place).len() * float
        }
        Kind::Logits { matrix, .. } if place > 0 && plan.mode == Mode::Pipeline => {
            graph.matrix(*matrix).parts[0].rows * float
        }
        Kind::Hidden { width, .. } if place > 0 && plan.mode == Mode::Pipeline => width * float,
        Kind::Send { width, .. } => width * float,
        _ => 0,
    }
}

impl Counts {
    /// Nothing yet.
    pub(crate) fn new(plan: &Plan) -> Counts {
        let places = vec![PlaceCounts::default(); plan.places()];
        let waits = vec![vec![WaitCounts::default(); plan.places()]; plan.levels().len()];
        Counts { places, waits, ..Counts::default() }
    }

    /// Waits of each thread of a place that takes part from a level on ([`Plan::first_level`]).
    pub fn waits_from(&self, level: usize, place: usize) -> WaitCounts {
        let mut all = WaitCounts::default();
        self.waits[level..].iter().for_each(|level| all += level[place]);
        all
    }

    /// Adds one step that was executed in `parts` by the threads of a level.
    pub(crate) fn add(&mut self, replica: &Replica, parts: &[Part<'_>], level: usize) {
        let plan = &replica.plan;
        self.steps += 1;
        let several = plan.places() > 1;
        let stages = if plan.mode == Mode::Pipeline { plan.groups.len() } else { 1 };
        // The switch to groups, and the meetings between rounds of a pipeline.
        let meetings = u64::from(several) + (parts.len() + stages - 2) as u64;
        for to in &mut self.waits[level] {
            to.global += meetings;
        }
        for part in parts {
            let (tokens, logits) = (part.input.tokens.len(), part.input.logits);
            let hidden = part.input.outputs.len() - logits;
            self.tokens += tokens as u64;
            let mut keys = [0; KV_CLASSES];
            for (keys, class) in keys.iter_mut().zip(&part.input.classes) {
                let of = |t: &Range<u32>| &class.seen[t.start as usize..t.end as usize];
                *keys = part.input.tiles.iter().map(|t| Seen::together(of(t))).sum::<u64>();
            }
            self.add_embedding(replica, part);
            let costs = &replica.programs[&part.variant].costs[level];
            for (to, cost) in self.waits[level].iter_mut().zip(costs) {
                *to += cost.waits;
            }
            for (to, cost) in self.places.iter_mut().zip(costs) {
                to.weights += cost.weights;
                to.kv +=
                    cost.kv_per_key.iter().zip(keys).map(|(bytes, keys)| bytes * keys).sum::<u64>();
                to.exchanged += cost.exchanged_per_token * tokens as u64;
                to.exchanged += cost.exchanged_per_output * logits as u64;
                to.exchanged += cost.exchanged_per_hidden * hidden as u64;
            }
        }
    }

    /// Rows of the embedding that the places of `part`'s first operators fetch from others.
    fn add_embedding(&mut self, replica: &Replica, part: &Part<'_>) {
        let graph = &replica.graph;
        let tables = graph.ops.iter().filter_map(|n| match &n.op {
            Op::Embed { table, .. } => Some(*table),
            _ => None,
        });
        for table in tables {
            let matrix = &graph.matrix(table).parts[0];
            let row = (matrix.cols * size_of::<f32>()) as u64;
            let owner = |token: u32| match replica.plan.mode {
                Mode::TensorParallel => matrix.cut.owner(token as usize),
                Mode::Pipeline => replica.shelves.home(table),
                Mode::Mirror | Mode::Interleave | Mode::Off => 0,
            };
            // A pipeline embeds in its first stage, the others everywhere.
            let readers = if replica.plan.mode == Mode::Pipeline { 1 } else { self.places.len() };
            for token in &part.input.tokens {
                let owner = owner(token.id);
                let others = self.places[..readers].iter_mut().enumerate();
                others.filter(|(at, _)| *at != owner).for_each(|(_, to)| to.exchanged += row);
            }
        }
    }
}
