//! What each instruction states.

use super::{Choice, Dealt, Line, Memory, Per, RowsOf, What};
use crate::buffer::BufId;
use crate::builder::Graph;
use crate::instr::{Finish, Gather, Inputs, Instr, InstrKind, Operand, Work};
use crate::op::{Attention, Given};
use crate::plan::{Mode, Plan};
use crate::recurrent::{HeadNorm, Rule};
use crate::streams::Streams;
use crate::sum::Sum;
use crate::tensor::Domain;
use crate::weight::{Matrix, MatrixId};
use kernels::{ActKind, KvType, KvTypes, Product, TILE_ROWS};

/// Bytes of an f32.
const FLOAT: usize = size_of::<f32>();

/// Where and for whom an instruction is executed.
#[derive(Copy, Clone)]
pub(crate) struct Desk<'a> {
    pub graph: &'a Graph,
    pub plan: &'a Plan,
    /// How keys and values are stored.
    pub kv: KvTypes,
    /// Which threads take part ([`Plan::level`]).
    pub level: usize,
    /// The team.
    pub place: usize,
    /// The stage of a pipeline that holds a matrix.
    pub home: &'a dyn Fn(MatrixId) -> usize,
}

/// What somebody has of a part of a matrix.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Owned {
    pub rows: usize,
    pub cols: usize,
    /// Packed, padding included.
    pub bytes: usize,
}

/// The product of rows of activations with what somebody has of each part of a matrix.
pub(crate) fn product(
    id: MatrixId,
    matrix: &Matrix,
    (place, of): (usize, RowsOf),
    owned: impl Fn(usize) -> Owned,
) -> Vec<Line> {
    let mut lines = Lines(Vec::new());
    let mut bytes = 0;
    for (p, part) in matrix.parts.iter().enumerate() {
        let own = owned(p);
        bytes += own.bytes;
        let kind = What::Multiply(Product::of(part.ty));
        lines.add(own.rows * own.cols, kind, Per::Row(of), Dealt::Team);
    }
    let weights = What::Read(Memory::Weights(id), place);
    lines.add(bytes, weights, Per::Step(of), Dealt::Team);
    lines.0
}

impl Desk<'_> {
    /// The node of the graph whose tensors the team works on.
    pub(crate) fn node(&self) -> usize {
        if self.graph.nodes() == 1 { 0 } else { self.place }
    }

    /// Where the buffers of a node of the graph lie.
    fn place_of(&self, node: usize) -> usize {
        if self.graph.nodes() == 1 { self.place } else { node }
    }

    /// All places that the graph's tensors lie in, as the team sees them.
    fn places(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.graph.nodes()).map(|node| self.place_of(node))
    }

    /// What the team has of part `p` of a matrix.
    fn owned(&self, matrix: &Matrix, p: usize) -> Owned {
        let node = self.node();
        let (rows, cols) = (matrix.rows(p, node).len(), matrix.cols(p, node).len());
        let bytes = rows.div_ceil(TILE_ROWS) * matrix.tile_bytes(p, node);
        Owned { rows, cols, bytes }
    }
}

/// Lines, but for those of nothing.
struct Lines(Vec<Line>);

impl Lines {
    fn add(&mut self, amount: usize, what: What, per: Per, dealt: Dealt) {
        if amount > 0 {
            self.0.push(Line { amount: amount as u64, what, per, dealt });
        }
    }
}

/// The lines of one instruction, as they are written.
struct Entry<'a> {
    desk: &'a Desk<'a>,
    lines: Lines,
    /// What a row is of, and who has rows.
    rows: RowsOf,
    dealt: Dealt,
}

/// Bytes of a slot of summands: rows of `width`, padded to whole tiles.
fn slot(width: usize) -> usize {
    width.next_multiple_of(TILE_ROWS) * FLOAT
}

