//! The products of the chosen experts before their last matrix.

use super::prelude::*;
use super::product_name;
use crate::exec::{
    Area, CHUNK, Chosen, PANEL_PRODUCT, SCRATCH, Slots, Source, Target, Thread, blocks, columns,
    pieces, sorting_room,
};
use crate::load::Packed;
use crate::op::Expert;
use crate::weight::Matrix;
use kernels::{ActKind, Acts, Rows, RowsMut, TILE_ROWS};

/// Tokens for which the tiles of an expert cost as much to read as to multiply, about: what tiles cost is
/// at least that of so many.
const READ: usize = 8;

/// `weight * f(gate·x) * (up·x)` of the chosen experts, a row for each. Replicated to split.
#[derive(Clone, Debug)]
pub(crate) struct ExpertsUpOp {
    pub x: Bundle,
    /// The result of [`ChooseOp`](super::ChooseOp).
    pub chosen: Bundle,
    /// How many there are of a token.
    pub count: usize,
    /// The bank of gate and up, or of up.
    pub bank: MatrixId,
    /// What each does.
    pub expert: Expert,
}

impl Operator for ExpertsUpOp {
    fn name(&self) -> &'static str {
        "experts"
    }

    fn inputs(&self) -> Vec<Bundle> {
        vec![self.x, self.chosen]
    }

    fn product(&self) -> Option<MatrixId> {
        Some(self.bank)
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let ExpertsUpOp { x, chosen, count, bank, expert } = *self;
        let acts = to.operand(x, bank, node.layer);
        let name = &to.tables.matrix(bank).name;
        let out = to.buffer(name, node.out, node.layer, Work::Rows);
        let (chosen, route) = (to.value(chosen), to.route(node.out));
        let does = ExpertsUpInstr { acts, chosen, count, bank, expert, route, out };
        to.push(node.layer, Domain::Tokens, does);
        out
    }
}

impl Lowering<'_> {
    /// Which of the model's mixtures has the slots `slots`.
    pub(crate) fn route(&self, slots: Bundle) -> usize {
        let mixtures = self.ops.iter().take_while(|n| n.out < slots);
        mixtures.filter(|n| n.op.get::<ExpertsUpOp>().is_some()).count()
    }
}

/// A row for each chosen expert of a token, times its weight, those of an expert next to each other. `route` counts
/// the model's routers.
#[derive(Clone, Debug)]
struct ExpertsUpInstr {
    acts: Operand,
    chosen: BufId,
    count: usize,
    bank: MatrixId,
    expert: Expert,
    route: usize,
    out: BufId,
}

impl Instruction for ExpertsUpInstr {
    fn name(&self) -> &'static str {
        product_name(self.expert.activation, self.expert.gated)
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read(self.acts.buffers().chain([self.chosen]), Reach::Group);
        claims.write([self.out], ITEMS);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.experts(self.bank, self.route, self.count, self.acts);
        let width = entry.tables().matrix(self.bank).expert_width(entry.desk.node());
        entry.write(self.out, self.count * width * FLOAT);
    }

    fn bank(&self) -> Option<MatrixId> {
        Some(self.bank)
    }

    fn scratch(&self, tables: &Tables, tokens: usize) -> Scratch {
        let cols = tables.matrix(self.bank).parts[0].cols;
        let row = |kind| CHUNK * kernels::most_row_bytes(kind, cols).next_multiple_of(64);
        let (floats, bytes) = (SCRATCH + CHUNK * cols, row(ActKind::Bf16) + row(ActKind::Q8));
        Scratch { floats, words: sorting_room(tables, self.bank, tokens * self.count), bytes }
    }

    fn sum_squares(&self, run: &Run<'_>, to: &Squares) {
        let acts = self.acts.map(|buf| run.source(buf));
        // Weights of experts may be factors of what goes in.
        let (count, weigh) = (self.count, self.expert.weigh_input);
        let chosen = Chosen { of: run.source(self.chosen), count, tokens: run.count() };
        run.thread.squares_of_tokens(to, self.bank, acts, chosen, weigh);
    }

    fn run(&self, run: Run<'_>) {
        let (acts, tokens) = (self.acts.map(|buf| run.source(buf)), run.count());
        let chosen = Chosen { of: run.source(self.chosen), count: self.count, tokens };
        let out = run.target(self.out);
        let Run { thread, scratch: floats, words, bytes, .. } = run;
        thread.experts_up(self, acts, chosen, out, Room { floats, bytes }, words);
    }
}

