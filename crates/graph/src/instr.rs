//! Instructions: what threads execute, and what each touches.
//!
//! Every instruction states for each buffer whether it reads or writes it and how far its access
//! reaches: what the same thread wrote, what its group wrote, or what all groups wrote. Waits are
//! derived from these statements alone.

use crate::buffer::BufId;
use crate::op::{Activation, Added, Attention, Expert, Merging, Norm, TileSums};
use crate::recurrent::{Convolution, Modulation, Recurrence, Rule};
use crate::router::Router;
use crate::streams::Streams;
use crate::sum::{Leaf, Sum};
use crate::tensor::Domain;
use crate::weight::{Clamp, MatrixId, VectorId};
use kernels::ActKind;

/// Who does row-wise work.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Every thread does all rows for itself.
    Private,
    /// The rows are dealt over the threads of the node.
    Rows,
}

/// How the summands of all nodes come together; all ways give the same bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Gather {
    /// One shot, for few rows: who computes a summand writes it into every node's copy, so that
    /// readers stay on their node.
    Push,
    /// One shot, for more: every node's threads read the summands of all nodes.
    Pull,
    /// Reduce-scatter and all-gather, for many: each thread of the machine sums its share once and
    /// writes it to every node, which costs another global wait. Both go round from the thread's
    /// own node on, so that no node is visited by all at once (Sandwich, §6.2).
    Scatter,
}

/// Activations of a matrix product: buffers, or views of them.
#[derive(Copy, Clone, Debug)]
pub struct Operand<B = BufId> {
    /// As f32, for parts with weights of type F32 or F16.
    pub f32: Option<B>,
    /// Rounded to bfloat16, for parts with such weights.
    pub bf16: Option<B>,
    /// As blocks of 8-bit integers, for parts with quantised weights.
    pub q8: Option<B>,
}

/// What a sum over nodes goes through before it is added to the residual stream.
#[derive(Copy, Clone, Debug)]
pub struct Finish {
    /// Multiplied by first: one number.
    pub product: Option<VectorId>,
    /// Added then.
    pub bias: Option<VectorId>,
    /// What it is kept between then.
    pub clamp: Option<Clamp>,
    /// Then.
    pub norm: Option<Norm>,
    /// What adapters add to the product before, and the matrix that they stand beside.
    pub delta: Option<(BufId, MatrixId)>,
    /// Factor on the result.
    pub scale: f32,
    /// Factor on the sum with the stream.
    pub factor: Option<VectorId>,
    /// Whether there is no stream, but what was there is written over.
    pub alone: bool,
}

/// A second sum that is added to the residual stream behind a first: that of blocks side by side. Neither has a norm.
#[derive(Clone, Debug)]
pub struct Also {
    /// Summands.
    pub partial: BufId,
    /// What their sum goes through.
    pub finish: Finish,
    /// Their number, place and order.
    pub sum: Sum,
}

/// Units of a row that a node tells of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Column of the node's row where they begin.
    pub from: usize,
    /// How many they are.
    pub count: usize,
    /// Which of all numbers is that of the first.
    pub to: usize,
}

