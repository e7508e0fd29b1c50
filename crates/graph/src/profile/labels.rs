//! What the events of compiled programs are and what each costs every thread, derived once.

use super::Demand;
use super::record::PartRecord;
use crate::buffer::Buffers;
use crate::cache::Cache;
use crate::compile::{Scope, Stage};
use crate::deal::{Dealt, Shard};
use crate::exec::Replica;
use crate::instr::{Instr, Kind};
use crate::lower::Variant;
use crate::placement::share;
use crate::plan::Mode;
use crate::schedule::{Grid, Seat};
use crate::storage::Limits;
use crate::tensor::Domain;
use crate::weight::{Matrix, MatrixId};
use kernels::{ActKind, Kernels, TILE_ROWS};
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
    seats: Vec<Vec<Chair>>,                      // [thread][level from its first on]
    first: Vec<usize>,                           // [thread], its first level
}

/// What a thread's share of the work follows from.
struct Chair {
    stage: usize,
    rank: usize,
    team: usize,
    products: Vec<Vec<Share>>, // [matrix], by runs of columns and tokens
    keys: Vec<Keys>,           // [cache]
}

/// What a thread multiplies of a matrix in products of up to so many tokens, whose columns are summed in so
/// many runs.
struct Share {
    splits: usize,
    tokens: usize,
    /// Its part of the tokens, of as many as the grid has, and the height of a register tile.
    grid: Grid,
    part: usize,
    tile: usize,
    /// What one token costs.
    one: Demand,
}

impl Share {
    fn demand(&self, rows: usize) -> Demand {
        let rows = self.grid.token_part(rows, self.part, self.tile).len() as u64;
        Demand {
            bytes: if rows > 0 { self.one.bytes } else { 0 }, // read once for all rows
            int8_macs: self.one.int8_macs * rows,
            bf16_macs: self.one.bf16_macs * rows,
            float_macs: self.one.float_macs * rows,
        }
    }
}

impl Labels {
    pub(super) fn new(
        replica: &Replica,
        kernels: &Kernels,
        buffers: &Buffers,
        limits: Limits,
    ) -> Labels {
        let mut labels = Labels::default();
        for (variant, form) in &replica.programs {
            let stages = form.stages.iter().map(|s| labels.program(replica, buffers, s)).collect();
            labels.programs.insert(*variant, stages);
        }
        for (group, threads) in replica.plan.group_threads().into_iter().enumerate() {
            for rank in 0..threads.len() {
                let first = replica.plan.first_level(group, rank);
                let levels = first..replica.plan.levels().len();
                let seat = |level| Chair::new((replica, kernels), limits, level, (group, rank));
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
                let (splits, rows) = (part.variant.splits, rows as usize);
                let fits = |s: &&Share| s.splits == splits && rows <= s.tokens;
                let share = seat.products[matrix.0 as usize].iter().find(fits);
                share.map_or_else(Demand::default, |share| share.demand(rows))
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

impl Chair {
    /// Where a thread sits in steps of a level, as the executor has it.
    fn new(
        (replica, kernels): (&Replica, &Kernels),
        limits: Limits,
        level: usize,
        (group, rank): (usize, usize),
    ) -> Chair {
        let Replica { graph, plan, .. } = replica;
        let place = if plan.places() > 1 { group } else { 0 };
        let node = if graph.nodes() == 1 { 0 } else { place };
        let team = plan.teams_at(level)[place].clone();
        let stage = if plan.mode == Mode::Pipeline { group } else { 0 };
        let rank = plan.group_threads_at(level)[group].start + rank - team.start;
        let at = (node, group, rank, team.len());
        let products = products((replica, kernels), (level, stage), at);
        let keys = |Cache { heads, class }: &Cache| Keys {
            class: *class,
            bytes: (heads.kv_len(node) * 2 * limits.kv.token_bytes(heads.dim)) as u64,
            // Scores, and the sum of values.
            float_macs: (heads.q_len(node) * heads.dim * 2) as u64,
        };
        let keys = graph.caches.iter().map(keys).collect();
        Chair { stage, rank, team: team.len(), products, keys }
    }
}

/// What a thread multiplies, of each matrix of its stage.
fn products(
    (replica, kernels): (&Replica, &Kernels),
    (level, stage): (usize, usize),
    (node, group, rank, team): (usize, usize, usize, usize),
) -> Vec<Vec<Share>> {
    let Replica { graph, programs, shelves, .. } = replica;
    let mut all: Vec<Vec<Share>> = graph.matrices.iter().map(|_| Vec::new()).collect();
    // All forms multiply by the same matrices.
    let program = programs.values().next().map(|form| &form.stages[stage]);
    let mut runs: Vec<usize> = programs.keys().map(|variant| variant.splits).collect();
    runs.sort_unstable();
    runs.dedup();
    for instr in program.into_iter().flatten().flat_map(|s| &s.instrs) {
        let Some(id) = instr.matrix() else { continue };
        let (shard, shares) = (shelves.shard(id, node, group), &mut all[id.0 as usize]);
        if !shares.is_empty() {
            continue;
        }
        for &splits in &runs {
            let rules = shard.rules(level);
            let share = |(tokens, dealt): (usize, Dealt<'_>)| {
                let grid = dealt.schedule.grid;
                let tile = shard.block(dealt.schedule.how, kernels, tokens).register;
                let seat = grid.seat(team, rank);
                let part = seat.map_or(0, |seat| seat.token);
                let one =
                    seat.map(|seat| one_token(graph.matrix(id), node, shard, dealt, seat, splits));
                Share { splits, tokens, grid, part, tile, one: one.unwrap_or_default() }
            };
            shares.extend(rules.map(share));
        }
    }
    all
}

/// What the product of one token with a thread's part of a matrix costs.
fn one_token(
    matrix: &Matrix,
    node: usize,
    shard: &Shard,
    dealt: Dealt<'_>,
    seat: Seat,
    splits: usize,
) -> Demand {
    let mut all = Demand::default();
    for (p, part) in shard.parts.iter().enumerate() {
        let own = shard.tiles(dealt.bounds, seat.row, p);
        let rows = matrix.rows(p, node).len();
        let row = |tile: usize| (tile * TILE_ROWS).min(rows); // the last tile may be padded
        let (grid, width) = (dealt.schedule.grid, part.cols);
        let (cols, bytes) = part.share(splits, |cols| grid.split_of(cols, width) == seat.split);
        let macs = ((row(own.end) - row(own.start)) * cols) as u64;
        all.bytes += (own.len() * bytes) as u64;
        match kernels::act_kind(part.ty) {
            ActKind::Q8 => all.int8_macs += macs,
            ActKind::Bf16 => all.bf16_macs += macs,
            ActKind::F32 => all.float_macs += macs,
        }
    }
    all
}
