//! Rows of several tokens as one.

use super::prelude::*;
use crate::op::Merging;

/// Of each output the rows of `count` tokens, its own and the following ones, as one row. Takes and gives replicated.
#[derive(Clone, Debug)]
pub(crate) struct MergeOp {
    pub x: Bundle,
    pub count: usize,
    pub how: Merging,
}

impl Operator for MergeOp {
    fn name(&self) -> &'static str {
        "merge"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x]
    }

    fn vectors(&self) -> Vec<VectorId> {
        match self.how {
            Merging::Standardised { less, times } => vec![less, times],
            Merging::Beside | Merging::InTurns | Merging::Mean => Vec::new(),
        }
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let out = to.own_buffer("merged", node);
        let (x, width) = (to.value(self.x), to.width(self.x));
        let (count, how) = (self.count, self.how);
        to.emit_rows(node, to.work(node), MergeInstr { x, count, how, width, out });
        out
    }
}

/// Rows of `count` tokens, of `width` elements each, as one.
#[derive(Clone, Debug)]
struct MergeInstr {
    x: BufId,
    count: usize,
    how: Merging,
    width: usize,
    out: BufId,
}

impl Instruction for MergeInstr {
    fn name(&self) -> &'static str {
        "merge"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read([self.x], Reach::Group);
        claims.row_by_row([], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.read(self.x, self.count * self.width * FLOAT);
        entry.write(self.out, self.how.width(self.count, self.width) * FLOAT);
    }

    fn run(&self, run: Run<'_>) {
        let MergeInstr { count, how, width, .. } = *self;
        let kernels = run.kernels();
        let (x, mut out) = (run.source(self.x), run.target(self.out));
        for row in run.rows.clone() {
            let first = run.thread.input.outputs[row] as usize;
            let to = out.row(row, how.width(count, width));
            for i in 0..count {
                let from = x.row(first + i, width);
                match how {
                    Merging::Beside => to[i * width..(i + 1) * width].copy_from_slice(from),
                    Merging::InTurns => {
                        to.iter_mut().skip(i).step_by(count).zip(from).for_each(|(to, x)| *to = *x);
                    }
                    Merging::Mean | Merging::Standardised { .. } if i == 0 => {
                        to.copy_from_slice(from);
                    }
                    Merging::Mean | Merging::Standardised { .. } => kernels.add_assign(to, from),
                }
            }
            if let Merging::Mean | Merging::Standardised { .. } = how {
                kernels.scale(to, (count as f32).recip());
            }
            if let Merging::Standardised { less, times } = how {
                kernels.add_scaled(to, -1.0, run.vector(less));
                kernels.scale_by(to, 1.0, run.vector(times));
            }
        }
    }
}