impl Thread<'_> {
    /// What the chosen experts make of their tokens before their last matrix.
    fn experts_up(
        &self,
        of: &ExpertsUpInstr,
        acts: Operand<Source<'_>>,
        chosen: Chosen<'_>,
        mut out: Target<'_>,
        room: Room<'_>,
        words: &mut [u32],
    ) {
        let (expert, Room { floats, bytes }) = (of.expert, room);
        let (shard, matrix, bank) = self.bank(of.bank);
        let slots = Slots::sort(words, chosen, bank.experts);
        self.note(&slots, of.route);
        let input = Input { acts, chosen: chosen.of, slots };
        let slots = &input.slots;
        let each = matrix.parts.len() / bank.classes();
        let parts_of = |expert: usize| &shard.parts[bank.place(expert).0 * each..][..each];
        // What is dealt is the cost of tiles, in rows.
        let cost = |slots: &Range<usize>| slots.len().max(READ);
        let total: usize =
            slots.used().map(|(expert, own)| parts_of(expert)[0].per_member() * cost(&own)).sum();
        let mine = total * self.rank / self.size..total * (self.rank + 1) / self.size;
        let mut before = 0;
        for (e, rows) in slots.used() {
            let (parts, (class, member)) = (parts_of(e), bank.place(e));
            let (count, cost) = (parts[0].per_member(), cost(&rows));
            let first = |bound: usize| bound.saturating_sub(before).div_ceil(cost).min(count);
            let tiles = first(mine.start)..first(mine.end);
            before += count * cost;
            if tiles.is_empty() {
                continue;
            }
            let (first_part, number) = (class * each, e);
            out.claim(rows.clone(), columns(0, &tiles));
            let all = Product { matrix, parts, first_part, member, number, expert };
            self.expert_up(&all, &input, rows, tiles, &mut out, Room { floats, bytes });
        }
    }

    /// Some tiles of an expert, for the slots `rows`.
    fn expert_up(
        &self,
        of: &Product<'_>,
        input: &Input<'_>,
        rows: Range<usize>,
        tiles: Range<usize>,
        out: &mut Target<'_>,
        room: Room<'_>,
    ) {
        let (&Input { acts, chosen, ref slots }, Room { floats, bytes }) = (input, room);
        let kernels = self.step.kernels;
        let (products, floats) = floats.split_at_mut(SCRATCH);
        let cols = of.matrix.parts[of.first_part].cols;
        for chunk in blocks(rows, CHUNK) {
            let len = chunk.len();
            let schedules = &self.step.plan.schedules;
            let how = |part: &Packed| schedules.resolve(schedules.usual, part.ty);
            let hows = |part: &Packed| kernels.usual(how(part), part.ty, len, self.size);
            let block = of.parts.iter().map(|part| kernels.block(hows(part), part.ty, len));
            let block = block.reduce(kernels::Block::max).expect("an expert has parts");
            let tokens = |slot: usize| slots.token(chunk.start + slot);
            let gathered = self.gather(acts, of.parts, len, cols, tokens, Room { floats, bytes });
            for Area { rows, tiles } in pieces(0..len, &tiles, block) {
                let width = tiles.len() * TILE_ROWS;
                let size = rows.len() * width;
                let (to_gate, to_up) = products.split_at_mut(PANEL_PRODUCT);
                let mut to = [&mut to_gate[..size], &mut to_up[..size]];
                for (at, part) in of.parts.iter().enumerate() {
                    let first = of.member * part.per_member();
                    let own = first + tiles.start..first + tiles.end;
                    let (weights, root) = (part.tiles(own, part.whole()), part.whole());
                    let input = gathered.of(part, rows.clone());
                    let view = RowsMut::new(&mut *to[at], rows.len(), width, width);
                    kernels.matmul_by(hows(part), part.ty, weights, &root.pieces, input, view);
                    let scale = of.matrix.parts[of.first_part + at].scale;
                    self.expert_scale(scale, of.number, to[at]);
                    self.expert_bias(of, at, &tiles, to[at]);
                }
                let [gate, up] = &mut to;
                let weight = |row: usize| slots.weight(chunk.start + row, chosen);
                if of.expert.weigh_input {
                    for (at, row) in rows.clone().enumerate() {
                        kernels.scale(&mut gate[at * width..][..width], weight(row));
                        kernels.scale(&mut up[at * width..][..width], weight(row));
                    }
                }
                let to_rows = chunk.start + rows.start..chunk.start + rows.end;
                let mut to = out.columns(to_rows, columns(0, &tiles));
                let view = |s| Rows::new(s, rows.len(), width, width);
                let activation = of.expert.activation;
                if of.expert.gated {
                    kernels.gated(activation, view(gate), view(up), to);
                } else {
                    for (row, from) in gate.chunks_exact(width).enumerate() {
                        let to = to.row_mut(row);
                        to.copy_from_slice(from);
                        kernels.activate(activation, to);
                    }
                }
                if !of.expert.weigh_input {
                    let to_rows = chunk.start + rows.start..chunk.start + rows.end;
                    let mut to = out.columns(to_rows, columns(0, &tiles));
                    for (at, row) in rows.enumerate() {
                        kernels.scale(to.row_mut(at), weight(row));
                    }
                }
            }
        }
    }

    /// Adds the bias of an expert's rows.
    fn expert_bias(&self, of: &Product<'_>, at: usize, tiles: &Range<usize>, to: &mut [f32]) {
        let part = &of.matrix.parts[of.first_part + at];
        let Some(bias) = part.bias else { return };
        let own = of.matrix.rows(of.first_part + at, self.node);
        let all = &self.step.weights.vector(bias, self.group)[of.number * part.rows..][own];
        let rows = columns(0, tiles);
        let bias = &all[rows.start..rows.end.min(all.len())];
        for row in to.chunks_exact_mut(rows.len()) {
            self.step.kernels.add_assign(&mut row[..bias.len()], bias);
        }
    }

    /// Rows of activations, `cols` columns of each, beside each other.
    fn gather<'s>(
        &self,
        acts: Operand<Source<'s>>,
        parts: &[Packed],
        len: usize,
        cols: usize,
        token: impl Fn(usize) -> usize,
        room: Room<'s>,
    ) -> Gathered<'s> {
        let Room { floats, mut bytes } = room;
        let mut gathered = Gathered { floats: None, bytes: [None; 2] };
        let takes = |kind| parts.iter().any(|part| kernels::act_kind(part.ty) == kind);
        if takes(ActKind::F32) {
            let from = acts.of(ActKind::F32);
            gathered.floats = Some(if len == 1 {
                from.columns(token(0)..token(0) + 1, 0..cols)
            } else {
                for (row, to) in floats[..len * cols].chunks_exact_mut(cols).enumerate() {
                    to.copy_from_slice(from.row(token(row), cols));
                }
                Rows::new(floats, len, cols, cols)
            });
        }
        for (at, kind) in [ActKind::Bf16, ActKind::Q8].into_iter().enumerate() {
            if !takes(kind) {
                continue;
            }
            let (from, width) = (acts.of(kind), self.step.kernels.row_bytes(kind, cols));
            let rows = |row: usize| from.bytes(token(row)..token(row) + 1, 0..width);
            gathered.bytes[at] = Some(if len == 1 {
                rows(0)
            } else {
                let stride = width.next_multiple_of(64);
                let (own, rest) = bytes.split_at_mut(len * stride);
                bytes = rest;
                for (row, to) in own.chunks_exact_mut(stride).enumerate() {
                    to[..width].copy_from_slice(rows(row).row(0));
                }
                Rows::new(own, len, width, stride)
            });
        }
        gathered
    }
}

