//! Mixtures of experts: the choice, and the products of what was chosen.
//!
//! A *slot* is a token with one of its experts. Slots are sorted by expert, and by token within one, by
//! every thread for itself, so an expert's rows lie beside each other. Up: experts and their tiles are
//! dealt over the node's threads by what they cost; each thread gathers the rows of an expert's tokens and
//! multiplies as any gated product. Down: every thread has some tiles of the output for all experts and
//! adds up their products, in the order of [`Bank`]: so no two threads add to one sum.

use super::Thread;
use super::access::{Source, Target};
use super::matmul::{PANEL_PRODUCT, SCRATCH, columns, copy, pieces};
use crate::bank::Bank;
use crate::builder::Graph;
use crate::deal::Shard;
use crate::instr::{Instr, InstrKind, Operand};
use crate::load::{Packed, Root};
use crate::op::Expert;
use crate::placement::share;
use crate::plan::Mode;
use crate::router::{MOST_CHOSEN, Router};
use crate::storage::Scratch;
use crate::sum::Leaf;
use crate::tally::Tally;
use crate::weight::{Matrix, MatrixId, VectorId};
use kernels::{ActKind, Acts, Piece, Rows, RowsMut, TILE_ROWS};
use std::ops::Range;

/// Rows of an expert that are gathered and multiplied at a time.
const CHUNK: usize = 64;
/// f32 of the sums of a thread's tiles at all positions, if all are made at a time: 128 KiB, a part of the L2
/// cache.
const SUMS: usize = 32 << 10;
/// The same of those at one position, if positions are gone through one by one: 512 KiB. Tiles that are
/// multiplied together share what it costs to lay out activations.
const MANY_SUMS: usize = 128 << 10;
/// Tiles that are multiplied together at least, however many tokens there are.
const FEWEST_TILES: usize = 2;
/// Tokens for which the tiles of an expert cost as much to read as to multiply, about: what tiles cost is
/// at least that of so many.
const READ: usize = 8;

/// A thread's own memory while it is at an instruction.
pub(super) struct Desk<'a> {
    pub floats: &'a mut [f32],
    /// In which slots are sorted.
    pub words: &'a mut [u32],
    /// In which rows are gathered.
    pub bytes: &'a mut [u8],
}

/// Room that a thread needs for a step of up to `tokens` tokens.
pub(super) fn room(graph: &Graph, instr: &Instr, tokens: usize) -> Scratch {
    let (bank, count, mut room) = match &instr.kind {
        InstrKind::ExpertsUp { bank, count, .. } => {
            let cols = graph.matrix(*bank).parts[0].cols;
            let row = |kind| CHUNK * kernels::most_row_bytes(kind, cols).next_multiple_of(64);
            let (floats, bytes) = (SCRATCH + CHUNK * cols, row(ActKind::Bf16) + row(ActKind::Q8));
            (bank, count, Scratch { floats, words: 0, bytes })
        }
        InstrKind::ExpertsDown { bank, count, .. } => {
            let bank_of = graph.matrix(*bank).bank.as_ref();
            let positions = bank_of.map_or(1, |bank| bank.positions().leaf_count());
            // The stack of a balanced tree, and a level for products.
            let levels = positions.next_power_of_two().ilog2() as usize + 2;
            let level = MANY_SUMS.max(tokens * FEWEST_TILES * TILE_ROWS);
            let floats = (levels * level).max((levels + 2) * SUMS);
            (bank, count, Scratch { floats, ..Scratch::default() })
        }
        InstrKind::Choose { router, .. } => {
            return Scratch { floats: router.experts, ..Scratch::default() };
        }
        _ => return Scratch::default(),
    };
    let experts = graph.matrix(*bank).bank.as_ref().map_or(0, |bank| bank.experts);
    room.words = 2 * experts + 1 + tokens * count;
    room
}

/// The slots of a part of a step.
struct Slots<'a> {
    /// Where those of each expert begin, and where the last end.
    bounds: &'a [u32],
    /// Experts that have some, ascending.
    used: &'a [u32],
    /// Of each slot: its token times `count`, plus the expert's place among the token's.
    from: &'a [u32],
    count: usize,
}

