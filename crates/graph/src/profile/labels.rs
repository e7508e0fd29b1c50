//! What the events of compiled programs are and what each costs every thread, derived once.

use super::Demand;
use super::record::PartRecord;
use crate::buffer::Buffers;
use crate::cache::Cache;
use crate::compile::{Scope, Stage};
use crate::exec::Replica;
use crate::instr::{Instr, Kind};
use crate::lower::Variant;
use crate::placement::share;
use crate::plan::Mode;
use crate::storage::Limits;
use crate::tensor::Domain;
use crate::weight::MatrixId;
use kernels::{ActKind, TILE_ROWS};
use std::collections::HashMap;

/// Index of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u32);

/// One event of a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Label {
    Operator { name: Name, layer: Option<usize>, domain: Domain, cost: Cost },
    Wait { after: Name, layer: Option<usize>, scope: Scope, because: Name },
}

/// What an operator's bytes and products follow from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cost {
    /// The tiles that a thread multiplies, and the rows of the step.
    Matrix(MatrixId),
    /// The keys that the step's tokens see in this cache.
    Attention(usize),
    /// Nothing but activations.
    Nothing,
}

/// What attention to one key costs a team, in one layer.
#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    class: usize,
    bytes: u64,
    float_macs: u64,
}

/// All programs of an executor.
#[derive(Default)]
pub(super) struct Labels {
    names: Vec<String>,
    programs: HashMap<Variant, Vec<Vec<Label>>>, // [stage]
    seats: Vec<Vec<Seat>>,                       // [thread][level from its first on]
    first: Vec<usize>,                           // [thread], its first level
}

/// What a thread's share of the work follows from.
struct Seat {
    stage: usize,
    rank: usize,
    team: usize,
    tiles: Vec<Demand>, // [matrix], for one row
    keys: Vec<Keys>,    // [cache]
}

impl Labels {
    pub(super) fn new(replica: &Replica, buffers: &Buffers, limits: Limits) -> Labels {
        let mut labels = Labels::default();
        for (variant, form) in &replica.programs {
            let stages = form.stages.iter().map(|s| labels.program(replica, buffers, s)).collect();
            labels.programs.insert(*variant, stages);
        }
        for (group, threads) in replica.plan.group_threads().into_iter().enumerate() {
            for rank in 0..threads.len() {
                let first = replica.plan.first_level(group, rank);
                let levels = first..replica.plan.levels().len();
                let seat = |level| Seat::new(replica, limits, level, (group, rank));
                labels.seats.push(levels.map(seat).collect());
                labels.first.push(first);
            }
        }
        labels
    }