impl Entry<'_> {
    fn per(&mut self, per: Per, what: What, amount: usize) {
        self.lines.add(amount, what, per, self.dealt);
    }

    /// Bytes of each row, from the team's own memory.
    fn read(&mut self, buf: BufId, bytes: usize) {
        self.read_from(buf, self.desk.place, bytes);
    }

    fn read_from(&mut self, buf: BufId, place: usize, bytes: usize) {
        self.per(Per::Row(self.rows), What::Read(Memory::Rows(buf), place), bytes);
    }

    fn write(&mut self, buf: BufId, bytes: usize) {
        self.write_to(buf, self.desk.place, bytes);
    }

    fn write_to(&mut self, buf: BufId, place: usize, bytes: usize) {
        self.per(Per::Row(self.rows), What::Write(Memory::Rows(buf), place), bytes);
    }

    fn pass(&mut self, elements: usize) {
        self.per(Per::Row(self.rows), What::Pass, elements);
    }

    /// A row from one buffer to another.
    fn copy(&mut self, x: BufId, out: BufId, width: usize) {
        self.read(x, width * FLOAT);
        self.write(out, width * FLOAT);
    }

    /// A product and what it reads; where it writes is the caller's to say.
    fn product(&mut self, id: MatrixId, acts: Operand) {
        let (desk, matrix) = (self.desk, self.desk.graph.matrix(id));
        let own = product(id, matrix, (desk.place, self.rows), |p| desk.owned(matrix, p));
        self.lines.0.extend(own);
        let cols = matrix.input_width(desk.node());
        for kind in [ActKind::F32, ActKind::Bf16, ActKind::Q8] {
            if matrix.takes(kind) {
                self.read(acts.of(kind), kernels::most_row_bytes(kind, cols));
            }
        }
    }

    /// The products with the experts that were chosen, and what they read.
    fn experts(&mut self, id: MatrixId, (route, chosen): (usize, usize), acts: Operand) {
        let (desk, matrix) = (self.desk, self.desk.graph.matrix(id));
        let bank = matrix.bank.as_ref().expect("a bank of experts");
        let each = matrix.parts.len() / bank.classes();
        for (p, part) in matrix.parts.iter().enumerate() {
            let (class, own) = (p / each, desk.owned(matrix, p));
            let choice = Choice {
                route: route as u32,
                class: class as u32,
                members: bank.members(class) as u32,
                experts: bank.experts as u32,
                chosen: chosen as u32,
            };
            let weights = What::Read(Memory::Weights(id), desk.place);
            self.per(Per::Expert(choice), weights, own.bytes);
            let kind = What::Multiply(Product::of(part.ty));
            self.per(Per::Slot(choice), kind, own.rows * own.cols);
        }
        let cols = matrix.input_width(desk.node());
        for kind in [ActKind::F32, ActKind::Bf16, ActKind::Q8] {
            if matrix.takes(kind) {
                self.read(acts.of(kind), chosen * kernels::most_row_bytes(kind, cols));
            }
        }
    }

    /// The products with A of the adapters beside a matrix, of the node's columns.
    fn lora_a(&mut self, id: MatrixId, (x, out, told): (BufId, BufId, bool)) {
        let (desk, node) = (self.desk, self.desk.node());
        let Some(lows) = desk.graph.lows(id) else { return };
        let at = lows.node(node);
        let (cols, segments) = (lows.columns.len(at), lows.columns.leaves(at).len());
        for low in &lows.pairs {
            let row = Per::Adapted(low.adapter, self.rows);
            let bytes = low.tiles() * low.a_tile_bytes(lows, node);
            let weights = What::Read(Memory::Weights(id), desk.place);
            self.per(Per::Adapter(low.adapter), weights, bytes);
            self.per(row, What::Read(Memory::Rows(x), desk.place), cols * FLOAT);
            self.per(row, What::Multiply(Product::of(low.types[0])), low.rank * cols);
            let places = desk.places().filter(|place| told || *place == desk.place);
            for place in places {
                let bytes = low.padded() * segments * FLOAT;
                self.per(row, What::Write(Memory::Rows(out), place), bytes);
            }
        }
    }

    /// The products with B of the adapters beside a matrix, of the node's rows.
    fn lora_b(&mut self, id: MatrixId, low: BufId) {
        let (desk, node) = (self.desk, self.desk.node());
        let Some(lows) = desk.graph.lows(id) else { return };
        for pair in &lows.pairs {
            let row = Per::Adapted(pair.adapter, self.rows);
            let rows = desk.graph.matrix(id).rows(pair.part, node).len();
            let weights = What::Read(Memory::Weights(id), desk.place);
            let bytes = rows.div_ceil(TILE_ROWS) * pair.b_tile_bytes();
            self.per(Per::Adapter(pair.adapter), weights, bytes);
            let sums = pair.padded() * lows.columns.leaf_count() * FLOAT;
            self.per(row, What::Read(Memory::Rows(low), desk.place), sums);
            self.per(row, What::Multiply(Product::of(pair.types[1])), pair.rank * rows);
        }
    }

    /// Rows of all parts that the team has.
    fn own_rows(&self, id: MatrixId) -> usize {
        let matrix = self.desk.graph.matrix(id);
        (0..matrix.parts.len()).map(|p| matrix.rows(p, self.desk.node()).len()).sum()
    }

    /// Bytes of a token's keys and values in the team's memory.
    fn token(&self, spec: &Attention) -> usize {
        let (heads, kv) = (&spec.heads, spec.heads.types(self.desk.kv));
        let bytes = |half: KvType| half.token_bytes(heads.stored(kv));
        let values = if heads.shared { 0 } else { bytes(kv.values) };
        heads.stored_len(self.desk.node()) * (bytes(kv.keys) + values)
    }

    /// Keys and values of the step's tokens go to the cache.
    fn append(&mut self, spec: &Attention, from: &Inputs) {
        let (heads, token) = (&spec.heads, self.token(spec));
        let both = match spec.heads.given {
            Given::KeysAndValues => 2,
            Given::Keys | Given::Nothing => 1,
        };
        let bytes = both * heads.stored_len(self.desk.node()) * heads.dim * FLOAT;
        self.read(from.keys(), bytes);
        let to = What::Write(Memory::State(spec.cache), self.desk.place);
        self.per(Per::Row(self.rows), to, token);
    }

    /// Queries meet the keys that they see, and the values.
    fn attend(&mut self, spec: &Attention, qkv: BufId) {
        let class = self.desk.graph.states[spec.cache].class;
        let (token, width) = (self.token(spec), self.query_width(spec));
        self.read(qkv, width * FLOAT);
        let from = What::Read(Memory::State(spec.cache), self.desk.place);
        self.per(Per::Key(class), from, token);
        // Scores, and the sum of values.
        self.per(Per::Pair(class), What::Multiply(Product::F32), 2 * width);
    }

    /// Bytes of a sequence's state, which are read and written.
    fn state(&mut self, state: usize, bytes: usize) {
        let place = self.desk.place;
        for what in [What::Read, What::Write] {
            self.per(Per::Sequence, what(Memory::State(state), place), bytes);
        }
    }

    fn query_width(&self, spec: &Attention) -> usize {
        spec.heads.q_len(self.desk.node()) * spec.heads.dim
    }

    /// Bytes of the attention states of a token and a range.
    fn states(&self, spec: &Attention) -> usize {
        let heads = &spec.heads;
        heads.q_len(self.desk.node()) * kernels::attn_state_len(heads.stored(self.desk.kv)) * FLOAT
    }

    /// Sums of `width` elements over the nodes, which are added to `x`.
    fn residual(
        &mut self,
        (x, partial, out): (BufId, BufId, BufId),
        (finish, width): (&Finish, usize),
        gather: Gather,
        sum: &Sum,
    ) {
        let desk = self.desk;
        let bytes = width * FLOAT;
        let of_norm = usize::from(finish.norm.is_some()) * width;
        self.summands(partial, width, gather, sum);
        if gather != Gather::Scatter {
            self.read(x, bytes);
            self.write(out, bytes);
            if of_norm > 0 {
                self.pass(of_norm);
            }
            return;
        }
        // The team's part of the rows: the sum goes to the others.
        self.read(x, self.part(bytes));
        for to in desk.places() {
            self.write_to(out, to, self.part(slot(width)));
        }
        if of_norm > 0 {
            self.pass(self.part(of_norm));
        }
    }

    /// The summands of a residual sum.
    fn summands(&mut self, partial: BufId, width: usize, gather: Gather, sum: &Sum) {
        let (desk, node) = (self.desk, self.desk.node());
        let shared = gather == Gather::Scatter;
        let part = |all: usize| if shared { self.part(all) } else { all };
        let reads: Vec<(usize, usize)> = (sum.slots.iter().enumerate())
            .map(|(from, slots)| {
                let at = if gather == Gather::Push { node } else { from };
                (desk.place_of(at), part(slots.len() * slot(width)))
            })
            .collect();
        let passes = part(sum.roots() * width);
        for (place, bytes) in reads {
            self.read_from(partial, place, bytes);
        }
        self.pass(passes);
    }

    /// The team's part of what all teams share.
    fn part(&self, all: usize) -> usize {
        let desk = self.desk;
        let groups = desk.plan.group_threads_at(desk.level);
        let threads = groups.last().map_or(1, |last| last.end);
        all * groups[desk.place].len() / threads
    }
}

