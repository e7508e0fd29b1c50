//! Attention over a layer's cache: four instructions, of which a form of a step takes some.

use super::prelude::*;
use super::tell::{TellInstr, TellRun};
use crate::buffer::{Home, Pool};
use crate::exec::{HeadInputs, Layer};
use crate::op::{Attention, Given, Heads};
use crate::variant::AttnForm;
use kernels::{KvType, Product};

/// RoPE, KV append and attention. Takes and gives split by heads.
#[derive(Clone, Debug)]
pub(crate) struct AttentionOp {
    /// `q | k | v` of the node's heads, or `q`.
    pub qkv: Bundle,
    /// The one key of all heads, which is their value too; replicated.
    pub latents: Option<Bundle>,
    pub spec: Box<Attention>,
}

impl Operator for AttentionOp {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn inputs(&self) -> Vec<Bundle> {
        [self.qkv].into_iter().chain(self.latents).collect()
    }

    fn vectors(&self) -> Vec<VectorId> {
        let spec = &self.spec;
        let norms = [spec.q_norm, spec.k_norm, spec.v_norm, spec.latent_norm];
        norms.into_iter().chain([spec.sinks, spec.biases]).flatten().collect()
    }

    fn states(&self) -> Range<usize> {
        self.spec.cache..self.spec.cache + 1
    }

    fn lower(&self, node: &Node, to: &mut Lowering<'_>) -> BufId {
        let (layer, spec) = (node.layer, &self.spec);
        let from = Inputs { qkv: to.value(self.qkv), latents: self.latents.map(|b| to.value(b)) };
        let cache = to.buffers.state(spec.cache);
        let rope = spec.rope.map(|rope| to.buffers.rope(rope.0 as usize, 0));
        let squares = match spec.tells_heads() {
            true => Some(to.tell_heads(self.qkv, from.qkv, &spec.heads, layer)),
            false => to.told.get(&self.qkv).copied(),
        };
        let place = HeadInputs { rope, squares };
        // Several items of a range may share its keys.
        let own = spec.borrows.is_none();
        let append = to.variant.append_in_attention && !spec.heads.shared && own;
        let of = Attends { from, place, cache, spec: spec.clone() };
        if !append && own {
            to.push(layer, Domain::Tokens, PrepareInstr(of.clone()));
        }
        let work = match to.variant.attention {
            AttnForm::Fused => {
                let out = to.buffer("attn", node.out, layer, Work::Rows);
                to.push(layer, Domain::Tokens, FusedInstr { of, out });
                return out;
            }
            AttnForm::SplitJoinPrivate => Work::Private,
            AttnForm::SplitJoinShared => Work::Rows,
        };
        let state = kernels::attn_state_len(spec.heads.widest()) * FLOAT;
        let bytes: Vec<usize> =
            (0..to.tables.nodes()).map(|n| spec.heads.q_len(n) * state).collect();
        let role = format!("states.{}", layer.map_or(0, |l| l % 2));
        let states = to.buffers.declare(&role, Home::Node, Pool::States, &bytes);
        to.push(layer, Domain::Tokens, SplitInstr { of, append, states });
        let out = to.buffer("attn", node.out, layer, work);
        let spec = spec.clone();
        to.push_rows(layer, Domain::Tokens, work, JoinInstr { states, spec, out });
        out
    }
}

impl Lowering<'_> {
    /// Sums of squares of all query and key heads, on every node. A head that several nodes have is the first one's
    /// to sum.
    fn tell_heads(&mut self, qkv: Bundle, x: BufId, heads: &Heads, layer: Option<usize>) -> BufId {
        let told = self.told((heads.q + heads.kv) * kernels::TILE_ROWS, 1, layer);
        let keys = heads.kv_cut();
        let runs = |node| {
            let (own, first) = (heads.kv_range(node), keys.first_held(node));
            let [_, at, ..] = heads.sections(node);
            let to = heads.q_cut.range(node).start;
            vec![
                TellRun { from: 0, count: heads.q_len(node), to },
                TellRun {
                    from: at + (first.start - own.start) * heads.dim,
                    count: first.len(),
                    to: heads.q + first.start,
                },
            ]
        };
        let runs = (0..self.tables.nodes()).map(runs).collect();
        let (unit, work, domain) = (heads.dim, Work::Rows, self.tables.bundle(qkv).domain);
        self.push_rows(layer, domain, Work::Rows, TellInstr { x, runs, unit, out: told, work });
        told
    }
}