/// What an instruction does.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "operands are named as in `Op`")]
pub enum InstrKind {
    /// Cosines and sines for the step's positions.
    RopeTable { rope: usize, out: BufId },
    /// Takes the residual stream that the stage before has handed on. The two buffers take turns:
    /// one is filled while the other is read. Stages meet between parts of a step, so nothing else
    /// orders the two sides.
    Receive { from: [BufId; 2], out: BufId, width: usize },
    /// Hands the residual stream on, into the next stage's memory.
    Send { x: BufId, to: [BufId; 2], width: usize },
    /// Rows of the embedding matrix, read from the node that holds them, and those of positions.
    Embed { table: MatrixId, scale: f32, added: Added, insets: bool, out: BufId },
    /// Columns of the step's rows, from the node's first on, plus `x`.
    Rows { x: Option<BufId>, from: usize, matrix: Option<MatrixId>, width: usize, out: BufId },
    /// Rows of `count` tokens, of `width` elements each, as one.
    Merge { x: BufId, count: usize, how: Merging, width: usize, out: BufId },
    /// Copies shared rows into the thread's own buffer.
    Load { x: BufId, out: BufId, width: usize },
    /// Norm of each row.
    Norm { x: BufId, norm: Norm, out: BufId },
    /// Rows of f32 to rows of another kind, as wide as the input of `matrix`, kept between its limits before; of the same
    /// kind where there are such.
    Quantize { x: BufId, kind: ActKind, matrix: MatrixId, out: BufId },
    /// Matrix product, plus bias; each thread does its tiles. Columns that nodes share are summed in
    /// `splits` runs of each node, and with `push`, a summand goes to every node's copy. Of a matrix by
    /// head, elements of `carried` go along as they are. What is told of each tile goes to all nodes.
    MatMul {
        acts: Operand,
        carried: Option<BufId>,
        matrix: MatrixId,
        activation: Option<Activation>,
        out: BufId,
        push: bool,
        splits: usize,
        told: Option<(TileSums, BufId)>,
        /// What A has given, if adapters are beside a matrix whose rows nodes share.
        low: Option<BufId>,
    },
    /// Products with A of the adapters beside a matrix, segment by segment. Where nodes share its columns, all are told.
    LoraA { x: BufId, matrix: MatrixId, out: BufId, told: bool },
    /// Products with B of the adapters beside a matrix whose columns nodes share, on every node.
    LoraB { low: BufId, matrix: MatrixId, out: BufId },
    /// Paired matrix product with `f(gate) * up`.
    Gated {
        acts: Operand,
        matrix: MatrixId,
        activation: Activation,
        out: BufId,
        low: Option<BufId>,
    },
    /// Scores to the experts of each token and their weights.
    Choose { scores: BufId, router: Box<Router>, out: BufId },
    /// What the chosen experts make of a token before their last matrix: a row for each, times its weight,
    /// those of an expert beside each other. `route` counts the model's routers.
    ExpertsUp {
        acts: Operand,
        chosen: BufId,
        count: usize,
        bank: MatrixId,
        expert: Expert,
        route: usize,
        out: BufId,
    },
    /// These times the last matrices, summed over a token's experts, into the slots of its summands; with
    /// `push`, on every node.
    ExpertsDown {
        acts: Operand,
        chosen: BufId,
        count: usize,
        bank: MatrixId,
        route: usize,
        /// How each node sums its positions.
        leaves: Vec<Vec<Leaf>>,
        out: BufId,
        push: bool,
    },
    /// Norms and RoPE of keys; keys and values to their pages.
    Prepare { from: Inputs, place: HeadInputs, cache: BufId, spec: Box<Attention> },
    /// Norms and RoPE of queries; attention of (query tile, KV head) items over all ranges.
    AttendFused { from: Inputs, place: HeadInputs, cache: BufId, spec: Box<Attention>, out: BufId },
    /// Norms and RoPE of queries; attention of (token, KV head, KV range) items into partial states.
    AttendSplit {
        from: Inputs,
        place: HeadInputs,
        cache: BufId,
        append: bool,
        spec: Box<Attention>,
        states: BufId,
    },
    /// A convolution of channels; the inputs before are the state.
    Convolution { x: BufId, state: BufId, spec: Box<Convolution>, out: BufId },
    /// A recurrence of heads. Sums of squares of its results go to all nodes.
    Recurrence {
        x: BufId,
        raw: BufId,
        state: BufId,
        spec: Box<Recurrence>,
        out: BufId,
        squares: Option<BufId>,
    },
    /// Sums of squares of each `unit` elements of rows, to every node: the runs of each node.
    Tell { x: BufId, runs: Vec<Vec<Run>>, unit: usize, out: BufId, work: Work },
    /// Heads by a norm and a gate.
    Modulation {
        x: BufId,
        gate: Option<BufId>,
        squares: Option<BufId>,
        width: Vec<usize>,
        spec: Box<Modulation>,
        out: BufId,
    },
    /// Partial states to attention outputs.
    Join { states: BufId, spec: Box<Attention>, out: BufId },
    /// `out = (norm(x) + y) * scale * factor`, run by run.
    Blend {
        x: BufId,
        y: BufId,
        width: usize,
        norm: Norm,
        scale: f32,
        factor: Option<VectorId>,
        out: BufId,
    },
    /// A step of `count` residual streams of `width`.
    Streams {
        x: BufId,
        y: Option<BufId>,
        z: Option<BufId>,
        count: usize,
        width: usize,
        what: Streams,
        out: BufId,
    },
    /// `out = x + finish(Σ partials)`, and perhaps another sum.
    Residual {
        x: BufId,
        partial: BufId,
        also: Option<Box<Also>>,
        finish: Finish,
        out: BufId,
        width: usize,
        gather: Gather,
        sum: Box<Sum>,
    },
    /// Rows that later steps recall.
    Remember { x: BufId, out: BufId, width: usize },
    /// Rows that the model's steps and those that predict have remembered.
    Recall { from: [BufId; 2], out: BufId, width: usize },
    /// The node's columns of `norm(x) | norm(y)`, of `width` elements each.
    Concat { x: BufId, y: BufId, norms: [Norm; 2], width: usize, matrix: MatrixId, out: BufId },
    /// Rows of which something is asked for.
    Select { x: BufId, out: BufId, width: usize },
    /// What the head reads, into the caller's hidden states.
    Hidden { x: BufId, out: BufId, width: usize, at: usize },
    /// Matrix product, times `scale` and bent below `cap`, into the caller's logits.
    Logits {
        acts: Operand,
        matrix: MatrixId,
        scale: f32,
        cap: Option<f32>,
        out: BufId,
        low: Option<BufId>,
    },
}

