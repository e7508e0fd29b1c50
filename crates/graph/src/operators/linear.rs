//! Product with a matrix.

use super::prelude::*;
use super::product_name;
use crate::exec::{After, Epilogue, LowSums, NOTHING, Partial};
use crate::op::{Activation, TileSums};
use crate::operator::Summed;
use crate::weight::{Part, SplitBy};
use kernels::TILE_ROWS;

/// Product with a matrix. Row-split: replicated to split, plus the bias if there is one; column-split: split to
/// partial, and the bias is added to the sum.
#[derive(Clone, Debug)]
pub(crate) struct LinearOp {
    pub x: Bundle,
    pub matrix: MatrixId,
    /// What is done to each element of the product.
    pub activation: Option<Activation>,
    /// What every node gets of the whole product.
    pub told: Option<TileSums>,
}

impl Operator for LinearOp {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x]
    }

    fn product(&self) -> Option<MatrixId> {
        Some(self.matrix)
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let LinearOp { x, matrix, activation, told } = *self;
        let (layer, splits) = (node.layer, to.variant.splits);
        let acts = to.operand(x, matrix, layer);
        let low = to.lora_a(x, matrix, layer);
        let m = to.tables.matrix(matrix);
        let out = match m.sum(splits) {
            None => to.buffer(&m.name, node.out, layer, Work::Rows),
            Some(sum) => {
                let out = to.partial(&m.name, node.out, layer, &sum);
                let Part { scale: product, bias, clamp, .. } = m.parts[0];
                to.sums.insert(node.out, Summed { sum, product, bias, clamp });
                to.lows.extend(low.map(|low| (node.out, (low, matrix))));
                out
            }
        };
        let low = low.filter(|_| m.split == SplitBy::Rows);
        let told = told.map(|told| {
            let rows = m.parts[..told.parts()].iter().map(|p| p.rows).sum();
            (told, to.told(rows, told.numbers(), layer))
        });
        to.told.extend(told.map(|(_, told)| (node.out, told)));
        let push = m.split == SplitBy::Cols && to.variant.gather == Gather::Push;
        let carries = m.by_head.as_ref().is_some_and(|of| !of.carried.is_empty());
        let carried = carries.then(|| to.value(x));
        to.emit(
            node,
            LinearInstr { acts, carried, matrix, activation, out, push, splits, told, low },
        );
        out
    }
}

/// Matrix product, plus bias; each thread does its tiles. Columns that nodes share are summed in `splits` runs of each
/// node, and with `push`, a summand goes to every node's copy. Of a matrix by head, elements of `carried` go along as
/// they are. Sums of tiles go to all nodes.
#[derive(Clone, Debug)]
struct LinearInstr {
    acts: Operand,
    carried: Option<BufId>,
    matrix: MatrixId,
    activation: Option<Activation>,
    out: BufId,
    push: bool,
    splits: usize,
    told: Option<(TileSums, BufId)>,
    /// The result of A, if adapters are beside a matrix whose rows nodes share.
    low: Option<BufId>,
}

impl Instruction for LinearInstr {
    fn name(&self) -> &'static str {
        self.activation.map_or("matmul", |f| product_name(f, false))
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read(self.acts.buffers(), Reach::Group);
        if self.push {
            return claims.write([self.out], Reach::All);
        }
        claims.read(self.carried.into_iter().chain(self.low), Reach::Group);
        claims.write([self.out], ITEMS);
        claims.write(self.told.map(|(_, to)| to), Reach::All);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let (matrix, out, node) = (self.matrix, self.out, entry.desk.node());
        let m = entry.tables().matrix(matrix);
        if let Some(low) = self.low {
            entry.lora_b(matrix, low);
        }
        entry.product(matrix, self.acts);
        if let (Some(x), Some(of)) = (self.carried, &m.by_head) {
            let heads = m.rows(0, node).len() / of.rows;
            entry.copy(x, out, heads * of.carried.len());
        }
        match m.sum(self.splits) {
            None => entry.write(out, entry.own_rows(matrix) * FLOAT),
            Some(sum) => {
                let bytes = sum.slots[node].len() * slot(m.parts[0].rows);
                match self.push {
                    true => entry.write_everywhere(out, bytes),
                    false => entry.write(out, bytes),
                }
            }
        }
        if let Some((what, to)) = self.told {
            let held = |p: usize| m.parts[p].cut.first_held(node).len();
            let rows: usize = (0..what.parts()).map(held).sum();
            entry.write_everywhere(to, rows / TILE_ROWS * what.numbers() * FLOAT);
        }
    }

    fn multiplies(&self) -> Option<Multiplies> {
        Some(Multiplies { acts: self.acts, matrix: self.matrix, paired: false })
    }

    fn sum_squares(&self, run: &Run<'_>, to: &Squares) {
        let acts = self.acts.map(|buf| run.source(buf));
        run.thread.squares_of_matrix(to, self.matrix, acts, run.count());
    }

    fn run(&self, run: Run<'_>) {
        let (matrix, thread, rows) = (self.matrix, run.thread, run.count());
        let (acts, mut out) = (self.acts.map(|buf| run.source(buf)), run.target(self.out));
        let of = run.tables().matrix(matrix);
        let carried = self.carried.map(|buf| run.source(buf));
        let after = After { activation: self.activation, ..NOTHING };
        let tile_sums = self.told.map(|(what, to)| (what, run.target(to)));
        let domain = run.domain;
        let low = self.low.map(|low| LowSums { of: run.source(low), matrix, domain });
        let Run { scratch, room, worker, shared, .. } = run;
        let mut epilogue = Epilogue { low, room, after, tile_sums };
        let partial = Partial { push: self.push, splits: self.splits };
        thread.product_of(matrix, rows, shared.then_some(worker), |own| match of.split {
            SplitBy::Rows if let Some(by_head) = &of.by_head => {
                thread.matmul_by_head(own, acts, carried, by_head, &mut out);
            }
            SplitBy::Rows => {
                thread.matmul(own, acts, matrix, &mut epilogue, &mut out);
            }
            SplitBy::Cols => {
                thread.matmul_partial(own, acts, matrix, partial, &mut out, scratch);
            }
        });
    }
}
