//! Sums of squares of runs of elements, to every node.

use super::prelude::*;

/// Units of a row whose sums of squares a node gives.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct TellRun {
    /// Column of the node's row where they begin.
    pub from: usize,
    /// How many they are.
    pub count: usize,
    /// Which of all numbers is that of the first.
    pub to: usize,
}

/// Sums of squares of each `unit` elements of rows, to every node: the runs of each node.
#[derive(Clone, Debug)]
pub(super) struct TellInstr {
    pub x: BufId,
    pub runs: Vec<Vec<TellRun>>,
    pub unit: usize,
    pub out: BufId,
    /// How the rows of `x` were dealt.
    pub work: Work,
}

impl Instruction for TellInstr {
    fn name(&self) -> &'static str {
        "tell"
    }

    // Each row is summed once, also when every thread has all of them.
    fn claims(&self, claims: &mut Claims) {
        claims.read([self.x], claims.by(self.work));
        claims.write([self.out], Reach::All);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let count: usize = self.runs[entry.desk.node()].iter().map(|run| run.count).sum();
        entry.read(self.x, count * self.unit * FLOAT);
        entry.pass(count * self.unit);
        entry.write_everywhere(self.out, count * FLOAT);
    }

    fn run(&self, run: Run<'_>) {
        let (thread, rows, unit) = (run.thread, run.rows.clone(), self.unit);
        let (x, mut out) = (run.source(self.x), run.target(self.out));
        for part in self.runs[thread.node].iter().filter(|part| part.count > 0) {
            let x = x.columns(rows.clone(), part.from..part.from + part.count * unit);
            let cols = part.to..part.to + part.count;
            for node in 0..thread.step.tables.nodes() {
                let mut to = out.columns_on(thread.place_of(node), rows.clone(), cols.clone());
                for row in 0..rows.len() {
                    let units = x.row(row).chunks_exact(unit);
                    for (to, unit) in to.row_mut(row).iter_mut().zip(units) {
                        *to = thread.step.kernels.square_sum(unit);
                    }
                }
            }
        }
    }
}
