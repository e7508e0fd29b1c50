//! The rows of which something is asked for.

use super::prelude::*;

/// Keeps the rows whose logits are asked for. Takes and gives replicated.
#[derive(Clone, Debug)]
pub(crate) struct SelectOp {
    /// Input, one row per token.
    pub x: Bundle,
}

impl Operator for SelectOp {
    fn name(&self) -> &'static str {
        "select"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x]
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let out = to.own_buffer("selected", node);
        let (x, width) = (to.value(self.x), to.width(node.out));
        to.emit_rows(node, to.work(node), SelectInstr { x, out, width });
        out
    }
}

/// Rows of which something is asked for.
#[derive(Clone, Debug)]
struct SelectInstr {
    x: BufId,
    out: BufId,
    width: usize,
}

impl Instruction for SelectInstr {
    fn name(&self) -> &'static str {
        "select"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read([self.x], Reach::Group);
        claims.row_by_row([], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.copy(self.x, self.out, self.width);
    }

    fn run(&self, run: Run<'_>) {
        let (x, mut out) = (run.source(self.x), run.target(self.out));
        for row in run.rows {
            let from = run.thread.input.outputs[row] as usize;
            out.row(row, self.width).copy_from_slice(x.row(from, self.width));
        }
    }
}
