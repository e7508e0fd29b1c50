//! Two rows with norms, next to each other.

use super::prelude::*;
use crate::op::Norm;

/// `norm(x) | norm(y)`. Replicated to split.
#[derive(Clone, Debug)]
pub(crate) struct ConcatOp {
    pub x: Bundle,
    pub y: Bundle,
    /// Their norms.
    pub norms: [Norm; 2],
    /// The matrix that reads it, by whose columns it is split.
    pub matrix: MatrixId,
}

impl Operator for ConcatOp {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x, self.y]
    }

    fn vectors(&self) -> Vec<VectorId> {
        self.norms.iter().flat_map(Norm::vectors).collect()
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let out = to.own_buffer("concat", node);
        let (x, y, width) = (to.value(self.x), to.value(self.y), to.width(self.x));
        let (norms, matrix) = (self.norms, self.matrix);
        to.emit_rows(node, to.work(node), ConcatInstr { x, y, norms, width, matrix, out });
        out
    }
}

/// The node's columns of `norm(x) | norm(y)`, of `width` elements each.
#[derive(Clone, Debug)]
struct ConcatInstr {
    x: BufId,
    y: BufId,
    norms: [Norm; 2],
    width: usize,
    matrix: MatrixId,
    out: BufId,
}

impl Instruction for ConcatInstr {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.row_by_row([self.x, self.y], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.read(self.x, self.width * FLOAT);
        entry.read(self.y, self.width * FLOAT);
        entry.pass(2 * self.width);
        let width = entry.tables().matrix(self.matrix).input_width(entry.desk.node());
        entry.write(self.out, width * FLOAT);
    }

    fn scratch(&self, _tables: &Tables, _tokens: usize) -> Scratch {
        Scratch { floats: 2 * self.width, ..Scratch::default() }
    }

    fn run(&self, run: Run<'_>) {
        let width = self.width;
        let own = run.tables().matrix(self.matrix).cols(0, run.thread.node);
        let (from, mut out) = ([self.x, self.y].map(|x| run.source(x)), run.target(self.out));
        let both = &mut run.scratch[..2 * width];
        for row in run.rows {
            for ((x, norm), to) in from.iter().zip(&self.norms).zip(both.chunks_exact_mut(width)) {
                run.thread.norm_of(norm, x.row(row, width), to);
            }
            out.row(row, own.len()).copy_from_slice(&both[own.clone()]);
        }
    }
}