/// What attention takes of the step's tokens.
#[derive(Copy, Clone, Debug)]
pub struct Inputs {
    /// Queries, keys and values, or queries alone.
    pub qkv: BufId,
    /// The one key of all heads, which is their value too.
    pub latents: Option<BufId>,
}

impl Inputs {
    /// Where keys and values come from.
    pub(crate) fn keys(&self) -> BufId {
        self.latents.unwrap_or(self.qkv)
    }
}

/// What raw heads become queries and keys with: buffers, or views of them.
#[derive(Copy, Clone, Debug)]
pub struct HeadInputs<B = BufId> {
    /// Cosines and sines.
    pub rope: Option<B>,
    /// Sums of squares of all tiles of queries, then of keys.
    pub squares: Option<B>,
}

impl HeadInputs {
    pub(crate) fn map<V>(self, view: impl Fn(BufId) -> V) -> HeadInputs<V> {
        HeadInputs { rope: self.rope.map(&view), squares: self.squares.map(view) }
    }

    fn buffers(&self) -> impl Iterator<Item = BufId> + use<> {
        self.rope.into_iter().chain(self.squares)
    }
}

/// An instruction in its place.
#[derive(Clone, Debug)]
pub struct Instr {
    /// Layer, for people and for double buffering.
    pub layer: Option<usize>,
    /// What its rows are.
    pub domain: Domain,
    /// How its rows are dealt; `None` where its work is in tiles or items.
    pub work: Option<Work>,
    /// What it does.
    pub kind: InstrKind,
    accesses: Vec<Access>,
}

/// How an instruction deals its work over the threads of a group. Two accesses dealt alike touch
/// the same elements in the same thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Deal {
    /// Contiguous shares of the step's tokens.
    Tokens,
    /// Contiguous shares of the step's outputs.
    Outputs,
    /// Shares of one instruction's tiles or items; equal to no other.
    Items,
}

/// How far an access reaches.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only what this thread owns under the given deal.
    Own(Deal),
    /// Anything on this thread's node.
    Group,
    /// The copies of all nodes.
    All,
    /// What one stage of a pipeline hands to the next. All groups meet between the rounds of a step,
    /// and the two sides take turns with two buffers, so no wait within a round orders them.
    Round,
}

/// One use of a buffer.
#[derive(Copy, Clone, Debug)]
pub struct Access {
    /// Which buffer.
    pub buffer: BufId,
    /// Whether it is written (reading included).
    pub write: bool,
    /// How far.
    pub reach: Reach,
}

impl Instr {
    pub(crate) fn new(
        layer: Option<usize>,
        domain: Domain,
        work: Option<Work>,
        kind: InstrKind,
    ) -> Instr {
        let mut instr = Instr { layer, domain, work, kind, accesses: Vec::new() };
        instr.accesses = instr.declare();
        instr
    }

    /// Everything this instruction reads and writes.
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    /// Declares something else, to show that it is noticed.
    #[cfg(test)]
    pub(crate) fn redeclare(&mut self, change: impl FnOnce(&mut Vec<Access>)) {
        change(&mut self.accesses);
    }

    fn deal(&self) -> Deal {
        match self.domain {
            Domain::Tokens | Domain::Slots(_) => Deal::Tokens,
            Domain::Outputs => Deal::Outputs,
        }
    }

    fn row_wise(&self, work: Work) -> Reach {
        match work {
            Work::Private => Reach::Group,
            Work::Rows => Reach::Own(self.deal()),
        }
    }

