//! A linear recurrence over heads.

use super::prelude::*;
use crate::exec::{Source, Target, Thread, blocks, deal_pieces};
use crate::recurrent::{Recurrence, Rule};
use kernels::{Activation, Product, Rows, RowsMut, SLICE, Scan, TILE_ROWS};

/// Tokens whose keys and queries are made ready at a time.
const CHUNK: usize = 64;

/// A linear recurrence over heads. Takes and gives split.
#[derive(Clone, Debug)]
pub(crate) struct RecurrenceOp {
    /// Queries, keys and values.
    pub x: Bundle,
    /// Time steps and gates.
    pub raw: Bundle,
    pub spec: Box<Recurrence>,
}

impl Operator for RecurrenceOp {
    fn name(&self) -> &'static str {
        "recurrence"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x, self.raw]
    }

    fn vectors(&self) -> Vec<VectorId> {
        let skip = match self.spec.rule {
            Rule::Delta { .. } => None,
            Rule::StateSpace { skip } => Some(skip),
        };
        [self.spec.decay, self.spec.step_bias].into_iter().chain(skip).collect()
    }

    fn states(&self) -> Range<usize> {
        self.spec.state..self.spec.state + 1
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let spec = self.spec.clone();
        let out = to.buffer("heads", node.out, node.layer, Work::Rows);
        let tiles = spec.all_slices() * TILE_ROWS;
        let squares = spec.squares.then(|| to.told(tiles, 1, node.layer));
        to.told.extend(squares.map(|told| (node.out, told)));
        let (x, raw) = (to.value(self.x), to.value(self.raw));
        let state = to.buffers.state(spec.state);
        to.emit(node, RecurrenceInstr { x, raw, state, spec, out, squares });
        out
    }
}

/// A recurrence of heads. Sums of squares of its results go to all nodes.
#[derive(Clone, Debug)]
struct RecurrenceInstr {
    x: BufId,
    raw: BufId,
    state: BufId,
    spec: Box<Recurrence>,
    out: BufId,
    squares: Option<BufId>,
}

impl Instruction for RecurrenceInstr {
    fn name(&self) -> &'static str {
        match self.spec.rule {
            Rule::Delta { .. } => "delta_rule",
            Rule::StateSpace { .. } => "state_space",
        }
    }

    // A sequence's state is read and written by the thread that has the slices.
    fn claims(&self, claims: &mut Claims) {
        claims.read([self.x, self.raw], Reach::Group);
        claims.write([self.state, self.out], ITEMS);
        claims.write(self.squares, Reach::All);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let (spec, node) = (&self.spec, entry.desk.node());
        let (heads, keys) = (spec.heads.len(node), spec.heads.key_range(node).len());
        let values = heads * spec.heads.values.dim;
        entry.read(self.x, (values + 2 * keys * spec.heads.key_dim) * FLOAT);
        let gates = if spec.gated { values } else { 0 };
        let numbers = if matches!(spec.rule, Rule::Delta { .. }) { 2 } else { 1 };
        entry.read(self.raw, (numbers * heads + gates) * FLOAT);
        entry.state(spec.state, values * spec.heads.key_dim * FLOAT);
        let kind = What::Multiply(Product::F32);
        entry.per(Per::Row(entry.rows), kind, heads * spec.multiplies());
        entry.write(self.out, values * FLOAT);
        if let Some(squares) = self.squares {
            entry.write_everywhere(squares, heads * spec.heads.slices() * FLOAT);
        }
    }

    fn scratch(&self, _tables: &Tables, _tokens: usize) -> Scratch {
        let heads = &self.spec.heads;
        let floats = CHUNK * (2 * heads.key_dim + 2 + heads.slices() * SLICE);
        Scratch { floats, ..Scratch::default() }
    }

    fn is_split(&self, _tables: &Tables) -> bool {
        true
    }

    fn run(&self, run: Run<'_>) {
        let (spec, thread) = (&self.spec, run.thread);
        let (heads, slices) = (&spec.heads, spec.heads.slices());
        let input = Input { x: run.source(self.x), raw: run.source(self.raw) };
        let mut pages = run.pages(self.state, spec.state);
        let (mut out, mut squares) = (run.target(self.out), self.squares.map(|to| run.target(to)));
        let scratch = run.scratch;
        let (class, pieces) = (thread.class_of(spec.state), heads.len(thread.node) * slices);
        for (sequence, own) in deal_pieces(&class.sequences, pieces, thread.rank, thread.size) {
            if sequence.fresh {
                pages.fixed_mut(sequence.page, own.clone()).fill(0.0);
            }
            for head in own.start / slices..own.end.div_ceil(slices) {
                let first = head * slices;
                let part = own.start.max(first) - first..own.end.min(first + slices) - first;
                let held = first + part.start..first + part.end;
                for (tokens, save) in sequence.parts(class) {
                    let state = pages.fixed_mut(sequence.page, held.clone());
                    for tokens in blocks(tokens, CHUNK) {
                        let head = OneHead { spec, head, part: part.clone(), tokens };
                        thread.head(input, &head, state, &mut out, squares.as_mut(), scratch);
                    }
                    if let Some(page) = save {
                        pages.copy_fixed(sequence.page, page, held.clone());
                    }
                }
            }
        }
    }
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Thread<'_> {
    /// Some slices of a head, for some tokens.
    fn head(
        &self,
        input: Input<'_>,
        of: &OneHead<'_>,
        state: &mut [f32],
        out: &mut Target<'_>,
        squares: Option<&mut Target<'_>>,
        scratch: &mut [f32],
    ) {
        let Input { x, raw } = input;
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
        out.claim(of.tokens.clone(), at(0));
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
        let nodes = self.step.tables.nodes();
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
}

/// The input of a recurrence, as in [`RecurrenceOp`].
#[derive(Copy, Clone)]
struct Input<'a> {
    x: Source<'a>,
    raw: Source<'a>,
}

/// Some slices of a head, and some tokens of a sequence.
struct OneHead<'a> {
    spec: &'a Recurrence,
    /// Number of the head on its node.
    head: usize,
    part: Range<usize>,
    tokens: Range<usize>,
}
