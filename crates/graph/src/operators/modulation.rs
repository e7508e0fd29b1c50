//! Heads by a norm and a gate.

use super::prelude::*;
use super::tell::{TellInstr, TellRun};
use crate::exec::Thread;
use crate::recurrent::{HeadNorm, Modulation, RecurrentHeads};
use kernels::TILE_ROWS;

/// A norm of heads, and a gate. Takes and gives split.
#[derive(Clone, Debug)]
pub(crate) struct ModulationOp {
    pub x: Bundle,
    /// What the gate is a function of.
    pub gate: Option<Bundle>,
    pub spec: Box<Modulation>,
}

impl Operator for ModulationOp {
    fn name(&self) -> &'static str {
        "modulation"
    }

    fn inputs(&self) -> Vec<Bundle> {
        [self.x].into_iter().chain(self.gate).collect()
    }

    fn vectors(&self) -> Vec<VectorId> {
        match &self.spec.norm {
            Some(
                HeadNorm::Each { weight, .. }
                | HeadNorm::Groups { weight, .. }
                | HeadNorm::All { weight, .. },
            ) => vec![*weight],
            None => Vec::new(),
        }
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let (spec, work) = (self.spec.clone(), to.work(node));
        let out = to.own_buffer("modulated", node);
        let squares = match (&spec.norm, &spec.above) {
            (Some(HeadNorm::All { width, starts, .. }), _) => {
                let unit = TILE_ROWS;
                let told = to.told(*width, 1, node.layer);
                let widths = to.tables.bundle(node.out).widths.iter();
                let run = |(start, width): (&usize, &usize)| {
                    vec![TellRun { from: 0, count: width / unit, to: start / unit }]
                };
                let (x, runs) = (to.value(self.x), starts.iter().zip(widths).map(run).collect());
                to.emit_rows(node, Work::Rows, TellInstr { x, runs, unit, out: told, work });
                Some(told)
            }
            (Some(HeadNorm::Groups { .. }), _) | (_, Some(_)) => Some(to.told[&self.x]),
            _ => None,
        };
        let (x, gate) = (to.value(self.x), self.gate.map(|gate| to.value(gate)));
        let width = to.tables.bundle(node.out).widths.clone();
        to.emit_rows(node, work, ModulationInstr { x, gate, squares, width, spec, out });
        out
    }
}

#[derive(Clone, Debug)]
struct ModulationInstr {
    x: BufId,
    gate: Option<BufId>,
    squares: Option<BufId>,
    /// Elements of each node.
    width: Vec<usize>,
    spec: Box<Modulation>,
    out: BufId,
}

