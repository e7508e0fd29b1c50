//! A norm of rows.

use super::prelude::*;
use crate::op::Norm;

/// Norm of each row. Takes and gives replicated.
#[derive(Clone, Debug)]
pub(crate) struct NormOp {
    pub x: Bundle,
    pub norm: Norm,
}

impl Operator for NormOp {
    fn name(&self) -> &'static str {
        self.norm.name()
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x]
    }

    fn vectors(&self) -> Vec<VectorId> {
        self.norm.vectors()
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let role = match node.layer {
            None if to.is_stream(node.out) => format!("x{}", node.out.0),
            // A second one, where the first is still to be read (blocks in parallel).
            _ if to.norm_lives(node.out) => "norm2".to_owned(),
            _ => "norm".to_owned(),
        };
        let (x, norm) = (to.value(self.x), self.norm);
        let mut out = to.own_buffer(&role, node);
        if out == x {
            // The norm of a sum with the result of the norm before, which is the residual stream then.
            out = to.own_buffer("normed", node);
        }
        to.emit_rows(node, to.work(node), NormInstr { x, norm, out });
        out
    }
}

/// Norm of each row.
impl Lowering<'_> {
    /// Whether the result of another norm is read after the operator that gives `out`.
    pub(crate) fn norm_lives(&self, out: Bundle) -> bool {
        let (ops, at) = (self.ops, self.position(out));
        let before = ops[..at].iter().filter(|n| self.values.contains_key(&n.out));
        let mut norms = before.filter(|n| n.op.get::<NormOp>().is_some());
        norms.any(|n| self.last_use.get(&n.out).is_some_and(|&last| last > at))
    }
}

#[derive(Clone, Debug)]
struct NormInstr {
    x: BufId,
    norm: Norm,
    out: BufId,
}

impl Instruction for NormInstr {
    fn name(&self) -> &'static str {
        self.norm.name()
    }

    fn claims(&self, claims: &mut Claims) {
        claims.row_by_row([self.x], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let width = entry.tables().vectors[self.norm.weight().0 as usize].len;
        entry.copy(self.x, self.out, width);
        entry.pass(width);
    }

    fn run(&self, run: Run<'_>) {
        let width = run.vector(self.norm.weight()).len();
        let (x, mut out) = (run.source(self.x), run.target(self.out));
        for row in run.rows {
            run.thread.norm_of(&self.norm, x.row(row, width), out.row(row, width));
        }
    }
}
