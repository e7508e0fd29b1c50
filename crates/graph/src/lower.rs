//! Lowering: a model's operators become instructions over buffers.
//!
//! Small row-wise work (norms, quantisation of activations, residual sums, the joining of attention
//! ranges) has two forms. *Private*: every thread does all rows into its own buffer, so nobody
//! waits. *Split*: the rows are dealt over the node's threads and the result is shared, which costs
//! a wait. Which is cheaper depends on the number of rows, so a graph is lowered once per
//! [`Variant`] and the step picks one.

mod low;
mod stream;

use crate::buffer::{BufId, Buffers, Home, Pool as Storage};
use crate::builder::Graph;
use crate::instr::{Also, Gather, HeadInputs, Inputs, Instr, InstrKind, Operand, Run, Work};
use crate::op::Op;
use crate::recurrent::HeadNorm;
use crate::streams::Streams;
use crate::sum::Sum;
use crate::tensor::{Bundle, Domain};
use crate::weight::{Clamp, MatrixId, Part, SplitBy, VectorId};
use kernels::ActKind;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// How a step's attention is cut into work items.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttnForm {
    /// An item is (query tile, KV head) and walks all KV ranges itself.
    Fused,
    /// An item is (token, KV head, KV range); every thread joins all ranges for itself.
    SplitJoinPrivate,
    /// As above, but the ranges are joined as a stage of its own.
    SplitJoinShared,
}

/// The forms in which a graph is compiled.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Row-wise work on tokens is private.
    pub private_tokens: bool,
    /// Row-wise work on outputs is private.
    pub private_outputs: bool,
    /// Attention items.
    pub attention: AttnForm,
    /// Every sequence has one token in the step: the item that reads the newest range also appends
    /// to it. Otherwise the append is a stage before attention.
    pub append_in_attention: bool,
    /// How partial results are summed.
    pub gather: Gather,
    /// Runs that each node sums its share of such a result in, so that its threads can share them
    /// ([`crate::Grid::splits`]); 1 unless a schedule asks for more.
    pub splits: usize,
    /// Whether it is the operators that predict further tokens that are executed, instead of the model's.
    pub predicts: bool,
    /// Whether some of its rows have adapters.
    pub adapts: bool,
}

impl Variant {
    /// The usual form of a step with few tokens.
    pub const DECODE: Variant = Variant {
        private_tokens: true,
        private_outputs: true,
        attention: AttnForm::SplitJoinPrivate,
        append_in_attention: true,
        gather: Gather::Push,
        splits: 1,
        predicts: false,
        adapts: false,
    };

    /// The usual form of a step with many tokens of a prompt.
    pub const PREFILL: Variant = Variant {
        private_tokens: false,
        private_outputs: true,
        attention: AttnForm::Fused,
        append_in_attention: false,
        gather: Gather::Pull,
        splits: 1,
        predicts: false,
        adapts: false,
    };

    /// Every variant that a step on `nodes` nodes may ask for, but for `splits`, `predicts` and `adapts`.
    pub fn all(nodes: usize) -> Vec<Variant> {
        let mut all = Vec::new();
        let forms = [
            (true, true, Gather::Push),
            (false, true, Gather::Pull),
            (false, false, Gather::Pull),
            (false, true, Gather::Scatter),
            (false, false, Gather::Scatter),
        ];
        for (private_tokens, private_outputs, gather) in forms {
            use AttnForm::{Fused, SplitJoinPrivate, SplitJoinShared};
            if gather == Gather::Scatter && nodes == 1 {
                continue; // there is nobody to share the sum with
            }
            for attention in [Fused, SplitJoinPrivate, SplitJoinShared] {
                for append_in_attention in [false, true] {
                    // Ranges are joined privately only where row-wise work is private at all, and
                    // only split items can tell which of them holds the newest range.
                    let joins = attention != SplitJoinPrivate || private_tokens;
                    let appends = attention != Fused || !append_in_attention;
                    if joins && appends {
                        all.push(Variant {
                            private_tokens,
                            private_outputs,
                            attention,
                            append_in_attention,
                            gather,
                            splits: 1,
                            predicts: false,
                            adapts: false,
                        });
                    }
                }
            }
        }
        all
    }

