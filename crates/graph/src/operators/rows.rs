//! Columns of the rows that a step has in place of tokens.

use super::prelude::*;

/// Columns of the step's [rows](crate::Inset), plus `x` where it is given; tokens without a row have `x` alone, or
/// zeros. Gives replicated, or split by the columns of a matrix.
#[derive(Clone, Debug)]
pub(crate) struct RowsOp {
    /// What they are added to; replicated.
    pub x: Option<Bundle>,
    /// The first column.
    pub from: usize,
    /// The matrix that reads them, if they are split by its columns.
    pub matrix: Option<MatrixId>,
}

impl Operator for RowsOp {
    fn name(&self) -> &'static str {
        "rows"
    }

    fn inputs(&self) -> Vec<Bundle> {
        self.x.into_iter().collect()
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        // The stream is updated in place.
        let stream = self.x.filter(|x| to.is_last_use(*x, node) && to.is_stream(node.out));
        let out = match stream {
            Some(x) => to.value(x),
            None => to.own_buffer(&format!("x{}", node.out.0), node),
        };
        let x = self.x.map(|x| to.value(x));
        let (from, matrix, width) = (self.from, self.matrix, to.width(node.out));
        to.emit_rows(node, to.work(node), RowsInstr { x, from, matrix, width, out });
        out
    }
}

/// Columns of the step's rows, from the node's first on, plus `x`.
#[derive(Clone, Debug)]
struct RowsInstr {
    x: Option<BufId>,
    from: usize,
    matrix: Option<MatrixId>,
    width: usize,
    out: BufId,
}

impl Instruction for RowsInstr {
    fn name(&self) -> &'static str {
        "rows"
    }

    fn claims(&self, claims: &mut Claims) {
        // What they are added to may be the stream itself, or a product, which is dealt by tiles.
        claims.read(self.x.filter(|x| *x != self.out), Reach::Group);
        claims.row_by_row([], self.out);
    }

    // The caller's memory is in no book.
    fn work(&self, entry: &mut Entry<'_>) {
        let node = entry.desk.node();
        let of = |matrix| entry.tables().matrix(matrix).input_width(node);
        let width = self.matrix.map_or(self.width, of);
        self.x.iter().for_each(|x| entry.read(*x, width * FLOAT));
        entry.write(self.out, width * FLOAT);
    }

    fn run(&self, run: Run<'_>) {
        let (thread, kernels) = (run.thread, run.kernels());
        let own = self.matrix.map(|m| run.tables().matrix(m).cols(0, thread.node));
        let own = own.unwrap_or(0..self.width);
        let columns = self.from + own.start..self.from + own.end;
        let x = self.x.filter(|x| *x != self.out).map(|x| run.source(x));
        let (stays, mut out) = (self.x == Some(self.out), run.target(self.out));
        for t in run.rows {
            let to = out.row(t, columns.len());
            let row = thread.input.row(t).map(|row| &row[columns.clone()]);
            match (x, stays, row) {
                (Some(x), _, _) => to.copy_from_slice(x.row(t, columns.len())),
                (None, true, _) => {}
                (None, false, None) => to.fill(0.0),
                (None, false, Some(row)) => {
                    to.copy_from_slice(row);
                    continue;
                }
            }
            if let Some(row) = row {
                kernels.add_assign(to, row);
            }
        }
    }
}