    /// What [`Instr::accesses`] are, by kind.
    fn declare(&self) -> Vec<Access> {
        let read = |buffer, reach| Access { buffer, write: false, reach };
        let write = |buffer, reach| Access { buffer, write: true, reach };
        let items = Reach::Own(Deal::Items);
        // Of what is dealt by rows.
        let rows = self.work.map_or(items, |work| self.row_wise(work));
        match &self.kind {
            InstrKind::RopeTable { out, .. } | InstrKind::Embed { out, .. } => {
                vec![write(*out, Reach::Own(Deal::Tokens))]
            }
            InstrKind::Receive { from, out, .. } => {
                let from = from.map(|from| read(from, Reach::Round));
                from.into_iter().chain([write(*out, rows)]).collect()
            }
            // Each row goes out once, also when every thread has all of them.
            InstrKind::Send { x, to, .. } => {
                let to = to.map(|to| write(to, Reach::Round));
                to.into_iter().chain([read(*x, Reach::Own(self.deal()))]).collect()
            }
            InstrKind::Hidden { x, out, .. } | InstrKind::Remember { x, out, .. } => {
                vec![read(*x, rows), write(*out, rows)]
            }
            InstrKind::Load { x, out, .. } => {
                vec![read(*x, Reach::Group), write(*out, Reach::Group)]
            }
            InstrKind::Norm { x, out, .. } | InstrKind::Quantize { x, out, .. } => {
                vec![read(*x, rows), write(*out, rows)]
            }
            InstrKind::MatMul { acts, out, push: true, .. } => {
                let to = write(*out, Reach::All);
                acts.buffers().map(|b| read(b, Reach::Group)).chain([to]).collect()
            }
            InstrKind::MatMul { acts, carried, out, told, low, .. } => {
                let told = told.map(|(_, to)| write(to, Reach::All));
                let acts = acts.buffers().chain(*carried).chain(*low);
                let acts = acts.map(|b| read(b, Reach::Group));
                acts.chain([write(*out, items)]).chain(told).collect()
            }
            InstrKind::LoraA { x, out, told, .. } => {
                let to = write(*out, if *told { Reach::All } else { items });
                vec![read(*x, Reach::Group), to]
            }
            InstrKind::LoraB { low, out, .. } => vec![read(*low, Reach::Group), write(*out, items)],
            InstrKind::Gated { acts, out, low, .. } | InstrKind::Logits { acts, out, low, .. } => {
                let acts = acts.buffers().chain(*low).map(|b| read(b, Reach::Group));
                acts.chain([write(*out, items)]).collect()
            }
            InstrKind::Choose { scores, out, .. } => {
                vec![read(*scores, Reach::Group), write(*out, rows)]
            }
            InstrKind::ExpertsUp { acts, chosen, out, .. } => {
                let acts = acts.buffers().chain([*chosen]).map(|b| read(b, Reach::Group));
                acts.chain([write(*out, items)]).collect()
            }
            InstrKind::ExpertsDown { acts, chosen, out, push, .. } => {
                let to = write(*out, if *push { Reach::All } else { items });
                let acts = acts.buffers().chain([*chosen]).map(|b| read(b, Reach::Group));
                acts.chain([to]).collect()
            }
            InstrKind::Prepare { from, place, cache, .. } => {
                // Dealt by pages, so that no two threads write into one page.
                let place = place.buffers().map(|b| read(b, items));
                place.chain([read(from.keys(), items), write(*cache, items)]).collect()
            }
            InstrKind::AttendFused { from, place, cache, out, .. } => {
                let place = place.buffers().map(|b| read(b, Reach::Group));
                let read = [from.qkv, *cache].map(|b| read(b, Reach::Group));
                place.chain(read).chain([write(*out, items)]).collect()
            }
            InstrKind::AttendSplit { from, place, cache, append, states, .. } => {
                // With `append`, a range's new keys are written and read by the one item that owns
                // the range; all other keys are older than this step.
                let kv = if *append { write(*cache, items) } else { read(*cache, Reach::Group) };
                let place = place.buffers().map(|b| read(b, Reach::Group));
                place.chain([read(from.qkv, Reach::Group), kv, write(*states, items)]).collect()
            }
            InstrKind::Join { states, out, .. } => {
                vec![read(*states, Reach::Group), write(*out, rows)]
            }
            // A sequence's state is read and written by whoever has the channels or slices.
            InstrKind::Convolution { x, state, out, .. } => {
                vec![read(*x, Reach::Group), write(*state, items), write(*out, items)]
            }
            InstrKind::Recurrence { x, raw, state, out, squares, .. } => {
                let own = [write(*state, items), write(*out, items)].into_iter();
                let told = squares.map(|squares| write(squares, Reach::All));
                let reads = [x, raw].map(|b| read(*b, Reach::Group));
                reads.into_iter().chain(own).chain(told).collect()
            }
            InstrKind::Blend { x, y, out, .. } => {
                vec![read(*x, rows), read(*y, rows), write(*out, rows)]
            }
            InstrKind::Streams { x, y, z, what, out, .. } => {
                // Products and scores are dealt by tiles.
                let of_y = if what.takes_product() { Reach::Group } else { rows };
                let y = y.map(|y| read(y, of_y));
                let z = z.map(|z| read(z, Reach::Group));
                [read(*x, rows)].into_iter().chain(y).chain(z).chain([write(*out, rows)]).collect()
            }
            // Each row is told once, also when every thread has all of them.
            InstrKind::Tell { x, out, work, .. } => {
                vec![read(*x, self.row_wise(*work)), write(*out, Reach::All)]
            }
            InstrKind::Modulation { x, gate, squares, out, .. } => {
                let reads = [Some(*x), *gate, *squares].into_iter().flatten();
                reads.map(|b| read(b, rows)).chain([write(*out, rows)]).collect()
            }
            InstrKind::Residual { x, partial, also, finish, out, gather, .. } => {
                let (of_x, of_sums, of_out) = match gather {
                    Gather::Push => (rows, Reach::Group, rows),
                    Gather::Pull => (rows, Reach::All, rows),
                    Gather::Scatter => (Reach::Group, Reach::All, Reach::All),
                };
                let sums = [Some(*partial), also.as_ref().map(|also| also.partial)];
                let sums = sums.into_iter().flatten().map(|sum| read(sum, of_sums));
                let deltas = [Some(finish), also.as_ref().map(|also| &also.finish)];
                let deltas = deltas.into_iter().flatten().filter_map(|finish| finish.delta);
                let deltas = deltas.map(|(delta, _)| read(delta, Reach::Group));
                let all = [read(*x, of_x)].into_iter().chain(sums).chain(deltas);
                all.chain([write(*out, of_out)]).collect()
            }
            InstrKind::Recall { from, out, .. } => {
                let from = from.map(|from| read(from, Reach::Group));
                from.into_iter().chain([write(*out, rows)]).collect()
            }
            InstrKind::Concat { x, y, out, .. } => {
                vec![read(*x, rows), read(*y, rows), write(*out, rows)]
            }
            InstrKind::Rows { x, out, .. } => {
                // What they are added to may be the stream itself, or a product, which is dealt by tiles.
                let x = x.filter(|x| x != out).map(|x| read(x, Reach::Group));
                x.into_iter().chain([write(*out, rows)]).collect()
            }
            InstrKind::Select { x, out, .. } | InstrKind::Merge { x, out, .. } => {
                vec![read(*x, Reach::Group), write(*out, rows)]
            }
        }
    }

