//! `arclight graph`: one layer's compiled stages, for people.

use crate::book::{Desk, Extent, Memory, What};
use crate::buffer::{BufId, Buffer, Buffers, Home};
use crate::claims::{Reach, Work};
use crate::compile::{Stage, compile, count_waits};
use crate::graph::Graph;
use crate::instr::Instr;
use crate::lower::lower;
use crate::operator::Node;
use crate::plan::Plan;
use crate::variant::Variant;
use crate::weight::Matrix;
use std::fmt;
use threads::View;

/// The stages of one layer in one form.
pub struct LayerListing<'a> {
    graph: &'a Graph,
    layer: usize,
    stages: Vec<Stage>,
    streamed: Vec<Vec<u64>>, // [stage][node], bytes of weights
    views: Vec<String>,      // a line for each scatter and gather of the program
    buffers: Buffers,
    variant: Variant,
}

impl<'a> LayerListing<'a> {
    /// Compiles `graph` in form `variant` and keeps what belongs to `layer`.
    ///
    /// An instruction of the layer before that is folded into this layer's first stage (the
    /// residual sum) is listed with it.
    pub fn new(graph: &'a Graph, plan: &Plan, variant: Variant, layer: usize) -> LayerListing<'a> {
        let mut buffers = Buffers::new(graph.nodes(), graph.logits_width());
        let predicting = graph.predicting_ops().filter(|_| variant.predicts);
        let ops = predicting.unwrap_or_else(|| graph.model_ops());
        let instrs = lower(graph, variant, ops, &mut buffers);
        let mut stages = compile(instrs, &buffers, graph.nodes(), plan.sync);
        let views = views(&stages, graph.nodes());
        stages.retain(|s| s.instrs.last().is_some_and(|i| i.layer == Some(layer)));
        let streamed = |stage: &Stage, place: usize| -> u64 {
            let kv = kernels::KvType::F16.into(); // of no account to weights
            let desk = Desk { tables: &graph.tables, plan, kv, level: 0, place, home: &|_| 0 };
            let lines = stage.instrs.iter().flat_map(|instr| instr.lines(&desk));
            let weights = |what| matches!(what, What::Read(Memory::Weights(_), _));
            // Of experts, those that one token goes to.
            let one = Extent { tokens: 1, logits: 1, ..Extent::default() };
            let all = lines.filter(|line| weights(line.what));
            all.map(|line| line.amount * one.units(line.per)).sum()
        };
        let nodes = |stage| (0..graph.nodes()).map(|node| streamed(stage, node)).collect();
        let streamed = stages.iter().map(nodes).collect();
        LayerListing { graph, layer, stages, streamed, views, buffers, variant }
    }

    /// How the operators were appended to the static list, in runs of one mode.
    fn appended(&self) -> String {
        let runs = self.graph.ops.chunk_by(|a, b| a.append == b.append);
        let run = |run: &[Node]| match run {
            [one] => format!("{} ({})", one.append, one.op.name()),
            many => format!("{} ({} operators)", many[0].append, many.len()),
        };
        runs.map(run).collect::<Vec<_>>().join(", ")
    }

    /// `(all, global)` waits of the layer.
    pub fn waits(&self) -> (usize, usize) {
        count_waits(&self.stages)
    }

    /// What is done between waits, and the waits.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// A buffer that its instructions name.
    pub fn buffer(&self, id: BufId) -> &Buffer {
        self.buffers.get(id)
    }

    fn place(&self, instr: &Instr) -> String {
        if let Some(view) = instr.view() {
            return change(view, self.graph.nodes());
        }
        let homes = |write: bool| {
            let mut seen = Vec::new();
            for a in instr.accesses().iter().filter(|a| a.write == write) {
                let word = match (self.buffers.get(a.buffer).home, a.reach) {
                    (Home::Thread, _) => "private",
                    (Home::Host, _) => "whole",
                    (Home::Cache, _) => "kv pages",
                    (Home::Node, Reach::All) => "partial",
                    (Home::Node, _) => self.node_word(instr, write),
                };
                if !seen.contains(&word) {
                    seen.push(word);
                }
            }
            seen.join(", ")
        };
        format!("{} → {}", homes(false), homes(true))
    }

    /// What a node's shared copy is to the other nodes'.
    fn node_word(&self, instr: &Instr, write: bool) -> &'static str {
        use crate::weight::SplitBy;
        let split = instr.matrix().or(instr.bank()).map(|m| self.graph.matrix(m).split);
        let matrix = instr.matrix().map(|m| self.graph.matrix(m));
        let by_head = matrix.is_some_and(|m| m.by_head.is_some());
        let everywhere = |m: &Matrix| {
            (0..self.graph.nodes()).all(|node| m.rows(0, node).len() == m.parts[0].rows)
        };
        let everywhere = matrix.is_some_and(everywhere);
        match (split, write) {
            (Some(SplitBy::Rows), _) if by_head => "split",
            (Some(SplitBy::Rows), true) if everywhere => "replicated",
            (Some(SplitBy::Rows), true) => "split",
            (Some(SplitBy::Rows), false) => "replicated",
            (Some(SplitBy::Cols), true) => "partial",
            (Some(SplitBy::Cols), false) => "split",
            (None, _) if instr.does.is_split(&self.graph.tables) => "split",
            (None, _) => "replicated",
        }
    }
}

