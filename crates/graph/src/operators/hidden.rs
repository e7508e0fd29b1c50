//! Hidden states for the caller.

use super::prelude::*;

/// Hands hidden states to the caller, in a model that has no head. Replicated to whole.
#[derive(Clone, Debug)]
pub(crate) struct HiddenOp {
    /// Input, one row per output.
    pub x: Bundle,
    /// Where it begins in the caller's row.
    pub at: usize,
}

impl Operator for HiddenOp {
    fn name(&self) -> &'static str {
        "hidden"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x]
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let out = to.buffers.hidden(to.hidden);
        let (x, at, width) = (to.value(self.x), self.at, to.width(node.out));
        to.emit_rows(node, Work::Rows, HiddenInstr { x, out, width, at });
        out
    }
}

/// The input of the head, into the caller's hidden states.
#[derive(Clone, Debug)]
pub(super) struct HiddenInstr {
    pub x: BufId,
    pub out: BufId,
    pub width: usize,
    pub at: usize,
}

impl Instruction for HiddenInstr {
    fn name(&self) -> &'static str {
        "hidden"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.row_by_row([self.x], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        // The first node has them all.
        if entry.desk.node() == 0 {
            entry.read(self.x, self.width * FLOAT);
            entry.write_to(self.out, 0, self.width * FLOAT);
        }
    }

    fn rows_of(&self) -> Option<RowsOf> {
        Some(RowsOf::Hidden)
    }

    fn run(&self, run: Run<'_>) {
        let thread = run.thread;
        // Every node has them all.
        if thread.node > 0 {
            return;
        }
        let (x, mut out) = (run.source(self.x), run.target(self.out));
        let (logits, before) = (thread.input.logits, thread.hidden_before);
        for row in run.rows.filter(|row| *row >= logits) {
            let to = out.row(before + row - logits, self.at + self.width);
            to[self.at..].copy_from_slice(x.row(row, self.width));
        }
    }
}
