//! Pipeline stages: which layers each node holds.
//!
//! A stage is a run of layers that one node holds alone; its weights and keys never leave it. Parts
//! of a step follow each other through the stages (GPipe's micro-batches, Huang et al. 2019), handing
//! the residual stream on to the next node. Where a graph is not cut, there is one span of all.

use crate::error::Error;
use crate::graph::Graph;
use crate::operator::Node;
use crate::operators::{AttentionOp, ModulationOp};
use crate::plan::{Mode, Plan};
use crate::weight::MatrixId;
use std::ops::Range;

/// The operators of every stage, as ranges of the graph's list: they follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spans(Vec<Range<usize>>);

impl Spans {
    /// Cuts `graph` as `plan` wants it: between layers, with bytes of weights in proportion to the
    /// threads of the groups.
    ///
    /// # Errors
    /// When a pipeline has more stages than the model has layers.
    pub(crate) fn new(graph: &Graph, plan: &Plan) -> Result<Spans, Error> {
        let all = graph.model_ops().end;
        if plan.mode != Mode::Pipeline {
            return Ok(Spans(std::iter::once(0..all).collect()));
        }
        if graph.predicting_ops().is_some() {
            return Err(Error::NoPredictingPipeline);
        }
        // Operators before the first layer go with it, those after the last with that.
        let layers = graph.ops.iter().filter_map(|n| n.layer).max().map_or(0, |l| l + 1);
        let stages = plan.groups.len();
        if layers < stages {
            return Err(Error::TooManyStages { stages, layers });
        }
        let borrows = |node: &Node| {
            let of_keys = |of: &AttentionOp| of.spec.borrows.is_some();
            let of_columns = |of: &ModulationOp| of.spec.from.iter().any(|at| *at > 0);
            node.op.get().is_some_and(of_keys) || node.op.get().is_some_and(of_columns)
        };
        if graph.reads_texts() || graph.ops.iter().any(borrows) {
            return Err(Error::NoPipeline);
        }
        let first = |layer| graph.ops.iter().position(|n| n.layer == Some(layer)).unwrap_or(all);
        let weight = |ops: Range<usize>| -> usize {
            let matrices = graph.ops[ops].iter().filter_map(|n| n.op.does().product());
            matrices.map(|m| graph.matrix(m).node_bytes(0)).sum()
        };
        let starts: Vec<usize> =
            (0..layers).map(|l| if l == 0 { 0 } else { first(l) }).chain([all]).collect();
        let bytes: Vec<usize> = starts.windows(2).map(|w| weight(w[0]..w[1])).collect();
        let (total, threads) = (bytes.iter().sum::<usize>(), plan.threads());
        let (mut spans, mut layer, mut done, mut asked) = (Vec::new(), 0, 0, 0);
        for (stage, group) in plan.groups.iter().enumerate() {
            let begin = layer;
            asked += group.cpus.len();
            // At least one layer each; a layer goes to the stage in whose share its middle lies.
            let last = layers - (stages - stage - 1);
            while layer < last
                && (layer == begin || (done + bytes[layer] / 2) * threads < total * asked)
            {
                done += bytes[layer];
                layer += 1;
            }
            if stage + 1 == stages {
                layer = layers;
            }
            spans.push(starts[begin]..starts[layer]);
        }
        Ok(Spans(spans))
    }

    /// Number of stages.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The operators of a stage.
    pub(crate) fn ops(&self, stage: usize) -> Range<usize> {
        self.0[stage].clone()
    }

    /// The stage of an operator; of those that predict, the one there is.
    fn of(&self, op: usize) -> usize {
        self.0.iter().position(|s| s.contains(&op)).unwrap_or(self.0.len() - 1)
    }

    /// Where a matrix lies: with the last operator that multiplies by it, or reads its rows.
    pub(crate) fn of_matrix(&self, graph: &Graph, matrix: MatrixId) -> usize {
        let uses =
            |n: &Node| n.op.does().product() == Some(matrix) || n.op.does().table() == Some(matrix);
        graph.ops.iter().rposition(uses).map_or(0, |op| self.of(op))
    }

    /// Whether a state belongs to `stage`: its operator does.
    pub(crate) fn holds_state(&self, graph: &Graph, state: usize, stage: usize) -> bool {
        graph
            .ops
            .iter()
            .position(|n| n.op.does().states().contains(&state))
            .is_some_and(|op| self.of(op) == stage)
    }
}
