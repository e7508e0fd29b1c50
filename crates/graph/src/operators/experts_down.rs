//! The last matrices of the chosen experts.

use super::ExpertsUpOp;
use super::prelude::*;
use crate::bank::Bank;
use crate::deal::Shard;
use crate::exec::{
    CHUNK, Chosen, Slots, Source, Target, Thread, blocks, columns, copy, sorting_room,
};
use crate::load::Root;
use crate::operator::Summed;
use crate::placement::share;
use crate::sum::{Leaf, leaves};
use crate::weight::Matrix;
use kernels::{Piece, RowsMut, TILE_ROWS};

/// f32 of the sums of a thread's tiles at all positions, if all are made at a time: 128 KiB, a part of the L2
/// cache.
const SUMS: usize = 32 << 10;
/// The same of those at one position, if positions are gone through one by one: 512 KiB. Tiles that are
/// multiplied together share what it costs to lay out activations.
const MANY_SUMS: usize = 128 << 10;
/// Tiles that are multiplied together at least, however many tokens there are.
const FEWEST_TILES: usize = 2;

/// `Σ down·x` over the chosen experts of a token. Split to partial.
#[derive(Clone, Debug)]
pub(crate) struct ExpertsDownOp {
    /// The result of [`ExpertsUpOp`](super::ExpertsUpOp).
    pub x: Bundle,
    /// As there.
    pub chosen: Bundle,
    /// As there.
    pub count: usize,
    /// The bank of down.
    pub bank: MatrixId,
}

impl Operator for ExpertsDownOp {
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
        let ExpertsDownOp { x, chosen, count, bank } = *self;
        let (acts, route) = (to.operand(x, bank, node.layer), to.route(x));
        let m = to.tables.matrix(bank);
        let sum = m.sum(1).expect("nodes share the columns of down");
        let out = to.partial(&m.name, node.out, node.layer, &sum);
        to.sums.insert(node.out, Summed { sum, product: None, bias: None, clamp: None });
        let push = to.variant.gather == Gather::Push;
        let positions = m.bank.as_ref().expect("experts are a bank").positions();
        let leaves = (0..to.tables.nodes()).map(|node| leaves(positions, node, 1)).collect();
        let up = to.ops[to.position(x)].op.get::<ExpertsUpOp>();
        let weighed = up.is_some_and(|up| !up.expert.weigh_input);
        let chosen = to.value(chosen);
        let does =
            ExpertsDownInstr { acts, chosen, count, bank, weighed, route, leaves, out, push };
        to.push(node.layer, Domain::Tokens, does);
        out
    }
}

/// Rows of experts times the last matrices, summed over a token's experts, into the slots of its summands; with
/// `push`, on every node.
#[derive(Clone, Debug)]
struct ExpertsDownInstr {
    acts: Operand,
    chosen: BufId,
    count: usize,
    bank: MatrixId,
    /// Whether its input has been multiplied by the weights of experts.
    weighed: bool,
    route: usize,
    /// How each node sums its positions.
    leaves: Vec<Vec<Leaf>>,
    out: BufId,
    push: bool,
}

impl Instruction for ExpertsDownInstr {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read(self.acts.buffers().chain([self.chosen]), Reach::Group);
        claims.write([self.out], if self.push { Reach::All } else { ITEMS });
    }

    fn work(&self, entry: &mut Entry<'_>) {
        entry.experts(self.bank, self.route, self.count, self.acts);
        let m = entry.tables().matrix(self.bank);
        let sum = m.sum(1).expect("nodes share the columns of down");
        let bytes = sum.slots[entry.desk.node()].len() * slot(m.parts[0].rows);
        match self.push {
            true => entry.write_everywhere(self.out, bytes),
            false => entry.write(self.out, bytes),
        }
    }

    fn bank(&self) -> Option<MatrixId> {
        Some(self.bank)
    }

    fn scratch(&self, tables: &Tables, tokens: usize) -> Scratch {
        let bank = tables.matrix(self.bank).bank.as_ref();
        let positions = bank.map_or(1, |bank| bank.positions().leaf_count());
        // The stack of a balanced tree, and a level for products.
        let levels = positions.next_power_of_two().ilog2() as usize + 2;
        let level = MANY_SUMS.max(tokens * FEWEST_TILES * TILE_ROWS);
        let floats = (levels * level).max((levels + 2) * SUMS);
        let words = sorting_room(tables, self.bank, tokens * self.count);
        Scratch { floats, words, ..Scratch::default() }
    }

    fn sum_squares(&self, run: &Run<'_>, to: &Squares) {
        let acts = self.acts.map(|buf| run.source(buf));
        let (count, tokens) = (self.count, run.count());
        let chosen = Chosen { of: run.source(self.chosen), count, tokens };
        run.thread.squares_of_slots(to, self.bank, acts, chosen, self.weighed);
    }

    fn run(&self, run: Run<'_>) {
        let (acts, tokens) = (self.acts.map(|buf| run.source(buf)), run.count());
        let chosen = Chosen { of: run.source(self.chosen), count: self.count, tokens };
        let out = run.target(self.out);
        let Run { thread, scratch, words, .. } = run;
        thread.experts_down(self, acts, chosen, out, scratch, words);
    }
}