impl<'a> Slots<'a> {
    fn sort(
        table: &'a mut [u32],
        chosen: Source<'_>,
        (tokens, count): (usize, usize),
        experts: usize,
    ) -> Slots<'a> {
        let (bounds, rest) = table.split_at_mut(experts + 1);
        let (used, rest) = rest.split_at_mut(experts);
        let from = &mut rest[..tokens * count];
        bounds.fill(0);
        let of = |token: usize| chosen.row(token, 2 * count)[..count].iter().map(|e| *e as usize);
        (0..tokens).flat_map(of).for_each(|expert| bounds[expert] += 1);
        let (mut before, mut known) = (0, 0);
        for (expert, bound) in bounds[..experts].iter_mut().enumerate() {
            if *bound > 0 {
                used[known] = expert as u32;
                known += 1;
            }
            (*bound, before) = (before, before + *bound);
        }
        bounds[experts] = before;
        for token in 0..tokens {
            for (place, expert) in of(token).enumerate() {
                from[bounds[expert] as usize] = (token * count + place) as u32;
                bounds[expert] += 1;
            }
        }
        // Each bound has moved to where the next one was.
        bounds.copy_within(..experts, 1);
        bounds[0] = 0;
        Slots { bounds, used: &used[..known], from, count }
    }

    fn of(&self, expert: usize) -> Range<usize> {
        self.bounds[expert] as usize..self.bounds[expert + 1] as usize
    }

    /// Experts with slots, ascending, and their slots.
    fn used(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.used.iter().map(|&expert| (expert as usize, self.of(expert as usize)))
    }

    fn token(&self, slot: usize) -> usize {
        self.from[slot] as usize / self.count
    }

    /// The weight of a slot.
    fn weight(&self, slot: usize, chosen: Source<'_>) -> f32 {
        let (token, place) = (self.token(slot), self.from[slot] as usize % self.count);
        chosen.row(token, 2 * self.count)[self.count + place]
    }
}

/// A step's choice of experts.
#[derive(Copy, Clone)]
pub(super) struct Chosen<'a> {
    /// For each token, the numbers of its experts and then their weights.
    pub of: Source<'a>,
    /// Experts of a token.
    pub count: usize,
    /// Tokens.
    pub tokens: usize,
}