impl Instruction for ModulationInstr {
    fn name(&self) -> &'static str {
        match (&self.spec.norm, &self.spec.gate) {
            (Some(_), Some(_)) => "norm+gate",
            (Some(_), None) => "head_norm",
            (None, _) => "gate",
        }
    }

    fn claims(&self, claims: &mut Claims) {
        let read = [Some(self.x), self.gate, self.squares];
        claims.row_by_row(read.into_iter().flatten(), self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let (spec, width) = (&self.spec, self.width[entry.desk.node()]);
        entry.read(self.x, width * FLOAT);
        if let Some(gate) = self.gate {
            entry.read(gate, width * FLOAT);
            entry.pass(width);
        }
        if let Some(squares) = self.squares {
            match &spec.norm {
                Some(HeadNorm::Groups { heads, .. }) => {
                    entry.read(squares, heads.values.q * heads.slices() * FLOAT);
                }
                Some(HeadNorm::All { width, .. }) => entry.read(squares, width / TILE_ROWS * FLOAT),
                Some(HeadNorm::Each { .. }) | None => {}
            }
            if let Some(above) = &spec.above {
                entry.read(squares, above.numbers() * FLOAT);
                entry.pass(2 * width);
            }
        }
        if spec.norm.is_some() {
            entry.pass(width);
        }
        entry.write(self.out, width * FLOAT);
    }

    fn is_split(&self, _tables: &Tables) -> bool {
        true
    }

    fn run(&self, run: Run<'_>) {
        let (spec, thread, kernels) = (&self.spec, run.thread, run.kernels());
        let (x, gate) = (run.source(self.x), self.gate.map(|buf| run.source(buf)));
        let squares = self.squares.map(|buf| run.source(buf));
        let (width, mut out) = (self.width[thread.node], run.target(self.out));
        for row in run.rows.clone() {
            match (&spec.gate, gate) {
                (Some((f, columns)), Some(gate)) if let Some(above) = &spec.above => {
                    let squares = squares.expect("what is above has sums of squares");
                    let least = above.least(squares.row(row, above.numbers()));
                    let cols = |at: usize| at..at + width;
                    let gate = gate.columns(row..row + 1, cols(columns[thread.node]));
                    let x = x.columns(row..row + 1, cols(spec.from[thread.node]));
                    let to = out.row(row, width);
                    to.copy_from_slice(gate.row(0));
                    kernels.above(to, least);
                    kernels.activate(*f, to);
                    kernels.scale_by(to, 1.0, x.row(0));
                }
                (Some((f, columns)), Some(gate)) => {
                    let at = columns[thread.node];
                    let gate = gate.columns(row..row + 1, at..at + width);
                    let from = spec.from[thread.node];
                    let x = x.columns(row..row + 1, from..from + width);
                    kernels.gated(*f, gate, x, out.columns(row..row + 1, 0..width));
                }
                _ => out.row(row, width).copy_from_slice(x.row(row, width)),
            }
            let to = out.row(row, width);
            match &spec.norm {
                None => {}
                Some(HeadNorm::Each { weight, eps }) => {
                    // The norm is a factor for each head, so the gate may come first.
                    let weight = run.vector(*weight);
                    let dim = weight.len();
                    let heads = x.row(row, width).chunks_exact(dim);
                    for (x, to) in heads.zip(to.chunks_exact_mut(dim)) {
                        let mean = kernels.square_sum(x) / dim as f32;
                        kernels.scale_by(to, (mean + eps).sqrt().recip(), weight);
                    }
                }
                Some(HeadNorm::All { weight, eps, width: all, starts }) => {
                    let squares = squares.expect("norms of all have sums of squares");
                    let sum = kernels.sum(squares.row(row, all / TILE_ROWS));
                    let factor = (sum / *all as f32 + eps).sqrt().recip();
                    let weight = run.vector(*weight);
                    kernels.scale_by(to, factor, &weight[starts[thread.node]..][..width]);
                }
                Some(HeadNorm::Groups { heads, each, weight, eps }) => {
                    let squares = squares.expect("norms of groups have sums of squares");
                    let weight = run.vector(*weight);
                    let all = heads.values.q * heads.slices();
                    thread.norm_groups(heads, *each, squares.row(row, all), weight, *eps, to);
                }
            }
        }
    }
}

impl Thread<'_> {
    /// Norms of the groups of heads of which this node has some.
    fn norm_groups(
        &self,
        heads: &RecurrentHeads,
        each: usize,
        squares: &[f32],
        weight: &[f32],
        eps: f32,
        to: &mut [f32],
    ) {
        let (own, dim) = (heads.values.q_cut.range(self.node), heads.values.dim);
        let of_group = each * heads.slices();
        let mut head = own.start;
        while head < own.end {
            let group = head / each;
            let end = ((group + 1) * each).min(own.end);
            let sum: f32 = squares[group * of_group..][..of_group].iter().sum();
            let factor = (sum / (each * dim) as f32 + eps).sqrt().recip();
            let part = (head - own.start) * dim..(end - own.start) * dim;
            self.step.kernels.scale_by(&mut to[part], factor, &weight[head * dim..end * dim]);
            head = end;
        }
    }
}
