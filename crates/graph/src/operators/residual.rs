//! Sums over nodes: the summands of all nodes and the residual stream become the new stream.
//!
//! A summand's row has a slot for each root of the summation tree (see [`crate::sum`]). Three ways
//! to bring them together give the same bits; they differ in who reads and writes across nodes. A sum
//! may get a factor, a bias, a norm and another factor before it is added to the stream.

use super::LinearOp;
use super::prelude::*;
use crate::exec::{LEVELS, LowSums, Source, Target, Thread, Tree, keep};
use crate::op::Norm;
use crate::operator::Summed;
use crate::placement::share;
use crate::sum::Sum;
use crate::weight::Clamp;
use kernels::TILE_ROWS;

/// f32 that are fetched from a node before the next is visited: 1 KiB, a handful of cache lines
/// that the prefetchers can follow.
const PIECE: usize = 256;

/// `(x + scale * norm(Σ partials + bias)) * factor`. Replicated and partial to replicated.
#[derive(Clone, Debug)]
pub(crate) struct ResidualOp {
    /// Residual stream; none, where the sum stands alone.
    pub x: Option<Bundle>,
    /// What is added.
    pub partial: Bundle,
    /// Norm of its sum.
    pub norm: Option<Norm>,
    /// Factor on it.
    pub scale: f32,
    /// Factor on the new stream, one number.
    pub factor: Option<VectorId>,
}

impl Operator for ResidualOp {
    fn name(&self) -> &'static str {
        "residual"
    }

    fn inputs(&self) -> Vec<Bundle> {
        self.x.into_iter().chain([self.partial]).collect()
    }

    fn vectors(&self) -> Vec<VectorId> {
        self.norm.iter().flat_map(Norm::vectors).chain(self.factor).collect()
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let at = to.position(node.out);
        match (self.x, to.pairs(at), at.checked_sub(1).filter(|&at| to.pairs(at))) {
            // The next one adds both.
            (Some(x), true, _) => to.value(x),
            (x, _, None) => {
                let finish = to.finish(self, node);
                to.residual(node, at, x, self.partial, finish, None)
            }
            (_, _, Some(before)) => {
                let ops = to.ops;
                let first = ops[before].op.get::<ResidualOp>().expect("pairs are sums");
                let sum = to.sums[&self.partial].sum.clone();
                let also =
                    Also { partial: to.value(self.partial), finish: to.finish(self, node), sum };
                let finish = to.finish(first, node);
                to.residual(node, before, first.x, first.partial, finish, Some(also))
            }
        }
    }
}

impl Lowering<'_> {
    /// Whether something is added to it: it is the residual stream, after a norm of the embedding.
    pub(crate) fn is_stream(&self, of: Bundle) -> bool {
        let mut sums = self.ops.iter().filter_map(|n| n.op.get::<ResidualOp>());
        sums.any(|sum| sum.x == Some(of))
    }

    /// What a sum goes through.
    fn finish(&mut self, of: &ResidualOp, node: &Node) -> Finish {
        let delta = self.lora_b(of.partial, node.layer);
        let Summed { product, bias, clamp, .. } = self.sums[&of.partial];
        let ResidualOp { norm, scale, factor, .. } = *of;
        Finish { product, bias, clamp, norm, delta, scale, factor, alone: of.x.is_none() }
    }

    /// Whether the operator `at` and the next one add two products to the stream, of blocks side by side. Nothing
    /// reads the stream in between, so one instruction does both, and nodes exchange once.
    fn pairs(&self, at: usize) -> bool {
        let ops = self.ops;
        let plain = |at: usize| match ops.get(at)?.op.get() {
            Some(&ResidualOp { x: Some(x), partial, norm: None, factor: None, .. }) => {
                Some((x, partial))
            }
            _ => None,
        };
        let product =
            |of: Bundle| ops.iter().any(|n| n.out == of && n.op.get::<LinearOp>().is_some());
        let (Some((_, first)), Some((x, second))) = (plain(at), plain(at + 1)) else {
            return false;
        };
        let alone = plain(at + 2).is_none_or(|(x, _)| x != ops[at + 1].out);
        let follows = x == ops[at].out && self.is_last_use(x, &ops[at + 1]);
        alone && follows && product(first) && product(second)
    }

    /// Adds a sum, and perhaps another, to the stream `x`, which the operator `at` reads.
    fn residual(
        &mut self,
        node: &Node,
        at: usize,
        x: Option<Bundle>,
        partial: Bundle,
        finish: Finish,
        also: Option<Also>,
    ) -> BufId {
        // The stream is updated in place unless something reads the old value later.
        let ops = self.ops;
        let own = x.filter(|x| self.is_last_use(*x, &ops[at])).map(|x| self.value(x));
        let role = match x {
            Some(_) => format!("x{}", node.out.0),
            None => "sum".to_owned(),
        };
        let out = own.unwrap_or_else(|| self.own_buffer(&role, node));
        let x = x.map_or(out, |x| self.value(x));
        let first =
            Also { partial: self.value(partial), finish, sum: self.sums[&partial].sum.clone() };
        let (width, gather, also) = (self.width(node.out), self.variant.gather, also.map(Box::new));
        let first = Box::new(first);
        self.emit_rows(node, self.work(node), ResidualInstr { x, first, also, out, width, gather });
        out
    }
}