    /// Name in listings.
    pub fn name(&self) -> &'static str {
        match &self.kind {
            InstrKind::RopeTable { .. } => "rope_table",
            InstrKind::Embed { .. } => "embed",
            InstrKind::Rows { .. } => "rows",
            InstrKind::Merge { .. } => "merge",
            InstrKind::Receive { .. } => "receive",
            InstrKind::Send { .. } => "send",
            InstrKind::Load { .. } => "load",
            InstrKind::Norm { norm, .. } => norm.name(),
            InstrKind::Quantize { .. } => "quantize",
            InstrKind::MatMul { activation: Some(f), .. } => product_and(*f, false),
            InstrKind::MatMul { .. } => "matmul",
            InstrKind::LoraA { .. } => "lora_a",
            InstrKind::LoraB { .. } => "lora_b",
            InstrKind::Gated { activation, .. } => product_and(*activation, true),
            InstrKind::Choose { .. } => "choose",
            InstrKind::ExpertsUp { expert, .. } => product_and(expert.activation, expert.gated),
            InstrKind::ExpertsDown { .. } => "matmul",
            InstrKind::Prepare { place: HeadInputs { rope: None, .. }, .. } => "append",
            InstrKind::Prepare { .. } => "rope+append",
            InstrKind::AttendFused { .. } => "attend",
            InstrKind::AttendSplit {
                append: true, place: HeadInputs { rope: None, .. }, ..
            } => "append+attend",
            InstrKind::AttendSplit { append: true, .. } => "rope+append+attend",
            InstrKind::AttendSplit { .. } => "attend",
            InstrKind::Join { .. } => "join",
            InstrKind::Convolution { .. } => "convolution",
            InstrKind::Recurrence { spec, .. } => match spec.rule {
                Rule::Delta { .. } => "delta_rule",
                Rule::StateSpace { .. } => "state_space",
            },
            InstrKind::Tell { .. } => "tell",
            InstrKind::Modulation { spec, .. } => match (&spec.norm, &spec.gate) {
                (Some(_), Some(_)) => "norm+gate",
                (Some(_), None) => "head_norm",
                (None, _) => "gate",
            },
            InstrKind::Blend { .. } => "blend",
            InstrKind::Streams { what, .. } => what.name(),
            InstrKind::Residual { .. } => "residual",
            InstrKind::Remember { .. } => "remember",
            InstrKind::Recall { .. } => "recall",
            InstrKind::Concat { .. } => "concat",
            InstrKind::Select { .. } => "select",
            InstrKind::Hidden { .. } => "hidden",
            InstrKind::Logits { .. } => "logits",
        }
    }

    /// The matrix that it multiplies by. What it reads of it is in the book ([`crate::Line`]).
    pub fn matrix(&self) -> Option<MatrixId> {
        match &self.kind {
            InstrKind::MatMul { matrix, .. } | InstrKind::Gated { matrix, .. } => Some(*matrix),
            InstrKind::Logits { matrix, .. } => Some(*matrix),
            _ => None,
        }
    }

    /// The bank of experts that it multiplies by what was chosen of.
    pub fn bank(&self) -> Option<MatrixId> {
        match &self.kind {
            InstrKind::ExpertsUp { bank, .. } | InstrKind::ExpertsDown { bank, .. } => Some(*bank),
            _ => None,
        }
    }
}

