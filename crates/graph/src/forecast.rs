//! What steps of a graph under a plan do, without weights, memory or threads.
//!
//! A [`Forecast`] lowers and compiles the form that the [`Executor`](crate::Executor) would choose for a step,
//! and gives its stages with what the book says of every instruction. A model of time walks them.
//!
//! Limits: sequences that do the same, all threads of the plan, no schedules.

use crate::book::{Desk, Extent, Line};
use crate::buffer::Buffers;
use crate::compile::{Scope, compile};
use crate::error::Error;
use crate::executor::{form_limits, query_tile};
use crate::graph::Graph;
use crate::instr::Instr;
use crate::keep::Keep;
use crate::lower::lower;
use crate::placement::share;
use crate::plan::{FormLimits, Mode, Plan, StepShape};
use crate::stages::Spans;
use crate::state::KvTypes;
use crate::variant::Variant;
use crate::weight::MatrixId;
use kernels::KV_CHUNK;
use std::ops::Range;

/// A graph under a plan.
pub struct Forecast<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    kv: KvTypes,
    spans: Spans,
    form: FormLimits,
}

/// What the threads of a program do without waiting for each other, and the wait that follows.
#[derive(Clone, Debug)]
pub struct TaskStage {
    /// In order.
    pub tasks: Vec<Task>,
    /// Who is waited for; `None` at the end of the step.
    pub wait: Option<Scope>,
}

/// An instruction, and what the team of each place of its program does for it.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its layer.
    pub layer: Option<usize>,
    /// The matrix that it multiplies by.
    pub matrix: Option<MatrixId>,
    /// `[place of the program]`
    pub lines: Vec<Vec<Line>>,
}

impl<'a> Forecast<'a> {
    /// A forecast for `sequences` sequences of up to `context` tokens each, whose keys and values are stored as `kv`.
    ///
    /// # Errors
    /// When a pipeline has more stages than layers.
    ///
    /// # Panics
    /// When the graph was built for another number of nodes than the plan wants.
    pub fn new(
        graph: &'a Graph,
        plan: &'a Plan,
        kv: impl Into<KvTypes>,
        context: usize,
        sequences: usize,
    ) -> Result<Forecast<'a>, Error> {
        let kv = kv.into();
        assert_eq!(plan.graph_nodes(), graph.nodes(), "the plan must fit the graph");
        let spans = Spans::new(graph, plan)?;
        let team_threads = plan.teams().iter().map(Range::len).max().unwrap_or(1);
        let ranges = graph.attention_states(context, sequences);
        let form = FormLimits { team_threads, ..form_limits(graph, plan, ranges, kv) };
        Ok(Forecast { graph, plan, kv, spans, form })
    }

    /// The parts of a step of `tokens` new tokens after `past` of each sequence, of which the last one's logits are
    /// wanted: the form in which each is executed, and what it touches. There is one, except in a pipeline,
    /// where one sequence comes in pieces, and of several each is whole.
    pub fn parts(&self, sequences: usize, tokens: usize, past: usize) -> Vec<(Variant, Extent)> {
        let pieces = match sequences {
            1 => self.plan.pieces(tokens),
            several => self.plan.pieces(several),
        };
        let part = |at: usize| {
            let (own, new, logits) = if sequences == 1 {
                let own = share(tokens, pieces, at);
                (1, (own.len(), past + own.start), usize::from(own.end == tokens))
            } else {
                let own = share(sequences, pieces, at).len();
                (own, (tokens, past), own)
            };
            let extent = Extent::batch(self.graph.classes(), own, new, logits);
            let shape = StepShape {
                tokens: own * new.0,
                outputs: logits,
                ranges: extent.ranges.into_iter().max().unwrap_or(0) as usize,
                tiles: own * new.0.div_ceil(query_tile(self.graph)),
                single: new.0 == 1,
            };
            (self.plan.variant(shape, self.form), extent)
        };
        (0..pieces).map(part).collect()
    }

    /// The stages of a form: one program whose teams walk it together, or, in a pipeline, one for each place.
    pub fn programs(&self, variant: Variant) -> Vec<Vec<TaskStage>> {
        let mut buffers = Buffers::new(self.graph.nodes(), self.graph.logits_width());
        let lowered: Vec<Vec<Instr>> = (0..self.spans.len())
            .map(|stage| lower(self.graph, variant, self.spans.ops(stage), &mut buffers))
            .collect();
        // One team of several groups: all of its waits are for all groups.
        let wide = self.plan.places() == 1 && self.plan.groups.len() > 1;
        let program = |(stage, instrs): (usize, Vec<Instr>)| {
            let places = match self.plan.mode {
                Mode::Pipeline => stage..stage + 1,
                _ => 0..self.plan.places(),
            };
            compile(instrs, &buffers, self.graph.nodes(), self.plan.sync)
                .iter()
                .map(|stage| TaskStage {
                    tasks: (stage.instrs.iter().filter(|instr| instr.view().is_none()))
                        .map(|instr| self.task(instr, places.clone()))
                        .collect(),
                    wait: (stage.wait.as_ref())
                        .map(|wait| if wide { Scope::Global } else { wait.scope }),
                })
                .collect()
        };
        lowered.into_iter().enumerate().map(program).collect()
    }

    /// Times that the threads of all groups meet in a step of so many parts, besides its programs' waits: the
    /// scatter, the rounds of a pipeline, the end of the step.
    pub fn meetings(&self, parts: usize) -> usize {
        usize::from(self.plan.places() > 1) + parts + self.spans.len() - 1
    }

    fn task(&self, instr: &Instr, places: Range<usize>) -> Task {
        let home = |matrix| self.spans.of_matrix(self.graph, matrix);
        let (graph, plan, kv, home) = (self.graph, self.plan, self.kv, &home);
        let level = plan.levels().len() - 1;
        let lines =
            |place| instr.lines(&Desk { tables: &graph.tables, plan, kv, level, place, home });
        let lines = places.map(lines).collect();
        Task { layer: instr.layer, matrix: instr.matrix(), lines }
    }
}

impl Graph {
    /// (Token, KV range) pairs that split attention has room for, in a model for so many sequences of up
    /// to `context` tokens: those of four tokens at least.
    pub fn attention_states(&self, context: usize, sequences: usize) -> usize {
        // A token sees so many ranges at most; a window may begin and end within one.
        let all = context.div_ceil(KV_CHUNK);
        let seen = |keep: &Keep| match keep {
            Keep::All | Keep::Text { near: None } | Keep::Runs => all,
            Keep::Text { near: Some(near) } => all.min((2 * near + 1).div_ceil(KV_CHUNK) + 1),
            Keep::Window(held) | Keep::Chunk(held) => all.min(held.div_ceil(KV_CHUNK) + 1),
            Keep::Fixed => 0,
        };
        self.classes().iter().map(seen).max().unwrap_or(0) * sequences.max(4)
    }
}
