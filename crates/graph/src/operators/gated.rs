//! Product with two paired matrices.

use super::prelude::*;
use super::product_name;
use crate::exec::{Gated, LowSums};
use crate::op::Activation;

/// Product with two paired matrices: `f(gate·x) * (up·x)`. Replicated to split.
#[derive(Clone, Debug)]
pub(crate) struct GatedOp {
    pub x: Bundle,
    /// Two parts: gate, up.
    pub matrix: MatrixId,
    /// `f`.
    pub activation: Activation,
}

impl Operator for GatedOp {
    fn name(&self) -> &'static str {
        "gated"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x]
    }

    fn product(&self) -> Option<MatrixId> {
        Some(self.matrix)
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let GatedOp { x, matrix, activation } = *self;
        let acts = to.operand(x, matrix, node.layer);
        let low = to.lora_a(x, matrix, node.layer);
        let out = to.buffer("gate_up", node.out, node.layer, Work::Rows);
        to.emit(node, GatedInstr { acts, matrix, activation, out, low });
        out
    }
}

/// Paired matrix product with `f(gate) * up`.
#[derive(Clone, Debug)]
struct GatedInstr {
    acts: Operand,
    matrix: MatrixId,
    activation: Activation,
    out: BufId,
    low: Option<BufId>,
}

impl Instruction for GatedInstr {
    fn name(&self) -> &'static str {
        product_name(self.activation, true)
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read(self.acts.buffers().chain(self.low), Reach::Group);
        claims.write([self.out], ITEMS);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        if let Some(low) = self.low {
            entry.lora_b(self.matrix, low);
        }
        entry.product(self.matrix, self.acts);
        let rows = entry.tables().matrix(self.matrix).rows(0, entry.desk.node()).len();
        entry.write(self.out, rows * FLOAT);
    }

    fn multiplies(&self) -> Option<Multiplies> {
        Some(Multiplies { acts: self.acts, matrix: self.matrix, paired: true })
    }

    fn sum_squares(&self, run: &Run<'_>, to: &Squares) {
        let acts = self.acts.map(|buf| run.source(buf));
        run.thread.squares_of_matrix(to, self.matrix, acts, run.count());
    }

    fn run(&self, run: Run<'_>) {
        let (matrix, thread, rows) = (self.matrix, run.thread, run.count());
        let (acts, mut out) = (self.acts.map(|buf| run.source(buf)), run.target(self.out));
        let domain = run.domain;
        let low = self.low.map(|low| LowSums { of: run.source(low), matrix, domain });
        let Run { scratch, room, worker, shared, .. } = run;
        let mut gated = Gated { matrix, activation: self.activation, low, room, scratch };
        thread.product_of(matrix, rows, shared.then_some(worker), |own| {
            thread.gated(own, acts, &mut gated, &mut out);
        });
    }
}
