//! Convolutions along sequences, recurrences over heads, and what heads go through behind them.
//!
//! A state is pieces: channels of a convolution, slices of a head. A thread has runs of pieces of each
//! sequence of the step, about as much work as any other, and goes through all of the sequence's tokens with
//! them. No two threads have a piece in common, and a token's bits depend on the tokens before it alone.

use super::Thread;
use super::access::{Source, StatePages, Target};
use crate::instr::Run;
use crate::recurrent::{
    CHANNELS, Convolution, HeadNorm, Modulation, Recurrence, RecurrentHeads, Rule,
};
use crate::step::{Class, StateRun};
use kernels::{Activation, Conv, Rows, RowsMut, SLICE, Scan, TILE_ROWS};
use std::ops::Range;

/// Tokens whose keys and queries are made ready at a time.
const CHUNK: usize = 64;
/// Tokens that take as long as it takes to bring a state near, about.
const BRING: usize = 2;

/// Floats that a thread needs for a recurrence.
pub(super) fn scratch_len(spec: &Recurrence) -> usize {
    CHUNK * (2 * spec.heads.key_dim + 2 + spec.heads.slices() * SLICE)
}

/// A thread's pieces of each sequence, of which each has `pieces`: number `rank` of `size` shares.
fn dealt(
    runs: &[StateRun],
    pieces: usize,
    (rank, size): (usize, usize),
) -> impl Iterator<Item = (&StateRun, Range<usize>)> {
    let cost = |run: &StateRun| run.tokens.len() + BRING;
    let total: usize = runs.iter().map(|run| pieces * cost(run)).sum();
    let mine = total * rank / size..total * (rank + 1) / size;
    let mut before = 0;
    runs.iter().filter_map(move |run| {
        let cost = cost(run);
        let first = |bound: usize| bound.saturating_sub(before).div_ceil(cost).min(pieces);
        let own = first(mine.start)..first(mine.end);
        before += pieces * cost;
        (!own.is_empty()).then_some((run, own))
    })
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Thread<'_> {
    /// The step in the class of a state.
    fn class_of(&self, state: usize) -> &Class {
        &self.input.classes[self.step.graph.states[state].class]
    }

    pub(super) fn convolution(
        &self,
        x: Source<'_>,
        spec: &Convolution,
        mut pages: StatePages<'_>,
        mut out: Target<'_>,
    ) {
        let vector = |id| self.step.weights.vector(id, self.group);
        let (all, taps) = (vector(spec.weight), spec.taps);
        let (class, runs) = (self.class_of(spec.state), &spec.runs[self.node]);
        let pieces = Convolution::pieces(runs);
        for (sequence, own) in dealt(&class.sequences, pieces, (self.rank, self.size)) {
            let mut before = 0;
            for run in runs {
                let (len, count) = (run.channels.len(), run.channels.len().div_ceil(CHANNELS));
                let here = before..before + count;
                for piece in own.start.max(here.start)..own.end.min(here.end) {
                    let first = (piece - before) * CHANNELS;
                    let channels = first..(first + CHANNELS).min(len);
                    let at = |column: usize| column + channels.start..column + channels.end;
                    let global = at(run.channels.start);
                    let factors = &all[global.start..];
                    let factors = Rows::new(factors, taps, channels.len(), spec.channels);
                    let bias = spec.bias.map(|bias| &vector(bias)[global.clone()]);
                    if sequence.fresh {
                        pages.fixed_mut(sequence.page, piece..piece + 1).fill(0.0);
                    }
                    for (tokens, save) in sequence.parts(class) {
                        let gate = |which: usize| {
                            let gates = spec.gates.as_ref()?;
                            Some(x.columns(tokens.clone(), at(gates[which][self.node])))
                        };
                        let conv = Conv {
                            x: x.columns(tokens.clone(), at(run.from)),
                            before: gate(0),
                            after: gate(1),
                            taps: factors,
                            bias,
                            silu: spec.silu,
                        };
                        let state = pages.fixed_mut(sequence.page, piece..piece + 1);
                        let state = &mut state[..(taps - 1) * channels.len()];
                        let to = out.columns(tokens, at(run.to));
                        self.step.kernels.conv(&conv, state, to);
                        if let Some(page) = save {
                            pages.copy_fixed((sequence.page, page), piece..piece + 1);
                        }
                    }
                }
                before += count;
            }
        }
    }

    pub(super) fn recurrence(
        &self,
        (x, raw): (Source<'_>, Source<'_>),
        spec: &Recurrence,
        mut pages: StatePages<'_>,
        (mut out, mut squares): (Target<'_>, Option<Target<'_>>),
        scratch: &mut [f32],
    ) {
        let (heads, slices) = (&spec.heads, spec.heads.slices());
        let (class, pieces) = (self.class_of(spec.state), heads.len(self.node) * slices);
        for (sequence, own) in dealt(&class.sequences, pieces, (self.rank, self.size)) {
            if sequence.fresh {
                pages.fixed_mut(sequence.page, own.clone()).fill(0.0);
            }
            for head in own.start / slices..own.end.div_ceil(slices) {
                let first = head * slices;
                let part = own.start.max(first) - first..own.end.min(first + slices) - first;
                let held = first + part.start..first + part.end;
                for (tokens, save) in sequence.parts(class) {
                    let state = pages.fixed_mut(sequence.page, held.clone());
                    for tokens in super::matmul::blocks(tokens, CHUNK) {
                        let head = OneHead { spec, head, part: part.clone(), tokens };
                        self.head((x, raw), &head, state, (&mut out, squares.as_mut()), scratch);
                    }
                    if let Some(page) = save {
                        pages.copy_fixed((sequence.page, page), held.clone());
                    }
                }
            }
        }
    }

    /// Some slices of a head, for some tokens.
    fn head(
        &self,
        (x, raw): (Source<'_>, Source<'_>),
        of: &OneHead<'_>,
        state: &mut [f32],
        (out, squares): (&mut Target<'_>, Option<&mut Target<'_>>),
        scratch: &mut [f32],
    ) {
        let (kernels, spec, heads) = (self.step.kernels, of.spec, &of.spec.heads);
        let vector = |id| self.step.weights.vector(id, self.group);
        let (count, columns) = (of.tokens.len(), &spec.columns[self.node]);
        let number = heads.values.q_cut.range(self.node).start + of.head;
        let (rate, bias) = (vector(spec.decay)[number], vector(spec.step_bias)[number]);
        let (decay, scratch) = scratch.split_at_mut(CHUNK);
        let (gain, scratch) = scratch.split_at_mut(CHUNK);
        let raw_of =
            |column: usize| raw.columns(of.tokens.clone(), column + of.head..column + of.head + 1);
        let steps = raw_of(columns.step);
        for t in 0..count {
            let step = softplus(f64::from(steps.row(t)[0] + bias));
            decay[t] = (step * f64::from(rate)).exp() as f32;
            gain[t] = step as f32;
        }
        let key = heads.key_of(self.node, of.head) * heads.key_dim;
        let keys_at = |column: usize| {
            x.columns(of.tokens.clone(), column + key..column + key + heads.key_dim)
        };
        let (mut k, mut q) = (keys_at(columns.k), keys_at(columns.q));
        let (ready, scratch) = scratch.split_at_mut(2 * CHUNK * heads.key_dim);
        let (mut delta, mut skip) = (false, 0.0);
        match spec.rule {
            Rule::Delta { eps } => {
                delta = true;
                let gains = raw_of(columns.gain);
                for (t, gain) in gain[..count].iter_mut().enumerate() {
                    *gain = sigmoid(f64::from(gains.row(t)[0])) as f32;
                }
                let (own_k, own_q) = ready.split_at_mut(CHUNK * heads.key_dim);
                let scale = (heads.key_dim as f32).sqrt().recip();
                for (from, to, scale) in [(k, &mut *own_k, 1.0), (q, &mut *own_q, scale)] {
                    for (t, to) in to.chunks_exact_mut(heads.key_dim).take(count).enumerate() {
                        let length = (kernels.square_sum(from.row(t)) + eps).sqrt();
                        to.copy_from_slice(from.row(t));
                        kernels.scale(to, scale / length);
                    }
                }
                let view = |own| Rows::new(own, count, heads.key_dim, heads.key_dim);
                (k, q) = (view(own_k), view(own_q));
            }
            Rule::StateSpace { skip: factors } => skip = vector(factors)[number],
        }
        let dim = heads.values.dim;
        let values = of.part.start * SLICE..(of.part.end * SLICE).min(dim);
        let at = |column: usize| {
            let column = column + of.head * dim;
            column + values.start..column + values.end
        };
        let v = x.columns(of.tokens.clone(), at(columns.v));
        let (decay, gain) = (&decay[..count], &gain[..count]);
        let scan = Scan { k, q, v, decay, gain, delta, skip };
        let mut to = out.columns(of.tokens.clone(), at(0));
        if !spec.gated {
            kernels.scan(&scan, state, to);
            return;
        }
        let width = values.len();
        let own = &mut scratch[..count * width];
        kernels.scan(&scan, state, RowsMut::new(own, count, width, width));
        let gate = raw.columns(of.tokens.clone(), at(columns.gate));
        let own = Rows::new(own, count, width, width);
        kernels.gated(Activation::Silu, gate, own, to.reborrow());
        if let Some(squares) = squares {
            self.tell_slices(of, to.as_rows(), squares);
        }
    }

    /// The sums of squares of some slices, to every node.
    fn tell_slices(&self, of: &OneHead<'_>, results: Rows<'_, f32>, squares: &mut Target<'_>) {
        let heads = &of.spec.heads;
        let number = heads.values.q_cut.range(self.node).start + of.head;
        let first = number * heads.slices() + of.part.start;
        let nodes = self.step.graph.nodes();
        for node in 0..nodes {
            let place = self.place_of((self.node + node) % nodes);
            let cols = first..first + of.part.len();
            let mut to = squares.columns_on(place, of.tokens.clone(), cols);
            for t in 0..results.rows() {
                for (to, slice) in to.row_mut(t).iter_mut().zip(results.row(t).chunks(SLICE)) {
                    *to = self.step.kernels.square_sum(slice);
                }
            }
        }
    }

    /// Sums of squares of each `unit` elements of rows, to every node.
    pub(super) fn tell_squares(
        &self,
        x: Source<'_>,
        (runs, unit): (&[Run], usize),
        mut to: Target<'_>,
        rows: Range<usize>,
    ) {
        for run in runs.iter().filter(|run| run.count > 0) {
            let x = x.columns(rows.clone(), run.from..run.from + run.count * unit);
            let cols = run.to..run.to + run.count;
            for node in 0..self.step.graph.nodes() {
                let mut to = to.columns_on(self.place_of(node), rows.clone(), cols.clone());
                for row in 0..rows.len() {
                    let units = x.row(row).chunks_exact(unit);
                    for (to, unit) in to.row_mut(row).iter_mut().zip(units) {
                        *to = self.step.kernels.square_sum(unit);
                    }
                }
            }
        }
    }

    pub(super) fn modulation(
        &self,
        (x, gate, squares): (Source<'_>, Option<Source<'_>>, Option<Source<'_>>),
        (spec, width): (&Modulation, usize),
        mut out: Target<'_>,
        rows: Range<usize>,
    ) {
        let kernels = self.step.kernels;
        for row in rows {
            match (&spec.gate, gate) {
                (Some((f, columns)), Some(gate)) if let Some(above) = &spec.above => {
                    let squares = squares.expect("what is above has sums of squares");
                    let least = above.least(squares.row(row, above.numbers()));
                    let cols = |at: usize| at..at + width;
                    let gate = gate.columns(row..row + 1, cols(columns[self.node]));
                    let x = x.columns(row..row + 1, cols(spec.from[self.node]));
                    let to = out.row(row, width);
                    to.copy_from_slice(gate.row(0));
                    kernels.above(to, least);
                    kernels.activate(*f, to);
                    kernels.scale_by(to, 1.0, x.row(0));
                }
                (Some((f, columns)), Some(gate)) => {
                    let at = columns[self.node];
                    let gate = gate.columns(row..row + 1, at..at + width);
                    let from = spec.from[self.node];
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
                    let weight = self.step.weights.vector(*weight, self.group);
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
                    let weight = self.step.weights.vector(*weight, self.group);
                    kernels.scale_by(to, factor, &weight[starts[self.node]..][..width]);
                }
                Some(HeadNorm::Groups { heads, each, weight, eps }) => {
                    let squares = squares.expect("norms of groups have sums of squares");
                    let weight = self.step.weights.vector(*weight, self.group);
                    let all = heads.values.q * heads.slices();
                    self.norm_groups((heads, *each), (squares.row(row, all), weight, *eps), to);
                }
            }
        }
    }

    /// Norms of the groups of heads of which this node has some.
    fn norm_groups(
        &self,
        (heads, each): (&RecurrentHeads, usize),
        (squares, weight, eps): (&[f32], &[f32], f32),
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

/// Some slices of a head, and some tokens of a sequence.
struct OneHead<'a> {
    spec: &'a Recurrence,
    /// Number of the head on its node.
    head: usize,
    part: Range<usize>,
    tokens: Range<usize>,
}