impl Operand {
    /// The buffers that the product reads.
    pub fn buffers(&self) -> impl Iterator<Item = BufId> + use<> {
        self.f32.into_iter().chain(self.bf16).chain(self.q8)
    }

    pub(crate) fn map<V>(self, view: impl Fn(BufId) -> V) -> Operand<V> {
        Operand { f32: self.f32.map(&view), bf16: self.bf16.map(&view), q8: self.q8.map(view) }
    }
}

impl<B: Copy> Operand<B> {
    /// The activations of this kind, which some part of the matrix takes.
    pub fn of(&self, kind: ActKind) -> B {
        let buffer = match kind {
            ActKind::F32 => self.f32,
            ActKind::Bf16 => self.bf16,
            ActKind::Q8 => self.q8,
        };
        buffer.expect("lowering has declared what every part takes")
    }
}

/// The name of a product with a function behind it, or a gated one.
fn product_and(f: Activation, gated: bool) -> &'static str {
    match (f, gated) {
        (Activation::Silu, false) => "matmul+silu",
        (Activation::Gelu, false) => "matmul+gelu",
        (Activation::SquaredRelu, false) => "matmul+squared_relu",
        (Activation::ClampedSilu, false) => "matmul+clamped_silu",
        (Activation::Sigmoid, false) => "matmul+sigmoid",
        (Activation::GeluErf, false) => "matmul+gelu_erf",
        (Activation::QuickGelu, false) => "matmul+quick_gelu",
        (Activation::QuickGelu, true) => "matmul+quick_geglu",
        (Activation::Relu, false) => "matmul+relu",
        (Activation::Clamp(_), false) => "matmul+clamp",
        (Activation::Xielu(_), false) => "matmul+xielu",
        (Activation::GeluErf, true) => "matmul+geglu_erf",
        (Activation::Relu, true) => "matmul+reglu",
        (Activation::Clamp(_), true) => "matmul+clamp_gated",
        (Activation::Xielu(_), true) => "matmul+xielu_gated",
        (Activation::Silu, true) => "matmul+swiglu",
        (Activation::Gelu, true) => "matmul+geglu",
        (Activation::SquaredRelu, true) => "matmul+squared_reglu",
        (Activation::ClampedSilu, true) => "matmul+clamped_swiglu",
        (Activation::Sigmoid, true) => "matmul+sigmoid_gated",
    }
}
