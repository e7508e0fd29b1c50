//! What a model is compiled to for a plan.
//!
//! Weights, pages and the pool's threads belong to nodes and stay. Programs follow from the graph and from
//! how columns are cut; costs and shares follow from the threads of each level; activations have room for
//! what the programs write.

use crate::book::{Cost, Desk};
use crate::buffer::Buffers;
use crate::compile::{Stage, compile};
use crate::exec::{self, Form};
use crate::graph::Graph;
use crate::instr::Instr;
use crate::lower::lower;
use crate::places::Scratch;
use crate::plan::Plan;
use crate::stages::Spans;
use crate::storage::Limits;
use crate::variant::Variant;
use std::collections::HashMap;

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
