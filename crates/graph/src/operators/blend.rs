//! A norm plus something else.

use super::prelude::*;
use crate::op::Norm;

/// `(norm(x) + y) * scale * factor`, the norm being of each run of as many elements as it has weights. Takes and
/// gives replicated.
#[derive(Clone, Debug)]
pub(crate) struct BlendOp {
    pub x: Bundle,
    pub y: Bundle,
    /// An RMSNorm.
    pub norm: Norm,
    /// Factor on the sum.
    pub scale: f32,
    /// Another, one number.
    pub factor: Option<VectorId>,
}

impl Operator for BlendOp {
    fn name(&self) -> &'static str {
        "blend"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x, self.y]
    }

    fn vectors(&self) -> Vec<VectorId> {
        self.norm.vectors().into_iter().chain(self.factor).collect()
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let out = to.own_buffer(&format!("x{}", node.out.0), node);
        let (x, y, width) = (to.value(self.x), to.value(self.y), to.width(node.out));
        to.emit_rows(node, to.work(node), BlendInstr { of: self.clone(), x, y, width, out });
        out
    }
}

#[derive(Clone, Debug)]
struct BlendInstr {
    of: BlendOp,
    x: BufId,
    y: BufId,
    width: usize,
    out: BufId,
}

impl Instruction for BlendInstr {
    fn name(&self) -> &'static str {
        "blend"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.row_by_row([self.x, self.y], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.read(self.x, self.width * FLOAT);
        entry.read(self.y, self.width * FLOAT);
        entry.write(self.out, self.width * FLOAT);
        entry.pass(2 * self.width);
    }

    fn run(&self, run: Run<'_>) {
        let (BlendOp { norm, scale, factor, .. }, width) = (&self.of, self.width);
        let (kernels, each) = (run.kernels(), run.vector(norm.weight()).len());
        let factor = scale * factor.map_or(1.0, |factor| run.vector(factor)[0]);
        let (x, y) = (run.source(self.x), run.source(self.y));
        let mut out = run.target(self.out);
        for row in run.rows {
            let to = out.row(row, width);
            let runs = x.row(row, width).chunks_exact(each).zip(to.chunks_exact_mut(each));
            runs.for_each(|(x, to)| run.thread.norm_of(norm, x, to));
            kernels.add_assign(to, y.row(row, width));
            kernels.scale(to, factor);
        }
    }
}