/// Inputs of attention from the step's tokens.
#[derive(Copy, Clone, Debug)]
struct Inputs {
    /// Queries, keys and values, or queries alone.
    qkv: BufId,
    /// The one key of all heads, which is their value too.
    latents: Option<BufId>,
}

impl Inputs {
    /// Where keys and values come from.
    fn keys(&self) -> BufId {
        self.latents.unwrap_or(self.qkv)
    }
}

/// What the instructions have in common.
#[derive(Clone, Debug)]
struct Attends {
    from: Inputs,
    place: HeadInputs,
    cache: BufId,
    spec: Box<Attention>,
}

/// Norms and RoPE of keys; keys and values to their pages.
#[derive(Clone, Debug)]
struct PrepareInstr(Attends);

impl Instruction for PrepareInstr {
    fn name(&self) -> &'static str {
        if self.0.place.rope.is_some() { "rope+append" } else { "append" }
    }

    fn claims(&self, claims: &mut Claims) {
        // Dealt by pages, so that no two threads write into one page.
        claims.read(self.0.place.buffers(), ITEMS);
        claims.read([self.0.from.keys()], ITEMS);
        claims.write([self.0.cache], ITEMS);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        self.0.append(entry);
    }

    fn is_split(&self, _tables: &Tables) -> bool {
        true
    }

    fn run(&self, run: Run<'_>) {
        let Attends { from, place, cache, spec } = &self.0;
        let (from, pages) = (run.source(from.keys()), run.pages(*cache, spec.cache));
        let place = place.map(|buf| run.source(buf));
        run.thread.prepare(from, place, spec, pages, run.scratch);
    }
}

/// Norms and RoPE of queries; attention of (query tile, KV head) items over all ranges.
#[derive(Clone, Debug)]
struct FusedInstr {
    of: Attends,
    out: BufId,
}

impl Instruction for FusedInstr {
    fn name(&self) -> &'static str {
        "attend"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read(self.of.place.buffers(), Reach::Group);
        claims.read([self.of.from.qkv, self.of.cache], Reach::Group);
        claims.write([self.out], ITEMS);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        self.of.attend(entry);
        entry.write(self.out, query_width(entry, &self.of.spec) * FLOAT);
    }

    fn is_split(&self, _tables: &Tables) -> bool {
        true
    }

    fn has_tasks(&self) -> bool {
        true
    }

    fn run(&self, run: Run<'_>) {
        let Attends { from, place, cache, spec } = &self.of;
        let (qkv, pages) = (run.source(from.qkv), run.pages(*cache, spec.cache));
        let (place, out) = (place.map(|buf| run.source(buf)), run.target(self.out));
        let layer = Layer { spec, cache: &pages };
        run.thread.attend_fused(qkv, place, layer, out, run.scratch, run.worker);
    }
}

/// Norms and RoPE of queries; attention of (token, KV head, KV range) items into partial states.
#[derive(Clone, Debug)]
struct SplitInstr {
    of: Attends,
    append: bool,
    states: BufId,
}