/// What a sum over nodes goes through before it is added to the residual stream.
#[derive(Copy, Clone, Debug)]
struct Finish {
    /// Multiplied by first: one number.
    product: Option<VectorId>,
    /// Added then.
    bias: Option<VectorId>,
    /// What it is kept between then.
    clamp: Option<Clamp>,
    /// Then.
    norm: Option<Norm>,
    /// What adapters add to the product before, and the matrix that they stand beside.
    delta: Option<(BufId, MatrixId)>,
    /// Factor on the result.
    scale: f32,
    /// Factor on the sum with the stream.
    factor: Option<VectorId>,
    /// Whether there is no stream, but what was there is written over.
    alone: bool,
}

/// A sum over nodes.
#[derive(Clone, Debug)]
struct Also {
    /// Summands.
    partial: BufId,
    /// What their sum goes through.
    finish: Finish,
    /// Their number, place and order.
    sum: Sum,
}

/// `out = x + finish(Σ partials)`, and perhaps another sum: that of blocks side by side. Neither has a norm then.
#[derive(Clone, Debug)]
struct ResidualInstr {
    x: BufId,
    first: Box<Also>,
    also: Option<Box<Also>>,
    out: BufId,
    width: usize,
    gather: Gather,
}

impl ResidualInstr {
    fn sums(&self) -> impl Iterator<Item = &Also> {
        [&*self.first].into_iter().chain(self.also.as_deref())
    }

    /// The summands of a sum.
    fn summands(&self, entry: &mut Entry<'_>, of: &Also) {
        let (desk, node) = (entry.desk, entry.desk.node());
        let shared = self.gather == Gather::Scatter;
        let part = |all: usize| if shared { entry.part(all) } else { all };
        let reads: Vec<(usize, usize)> = (of.sum.slots.iter().enumerate())
            .map(|(from, slots)| {
                let at = if self.gather == Gather::Push { node } else { from };
                (desk.place_of(at), part(slots.len() * slot(self.width)))
            })
            .collect();
        let passes = part(of.sum.roots() * self.width);
        for (place, bytes) in reads {
            entry.read_from(of.partial, place, bytes);
        }
        entry.pass(passes);
    }
}

impl Instruction for ResidualInstr {
    fn name(&self) -> &'static str {
        "residual"
    }

    fn claims(&self, claims: &mut Claims) {
        let rows = claims.rows();
        let (of_x, of_sums, of_out) = match self.gather {
            Gather::Push => (rows, Reach::Group, rows),
            Gather::Pull => (rows, Reach::All, rows),
            Gather::Scatter => (Reach::Group, Reach::All, Reach::All),
        };
        claims.read([self.x], of_x);
        claims.read(self.sums().map(|of| of.partial), of_sums);
        let deltas = self.sums().filter_map(|of| of.finish.delta);
        claims.read(deltas.map(|(delta, _)| delta), Reach::Group);
        claims.write([self.out], of_out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let bytes = self.width * FLOAT;
        let of_norm = usize::from(self.first.finish.norm.is_some()) * self.width;
        self.summands(entry, &self.first);
        if self.gather == Gather::Scatter {
            // The team's part of the rows: the sum goes to the others.
            entry.read(self.x, entry.part(bytes));
            entry.write_everywhere(self.out, entry.part(slot(self.width)));
            entry.pass(entry.part(of_norm));
        } else {
            entry.copy(self.x, self.out, self.width);
            entry.pass(of_norm);
        }
        if let Some(also) = &self.also {
            self.summands(entry, also);
        }
    }

    /// Of the sums.
    fn scratch(&self, _tables: &Tables, _tokens: usize) -> Scratch {
        let width = self.width;
        let whole = if self.first.finish.norm.is_some() { 2 * width } else { 0 };
        let roots = self.sums().map(|of| of.sum.roots()).max().unwrap_or(0);
        let floats = (LEVELS * width).max((roots + 1 + LEVELS) * PIECE + whole);
        Scratch { floats, ..Scratch::default() }
    }

    fn run(&self, run: Run<'_>) {
        let domain = run.domain;
        let pushed = self.gather == Gather::Push;
        let mut parts = self.sums().map(|Also { partial, finish, sum }| {
            let delta = finish.delta;
            let delta = delta.map(|(buf, matrix)| LowSums { of: run.source(buf), matrix, domain });
            let summands = Summands { of: run.source(*partial), pushed, sum };
            Partials { summands, finish, delta, width: self.width }
        });
        let (first, second) = (parts.next().expect("a sum"), parts.next());
        // The stream is mostly updated in place.
        let x = (self.x != self.out).then(|| run.source(self.x));
        let (out, count) = (run.target(self.out), run.count());
        match self.gather {
            Gather::Push | Gather::Pull => {
                run.thread.residual(x, first, second, out, run.rows, run.scratch);
            }
            Gather::Scatter => run.thread.scatter(x, first, second, out, count, run.scratch),
        }
    }
}