    /// Events of a program, those of the longest stage.
    pub(super) fn events(&self, variant: Variant) -> usize {
        self.programs[&variant].iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The events of `thread` in a part of that form.
    pub(super) fn program_of(&self, thread: usize, variant: Variant) -> &[Label] {
        // A thread's stage is the same at all levels.
        &self.programs[&variant][self.seats[thread][0].stage]
    }

    /// The lowest level of the steps that a thread takes part in.
    pub(super) fn first_level(&self, thread: usize) -> usize {
        self.first[thread]
    }

    pub(super) fn text(&self, name: Name) -> &str {
        &self.names[name.0 as usize]
    }

    /// What an operator costs `thread` in this part of a step.
    pub(super) fn demand(&self, thread: usize, cost: Cost, rows: u64, part: &PartRecord) -> Demand {
        let seat = &self.seats[thread][part.level as usize - self.first[thread]];
        match cost {
            Cost::Matrix(matrix) if rows > 0 => {
                let one = seat.tiles[matrix.0 as usize];
                Demand {
                    bytes: one.bytes, // read once for all rows
                    int8_macs: one.int8_macs * rows,
                    bf16_macs: one.bf16_macs * rows,
                    float_macs: one.float_macs * rows,
                }
            }
            Cost::Attention(cache) => {
                let share = |all: u64| share(all as usize, seat.team, seat.rank).len() as u64;
                let Keys { class, bytes, float_macs } = seat.keys[cache];
                let (bytes, float_macs) =
                    (share(part.keys[class] * bytes), share(part.pairs[class] * float_macs));
                Demand { bytes, float_macs, ..Demand::default() }
            }
            Cost::Matrix(_) | Cost::Nothing => Demand::default(),
        }
    }

    fn program(&mut self, replica: &Replica, buffers: &Buffers, program: &[Stage]) -> Vec<Label> {
        let mut labels = Vec::new();
        for stage in program {
            for instr in &stage.instrs {
                labels.push(self.operator(replica, instr));
            }
            if let Some(wait) = &stage.wait {
                let Some(Label::Operator { name: after, layer, .. }) = labels.last().copied()
                else {
                    unreachable!("a stage has instructions")
                };
                let because = self.name(&buffers.get(wait.because).name);
                labels.push(Label::Wait { after, layer, scope: wait.scope, because });
            }
        }
        labels
    }

    fn operator(&mut self, replica: &Replica, instr: &Instr) -> Label {
        let name = match &instr.kind {
            Kind::MatMul { matrix, .. } | Kind::Gated { matrix, .. } => {
                replica.graph.matrix(*matrix).name.as_str()
            }
            _ => instr.name(),
        };
        let cost = match (&instr.kind, instr.matrix()) {
            (_, Some(matrix)) => Cost::Matrix(matrix),
            (Kind::AttendFused { spec, .. } | Kind::AttendSplit { spec, .. }, _) => {
                Cost::Attention(spec.cache)
            }
            _ => Cost::Nothing,
        };
        let name = self.name(name);
        Label::Operator { name, layer: instr.layer, domain: instr.domain, cost }
    }

    fn name(&mut self, name: &str) -> Name {
        let at = self.names.iter().position(|n| n == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        Name(at as u32)
    }
}

impl Seat {
    /// Where a thread sits in steps of a level, as the executor has it.
    fn new(replica: &Replica, limits: Limits, level: usize, (group, rank): (usize, usize)) -> Seat {
        let Replica { graph, plan, .. } = replica;
        let place = if plan.places() > 1 { group } else { 0 };
        let node = if graph.nodes() == 1 { 0 } else { place };
        let team = plan.teams_at(level)[place].clone();
        let stage = if plan.mode == Mode::Pipeline { group } else { 0 };
        let rank = plan.group_threads_at(level)[group].start + rank - team.start;
        let tiles = tiles(replica, (level, stage), (node, group, rank));
        let keys = |Cache { heads, class }: &Cache| Keys {
            class: *class,
            bytes: (heads.kv_len(node) * 2 * limits.kv.token_bytes(heads.dim)) as u64,
            // Scores, and the sum of values.
            float_macs: (heads.q_len(node) * heads.dim * 2) as u64,
        };
        let keys = graph.caches.iter().map(keys).collect();
        Seat { stage, rank, team: team.len(), tiles, keys }
    }
}

/// What a thread multiplies one row with, of each matrix of its stage.
fn tiles(
    Replica { graph, programs, shelves, .. }: &Replica,
    (level, stage): (usize, usize),
    (node, group, rank): (usize, usize, usize),
) -> Vec<Demand> {
    let mut all = vec![Demand::default(); graph.matrices.len()];
    // All forms multiply by the same matrices.
    let program = programs.values().next().map(|form| &form.stages[stage]);
    for instr in program.into_iter().flatten().flat_map(|s| &s.instrs) {
        let Some(id) = instr.matrix() else { continue };
        let shard = shelves.shard(id, node, group);
        let paired = matches!(instr.kind, Kind::Gated { .. });
        let mut tiles = Demand::default();
        for (p, part) in shard.parts.iter().enumerate() {
            let own = shard.share(level, rank, p, paired);
            let rows = graph.matrix(id).rows(p, node).len();
            let row = |tile: usize| (tile * TILE_ROWS).min(rows); // the last tile may be padded
            let macs = ((row(own.end) - row(own.start)) * part.cols) as u64;
            tiles.bytes += (own.len() * part.tile_bytes()) as u64;
            match kernels::act_kind(part.ty) {
                ActKind::Q8 => tiles.int8_macs += macs,
                ActKind::Bf16 => tiles.bf16_macs += macs,
                ActKind::F32 => tiles.float_macs += macs,
            }
        }
        all[id.0 as usize] = tiles;
    }
    all
}