    fn work(&self, domain: Domain) -> Work {
        let private = match domain {
            Domain::Tokens | Domain::Slots(_) => self.private_tokens,
            Domain::Outputs => self.private_outputs,
        };
        if private { Work::Private } else { Work::Rows }
    }
}

/// Lowers the operators `ops` of `graph`, the model's, a pipeline's stage or those that predict, in the form `variant`. Buffers are
/// declared in `buffers`, which all variants and stages of a graph share.
pub fn lower(
    graph: &Graph,
    variant: Variant,
    ops: Range<usize>,
    buffers: &mut Buffers,
) -> Vec<Instr> {
    let mut last_use = HashMap::new();
    for (at, node) in graph.ops.iter().enumerate() {
        for b in node.op.inputs() {
            last_use.insert(b, at);
        }
    }
    let mut lowering = Lowering {
        graph,
        variant,
        buffers,
        values: HashMap::new(),
        sums: HashMap::new(),
        told: HashMap::new(),
        lows: HashMap::new(),
        last_use,
        out: Vec::new(),
    };
    lowering.rope_tables();
    let model = graph.model_ops();
    if ops.start > 0 && !variant.predicts {
        lowering.receive(ops.start);
    }
    for node in &graph.ops[ops.clone()] {
        lowering.op(node);
    }
    if ops.end < model.end {
        lowering.send(ops.end);
    }
    lowering.out
}

/// How summands become a sum, and what it goes through then: a factor, a bias, limits.
struct Summed {
    sum: Sum,
    product: Option<VectorId>,
    bias: Option<VectorId>,
    clamp: Option<Clamp>,
}

struct Lowering<'a> {
    graph: &'a Graph,
    variant: Variant,
    buffers: &'a mut Buffers,
    values: HashMap<Bundle, BufId>,
    sums: HashMap<Bundle, Summed>,
    told: HashMap<Bundle, BufId>,
    /// What A of adapters has given beside products that are summands.
    lows: HashMap<Bundle, (BufId, MatrixId)>,
    last_use: HashMap<Bundle, usize>,
    out: Vec<Instr>,
}