/// The summands of a residual sum.
#[derive(Copy, Clone)]
struct Summands<'a> {
    of: Source<'a>,
    /// Whether every node has those of all nodes.
    pushed: bool,
    /// Their number, place and order.
    sum: &'a Sum,
}

/// What is added to the residual stream.
#[derive(Copy, Clone)]
struct Partials<'a> {
    summands: Summands<'a>,
    /// What their sum goes through.
    finish: &'a Finish,
    /// What adapters add to it.
    delta: Option<LowSums<'a>>,
    /// Elements of a row.
    width: usize,
}

impl Thread<'_> {
    /// One root's columns of a row.
    fn summand<'s>(
        &self,
        parts: Partials<'s>,
        root: usize,
        row: usize,
        cols: Range<usize>,
    ) -> &'s [f32] {
        let Summands { of, pushed, sum } = parts.summands;
        let (node, slot) = if pushed {
            (self.node, root)
        } else {
            let node = sum.slots.iter().position(|s| s.contains(&root)).expect("a root");
            (node, root - sum.slots[node].start)
        };
        let first = slot * parts.width.next_multiple_of(TILE_ROWS);
        of.on(self.place_of(node)).columns(row, first + cols.start..first + cols.end)
    }

    /// What the columns `cols` of a row's sum add to the stream. With a norm, they are all columns.
    fn finish<'s>(
        &self,
        parts: Partials<'_>,
        row: usize,
        cols: Range<usize>,
        sum: &'s mut [f32],
        spare: &'s mut [f32],
    ) -> &'s mut [f32] {
        let (kernels, finish) = (self.step.kernels, parts.finish);
        if let Some(product) = finish.product {
            kernels.scale(sum, self.step.weights.vector(product, self.group)[0]);
        }
        if let Some(delta) = parts.delta.filter(|d| self.is_adapted(d.matrix, d.domain, row)) {
            kernels.add_assign(sum, delta.of.columns(row..row + 1, cols.clone()).row(0));
        }
        if let Some(bias) = finish.bias {
            kernels.add_assign(sum, &self.step.weights.vector(bias, self.group)[cols]);
        }
        if let Some(clamp) = finish.clamp {
            keep(self.limits_of(clamp), sum);
        }
        let done = match &finish.norm {
            None => sum,
            Some(norm) => {
                self.norm_of(norm, sum, spare);
                spare
            }
        };
        if finish.scale != 1.0 {
            kernels.scale(done, finish.scale);
        }
        done
    }

    /// The factor on the new stream.
    fn scale_stream(&self, finish: &Finish, stream: &mut [f32]) {
        if let Some(factor) = finish.factor {
            self.step.kernels.scale(stream, self.step.weights.vector(factor, self.group)[0]);
        }
    }

    /// `out = x + finish(Σ partials)`, and perhaps another such sum, for this thread's rows, each node for itself; without
    /// `x`, the stream is `out` already.
    fn residual(
        &self,
        x: Option<Source<'_>>,
        first: Partials<'_>,
        second: Option<Partials<'_>>,
        mut out: Target<'_>,
        rows: Range<usize>,
        scratch: &mut [f32],
    ) {
        let (kernels, width) = (self.step.kernels, first.width);
        let mut sums = Tree::new(scratch, width);
        for row in rows {
            let to = out.row(row, width);
            if let Some(x) = x {
                to.copy_from_slice(x.row(row, width));
            }
            for parts in [Some(first), second].into_iter().flatten() {
                for (root, &folds) in parts.summands.sum.folds.iter().enumerate() {
                    let part = self.summand(parts, root, row, 0..width);
                    sums.push(kernels, folds, |to| to.copy_from_slice(part));
                }
                let (sum, spare) = sums.take();
                let done = self.finish(parts, row, 0..width, sum, spare);
                match parts.finish.alone {
                    true => to.copy_from_slice(done),
                    false => kernels.add_assign(to, done),
                }
                self.scale_stream(parts.finish, to);
            }
        }
    }

    /// The same for this thread's share of the elements of all rows, for all nodes: reduce-scatter
    /// and all-gather. Both begin at the thread's own node and go round. A norm needs whole rows, so
    /// then shares are rows.
    fn scatter(
        &self,
        x: Option<Source<'_>>,
        first: Partials<'_>,
        second: Option<Partials<'_>>,
        mut out: Target<'_>,
        rows: usize,
        scratch: &mut [f32],
    ) {
        let Partials { summands: Summands { sum: order, .. }, finish, width, .. } = first;
        let roots = second.map_or(0, |second| second.summands.sum.roots()).max(order.roots());
        let (held, rest) = scratch.split_at_mut(PIECE);
        let (fetched, rest) = rest.split_at_mut(roots * PIECE);
        let (stack, whole) = rest.split_at_mut(LEVELS * PIECE);
        // Shares are whole cache lines, so that no two threads write into one.
        let lines = width.div_ceil(TILE_ROWS);
        let (id, threads) = self.step.among;
        let mine = match finish.norm {
            None => share(rows * lines, threads, id),
            Some(_) => {
                let rows = share(rows, threads, id);
                rows.start * lines..rows.end * lines
            }
        };
        let mut at = mine.start;
        while at < mine.end {
            let (row, line) = (at / lines, at % lines);
            let count = (mine.end - at).min(lines - line).min(PIECE / TILE_ROWS);
            let cols = line * TILE_ROWS..((line + count) * TILE_ROWS).min(width);
            at += count;
            let mut sums = Tree::new(stack, cols.len());
            self.fold(first, row, &cols, fetched, &mut sums);
            let (sum, spare) = sums.take();
            if finish.norm.is_none() {
                let done = self.finish(first, row, cols.clone(), sum, spare);
                self.add_stream(x, finish, &mut out, row, &cols, done);
                let Some(second) = second else {
                    self.tell(&mut out, row, &cols, done);
                    continue;
                };
                let held = &mut held[..cols.len()];
                held.copy_from_slice(done);
                self.fold(second, row, &cols, fetched, &mut sums);
                let (sum, spare) = sums.take();
                let done = self.finish(second, row, cols.clone(), sum, spare);
                self.step.kernels.add_assign(held, done);
                self.tell(&mut out, row, &cols, held);
                continue;
            }
            let (all, spare) = whole[..2 * width].split_at_mut(width);
            all[cols.clone()].copy_from_slice(sum);
            if cols.end == width {
                let done = self.finish(first, row, 0..width, all, spare);
                self.add_stream(x, finish, &mut out, row, &(0..width), done);
                self.tell(&mut out, row, &(0..width), done);
            }
        }
    }

    /// The summands of columns of a row, from all nodes, as one sum.
    fn fold(
        &self,
        parts: Partials<'_>,
        row: usize,
        cols: &Range<usize>,
        fetched: &mut [f32],
        sums: &mut Tree<'_>,
    ) {
        let order = parts.summands.sum;
        for root in self.round().flat_map(|n| order.slots[n].clone()) {
            let part = self.summand(parts, root, row, cols.clone());
            fetched[root * PIECE..][..cols.len()].copy_from_slice(part);
        }
        for (part, &folds) in fetched.chunks_exact(PIECE).zip(&order.folds) {
            let part = &part[..cols.len()];
            sums.push(self.step.kernels, folds, |to| to.copy_from_slice(part));
        }
    }

    /// The nodes, from this thread's own on.
    fn round(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, nodes) = (self.node, self.step.tables.nodes());
        (0..nodes).map(move |i| (first + i) % nodes)
    }

    /// Adds columns of a row of the stream to a sum.
    fn add_stream(
        &self,
        x: Option<Source<'_>>,
        finish: &Finish,
        out: &mut Target<'_>,
        row: usize,
        cols: &Range<usize>,
        done: &mut [f32],
    ) {
        let kernels = self.step.kernels;
        match x {
            _ if finish.alone => {}
            Some(x) => kernels.add_assign(done, x.columns(row..row + 1, cols.clone()).row(0)),
            None => kernels.add_assign(done, out.columns(row..row + 1, cols.clone()).row_mut(0)),
        }
        self.scale_stream(finish, done);
    }

    /// Columns of a row of the new stream, to every node.
    fn tell(&self, out: &mut Target<'_>, row: usize, cols: &Range<usize>, done: &[f32]) {
        for node in self.round() {
            let mut to = out.columns_on(self.place_of(node), row..row + 1, cols.clone());
            to.row_mut(0).copy_from_slice(done);
        }
    }
}
