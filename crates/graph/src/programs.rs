//! What a model is compiled to for a plan, and how it is made anew when the plan of a loaded one changes.
//!
//! Weights, pages and the pool's threads belong to nodes and stay. Programs follow from the graph and from
//! how columns are cut; costs and shares follow from the threads of each level; activations have room for
//! what the programs write.

use crate::book::{Cost, Desk};
use crate::buffer::Buffers;
use crate::compile::{Stage, compile};
use crate::error::Error;
use crate::exec::{self, Form, LocalReplica, Replica, replicate};
use crate::executor::Executor;
use crate::graph::Graph;
use crate::instr::Instr;
use crate::lower::lower;
use crate::places::Scratch;
use crate::plan::Plan;
use crate::stages::Spans;
use crate::storage::{Limits, Room, Sizes};
use crate::switch::Levels;
use crate::variant::Variant;
use std::collections::HashMap;
use threads::Pool;

/// A graph in all forms that steps may ask for.
pub(crate) struct Compiled {
    pub programs: HashMap<Variant, Form>,
    pub buffers: Buffers,
    /// Scratch that a thread needs.
    pub scratch: Scratch,
}

impl Compiled {
    /// Compiles `graph`; `splits` are the numbers of runs in which columns are summed.
    pub(crate) fn new(
        graph: &Graph,
        plan: &Plan,
        spans: &Spans,
        limits: Limits,
        splits: &[usize],
    ) -> Compiled {
        let mut buffers = Buffers::new(graph.nodes(), graph.logits_width());
        let forms = splits.iter().flat_map(|&splits| {
            Variant::all(graph.nodes()).into_iter().map(move |form| Variant { splits, ..form })
        });
        // Predicting operators have forms of their own, beside the model's.
        let predicting = graph.predicting_ops();
        let forms = forms.flat_map(|v| {
            let predicts = predicting.is_some().then_some(Variant { predicts: true, ..v });
            let adapts = (!graph.tables.lows.is_empty()).then_some(Variant { adapts: true, ..v });
            [v].into_iter().chain(predicts).chain(adapts)
        });
        let lowered: Vec<(Variant, Vec<Vec<Instr>>)> = forms
            .map(|v| {
                let stages: Vec<_> = match predicting.clone().filter(|_| v.predicts) {
                    Some(ops) => vec![ops],
                    None => (0..spans.len()).map(|s| spans.ops(s)).collect(),
                };
                let lower = |ops| lower(graph, v, ops, &mut buffers);
                (v, stages.into_iter().map(lower).collect())
            })
            .collect();
        let programs: HashMap<Variant, Form> = lowered
            .into_iter()
            .map(|(v, instrs)| {
                let compile = |instrs| compile(instrs, &buffers, graph.nodes(), plan.sync);
                let stages: Vec<Vec<Stage>> = instrs.into_iter().map(compile).collect();
                let costs = costs(&stages, graph, plan, spans, limits);
                (v, Form { stages, costs })
            })
            .collect();
        let stages = programs.values().flat_map(|f| &f.stages).flatten();
        let scratch = exec::scratch(&graph.tables, stages, limits.tokens);
        Compiled { programs, buffers, scratch }
    }
}

/// What a program costs: `[level][place]`.
fn costs(
    stages: &[Vec<Stage>],
    graph: &Graph,
    plan: &Plan,
    spans: &Spans,
    limits: Limits,
) -> Vec<Vec<Cost>> {
    let home = |matrix| spans.of_matrix(graph, matrix);
    let cost = |level: usize, place: usize| {
        let desk = Desk { tables: &graph.tables, plan, kv: limits.kv, level, place, home: &home };
        Cost::of(&stages[place.min(stages.len() - 1)], &desk)
    };
    let of_level = |level| (0..plan.places()).map(|place| cost(level, place)).collect();
    (0..plan.levels().len()).map(of_level).collect()
}

impl Executor {
    /// Goes on by another plan with the same groups, but for their CPUs, which are those of `pool` if
    /// there is one. Sums in up to `splits` runs are made ready, or in as many as schedules ask for.
    /// Counts begin anew, a recording ends, and the last step's logits are gone.
    ///
    /// # Errors
    /// When the plan is malformed or a node has too little memory; nothing is changed then.
    pub(crate) fn adopt(
        &mut self,
        plan: Plan,
        pool: Option<Pool>,
        splits: usize,
    ) -> Result<(), Error> {
        let first = (*self.replicas[0]).clone();
        self.adopt_from(first, plan, pool, splits)?;
        self.whole = None;
        self.reset_counts(); // Replicas were made by the threads.
        Ok(())
    }

    /// The same with another graph or other weights in `first`; counts go on, and are to be made to fit.
    pub(crate) fn adopt_from(
        &mut self,
        mut first: Replica,
        plan: Plan,
        mut pool: Option<Pool>,
        splits: usize,
    ) -> Result<(), Error> {
        let spans = Spans::new(self.graph(), &plan)?;
        first.weight_table.arrange(&first.graph, &plan, self.kernels, splits)?;
        let mut asked = first.weight_table.splits_asked();
        asked.retain(|&own| own > splits);
        asked.splice(0..0, 1..=splits);
        let limits = self.limits();
        let compiled = Compiled::new(&first.graph, &plan, &spans, limits, &asked);
        let Compiled { programs, mut buffers, scratch } = compiled;
        // Declared before there is room: a model without a head has no operator that makes logits.
        let (logits, hidden) = (buffers.logits(), buffers.hidden(self.form.hidden));
        let sizes = Sizes { limits, private_rows: self.form.private_rows, scratch };
        // What has room already stays where it is.
        let fits = scratch == self.scratch && buffers.iter().eq(self.buffers.iter());
        let room = match fits {
            true => None,
            false => {
                let states = self.storage.places.states().to_vec();
                let room = Room::new(&first.graph, &buffers, &plan, sizes, states)?;
                let room = room.shadowed(&self.storage);
                let needs = room.arenas().filter_map(|a| Some((a.node()?, a.used() as u64)));
                memory::check_room(&self.machine, needs)?;
                Some(room)
            }
        };
        let places = room.as_ref().map_or_else(|| first.places.clone(), |room| room.places.clone());
        let mut levels = Levels::of(&plan, &first.weight_table);
        let replica = Replica { plan, programs, places, ..first };
        let replicas: Vec<LocalReplica> =
            replicate(replica, pool.as_mut().unwrap_or(&mut self.pool))?;
        // From here on nothing fails.
        match pool {
            Some(pool) => (self.pool, self.strayed) = (pool, false),
            None => levels.keep_forced(&self.levels),
        }
        (self.replicas, self.levels) = (replicas, levels);
        if let Some(room) = room {
            self.storage.move_to(room);
        }
        (self.logits, self.hidden) = (logits, hidden);
        (self.buffers, self.scratch) = (buffers, scratch);
        self.forced = self.forced.filter(|v| self.replicas[0].programs.contains_key(v));
        self.recorder = None;
        Ok(())
    }
}