impl Instruction for SplitInstr {
    fn name(&self) -> &'static str {
        match (self.append, self.of.place.rope) {
            (true, None) => "append+attend",
            (true, Some(_)) => "rope+append+attend",
            (false, _) => "attend",
        }
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read(self.of.place.buffers(), Reach::Group);
        claims.read([self.of.from.qkv], Reach::Group);
        // With `append`, a range's new keys are written and read by the one item that owns
        // the range; all other keys are older than this step.
        match self.append {
            true => claims.write([self.of.cache], ITEMS),
            false => claims.read([self.of.cache], Reach::Group),
        }
        claims.write([self.states], ITEMS);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        if self.append {
            self.of.append(entry);
        }
        self.of.attend(entry);
        let spec = &self.of.spec;
        let to = What::Write(Memory::Rows(self.states), entry.desk.place);
        let class = entry.tables().states[spec.cache].class;
        entry.per(Per::Range(class), to, states(entry, spec));
    }

    fn is_split(&self, _tables: &Tables) -> bool {
        true
    }

    fn run(&self, run: Run<'_>) {
        let Attends { from, place, cache, spec } = &self.of;
        let (qkv, layer) =
            (run.source(from.qkv), Layer { spec, cache: run.pages(*cache, spec.cache) });
        let (place, states) = (place.map(|buf| run.source(buf)), run.target(self.states));
        run.thread.attend_split(qkv, place, self.append, layer, states, run.scratch);
    }
}

/// Partial states to attention outputs.
#[derive(Clone, Debug)]
struct JoinInstr {
    states: BufId,
    spec: Box<Attention>,
    out: BufId,
}

impl Instruction for JoinInstr {
    fn name(&self) -> &'static str {
        "join"
    }

    fn claims(&self, claims: &mut Claims) {
        claims.read([self.states], Reach::Group);
        claims.row_by_row([], self.out);
    }

    fn work(&self, entry: &mut Entry<'_>) {
        let class = entry.tables().states[self.spec.cache].class;
        let width = query_width(entry, &self.spec);
        let from = What::Read(Memory::Rows(self.states), entry.desk.place);
        entry.per(Per::Range(class), from, states(entry, &self.spec));
        entry.per(Per::Range(class), What::Pass, width);
        entry.write(self.out, width * FLOAT);
    }

    fn is_split(&self, _tables: &Tables) -> bool {
        true
    }

    fn run(&self, run: Run<'_>) {
        let (states, out) = (run.source(self.states), run.target(self.out));
        run.thread.join(states, &self.spec, out, run.rows, run.scratch);
    }
}

impl Attends {
    /// Bytes of a token's keys and values in the team's memory.
    fn token(&self, entry: &Entry<'_>) -> usize {
        let (heads, kv) = (&self.spec.heads, self.spec.heads.types(entry.desk.kv));
        let bytes = |half: KvType| half.token_bytes(heads.stored(kv));
        let values = if heads.shared { 0 } else { bytes(kv.values) };
        heads.stored_len(entry.desk.node()) * (bytes(kv.keys) + values)
    }

    /// Keys and values of the step's tokens go to the cache.
    fn append(&self, entry: &mut Entry<'_>) {
        let (heads, token) = (&self.spec.heads, self.token(entry));
        let both = match heads.given {
            Given::KeysAndValues => 2,
            Given::Keys | Given::Nothing => 1,
        };
        let bytes = both * heads.stored_len(entry.desk.node()) * heads.dim * FLOAT;
        entry.read(self.from.keys(), bytes);
        let to = What::Write(Memory::State(self.spec.cache), entry.desk.place);
        entry.per(Per::Row(entry.rows), to, token);
    }

    /// Queries meet the keys that they see, and the values.
    fn attend(&self, entry: &mut Entry<'_>) {
        let class = entry.tables().states[self.spec.cache].class;
        let (token, width) = (self.token(entry), query_width(entry, &self.spec));
        entry.read(self.from.qkv, width * FLOAT);
        let from = What::Read(Memory::State(self.spec.cache), entry.desk.place);
        entry.per(Per::Key(class), from, token);
        // Scores, and the sum of values.
        entry.per(Per::Pair(class), What::Multiply(Product::F32), 2 * width);
    }
}

fn query_width(entry: &Entry<'_>, spec: &Attention) -> usize {
    spec.heads.q_len(entry.desk.node()) * spec.heads.dim
}

/// Bytes of the attention states of a token and a range.
fn states(entry: &Entry<'_>, spec: &Attention) -> usize {
    let state = kernels::attn_state_len(spec.heads.stored(entry.desk.kv));
    spec.heads.q_len(entry.desk.node()) * state * FLOAT
}
