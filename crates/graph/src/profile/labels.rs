//! What the events of compiled programs are and what each costs every thread, derived once.

use super::class::Class;
use super::marks::PartRecord;
use crate::book::{Demand, Desk, Owned, Per, RowsOf, product};
use crate::buffer::Buffers;
use crate::compile::{Scope, Stage};
use crate::deal::{Dealt, Shard};
use crate::exec::Replica;
use crate::graph::Graph;
use crate::instr::Instr;
use crate::placement::share;
use crate::plan::Mode;
use crate::shape::{Grid, Seat};
use crate::tensor::Domain;
use crate::variant::Variant;
use crate::weight::MatrixId;
use kernels::{Kernels, KvTypes, TILE_ROWS};
use std::collections::HashMap;
use std::ops::Range;

/// Index of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u32);

/// One event of a program.
#[derive(Clone, Debug)]
pub(super) enum Label {
    Operator { name: Name, class: Class, layer: Option<usize>, domain: Domain, cost: Cost },
    Wait { after: Name, layer: Option<usize>, scope: Scope, because: Name },
}

/// What an operator's bytes and products follow from.
#[derive(Clone, Debug)]
pub(super) enum Cost {
    /// The tiles that a thread multiplies, and the rows of the step.
    Product(MatrixId),
    /// What the team does, of which each thread has its share: terms of [`Labels::terms`].
    Team(Range<usize>),
}

/// All programs of an executor.
#[derive(Default)]
pub(super) struct Labels {
    names: Vec<String>,
    programs: HashMap<Variant, Vec<Vec<Label>>>, // [place]
    terms: Vec<(Per, Demand)>,
    work: Vec<Vec<ThreadWork>>, // [thread][level from its first on]
    first: Vec<usize>,          // [thread], its first level
}

/// What a thread's share of the work follows from.
struct ThreadWork {
    place: usize,
    rank: usize,
    team: usize,
    products: Vec<Vec<Share>>, // [matrix], by runs of columns and tokens
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
        // Weights are read once for all rows.
        Demand { bytes: self.one.bytes * rows.min(1), ..self.one.map(|macs| macs * rows) }
    }
}