impl Lowering<'_> {
    /// Appends what is dealt in tiles or items.
    fn emit(&mut self, layer: Option<usize>, domain: Domain, kind: InstrKind) {
        self.out.push(Instr::new(layer, domain, None, kind));
    }

    /// Appends what is dealt by rows.
    fn emit_rows(&mut self, (layer, domain): (Option<usize>, Domain), work: Work, kind: InstrKind) {
        self.out.push(Instr::new(layer, domain, Some(work), kind));
    }

    /// f32 rows as wide as bundle `b` on each node, padded to whole tiles.
    fn widths(&self, b: Bundle) -> Vec<usize> {
        let info = self.graph.bundle(b);
        let bytes = |w: &usize| w.next_multiple_of(kernels::TILE_ROWS) * size_of::<f32>();
        info.widths.iter().map(bytes).collect()
    }

    fn rows(&self, domain: Domain, work: Work) -> Storage {
        match (domain, work) {
            (Domain::Slots(each), Work::Private) => Storage::PrivateSlots(each),
            (Domain::Slots(each), Work::Rows) => Storage::Slots(each),
            (_, Work::Private) => Storage::Private,
            (Domain::Tokens, Work::Rows) => Storage::Tokens,
            (Domain::Outputs, Work::Rows) => Storage::Outputs,
        }
    }

    /// The buffer of role `role` for bundle `b`: in the layer's half of the double buffer, or one
    /// per thread when the work is private.
    fn buffer(&mut self, role: &str, b: Bundle, layer: Option<usize>, work: Work) -> BufId {
        let widths = self.widths(b);
        let rows = self.rows(self.graph.bundle(b).domain, work);
        match work {
            Work::Private => self.buffers.declare(role, Home::Thread, rows, &widths),
            Work::Rows => {
                let half = layer.map_or(0, |l| l % 2);
                self.buffers.declare(&format!("{role}.{half}"), Home::Node, rows, &widths)
            }
        }
    }

    /// The buffer of the summands `b`: a row has a slot per root of `sum`, of all nodes when they are
    /// pushed, of the node itself otherwise.
    fn partial(&mut self, role: &str, b: Bundle, layer: Option<usize>, sum: &Sum) -> BufId {
        let half = layer.map_or(0, |l| l % 2);
        let slot = self.widths(b)[0];
        let roots = |n: usize| match self.variant.gather {
            Gather::Push => sum.roots(),
            Gather::Pull | Gather::Scatter => sum.slots[n].len(),
        };
        let bytes: Vec<usize> = (0..self.graph.nodes).map(|n| roots(n) * slot).collect();
        let (role, rows) = match self.variant.gather {
            Gather::Push => (format!("{role}.all.{half}"), Storage::Private),
            Gather::Pull | Gather::Scatter => (format!("{role}.{half}"), Storage::Tokens),
        };
        self.buffers.declare(&role, Home::Node, rows, &bytes)
    }

    /// The buffer of what is told of the tiles of `rows` rows, `numbers` of each, on every node.
    fn told(&mut self, rows: usize, numbers: usize, layer: Option<usize>) -> BufId {
        let bytes = rows / kernels::TILE_ROWS * numbers * size_of::<f32>();
        let role = format!("squares.{}", layer.map_or(0, |l| l % 2));
        let widths = vec![bytes; self.graph.nodes];
        self.buffers.declare(&role, Home::Node, Storage::Tokens, &widths)
    }

    fn value(&self, b: Bundle) -> BufId {
        self.values[&b]
    }

    fn rope_tables(&mut self) {
        for rope in 0..self.graph.ropes.len() {
            let bytes = self.graph.ropes[rope].inv_freq.len() * 2 * size_of::<f32>();
            let out = self.buffers.rope(rope, bytes);
            let kind = InstrKind::RopeTable { rope, out };
            self.emit_rows((None, Domain::Tokens), Work::Rows, kind);
        }
    }

    /// The one value that operators from `at` on take from those before.
    fn crossing(&self, at: usize) -> Bundle {
        let made: HashSet<Bundle> = self.graph.ops[..at].iter().map(|n| n.out).collect();
        let taken = self.graph.ops[at..].iter().flat_map(|n| n.op.inputs());
        let crossing: HashSet<Bundle> = taken.filter(|b| made.contains(b)).collect();
        assert_eq!(crossing.len(), 1, "layers hand on the residual stream and nothing else");
        crossing.into_iter().next().expect("one")
    }

    fn remembered(&mut self, x: Bundle) -> [BufId; 2] {
        let widths = self.widths(x);
        self.buffers.remembered(&widths)
    }

    fn handoffs(&mut self, x: Bundle) -> [BufId; 2] {
        let widths = self.widths(x);
        [0, 1].map(|half| {
            let role = format!("handoff.{half}");
            self.buffers.declare(&role, Home::Node, Storage::Tokens, &widths)
        })
    }

    /// Begins a pipeline's later stage.
    fn receive(&mut self, at: usize) {
        let x = self.crossing(at);
        let (domain, width) = (self.graph.bundle(x).domain, self.graph.bundle(x).width);
        let (work, from) = (self.variant.work(domain), self.handoffs(x));
        let out = self.buffer("x", x, None, work);
        self.emit_rows((None, domain), work, InstrKind::Receive { from, out, width });
        self.values.insert(x, out);
    }

    /// Ends a pipeline's earlier stage.
    fn send(&mut self, at: usize) {
        let x = self.crossing(at);
        let (domain, width) = (self.graph.bundle(x).domain, self.graph.bundle(x).width);
        let (x, to) = (self.value(x), self.handoffs(x));
        self.emit_rows((None, domain), Work::Rows, InstrKind::Send { x, to, width });
    }

    fn op(&mut self, node: &crate::builder::Node) {
        let (layer, out) = (node.layer, node.out);
        let (domain, width) = (self.graph.bundle(out).domain, self.graph.bundle(out).width);
        let work = self.variant.work(domain);
        let emitted = match &node.op {
            Op::Embed { table, scale, added, insets } => {
                // The residual stream, or inputs of layers.
                let role = if out.0 == 0 { "x".to_owned() } else { format!("x{}", out.0) };
                let shared = self.buffer(&role, out, Some(0), Work::Rows);
                let (table, scale, added, insets) = (*table, *scale, *added, *insets);
                let kind = InstrKind::Embed { table, scale, added, insets, out: shared };
                self.emit_rows((layer, domain), Work::Rows, kind);
                match work {
                    Work::Rows => shared,
                    Work::Private => {
                        let own = self.buffer(&role, out, layer, work);
                        let kind = InstrKind::Load { x: shared, out: own, width };
                        self.emit_rows((layer, domain), work, kind);
                        own
                    }
                }
            }
            Op::Norm { x, norm } => {
                let role = match layer {
                    None if self.is_stream(out) => format!("x{}", out.0),
                    // A second one, where the first is still to be read (blocks in parallel).
                    _ if self.norm_lives(out) => "norm2".to_owned(),
                    _ => "norm".to_owned(),
                };
                let (x, norm) = (self.value(*x), *norm);
                let mut to = self.buffer(&role, out, layer, work);
                if to == x {
                    // The norm of a sum with what the norm before gave, which is the residual stream then.
                    to = self.buffer("normed", out, layer, work);
                }
                self.emit_rows((layer, domain), work, InstrKind::Norm { x, norm, out: to });
                to
            }
            Op::Linear { x, matrix, activation, told } => {
                let acts = self.operand(*x, *matrix, layer);
                let low = self.lora_a(*x, *matrix, layer);
                let m = self.graph.matrix(*matrix);
                let splits = self.variant.splits;
                let to = match m.sum(splits) {
                    None => self.buffer(&m.name, out, layer, Work::Rows),
                    Some(sum) => {
                        let to = self.partial(&m.name, out, layer, &sum);
                        let Part { scale: product, bias, clamp, .. } = m.parts[0];
                        self.sums.insert(out, Summed { sum, product, bias, clamp });
                        self.lows.extend(low.map(|low| (out, (low, *matrix))));
                        to
                    }
                };
                let low = low.filter(|_| m.split == SplitBy::Rows);
                let told = told.map(|told| {
                    let rows = m.parts[..told.parts()].iter().map(|p| p.rows).sum();
                    (told, self.told(rows, told.numbers(), layer))
                });
                self.told.extend(told.map(|(_, to)| (out, to)));
                let push = m.split == SplitBy::Cols && self.variant.gather == Gather::Push;
                let (matrix, activation) = (*matrix, *activation);
                let carries = m.by_head.as_ref().is_some_and(|of| !of.carried.is_empty());
                let carried = carries.then(|| self.value(*x));
                let kind = InstrKind::MatMul {
                    acts,
                    carried,
                    matrix,
                    activation,
                    out: to,
                    push,
                    splits,
                    told,
                    low,
                };
                self.emit(layer, domain, kind);
                to
            }
            Op::Gated { x, matrix, activation } => {
                let acts = self.operand(*x, *matrix, layer);
                let low = self.lora_a(*x, *matrix, layer);
                let to = self.buffer("gate_up", out, layer, Work::Rows);
                let (matrix, activation) = (*matrix, *activation);
                self.emit(
                    layer,
                    domain,
                    InstrKind::Gated { acts, matrix, activation, out: to, low },
                );
                to
            }
            Op::Choose { scores, router } => {
                let role = format!("choice {}", self.graph.bundle(*scores).width);
                let to = self.buffer(&role, out, layer, work);
                let (scores, router) = (self.value(*scores), router.clone());
                self.emit_rows(
                    (layer, domain),
                    work,
                    InstrKind::Choose { scores, router, out: to },
                );
                to
            }
            Op::ExpertsUp { x, chosen, count, bank, expert } => {
                let acts = self.operand(*x, *bank, layer);
                let to = self.buffer(&self.graph.matrix(*bank).name, out, layer, Work::Rows);
                let (chosen, count, bank, expert) = (self.value(*chosen), *count, *bank, *expert);
                let route = self.route(out);
                let kind =
                    InstrKind::ExpertsUp { acts, chosen, count, bank, expert, route, out: to };
                self.emit(layer, Domain::Tokens, kind);
                to
            }
            Op::ExpertsDown { x, chosen, count, bank } => {
                let (acts, route) = (self.operand(*x, *bank, layer), self.route(*x));
                let m = self.graph.matrix(*bank);
                let sum = m.sum(1).expect("nodes share the columns of down");
                let to = self.partial(&m.name, out, layer, &sum);
                self.sums.insert(out, Summed { sum, product: None, bias: None, clamp: None });
                let push = self.variant.gather == Gather::Push;
                let positions = m.bank.as_ref().expect("experts are a bank").positions();
                let nodes = 0..self.graph.nodes;
                let leaves = nodes.map(|node| crate::sum::leaves(positions, node, 1)).collect();
                let (chosen, count, bank) = (self.value(*chosen), *count, *bank);
                let kind = InstrKind::ExpertsDown {
                    acts,
                    chosen,
                    count,
                    bank,
                    route,
                    leaves,
                    out: to,
                    push,
                };
                self.emit(layer, Domain::Tokens, kind);
                to
            }
            Op::Attention { qkv, latents, spec } => {
                self.attention((*qkv, *latents), spec, layer, out)
            }
            Op::Convolution { x, spec } => {
                let to = self.buffer("convolved", out, layer, Work::Rows);
                let (x, state) = (self.value(*x), self.buffers.state(spec.state));
                let kind = InstrKind::Convolution { x, state, spec: spec.clone(), out: to };
                self.emit(layer, domain, kind);
                to
            }
            Op::Recurrence { x, raw, spec } => {
                let to = self.buffer("heads", out, layer, Work::Rows);
                let tiles = || spec.all_slices() * kernels::TILE_ROWS;
                let squares = spec.squares.then(|| self.told(tiles(), 1, layer));
                self.told.extend(squares.map(|s| (out, s)));
                let (x, raw) = (self.value(*x), self.value(*raw));
                let (state, spec) = (self.buffers.state(spec.state), spec.clone());
                self.emit(
                    layer,
                    domain,
                    InstrKind::Recurrence { x, raw, state, spec, out: to, squares },
                );
                to
            }
            Op::Modulation { x, gate, spec } => {
                let to = self.buffer("modulated", out, layer, work);
                let squares = match (&spec.norm, &spec.above) {
                    (Some(HeadNorm::All { width, starts, .. }), _) => {
                        let unit = kernels::TILE_ROWS;
                        let told = self.told(*width, 1, layer);
                        let widths = self.graph.bundle(out).widths.iter();
                        let run = |(start, width): (&usize, &usize)| {
                            vec![Run { from: 0, count: width / unit, to: start / unit }]
                        };
                        let (x, runs) = (self.value(*x), starts.iter().zip(widths).map(run));
                        let runs = runs.collect();
                        let kind = InstrKind::Tell { x, runs, unit, out: told, work };
                        self.emit_rows((layer, domain), Work::Rows, kind);
                        Some(told)
                    }
                    (Some(HeadNorm::Groups { .. }), _) | (_, Some(_)) => Some(self.told[x]),
                    _ => None,
                };
                let (x, gate) = (self.value(*x), gate.map(|gate| self.value(gate)));
                let (width, spec) = (self.graph.bundle(out).widths.clone(), spec.clone());
                let kind = InstrKind::Modulation { x, gate, squares, width, spec, out: to };
                self.emit_rows((layer, domain), work, kind);
                to
            }
            Op::Blend { x, y, norm, scale, factor } => {
                let to = self.buffer(&format!("x{}", out.0), out, layer, work);
                let (x, y, norm) = (self.value(*x), self.value(*y), *norm);
                let (scale, factor) = (*scale, *factor);
                let kind = InstrKind::Blend { x, y, width, norm, scale, factor, out: to };
                self.emit_rows((layer, domain), work, kind);
                to
            }
            Op::Streams { x, y, z, count, what } => {
                // In a layer, what a buffer of this name holds has been read when the next step writes it.
                let role = match (layer, what) {
                    (Some(_), _) | (None, Streams::Begin { .. }) => what.name().to_owned(),
                    (None, _) => format!("{}.{}", what.name(), out.0),
                };
                let to = self.buffer(&role, out, layer, work);
                let value = |b: &Option<Bundle>| b.map(|b| self.value(b));
                let (x, y, z) = (self.value(*x), value(y), value(z));
                assert!(
                    ![Some(x), y, z].contains(&Some(to)),
                    "{role} is an operand of its own step"
                );
                let width = match what {
                    Streams::Begin { .. }
                    | Streams::Predict { .. }
                    | Streams::Correct { .. }
                    | Streams::Spread => width / count,
                    Streams::Take { .. } | Streams::TakeTwice { .. } | Streams::Merge { .. } => {
                        width
                    }
                };
                let (count, what) = (*count, what.clone());
                let kind = InstrKind::Streams { x, y, z, count, width, what, out: to };
                self.emit_rows((layer, domain), work, kind);
                to
            }
            Op::Residual { x, partial, norm, scale, factor } => {
                let at = self.graph.ops.iter().position(|n| n.out == out);
                let at = at.expect("an operator of this graph");
                let mut finish = self.finish(*partial, (*norm, *scale, *factor), x.is_none());
                match (x, self.pairs(at), at.checked_sub(1).filter(|&at| self.pairs(at))) {
                    // The next one adds both.
                    (Some(x), true, _) => self.value(*x),
                    (x, _, None) => {
                        finish.delta = self.lora_b(*partial, layer);
                        self.residual(node, (at, *x), (*partial, finish), None)
                    }
                    (_, _, Some(before)) => {
                        let Op::Residual { x, partial: first, scale, .. } =
                            self.graph.ops[before].op
                        else {
                            unreachable!("pairs are sums")
                        };
                        let sum = self.sums[partial].sum.clone();
                        finish.delta = self.lora_b(*partial, layer);
                        let also = Also { partial: self.value(*partial), finish, sum };
                        let mut finish = self.finish(first, (None, scale, None), false);
                        finish.delta = self.lora_b(first, layer);
                        self.residual(node, (before, x), (first, finish), Some(Box::new(also)))
                    }
                }
            }
            Op::Remember { x } => {
                let [model, predicted] = self.remembered(out);
                let to = if self.variant.predicts { predicted } else { model };
                let x = self.value(*x);
                self.emit_rows(
                    (layer, domain),
                    Work::Rows,
                    InstrKind::Remember { x, out: to, width },
                );
                to
            }
            Op::Rows { x, from, matrix } => {
                let at = self.graph.ops.iter().position(|n| n.out == out);
                // The stream is updated in place.
                let stream =
                    x.filter(|x| Some(&self.last_use[x]) == at.as_ref() && self.is_stream(out));
                let to = match stream {
                    Some(x) => self.value(x),
                    None => self.buffer(&format!("x{}", out.0), out, layer, work),
                };
                let (x, from, matrix) = (x.map(|x| self.value(x)), *from, *matrix);
                self.emit_rows(
                    (layer, domain),
                    work,
                    InstrKind::Rows { x, from, matrix, width, out: to },
                );
                to
            }
            Op::Merge { x, count, how } => {
                let to = self.buffer("merged", out, layer, work);
                let width = self.graph.bundle(*x).width;
                let (x, count, how) = (self.value(*x), *count, *how);
                self.emit_rows(
                    (layer, domain),
                    work,
                    InstrKind::Merge { x, count, how, width, out: to },
                );
                to
            }
            Op::Recall => {
                let (from, to) = (self.remembered(out), self.buffer("recalled", out, layer, work));
                self.emit_rows((layer, domain), work, InstrKind::Recall { from, out: to, width });
                to
            }
            Op::Concat { x, y, norms, matrix } => {
                let to = self.buffer("concat", out, layer, work);
                let width = self.graph.bundle(*x).width;
                let (x, y, norms, matrix) = (self.value(*x), self.value(*y), *norms, *matrix);
                let kind = InstrKind::Concat { x, y, norms, width, matrix, out: to };
                self.emit_rows((layer, domain), work, kind);
                to
            }
            Op::Select { x } => {
                let to = self.buffer("selected", out, layer, work);
                let x = self.value(*x);
                self.emit_rows((layer, domain), work, InstrKind::Select { x, out: to, width });
                to
            }
            Op::Hidden { x, at } => {
                let to = self.buffers.hidden(self.graph.hidden_width());
                let (x, at) = (self.value(*x), *at);
                let kind = InstrKind::Hidden { x, out: to, width, at };
                self.emit_rows((layer, domain), Work::Rows, kind);
                to
            }
            Op::Logits { x, head, scale, cap } => {
                let (from, width) = (self.value(*x), self.graph.bundle(*x).width);
                let hidden = self.buffers.hidden(width);
                let kind = InstrKind::Hidden { x: from, out: hidden, width, at: 0 };
                self.emit_rows((layer, domain), Work::Rows, kind);
                let acts = self.operand(*x, *head, layer);
                let low = self.lora_a(*x, *head, layer);
                let to = self.buffers.logits();
                let (matrix, scale, cap) = (*head, *scale, *cap);
                self.emit(
                    layer,
                    domain,
                    InstrKind::Logits { acts, matrix, scale, cap, out: to, low },
                );
                to
            }
        };
        self.values.insert(out, emitted);
    }

    /// Which of the model's mixtures has the slots `slots`.
    fn route(&self, slots: Bundle) -> usize {
        let before = |n: &&crate::builder::Node| n.out < slots;
        let mixtures = self.graph.ops.iter().take_while(before);
        mixtures.filter(|n| matches!(n.op, Op::ExpertsUp { .. })).count()
    }

    /// The activations as `matrix` wants them: of one kind, or of several when its parts differ.
    fn operand(&mut self, x: Bundle, matrix: MatrixId, layer: Option<usize>) -> Operand {
        let (from, domain) = (self.value(x), self.graph.bundle(x).domain);
        let m = self.graph.matrix(matrix);
        let mut quantized = |kind: ActKind, name: &str| {
            m.takes(kind).then(|| {
                let work = self.variant.work(domain);
                let bytes: Vec<usize> = (0..self.graph.nodes)
                    .map(|n| kernels::most_row_bytes(kind, m.input_width(n)))
                    .collect();
                let rows = self.rows(domain, work);
                let to = match work {
                    Work::Private => self.buffers.declare(name, Home::Thread, rows, &bytes),
                    Work::Rows => {
                        let role = format!("{}.{name}.{}", m.name, layer.map_or(0, |l| l % 2));
                        self.buffers.declare(&role, Home::Node, rows, &bytes)
                    }
                };
                let kind = InstrKind::Quantize { x: from, kind, matrix, out: to };
                self.emit_rows((layer, domain), work, kind);
                to
            })
        };
        let (bf16, q8) = (quantized(ActKind::Bf16, "bf16"), quantized(ActKind::Q8, "q8"));
        let f32 = match m.clamp {
            Some(_) => quantized(ActKind::F32, "limited"),
            None => m.takes(ActKind::F32).then_some(from),
        };
        Operand { f32, bf16, q8 }
    }

    /// Sums of squares of all query and key heads, told to every node. A head that several nodes have is the first
    /// one's to tell.
    fn tell_heads(
        &mut self,
        (qkv, x): (Bundle, BufId),
        heads: &crate::op::Heads,
        layer: Option<usize>,
    ) -> BufId {
        let told = self.told((heads.q + heads.kv) * kernels::TILE_ROWS, 1, layer);
        let keys = heads.kv_cut();
        let runs = |node| {
            let (own, first) = (heads.kv_range(node), keys.first_held(node));
            let [_, at, ..] = heads.sections(node);
            let to = heads.q_cut.range(node).start;
            vec![
                Run { from: 0, count: heads.q_len(node), to },
                Run {
                    from: at + (first.start - own.start) * heads.dim,
                    count: first.len(),
                    to: heads.q + first.start,
                },
            ]
        };
        let runs = (0..self.graph.nodes).map(runs).collect();
        let (unit, work) = (heads.dim, Work::Rows);
        let domain = self.graph.bundle(qkv).domain;
        let kind = InstrKind::Tell { x, runs, unit, out: told, work };
        self.emit_rows((layer, domain), Work::Rows, kind);
        told
    }

    fn attention(
        &mut self,
        (qkv, latents): (Bundle, Option<Bundle>),
        spec: &crate::op::Attention,
        layer: Option<usize>,
        out: Bundle,
    ) -> BufId {
        let domain = Domain::Tokens;
        let from = Inputs { qkv: self.value(qkv), latents: latents.map(|b| self.value(b)) };
        let cache = self.buffers.state(spec.cache);
        let rope = spec.rope.map(|rope| self.buffers.rope(rope.0 as usize, 0));
        let squares = match spec.tells_heads() {
            true => Some(self.tell_heads((qkv, from.qkv), &spec.heads, layer)),
            false => self.told.get(&qkv).copied(),
        };
        let place = HeadInputs { rope, squares };
        // Several items of a range may share its keys.
        let own = spec.borrows.is_none();
        let append = self.variant.append_in_attention && !spec.heads.shared && own;
        let spec = Box::new(spec.clone());
        if !append && own {
            let spec = spec.clone();
            self.emit(layer, domain, InstrKind::Prepare { from, place, cache, spec });
        }
        match self.variant.attention {
            AttnForm::Fused => {
                let to = self.buffer("attn", out, layer, Work::Rows);
                let items = InstrKind::AttendFused { from, place, cache, spec, out: to };
                self.emit(layer, domain, items);
                to
            }
            form => {
                let bytes: Vec<usize> = (0..self.graph.nodes)
                    .map(|n| {
                        let heads = spec.heads.q_len(n);
                        heads * kernels::attn_state_len(spec.heads.widest()) * size_of::<f32>()
                    })
                    .collect();
                let role = format!("states.{}", layer.map_or(0, |l| l % 2));
                let states = self.buffers.declare(&role, Home::Node, Storage::States, &bytes);
                let items = InstrKind::AttendSplit {
                    from,
                    place,
                    cache,
                    append,
                    spec: spec.clone(),
                    states,
                };
                self.emit(layer, domain, items);
                let work = match form {
                    AttnForm::SplitJoinPrivate => Work::Private,
                    _ => Work::Rows,
                };
                let to = self.buffer("attn", out, layer, work);
                self.emit_rows((layer, domain), work, InstrKind::Join { states, spec, out: to });
                to
            }
        }
    }
}
