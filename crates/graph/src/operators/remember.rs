//! Hidden states that later steps recall.

use super::prelude::*;
use crate::step::Recalled;

/// Keeps hidden states for [`RecallOp`] in later steps. Takes replicated.
#[derive(Clone, Debug)]
pub(crate) struct RememberOp {
    /// Input, one row per token.
    pub x: Bundle,
}

impl Operator for RememberOp {
    fn name(&self) -> &'static str {
        "remember"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x]
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let [model, predicted] = to.remembered(node.out);
        let out = if to.variant.predicts { predicted } else { model };
        let (x, width) = (to.value(self.x), to.width(node.out));
        to.emit_rows(node, Work::Rows, RememberInstr { x, out, width });
        out
    }
}

/// Rows that later steps recall.
#[derive(Clone, Debug)]
struct RememberInstr {
    x: BufId,
    out: BufId,
    width: usize,
}

impl Instruction for RememberInstr {
    fn name(&self) -> &'static str {
        "remember"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.row_by_row([self.x], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.copy(self.x, self.out, self.width);
    }

    fn run(&self, run: Run<'_>) {
        run.copy_rows(self.x, self.out, self.width);
    }
}

/// Remembered hidden states, as the step states for each of its tokens. Gives replicated.
#[derive(Clone, Debug)]
pub(crate) struct RecallOp;

impl Operator for RecallOp {
    fn name(&self) -> &'static str {
        "recall"
    }

    fn inputs(&self) -> Vec<Bundle> {
        Vec::new()
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let (from, out) = (to.remembered(node.out), to.own_buffer("recalled", node));
        let width = to.width(node.out);
        to.emit_rows(node, to.work(node), RecallInstr { from, out, width });
        out
    }
}

/// Rows that the model's steps and those that predict have remembered.
#[derive(Clone, Debug)]
struct RecallInstr {
    from: [BufId; 2],
    out: BufId,
    width: usize,
}

impl Instruction for RecallInstr {
    fn name(&self) -> &'static str {
        "recall"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read(self.from, Reach::Group);
        claims.row_by_row([], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.copy(self.from[0], self.out, self.width);
    }

    fn run(&self, run: Run<'_>) {
        let [model, predicted] = self.from.map(|from| run.source(from));
        let (width, mut out) = (self.width, run.target(self.out));
        for row in run.rows {
            let to = out.row(row, width);
            match run.thread.input.recalled[row] {
                Recalled::Nothing => to.fill(0.0),
                Recalled::Step(at) => to.copy_from_slice(model.row(at as usize, width)),
                Recalled::Predicted(at) => to.copy_from_slice(predicted.row(at as usize, width)),
            }
        }
    }
}