impl Labels {
    pub(super) fn new(
        replica: &Replica,
        kernels: &Kernels,
        buffers: &Buffers,
        kv: KvTypes,
    ) -> Labels {
        let mut labels = Labels::default();
        let Replica { graph, plan, .. } = replica;
        let home = |matrix| replica.weight_table.home(matrix);
        for (variant, form) in &replica.programs {
            let of = |place: usize| {
                let program = &form.stages[place.min(form.stages.len() - 1)];
                // What attention costs is the same at all levels.
                let desk = Desk { tables: &graph.tables, plan, kv, level: 0, place, home: &home };
                labels.program(&desk, buffers, program)
            };
            let programs = (0..plan.places()).map(of).collect();
            labels.programs.insert(*variant, programs);
        }
        for (group, threads) in plan.group_threads().into_iter().enumerate() {
            for rank in 0..threads.len() {
                let first = plan.first_level(group, rank);
                let levels = first..plan.levels().len();
                let seat = |level| ThreadWork::new(replica, kernels, level, group, rank);
                labels.work.push(levels.map(seat).collect());
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
        // A thread's place is the same at all levels.
        &self.programs[&variant][self.work[thread][0].place]
    }

    /// The lowest level of the steps that a thread takes part in.
    pub(super) fn first_level(&self, thread: usize) -> usize {
        self.first[thread]
    }

    pub(super) fn text(&self, name: Name) -> &str {
        &self.names[name.0 as usize]
    }

    /// What an operator costs `thread` in this part of a step.
    pub(super) fn demand(
        &self,
        thread: usize,
        cost: &Cost,
        rows: u64,
        part: &PartRecord,
    ) -> Demand {
        let seat = &self.work[thread][part.level as usize - self.first[thread]];
        let mut demand = Demand::default();
        match cost {
            Cost::Product(matrix) if rows > 0 => {
                let (splits, rows) = (part.variant.splits, rows as usize);
                let fits = |s: &&Share| s.splits == splits && rows <= s.tokens;
                let share = seat.products[matrix.0 as usize].iter().find(fits);
                demand = share.map_or(demand, |share| share.demand(rows));
            }
            Cost::Product(_) => {}
            Cost::Team(terms) => {
                let own = |all: u64| share(all as usize, seat.team, seat.rank).len() as u64;
                for (per, one) in &self.terms[terms.clone()] {
                    let units = part.extent.units(*per);
                    demand += one.map(|figure| own(figure * units));
                }
            }
        }
        demand
    }

    fn program(&mut self, desk: &Desk<'_>, buffers: &Buffers, program: &[Stage]) -> Vec<Label> {
        let mut labels: Vec<Label> = Vec::new();
        for stage in program {
            // A scatter is a meeting of all groups, and a gather takes no time.
            for instr in stage.instrs.iter().filter(|instr| instr.view().is_none()) {
                labels.push(self.operator(desk, instr));
            }
            if let Some(wait) = &stage.wait {
                let Some(&Label::Operator { name: after, layer, .. }) = labels.last() else {
                    unreachable!("a stage has instructions")
                };
                let because = self.name(&buffers.get(wait.because).name);
                labels.push(Label::Wait { after, layer, scope: wait.scope, because });
            }
        }
        labels
    }

    fn operator(&mut self, desk: &Desk<'_>, instr: &Instr) -> Label {
        let cost = match instr.matrix() {
            Some(matrix) => Cost::Product(matrix),
            None => {
                let lines = instr.lines(desk).into_iter();
                let terms = lines.map(|line| (line.per, Demand::of(&line)));
                let first = self.terms.len();
                self.terms.extend(terms.filter(|(_, one)| *one != Demand::default()));
                Cost::Team(first..self.terms.len())
            }
        };
        let name = self.name(instr.does.label(desk.tables));
        let (class, layer, domain) = (Class::of(instr), instr.layer, instr.domain);
        Label::Operator { name, class, layer, domain, cost }
    }

    fn name(&mut self, name: &str) -> Name {
        let at = self.names.iter().position(|n| n == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        Name(at as u32)
    }
}

impl ThreadWork {
    /// Where a thread sits in steps of a level, as the executor has it.
    fn new(
        replica: &Replica,
        kernels: &Kernels,
        level: usize,
        group: usize,
        rank: usize,
    ) -> ThreadWork {
        let Replica { graph, plan, .. } = replica;
        let place = if plan.places() > 1 { group } else { 0 };
        let node = if graph.nodes() == 1 { 0 } else { place };
        let team = plan.teams_at(level)[place].clone();
        let stage = if plan.mode == Mode::Pipeline { group } else { 0 };
        let rank = plan.group_threads_at(level)[group].start + rank - team.start;
        let at = Position { level, stage, node, group, rank, team: team.len() };
        let products = products(replica, kernels, at);
        ThreadWork { place, rank, team: team.len(), products }
    }
}

/// A thread in steps of a level: the pipeline's stage, the graph's node, its group, its number in the team and the
/// team's size.
#[derive(Copy, Clone)]
struct Position {
    level: usize,
    stage: usize,
    node: usize,
    group: usize,
    rank: usize,
    team: usize,
}

/// What a thread multiplies, of each matrix of its stage.
fn products(replica: &Replica, kernels: &Kernels, at: Position) -> Vec<Vec<Share>> {
    let Position { level, stage, node, group, rank, team } = at;
    let Replica { graph, programs, weight_table, plan, .. } = replica;
    let mut all: Vec<Vec<Share>> = graph.tables.matrices.iter().map(|_| Vec::new()).collect();
    // All forms multiply by the same matrices, but for those that predict.
    let form = |predicts| programs.iter().find(|(variant, _)| variant.predicts == predicts);
    let forms = [false, true].into_iter().filter_map(form);
    let program = forms.map(|(_, form)| &form.stages[stage.min(form.stages.len() - 1)]);
    let mut runs: Vec<usize> = programs.keys().map(|variant| variant.splits).collect();
    runs.sort_unstable();
    runs.dedup();
    for instr in program.flatten().flat_map(|s| &s.instrs) {
        let Some(id) = instr.matrix() else { continue };
        let (shard, shares) = (weight_table.shard(id, node, group), &mut all[id.0 as usize]);
        if !shares.is_empty() {
            continue;
        }
        for &splits in &runs {
            let rules = shard.rules(level);
            let share = |(tokens, dealt): (usize, Dealt<'_>)| {
                let grid = dealt.schedule.grid;
                let block = shard.block(dealt.schedule.how, &plan.schedules, kernels, tokens);
                let tile = block.register;
                let seat = grid.seat(team, rank);
                let part = seat.map_or(0, |seat| seat.token);
                let one = seat.map(|seat| one_token(graph, id, node, shard, dealt, seat, splits));
                Share { splits, tokens, grid, part, tile, one: one.unwrap_or_default() }
            };
            shares.extend(rules.map(share));
        }
    }
    all
}

/// What the product of one token with a thread's part of a matrix costs.
fn one_token(
    graph: &Graph,
    id: MatrixId,
    node: usize,
    shard: &Shard,
    dealt: Dealt<'_>,
    seat: Seat,
    splits: usize,
) -> Demand {
    let matrix = graph.matrix(id);
    let owned = |p: usize| {
        let (part, own) = (&shard.parts[p], shard.tiles(dealt.bounds, seat.row, p));
        let rows = matrix.rows(p, node).len();
        let row = |tile: usize| (tile * TILE_ROWS).min(rows); // the last tile may be padded
        let (grid, width) = (dealt.schedule.grid, part.cols);
        let (cols, bytes) = part.share(splits, |cols| grid.split_of(cols, width) == seat.split);
        Owned { rows: row(own.end) - row(own.start), cols, bytes: own.len() * bytes }
    };
    let mut all = Demand::default();
    // Where it is read and of which rows makes no difference to one token.
    for line in product(id, matrix, 0, RowsOf::Tokens, owned) {
        all += Demand::of(&line);
    }
    all
}