impl Thread<'_> {
    /// The experts of some tokens, by their scores.
    pub(super) fn choose(
        &self,
        scores: Source<'_>,
        router: &Router,
        mut out: Target<'_>,
        rows: Range<usize>,
        scratch: &mut [f32],
    ) {
        let bias = router.bias.map(|bias| self.step.weights.vector(bias, self.group));
        let own = &mut scratch[..router.experts];
        let mut chosen = [(0, 0.0); MOST_CHOSEN];
        let chosen = &mut chosen[..router.chosen];
        for row in rows {
            own.copy_from_slice(scores.row(row, router.experts));
            router.choose(own, bias, chosen);
            let (experts, weights) = out.row(row, 2 * router.chosen).split_at_mut(router.chosen);
            for ((expert, weight), own) in experts.iter_mut().zip(weights).zip(&*chosen) {
                (*expert, *weight) = (own.0 as f32, own.1);
            }
        }
    }

    /// Tells which experts a part of the step goes to; one thread does.
    fn note(&self, slots: &Slots<'_>, route: usize) {
        let here = self.place == 0 || self.step.plan.mode == Mode::Pipeline;
        let tally: Option<&Tally> = self.tally.filter(|_| self.rank == 0 && here);
        if let Some(tally) = tally {
            tally.note(self.part, route, slots.bounds.windows(2).map(|b| (b[1] - b[0]) as usize));
        }
    }

    /// What the chosen experts make of their tokens before their last matrix.
    pub(super) fn experts_up(
        &self,
        acts: Operand<Source<'_>>,
        chosen: Chosen<'_>,
        (id, expert, route): (MatrixId, Expert, usize),
        mut out: Target<'_>,
        Desk { floats, words, bytes }: Desk<'_>,
    ) {
        let (shard, matrix, bank) = self.bank(id);
        let slots = Slots::sort(words, chosen.of, (chosen.tokens, chosen.count), bank.experts);
        self.note(&slots, route);
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
            let all = Product { matrix, parts, first_part, member, number, expert };
            self.expert_up(
                &all,
                (acts, chosen.of),
                &slots,
                (rows, tiles),
                &mut out,
                (floats, bytes),
            );
        }
    }

    /// Some tiles of an expert, for the slots `rows`.
    fn expert_up(
        &self,
        of: &Product<'_>,
        (acts, chosen): (Operand<Source<'_>>, Source<'_>),
        slots: &Slots<'_>,
        (rows, tiles): (Range<usize>, Range<usize>),
        out: &mut Target<'_>,
        (floats, bytes): (&mut [f32], &mut [u8]),
    ) {
        let kernels = self.step.kernels;
        let (products, floats) = floats.split_at_mut(SCRATCH);
        let cols = of.matrix.parts[of.first_part].cols;
        for chunk in super::matmul::blocks(rows, CHUNK) {
            let len = chunk.len();
            let schedules = &self.step.plan.schedules;
            let how = |part: &Packed| schedules.resolve(schedules.usual, part.ty);
            let hows = |part: &Packed| kernels.usual(how(part), part.ty, len, self.size);
            let block = of.parts.iter().map(|part| kernels.block(hows(part), part.ty, len));
            let block = block.reduce(kernels::Block::max).expect("an expert has parts");
            let tokens = |slot: usize| slots.token(chunk.start + slot);
            let gathered = self.gather(acts, of.parts, (len, cols), tokens, (floats, bytes));
            for (rows, tiles) in pieces(0..len, &tiles, block) {
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

    /// Multiplies products by the scale of their expert's matrix.
    fn expert_scale(&self, scale: Option<VectorId>, expert: usize, to: &mut [f32]) {
        if let Some(scale) = scale {
            self.step.kernels.scale(to, self.step.weights.vector(scale, self.group)[expert]);
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
        (len, cols): (usize, usize),
        token: impl Fn(usize) -> usize,
        (floats, mut bytes): (&'s mut [f32], &'s mut [u8]),
    ) -> Gathered<'s> {
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

    /// The products of all slots with the last matrices, summed over the experts of a token: every root of
    /// the summation tree goes to its slot of this node's copy or, with `push`, of every node's.
    pub(super) fn experts_down(
        &self,
        acts: Operand<Source<'_>>,
        chosen: Chosen<'_>,
        (id, leaves, push): (MatrixId, &[Leaf], bool),
        mut out: Target<'_>,
        Desk { floats, words, .. }: Desk<'_>,
    ) {
        let (shard, matrix, bank) = self.bank(id);
        let tokens = chosen.tokens;
        let slots = Slots::sort(words, chosen.of, (tokens, chosen.count), bank.experts);
        let own = share(matrix.parts[0].rows.div_ceil(TILE_ROWS), self.size, self.rank);
        let of = Down { shard, matrix, bank, slots, chosen: chosen.of };
        let positions = bank.positions().leaves(self.node);
        // Of few tokens the sums of all positions stay near, so each expert is gone through once.
        let together = SUMS / TILE_ROWS / (tokens * positions.len()).max(1);
        let few = together >= FEWEST_TILES;
        let together = if few { together } else { MANY_SUMS / TILE_ROWS / tokens };
        for tiles in super::matmul::blocks(own, together.max(FEWEST_TILES)) {
            let level = tokens * tiles.len() * TILE_ROWS;
            let (all, floats) = floats.split_at_mut(if few { positions.len() * level } else { 0 });
            let (products, stack) =
                floats.split_at_mut(if few { positions.len() * level } else { level });
            if few {
                self.add_all_leaves(&of, acts, tiles.clone(), products, all);
            }
            let (mut depth, mut root) = (0, 0);
            for (position, leaf) in positions.clone().zip(leaves) {
                let sums = &mut stack[depth * level..][..level];
                match few {
                    true => of.take_leaf(self.node, (position, tiles.len()), all, sums),
                    false => self.add_leaf(&of, acts, position, tiles.clone(), (products, sums)),
                }
                depth += 1;
                for _ in 0..leaf.folds {
                    depth -= 1;
                    let (below, top) = stack.split_at_mut(depth * level);
                    let below = &mut below[(depth - 1) * level..];
                    self.step.kernels.add_assign(below, &top[..level]);
                }
                if leaf.root {
                    depth = 0;
                    self.give_root(&of, (root, push), &tiles, &stack[..level], &mut out);
                    root += 1;
                }
            }
        }
    }

    /// A root of some tiles, to its slot.
    fn give_root(
        &self,
        of: &Down<'_>,
        (root, push): (usize, bool),
        tiles: &Range<usize>,
        sums: &[f32],
        out: &mut Target<'_>,
    ) {
        let tokens = sums.len() / (tiles.len() * TILE_ROWS);
        let slot = of.matrix.parts[0].rows.next_multiple_of(TILE_ROWS);
        let before = if push { of.shard.parts[0].roots_before() } else { 0 };
        let cols = columns((before + root) * slot, tiles);
        let nodes = if push { self.step.graph.nodes() } else { 1 };
        for node in 0..nodes {
            let to = match push {
                true => self.place_of((self.node + node) % nodes),
                false => self.place,
            };
            copy(sums, out.columns_on(to, 0..tokens, cols.clone()));
        }
    }

    /// The sums at all positions of the node, `[tokens, classes, leaves, tiles]`: each expert's tiles are gone
    /// through once.
    fn add_all_leaves(
        &self,
        of: &Down<'_>,
        acts: Operand<Source<'_>>,
        tiles: Range<usize>,
        products: &mut [f32],
        sums: &mut [f32],
    ) {
        let leaf = tiles.len() * TILE_ROWS;
        let stride = of.bank.positions().leaves(self.node).len() * leaf;
        sums.fill(0.0);
        for (expert, own) in of.slots.used() {
            let (class, _) = of.bank.place(expert);
            let width = of.bank.cut(class).leaves(self.node).len() * leaf;
            if width == 0 {
                continue;
            }
            let first = of.leaves_before(self.node, class) * leaf;
            let root = of.shard.parts[class].all_leaves();
            for chunk in super::matmul::blocks(own, CHUNK) {
                self.expert_down(of, (expert, root), acts, chunk.clone(), &tiles, products);
                for (slot, product) in chunk.zip(products.chunks_exact(width)) {
                    let sum = of.slots.token(slot) * stride + first;
                    self.step.kernels.add_assign(&mut sums[sum..][..width], product);
                }
            }
            if of.bank.cut(class).leaves(self.node).start == 0 {
                self.down_bias(of, expert, &tiles, |token| token * stride + first, sums);
            }
        }
    }

    /// The sums at one position: of each token, over its experts of the class.
    fn add_leaf(
        &self,
        of: &Down<'_>,
        acts: Operand<Source<'_>>,
        position: usize,
        tiles: Range<usize>,
        (products, sums): (&mut [f32], &mut [f32]),
    ) {
        let (leaf, class) = of.bank.position(position);
        let (part, cut) = (&of.shard.parts[class], of.bank.cut(class));
        let root = part.leaf(leaf - cut.leaves(self.node).start);
        let width = tiles.len() * TILE_ROWS;
        sums.fill(0.0);
        let of_class = |(expert, _): &(usize, Range<usize>)| of.bank.place(*expert).0 == class;
        for (expert, own) in of.slots.used().filter(of_class) {
            for chunk in super::matmul::blocks(own, CHUNK) {
                self.expert_down(of, (expert, root), acts, chunk.clone(), &tiles, products);
                for (slot, product) in chunk.zip(products.chunks_exact(width)) {
                    let sum = &mut sums[of.slots.token(slot) * width..][..width];
                    self.step.kernels.add_assign(sum, product);
                }
            }
            if leaf == 0 {
                self.down_bias(of, expert, &tiles, |token| token * width, sums);
            }
        }
    }

    /// The products of some slots with what some tiles of an expert hold of a root.
    fn expert_down(
        &self,
        of: &Down<'_>,
        (expert, root): (usize, &Root),
        acts: Operand<Source<'_>>,
        slots: Range<usize>,
        tiles: &Range<usize>,
        to: &mut [f32],
    ) {
        let (class, member) = of.bank.place(expert);
        let part = &of.shard.parts[class];
        let first = member * part.per_member();
        let weights = part.tiles(first + tiles.start..first + tiles.end, root);
        let width = Piece::roots(&root.pieces) * tiles.len() * TILE_ROWS;
        let schedules = &self.step.plan.schedules;
        let how = schedules.resolve(schedules.usual, part.ty);
        let how = self.step.kernels.usual(how, part.ty, slots.len(), self.size);
        let to = &mut to[..slots.len() * width];
        let view = RowsMut::new(&mut *to, slots.len(), width, width);
        let input = self.acts(acts, part, slots, root.cols.clone());
        self.step.kernels.matmul_by(how, part.ty, weights, &root.pieces, input, view);
        self.expert_scale(of.matrix.parts[class].scale, expert, to);
    }

    /// Adds the bias of an expert's last matrix to the sums of its tokens, times their weights. Who has an
    /// expert's first leaf does.
    fn down_bias(
        &self,
        of: &Down<'_>,
        expert: usize,
        tiles: &Range<usize>,
        sum: impl Fn(usize) -> usize,
        sums: &mut [f32],
    ) {
        let part = &of.matrix.parts[of.bank.place(expert).0];
        let Some(bias) = part.bias else { return };
        let all = &self.step.weights.vector(bias, self.group)[expert * part.rows..][..part.rows];
        let cols = columns(0, tiles);
        let bias = &all[cols.start..cols.end.min(part.rows)];
        for slot in of.slots.of(expert) {
            let weight = of.slots.weight(slot, of.chosen);
            for (sum, bias) in sums[sum(of.slots.token(slot))..].iter_mut().zip(bias) {
                *sum += weight * bias;
            }
        }
    }

    /// The matrix of a bank, and what the node has of it.
    fn bank(&self, id: MatrixId) -> (&Shard, &Matrix, &Bank) {
        let matrix = self.step.graph.matrix(id);
        let bank = matrix.bank.as_ref().expect("a bank of experts");
        (self.step.weights.shard(id, self.node, self.group), matrix, bank)
    }
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

/// A bank of last matrices, and the slots that are multiplied by them.
struct Down<'a> {
    shard: &'a Shard,
    matrix: &'a Matrix,
    bank: &'a Bank,
    slots: Slots<'a>,
    /// The step's choice.
    chosen: Source<'a>,
}

impl Down<'_> {
    /// Leaves of a node that classes before this one have.
    fn leaves_before(&self, node: usize, class: usize) -> usize {
        (0..class).map(|class| self.bank.cut(class).leaves(node).len()).sum()
    }

    /// The sums at a position, of those at all positions of the node ([`Thread::add_all_leaves`]).
    fn take_leaf(
        &self,
        node: usize,
        (position, tiles): (usize, usize),
        all: &[f32],
        sums: &mut [f32],
    ) {
        let (leaf, class) = self.bank.position(position);
        let own = leaf - self.bank.cut(class).leaves(node).start;
        let (width, before) = (tiles * TILE_ROWS, self.leaves_before(node, class) + own);
        let stride = self.bank.positions().leaves(node).len() * width;
        for (sums, all) in sums.chunks_exact_mut(width).zip(all.chunks_exact(stride)) {
            sums.copy_from_slice(&all[before * width..][..width]);
        }
    }
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