impl Thread<'_> {
    /// The products of all slots with the last matrices, summed over the experts of a token: every root of
    /// the summation tree goes to its slot of this node's copy or, with `push`, of every node's.
    fn experts_down(
        &self,
        instr: &ExpertsDownInstr,
        acts: Operand<Source<'_>>,
        chosen: Chosen<'_>,
        mut out: Target<'_>,
        floats: &mut [f32],
        words: &mut [u32],
    ) {
        let (leaves, push) = (&*instr.leaves[self.node], instr.push);
        let (shard, matrix, bank) = self.bank(instr.bank);
        let tokens = chosen.tokens;
        let slots = Slots::sort(words, chosen, bank.experts);
        let own = share(matrix.parts[0].rows.div_ceil(TILE_ROWS), self.size, self.rank);
        let of = Down { shard, matrix, bank, acts, slots, chosen: chosen.of };
        let positions = bank.positions().leaves(self.node);
        // Of few tokens the sums of all positions stay near, so each expert is gone through once.
        let together = SUMS / TILE_ROWS / (tokens * positions.len()).max(1);
        let few = together >= FEWEST_TILES;
        let together = if few { together } else { MANY_SUMS / TILE_ROWS / tokens };
        for tiles in blocks(own, together.max(FEWEST_TILES)) {
            let level = tokens * tiles.len() * TILE_ROWS;
            let (all, floats) = floats.split_at_mut(if few { positions.len() * level } else { 0 });
            let (products, stack) =
                floats.split_at_mut(if few { positions.len() * level } else { level });
            if few {
                self.add_all_leaves(&of, tiles.clone(), products, all);
            }
            let (mut depth, mut root) = (0, 0);
            for (position, leaf) in positions.clone().zip(leaves) {
                let sums = &mut stack[depth * level..][..level];
                match few {
                    true => of.take_leaf(self.node, position, tiles.len(), all, sums),
                    false => self.add_leaf(&of, position, tiles.clone(), products, sums),
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
                    self.give_root(&of, root, push, &tiles, &stack[..level], &mut out);
                    root += 1;
                }
            }
        }
    }

    /// A root of some tiles, to its slot.
    fn give_root(
        &self,
        of: &Down<'_>,
        root: usize,
        push: bool,
        tiles: &Range<usize>,
        sums: &[f32],
        out: &mut Target<'_>,
    ) {
        let tokens = sums.len() / (tiles.len() * TILE_ROWS);
        let slot = of.matrix.parts[0].rows.next_multiple_of(TILE_ROWS);
        let before = if push { of.shard.parts[0].roots_before() } else { 0 };
        let cols = columns((before + root) * slot, tiles);
        let nodes = if push { self.step.tables.nodes() } else { 1 };
        for node in 0..nodes {
            let to = match push {
                true => self.place_of((self.node + node) % nodes),
                false => self.place,
            };
            out.claim(0..tokens, cols.clone());
            copy(sums, out.columns_on(to, 0..tokens, cols.clone()));
        }
    }

    /// The sums at all positions of the node, `[tokens, classes, leaves, tiles]`: each expert's tiles are gone
    /// through once.
    fn add_all_leaves(
        &self,
        of: &Down<'_>,
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
            for chunk in blocks(own, CHUNK) {
                self.expert_down(of, expert, root, chunk.clone(), &tiles, products);
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
        position: usize,
        tiles: Range<usize>,
        products: &mut [f32],
        sums: &mut [f32],
    ) {
        let (leaf, class) = of.bank.position(position);
        let (part, cut) = (&of.shard.parts[class], of.bank.cut(class));
        let root = part.leaf(leaf - cut.leaves(self.node).start);
        let width = tiles.len() * TILE_ROWS;
        sums.fill(0.0);
        let of_class = |(expert, _): &(usize, Range<usize>)| of.bank.place(*expert).0 == class;
        for (expert, own) in of.slots.used().filter(of_class) {
            for chunk in blocks(own, CHUNK) {
                self.expert_down(of, expert, root, chunk.clone(), &tiles, products);
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
        expert: usize,
        root: &Root,
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
        let input = self.acts(of.acts, part, slots, root.cols.clone());
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
}

/// A bank of last matrices, and the slots that are multiplied by them.
struct Down<'a> {
    shard: &'a Shard,
    matrix: &'a Matrix,
    bank: &'a Bank,
    acts: Operand<Source<'a>>,
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
    fn take_leaf(&self, node: usize, position: usize, tiles: usize, all: &[f32], sums: &mut [f32]) {
        let (leaf, class) = self.bank.position(position);
        let own = leaf - self.bank.cut(class).leaves(node).start;
        let (width, before) = (tiles * TILE_ROWS, self.leaves_before(node, class) + own);
        let stride = self.bank.positions().leaves(node).len() * width;
        for (sums, all) in sums.chunks_exact_mut(width).zip(all.chunks_exact(stride)) {
            sums.copy_from_slice(&all[before * width..][..width]);
        }
    }
}
