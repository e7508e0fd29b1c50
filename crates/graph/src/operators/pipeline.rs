//! The residual stream from one stage of a pipeline to the next.
//!
//! Two buffers take turns: one is filled while the other is read. Stages meet between the parts of a step, so
//! nothing else orders the two sides.

use super::prelude::*;

/// Takes the residual stream that the stage before has handed on.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveInstr {
    pub from: [BufId; 2],
    pub out: BufId,
    pub width: usize,
}

impl Instruction for ReceiveInstr {
    fn name(&self) -> &'static str {
        "receive"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read(self.from, Reach::Round);
        claims.row_by_row([], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.copy(self.from[0], self.out, self.width);
    }

    fn run(&self, run: Run<'_>) {
        let from = self.from[run.thread.turn];
        run.copy_rows(from, self.out, self.width);
    }
}

/// Hands the residual stream on, into the next stage's memory.
#[derive(Clone, Debug)]
pub(crate) struct SendInstr {
    pub x: BufId,
    pub to: [BufId; 2],
    pub width: usize,
}

impl Instruction for SendInstr {
    fn name(&self) -> &'static str {
        "send"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.write(self.to, Reach::Round);
        // Each row goes out once, also when every thread has all of them.
        let own = claims.own();
        claims.read([self.x], own);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.read(self.x, self.width * FLOAT);
        entry.write_to(self.to[0], entry.desk.place + 1, self.width * FLOAT);
    }

    fn run(&self, run: Run<'_>) {
        let (x, mut to) = (run.source(self.x), run.target(self.to[run.thread.turn]));
        for row in run.rows {
            let mut to = to.columns_on(run.thread.place + 1, row..row + 1, 0..self.width);
            to.row_mut(0).copy_from_slice(x.row(row, self.width));
        }
    }
}