impl Instr {
    /// What the team of a place does for this instruction.
    pub(crate) fn work(&self, desk: &Desk<'_>) -> Vec<Line> {
        let (graph, node, here) = (desk.graph, desk.node(), desk.place);
        let dealt = match self.work {
            Some(Work::Private) => Dealt::Each,
            Some(Work::Rows) | None => Dealt::Team,
        };
        // Rows of each token.
        let each = match self.domain {
            Domain::Slots(each) => each,
            Domain::Tokens | Domain::Outputs => 1,
        };
        let rows = match (&self.kind, self.domain) {
            (InstrKind::Logits { .. }, _) => RowsOf::Logits,
            (InstrKind::Hidden { .. }, _) => RowsOf::Hidden,
            (_, Domain::Tokens | Domain::Slots(_)) => RowsOf::Tokens,
            (_, Domain::Outputs) => RowsOf::Outputs,
        };
        let mut e = Entry { desk, lines: Lines(Vec::new()), rows, dealt };
        match &self.kind {
            InstrKind::RopeTable { rope, out } => {
                e.write(*out, graph.ropes[*rope].inv_freq.len() * 2 * FLOAT);
            }
            InstrKind::Embed { table, out, .. } => {
                let bytes = graph.matrix(*table).parts[0].cols * FLOAT;
                let homes = match desk.plan.mode {
                    Mode::Pipeline => (desk.home)(*table)..(desk.home)(*table) + 1,
                    _ => 0..graph.nodes(),
                };
                for home in homes {
                    let from = What::Read(Memory::Table(*table), home);
                    e.per(Per::Lookup(*table, home), from, bytes);
                }
                e.write(*out, bytes);
            }
            InstrKind::Receive { from, out, width, .. } => e.copy(from[0], *out, *width),
            InstrKind::Send { x, to, width, .. } => {
                e.read(*x, width * FLOAT);
                e.write_to(to[0], here + 1, width * FLOAT);
            }
            InstrKind::Recall { from, out, width, .. } => e.copy(from[0], *out, *width),
            // The caller's memory is in no book.
            InstrKind::Rows { x, out, width, matrix, .. } => {
                let width = matrix.map_or(*width, |m| graph.matrix(m).input_width(node));
                x.iter().for_each(|x| e.read(*x, width * FLOAT));
                e.write(*out, width * FLOAT);
            }
            InstrKind::Merge { x, count, how, width, out, .. } => {
                e.read(*x, count * width * FLOAT);
                let all = how.width(*count, *width);
                e.write(*out, all * FLOAT);
            }
            InstrKind::Concat { x, y, width, matrix, out, .. } => {
                e.read(*x, width * FLOAT);
                e.read(*y, width * FLOAT);
                e.pass(2 * width);
                e.write(*out, graph.matrix(*matrix).input_width(node) * FLOAT);
            }
            InstrKind::Load { x, out, width }
            | InstrKind::Remember { x, out, width }
            | InstrKind::Select { x, out, width, .. } => {
                e.copy(*x, *out, *width);
            }
            InstrKind::Norm { x, norm, out, .. } => {
                let width = graph.vectors[norm.weight().0 as usize].len;
                e.copy(*x, *out, width);
                e.pass(width);
            }
            InstrKind::Quantize { x, kind, matrix, out, .. } => {
                let cols = graph.matrix(*matrix).input_width(node);
                e.read(*x, each * cols * FLOAT);
                e.write(*out, each * kernels::most_row_bytes(*kind, cols));
                e.pass(each * cols);
            }
            InstrKind::LoraA { x, matrix, out, told } => e.lora_a(*matrix, (*x, *out, *told)),
            InstrKind::LoraB { low, matrix, out } => {
                e.lora_b(*matrix, *low);
                let rows = e.own_rows(*matrix);
                for pair in graph.lows(*matrix).iter().flat_map(|lows| &lows.pairs) {
                    let to = What::Write(Memory::Rows(*out), here);
                    e.per(Per::Adapted(pair.adapter, e.rows), to, rows * FLOAT);
                }
            }
            InstrKind::MatMul { acts, carried, matrix, out, push, splits, told, low, .. } => {
                if let Some(low) = low {
                    e.lora_b(*matrix, *low);
                }
                e.product(*matrix, *acts);
                let m = graph.matrix(*matrix);
                if let (Some(x), Some(of)) = (carried, &m.by_head) {
                    let heads = m.rows(0, node).len() / of.rows;
                    e.copy(*x, *out, heads * of.carried.len());
                }
                match m.sum(*splits) {
                    None => e.write(*out, e.own_rows(*matrix) * FLOAT),
                    Some(sum) => {
                        let bytes = sum.slots[node].len() * slot(m.parts[0].rows);
                        match push {
                            true => desk.places().for_each(|to| e.write_to(*out, to, bytes)),
                            false => e.write(*out, bytes),
                        }
                    }
                }
                if let Some((what, to)) = told {
                    let held = |p: usize| m.parts[p].cut.first_held(node).len();
                    let rows: usize = (0..what.parts()).map(held).sum();
                    let bytes = rows / TILE_ROWS * what.numbers() * FLOAT;
                    desk.places().for_each(|place| e.write_to(*to, place, bytes));
                }
            }
            InstrKind::Gated { acts, matrix, out, low, .. } => {
                if let Some(low) = low {
                    e.lora_b(*matrix, *low);
                }
                e.product(*matrix, *acts);
                e.write(*out, graph.matrix(*matrix).rows(0, node).len() * FLOAT);
            }
            InstrKind::Logits { acts, matrix, out, low, .. } => {
                if let Some(low) = low {
                    e.lora_b(*matrix, *low);
                }
                e.product(*matrix, *acts);
                e.write_to(*out, 0, e.own_rows(*matrix) * FLOAT);
            }
            // The first node has them all.
            InstrKind::Hidden { .. } if node > 0 => {}
            InstrKind::Hidden { x, out, width, .. } => {
                e.read(*x, width * FLOAT);
                e.write_to(*out, 0, width * FLOAT);
            }
            InstrKind::Choose { scores, router, out, .. } => {
                e.read(*scores, router.experts * FLOAT);
                e.write(*out, 2 * router.chosen * FLOAT);
                e.pass(router.experts);
            }
            InstrKind::ExpertsUp { acts, bank, count, route, out, .. } => {
                e.experts(*bank, (*route, *count), *acts);
                let width = graph.matrix(*bank).expert_width(node);
                e.write(*out, *count * width * FLOAT);
            }
            InstrKind::ExpertsDown { acts, bank, count, route, out, push, .. } => {
                e.experts(*bank, (*route, *count), *acts);
                let m = graph.matrix(*bank);
                let sum = m.sum(1).expect("nodes share the columns of down");
                let bytes = sum.slots[node].len() * slot(m.parts[0].rows);
                match push {
                    true => desk.places().for_each(|to| e.write_to(*out, to, bytes)),
                    false => e.write(*out, bytes),
                }
            }
            InstrKind::Prepare { from, spec, .. } => e.append(spec, from),
            InstrKind::AttendFused { from, spec, out, .. } => {
                e.attend(spec, from.qkv);
                e.write(*out, e.query_width(spec) * FLOAT);
            }
            InstrKind::AttendSplit { from, append, spec, states, .. } => {
                if *append {
                    e.append(spec, from);
                }
                e.attend(spec, from.qkv);
                let to = What::Write(Memory::Rows(*states), here);
                e.per(Per::Range(graph.states[spec.cache].class), to, e.states(spec));
            }
            InstrKind::Join { states, spec, out, .. } => {
                let (class, width) = (graph.states[spec.cache].class, e.query_width(spec));
                let from = What::Read(Memory::Rows(*states), here);
                e.per(Per::Range(class), from, e.states(spec));
                e.per(Per::Range(class), What::Pass, width);
                e.write(*out, width * FLOAT);
            }
            InstrKind::Convolution { x, spec, out, .. } => {
                let channels = spec.len(node);
                let inputs = if spec.gates.is_some() { 3 } else { 1 };
                e.read(*x, inputs * channels * FLOAT);
                e.state(spec.state, channels * (spec.taps - 1) * FLOAT);
                let kind = What::Multiply(Product::F32);
                e.per(Per::Row(rows), kind, channels * spec.taps);
                e.write(*out, channels * FLOAT);
                e.pass(channels);
            }
            InstrKind::Recurrence { x, raw, spec, out, squares, .. } => {
                let (heads, keys) = (spec.heads.len(node), spec.heads.key_range(node).len());
                let values = heads * spec.heads.values.dim;
                e.read(*x, (values + 2 * keys * spec.heads.key_dim) * FLOAT);
                let gates = if spec.gated { values } else { 0 };
                let numbers = if matches!(spec.rule, Rule::Delta { .. }) { 2 } else { 1 };
                e.read(*raw, (numbers * heads + gates) * FLOAT);
                e.state(spec.state, values * spec.heads.key_dim * FLOAT);
                let kind = What::Multiply(Product::F32);
                e.per(Per::Row(rows), kind, heads * spec.multiplies());
                e.write(*out, values * FLOAT);
                if let Some(squares) = squares {
                    let bytes = heads * spec.heads.slices() * FLOAT;
                    desk.places().for_each(|to| e.write_to(*squares, to, bytes));
                }
            }
            InstrKind::Blend { x, y, width, out, .. } => {
                e.read(*x, width * FLOAT);
                e.read(*y, width * FLOAT);
                e.write(*out, width * FLOAT);
                e.pass(2 * width);
            }
            InstrKind::Streams { x, y, z, count, width, what, out, .. } => {
                let all = count * width;
                // Elements of the operands and the result, and those that pass by.
                let (of, passes) = match what {
                    Streams::Begin { .. } => ([*width, all - width, 0, all], 2 * all),
                    Streams::Predict { .. } => ([all, 0, *count, all], count * all),
                    Streams::Take { .. } => ([*width, 0, 0, *width], *width),
                    Streams::TakeTwice { .. } => ([*width, 0, 0, *width], 2 * width),
                    Streams::Correct { .. } => ([all, *width, *count, all], all + width),
                    Streams::Spread => ([all, *width, 0, all], all),
                    Streams::Merge { .. } => ([*width; 4], 3 * width),
                };
                for (from, elements) in [(Some(*x), of[0]), (*y, of[1]), (*z, of[2])] {
                    if let Some(from) = from {
                        e.read(from, elements * FLOAT);
                    }
                }
                e.write(*out, of[3] * FLOAT);
                e.pass(passes);
            }
            InstrKind::Tell { x, runs, unit, out, .. } => {
                let count: usize = runs[node].iter().map(|run| run.count).sum();
                e.read(*x, count * unit * FLOAT);
                e.pass(count * unit);
                let bytes = count * FLOAT;
                desk.places().for_each(|place| e.write_to(*out, place, bytes));
            }
            InstrKind::Modulation { x, gate, squares, width, spec, out, .. } => {
                let width = width[node];
                e.read(*x, width * FLOAT);
                if let Some(gate) = gate {
                    e.read(*gate, width * FLOAT);
                    e.pass(width);
                }
                if let (Some(squares), Some(HeadNorm::Groups { heads, .. })) = (squares, &spec.norm)
                {
                    e.read(*squares, heads.values.q * heads.slices() * FLOAT);
                }
                if let (Some(squares), Some(HeadNorm::All { width: all, .. })) =
                    (squares, &spec.norm)
                {
                    e.read(*squares, all / TILE_ROWS * FLOAT);
                }
                if let (Some(moments), Some(above)) = (squares, &spec.above) {
                    e.read(*moments, above.numbers() * FLOAT);
                    e.pass(2 * width);
                }
                if spec.norm.is_some() {
                    e.pass(width);
                }
                e.write(*out, width * FLOAT);
            }
            InstrKind::Residual { x, partial, also, finish, out, width, gather, sum, .. } => {
                e.residual((*x, *partial, *out), (finish, *width), *gather, sum);
                if let Some(also) = also {
                    e.summands(also.partial, *width, *gather, &also.sum);
                }
            }
        }
        e.lines.0
    }
}
