//! Product with the vocabulary matrix.

use super::hidden::HiddenInstr;
use super::prelude::*;
use crate::exec::{After, Epilogue, LowSums, NOTHING};

/// Product with the vocabulary matrix, gathered to the caller. Replicated to whole.
#[derive(Clone, Debug)]
pub(crate) struct LogitsOp {
    /// Input, one row per output.
    pub x: Bundle,
    /// `[vocab, hidden]`, rows cut over the nodes.
    pub head: MatrixId,
    /// Factor on the product.
    pub scale: f32,
    /// What the logits approach and never reach: `cap * tanh(logit / cap)`.
    pub cap: Option<f32>,
}

impl Operator for LogitsOp {
    fn name(&self) -> &'static str {
        "logits"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x]
    }

    fn product(&self) -> Option<MatrixId> {
        Some(self.head)
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let LogitsOp { x, head: matrix, scale, cap } = *self;
        let (from, width) = (to.value(x), to.width(x));
        let hidden = to.buffers.hidden(width);
        to.emit_rows(node, Work::Rows, HiddenInstr { x: from, out: hidden, width, at: 0 });
        let acts = to.operand(x, matrix, node.layer);
        let low = to.lora_a(x, matrix, node.layer);
        let out = to.buffers.logits();
        to.emit(node, LogitsInstr { acts, matrix, scale, cap, out, low });
        out
    }
}

/// Matrix product, times `scale` and bent below `cap`, into the caller's logits.
#[derive(Clone, Debug)]
struct LogitsInstr {
    acts: Operand,
    matrix: MatrixId,
    scale: f32,
    cap: Option<f32>,
    out: BufId,
    low: Option<BufId>,
}

impl Instruction for LogitsInstr {
    fn name(&self) -> &'static str {
        "logits"
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
        entry.write_to(self.out, 0, entry.own_rows(self.matrix) * FLOAT);
    }

    fn multiplies(&self) -> Option<Multiplies> {
        Some(Multiplies { acts: self.acts, matrix: self.matrix, paired: false })
    }

    fn rows_of(&self) -> Option<RowsOf> {
        Some(RowsOf::Logits)
    }

    fn label<'g>(&'g self, _tables: &'g Tables) -> &'g str {
        self.name()
    }

    fn run(&self, run: Run<'_>) {
        let (matrix, thread) = (self.matrix, run.thread);
        let after = After { scale: self.scale, cap: self.cap, ..NOTHING };
        let (acts, rows) = (self.acts.map(|buf| run.source(buf)), thread.input.logits);
        let domain = run.domain;
        let low = self.low.map(|low| LowSums { of: run.source(low), matrix, domain });
        let mut out = run.target(self.out);
        let Run { room, worker, shared, .. } = run;
        let mut epilogue = Epilogue { low, room, after, tile_sums: None };
        thread.product_of(matrix, rows, shared.then_some(worker), |own| {
            thread.matmul(own, acts, matrix, &mut epilogue, &mut out);
        });
    }
}