impl fmt::Display for LayerListing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.graph.nodes();
        let form = if self.variant.private_tokens { "decode" } else { "prefill" };
        let plural = if nodes == 1 { "" } else { "s" };
        write!(f, "layer {} in {form} form on {nodes} node{plural}", self.layer)?;
        match self.variant.splits {
            1 => writeln!(f)?,
            splits => writeln!(f, ", shared columns summed in {splits} runs on each")?,
        }
        writeln!(f)?;
        let mut totals = vec![0; nodes];
        for (at, stage) in self.stages.iter().enumerate() {
            for (i, instr) in stage.instrs.iter().enumerate() {
                let number = if i == 0 { format!("{:>3}", at + 1) } else { "   ".to_owned() };
                let matrix = instr.matrix().or(instr.bank()).map(|m| self.graph.matrix(m));
                let name = match (matrix, instr.layer) {
                    (Some(m), _) => format!("{} {}", instr.name(), m.name),
                    (None, Some(l)) if l != self.layer => format!("{} (layer {l})", instr.name()),
                    _ => instr.name().to_owned(),
                };
                let who = match instr.work {
                    Some(Work::Private) => "each thread",
                    Some(Work::Rows) => "by rows",
                    None if matrix.is_some() => "by tiles",
                    None => "by items",
                };
                writeln!(f, "{number}  {name:<28} {who:<12} {}", self.place(instr))?;
                if let Some(bank) = matrix.and_then(|m| m.bank.as_ref()).filter(|b| b.experts > 1) {
                    writeln!(f, "     experts: {bank}")?;
                }
            }
            let bytes = &self.streamed[at];
            if bytes.iter().any(|&b| b > 0) {
                let all: Vec<String> = bytes.iter().map(|b| mib(*b)).collect();
                writeln!(f, "     streams per node: {} MiB", all.join(" | "))?;
            }
            for (total, b) in totals.iter_mut().zip(bytes) {
                *total += b;
            }
            if let Some(wait) = &stage.wait {
                let scope = match wait.scope {
                    crate::Scope::Global if nodes > 1 => "global",
                    _ => "local",
                };
                writeln!(f, "     ── wait {scope}, for {}", self.buffers.get(wait.because).name)?;
            }
        }
        let (all, global) = self.waits();
        let totals: Vec<String> = totals.iter().map(|b| mib(*b)).collect();
        writeln!(f)?;
        writeln!(f, "{all} waits, {global} of them global; {} MiB per node", totals.join(" | "))?;
        self.views.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(f, "all operators, as appended to the list: {}", self.appended())
    }
}

/// The change of the pool's view by a scatter or a gather.
fn change(to: View, nodes: usize) -> String {
    match to {
        View::Groups => format!("one graph → {nodes} subgraphs"),
        View::One => format!("{nodes} subgraphs → one graph"),
    }
}

/// A line for each scatter and gather of a program.
fn views(stages: &[Stage], nodes: usize) -> Vec<String> {
    let (mut lines, mut before) = (Vec::new(), "the beginning");
    for (at, stage) in stages.iter().enumerate() {
        for instr in &stage.instrs {
            if let Some(view) = instr.view() {
                let (name, change) = (instr.name(), change(view, nodes));
                let (stage, of) = (at + 1, stages.len());
                lines.push(format!("{name} after {before}, stage {stage} of {of}: {change}"));
            }
            before = instr.name();
        }
    }
    lines
}

fn mib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 20))
}