/// The input of experts.
struct Input<'a> {
    acts: Operand<Source<'a>>,
    /// The step's choice.
    chosen: Source<'a>,
    slots: Slots<'a>,
}

/// Scratch: products, and rows of activations that are gathered.
struct Room<'a> {
    floats: &'a mut [f32],
    bytes: &'a mut [u8],
}

/// An expert's gate and up, or up.
struct Product<'a> {
    matrix: &'a Matrix,
    parts: &'a [Packed],
    /// Number of the first of these parts, and of the expert among those of its class.
    first_part: usize,
    member: usize,
    number: usize,
    expert: Expert,
}

/// Rows of activations in the forms that the parts of a product take.
#[derive(Copy, Clone)]
struct Gathered<'a> {
    floats: Option<Rows<'a, f32>>,
    bytes: [Option<Rows<'a, u8>>; 2], // bfloat16, 8 bits
}

impl<'a> Gathered<'a> {
    /// Some rows, as a part takes them.
    fn of(&self, part: &Packed, rows: Range<usize>) -> Acts<'a> {
        let gathered = "what all parts take was gathered";
        match kernels::act_kind(part.ty) {
            ActKind::F32 => Acts::F32(self.floats.expect(gathered).sub(rows)),
            ActKind::Bf16 => Acts::Bf16(self.bytes[0].expect(gathered).sub(rows)),
            ActKind::Q8 => Acts::Q8(self.bytes[1].expect(gathered).sub(rows)),
        }
    }
}
