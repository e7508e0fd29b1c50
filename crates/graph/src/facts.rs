//! Properties of a graph that follow from its operators: inputs and results of a step, and the weights that a token
//! uses.

use crate::bank::Bank;
use crate::graph::Graph;
use crate::op::Attention;
use crate::operator::Node;
use crate::operators::{
    AttentionOp, EmbedOp, ExpertsDownOp, ExpertsUpOp, HiddenOp, LogitsOp, RowsOp,
};
use crate::weight::TensorSpec;

impl Node {
    /// Its parameters, if it is attention.
    pub fn attention(&self) -> Option<&Attention> {
        self.op.get().map(|of: &AttentionOp| &*of.spec)
    }
}

impl Graph {
    /// Whether it gives logits, and not hidden states alone.
    pub fn has_head(&self) -> bool {
        self.ops.iter().any(|node| node.op.get::<LogitsOp>().is_some())
    }

    /// Elements of a row of logits: none without a head.
    pub(crate) fn logits_width(&self) -> usize {
        if self.has_head() { self.vocab } else { 0 }
    }

    /// Elements of a row that a token can have instead of an embedding; 0 if the graph takes none.
    pub fn row_width(&self) -> usize {
        let end = |node: &Node| {
            let width = self.bundle(node.out).width;
            let embedded = node.op.get().filter(|of: &&EmbedOp| of.insets).map(|_| width);
            let inserted = node.op.get().map(|of: &RowsOp| of.from + width);
            embedded.or(inserted).unwrap_or(0)
        };
        self.ops.iter().map(end).max().unwrap_or(0)
    }

    /// Elements of a hidden state that is handed to the caller.
    pub fn hidden_width(&self) -> usize {
        let end = |node: &Node| {
            let hidden = node.op.get().map(|of: &HiddenOp| of.at + self.bundle(of.x).width);
            let read = node.op.get().map(|of: &LogitsOp| self.bundle(of.x).width);
            hidden.or(read).unwrap_or(0)
        };
        self.ops.iter().map(end).max().unwrap_or(0).max(1)
    }

    /// Elements of all tensors that a token has to do with: of experts, of those that it goes to.
    pub fn active_elements(&self) -> usize {
        let used = |tensor: &str| {
            self.ops.iter().find_map(|node| {
                let up = node.op.get().map(|of: &ExpertsUpOp| (of.bank, of.count));
                let down = node.op.get().map(|of: &ExpertsDownOp| (of.bank, of.count));
                let (bank, count) = up.or(down)?;
                let mut parts = self.matrix(bank).parts.iter();
                parts.any(|part| part.name == tensor).then_some(count)
            })
        };
        let of = |tensor: &TensorSpec| match tensor.experts {
            Some(experts) => tensor.elements() / experts * used(&tensor.name).unwrap_or(experts),
            None => tensor.elements(),
        };
        self.tensors.iter().map(of).sum()
    }

    /// Returns the banks of the model's routers, in order.
    pub(crate) fn routed(&self) -> impl Iterator<Item = &Bank> {
        let banks = self.ops.iter().filter_map(|node| node.op.get::<ExpertsUpOp>());
        banks.map(|of| self.matrix(of.bank).bank.as_ref().expect("experts are a bank"))
    }
}
