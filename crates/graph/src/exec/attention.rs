//! Attention over paged keys and values.
//!
//! Keys are walked in ranges of `KV_CHUNK`. Each range gives a partial state (maximum, sum,
//! weighted values) and states are folded from the first range to the last (online softmax as in
//! FlashAttention-2; the split over ranges is flash-decoding). The fold is the same whether one
//! thread walks all ranges or many share them, so a token's result never depends on the form.
//!
//! Ranges begin at multiples of `KV_CHUNK` of the sequence, also behind a sliding window, of which
//! nothing is read that no row sees: neither ranges nor, in the range where the window begins, pages.

use super::Thread;
use super::access::{Source, StatePages, Target};
use super::items::{Items, TileOrder};
use super::keys::{Keys, Spans, TILE_ROWS_MAX, page};
use super::placing::{HeadInputs, Layer, Placing};
use crate::op::{Attention, Heads};
use crate::state::KvType;
use crate::step::{Class, PageId};
use kernels::{
    AttnTile, Biases, ByDistance, KV_CHUNK, KV_PAGE, KvPages, KvQueries, Slope, attn_scratch_len,
    attn_state_len, attn_turned_len, q8_row_bytes,
};
use std::ops::Range;
use threads::Worker;

const CHUNK_PAGES: usize = KV_CHUNK / KV_PAGE;

/// Query rows (tokens x heads of a group) that one item handles.
const TILE_ROWS: usize = 16;

/// Tokens of a query tile.
pub(crate) fn tile_tokens(heads: &Heads) -> usize {
    (TILE_ROWS / heads.group()).max(1)
}

/// f32 of scratch: queries, the same quantised, states of a range, folded states, kernel scratch,
/// heads on their way; or the keys of a page and heads on their way.
pub(crate) fn scratch_len(heads: &Heads) -> usize {
    let (rows, dim) = (tile_tokens(heads) * heads.group(), heads.widest());
    let states = 2 * rows * attn_state_len(dim);
    let kernel = attn_scratch_len(rows) + turned_len(heads, dim);
    let attending = rows * dim + quants_len(rows, dim) + states + kernel + dim;
    attending.max(KV_PAGE * dim) + 2 * dim
}

/// f32 that hold the values of a range where they are latents.
fn turned_len(heads: &Heads, dim: usize) -> usize {
    if heads.shared { attn_turned_len(dim) } else { 0 }
}

/// f32 that hold `rows` quantised queries of `dim` elements. Heads that cannot be quantised have no cache
/// that needs it.
fn quants_len(rows: usize, dim: usize) -> usize {
    let multiple = KvType::Q8_0.head_multiple(); // Q4_0's is the same.
    rows * q8_row_bytes(dim / multiple * multiple) / size_of::<f32>()
}

/// Pages of one range.
type RangePages<'a, E> = [&'a [E]; CHUNK_PAGES];

struct Scratch<'a> {
    q: &'a mut [f32],      // [rows, dim]
    quants: &'a mut [u8],  // [rows, q8_row_bytes(dim)]
    part: &'a mut [f32],   // [rows, state]
    acc: &'a mut [f32],    // [rows, state]
    kernel: &'a mut [f32], // and before it, of latents, the values
    heads: &'a mut [f32],  // [3, dim]
}

impl<'a> Scratch<'a> {
    /// Room for heads of `dim` elements, as they are stored.
    fn new(all: &'a mut [f32], heads: &Heads, dim: usize) -> Scratch<'a> {
        let rows = tile_tokens(heads) * heads.group();
        let (q, rest) = all.split_at_mut(rows * dim);
        let (quants, rest) = rest.split_at_mut(quants_len(rows, dim));
        let (part, rest) = rest.split_at_mut(rows * attn_state_len(dim));
        let (acc, rest) = rest.split_at_mut(rows * attn_state_len(dim));
        let (kernel, rest) = rest.split_at_mut(turned_len(heads, dim) + attn_scratch_len(rows));
        // SAFETY: floats are bytes, and any bytes are floats.
        let (_, quants, _) = unsafe { quants.align_to_mut() };
        Scratch { q, quants, part, acc, kernel, heads: &mut rest[..3 * dim] }
    }
}

/// Heads of `dim` elements, one after the other, as heads of `stored`, with zeros behind.
fn spread(heads: &mut [f32], dim: usize, stored: usize) {
    if dim == stored {
        return;
    }
    for at in (0..heads.len() / stored).rev() {
        heads.copy_within(at * dim..(at + 1) * dim, at * stored);
        heads[at * stored + dim..(at + 1) * stored].fill(0.0);
    }
}

/// What a range is attended with.
struct Rowset<'b> {
    q: &'b [f32],     // [rows, dim]
    quants: &'b [u8], // [rows, q8_row_bytes(dim)]
    spans: Spans<'b>,
    added: ByDistance<'b>, // [rows], or nothing
}

/// Room for what is added to the scores of a tile's rows.
struct AddedRoom<'b> {
    lines: [Slope; TILE_ROWS_MAX],
    tables: [Biases<'b>; TILE_ROWS_MAX],
}

impl AddedRoom<'_> {
    fn new() -> Self {
        let line = Slope { slope: 0.0, own: 0.0 };
        let table = Biases { table: &[], own: 0 };
        AddedRoom { lines: [line; TILE_ROWS_MAX], tables: [table; TILE_ROWS_MAX] }
    }
}

impl<'a> Thread<'a> {
    /// Elements of a node's `q | k | v` row before head `head` of each section.
    pub(crate) fn column(&self, heads: &Heads, section: usize, head: usize) -> usize {
        heads.sections(self.node)[section] + head * heads.dim
    }

    /// Elements of the layer's heads as its cache has them.
    pub(crate) fn stored(&self, spec: &Attention) -> usize {
        spec.heads.stored(self.step.storage.state(spec.cache, self.place).kv())
    }

    /// The sink of a query head, numbered within the node.
    fn sink(&self, spec: &Attention, head: usize) -> f32 {
        let first = spec.heads.q_cut.range(self.node).start;
        let of = |sinks| self.step.weights.vector(sinks, self.group)[first + head];
        spec.sinks.map_or(f32::NEG_INFINITY, of)
    }

    /// What is added to the scores of query heads, numbered within the node, of some tokens: `[tokens, heads]`.
    fn added<'s>(
        &self,
        spec: &Attention,
        tokens: Range<usize>,
        heads: Range<usize>,
        keys: &Keys<'_>,
        room: &'s mut AddedRoom<'a>,
    ) -> ByDistance<'s> {
        let (first, rows) = (spec.heads.q_cut.range(self.node).start, tokens.len() * heads.len());
        let heads = first + heads.start..first + heads.end;
        let base = (keys.pages().start * KV_PAGE) as i64;
        // Below 0 where the keys are behind it.
        let own = |t: usize| i64::from(self.input.tokens[t].position) - base;
        if !spec.slopes.is_empty() {
            let lines = &mut room.lines[..rows];
            for (row, t) in lines.chunks_exact_mut(heads.len()).zip(tokens) {
                for (to, &slope) in row.iter_mut().zip(&spec.slopes[heads.clone()]) {
                    *to = Slope { slope, own: own(t) as f32 };
                }
            }
            return ByDistance::Lines(lines);
        }
        let Some(biases) = spec.biases else { return ByDistance::Nothing };
        let all = self.step.weights.vector(biases, self.group);
        let len = all.len() / spec.heads.q;
        let tables = &mut room.tables[..rows];
        for (row, t) in tables.chunks_exact_mut(heads.len()).zip(tokens) {
            for (to, head) in row.iter_mut().zip(heads.clone()) {
                *to = Biases { table: &all[head * len..][..len], own: own(t) };
            }
        }
        ByDistance::Tables(tables)
    }

    /// The step as the layer's KV class has it.
    pub(crate) fn class(&self, spec: &Attention) -> &'a Class {
        &self.input.classes[self.step.tables.states[spec.cache].class]
    }

    /// Rotates queries as keys are, and quantises them, if that is what the keys are multiplied with.
    fn quantize_queries(&self, kv: KvType, stored: usize, q: &mut [f32], quants: &mut [u8]) {
        if kv.rotates() {
            q.chunks_exact_mut(stored).for_each(|head| self.step.kernels.rotate(head));
        }
        if kv.quantises_queries() {
            self.step.kernels.quantize_q8(q, &mut quants[..q8_row_bytes(q.len())]);
        }
    }

    /// Attention of rows of queries over keys of one range; `next` is what this thread reads after
    /// them.
    fn attend(
        &self,
        layer: Layer<'_, &StatePages<'_>>,
        keys: &Keys<'_>,
        rows_of: &Rowset<'_>,
        next: Option<Keys<'_>>,
        kernel: &mut [f32],
        out: &mut [f32],
    ) {
        let Layer { spec, cache } = layer;
        let (q, quants) = (rows_of.q, rows_of.quants);
        let Spans { starts, limits } = rows_of.spans;
        let head_dim = spec.heads.stored(cache.kv());
        let soft_cap = spec.soft_cap.unwrap_or(f32::INFINITY);
        let (kv, class) = (cache.kv(), self.class(spec));
        let (mut ahead, mut count) = ([&[][..]; CHUNK_PAGES], 0);
        if let Some(next) = next {
            // Making values of latents reads nothing new: meanwhile all that comes next is brought near.
            let wanted =
                if spec.heads.shared { CHUNK_PAGES } else { kv.keys.pages_ahead(head_dim) };
            count = wanted.min(next.pages().len());
            ahead = pages_of(class, &next, count, |page, head| cache.keys::<u8>(page, head));
        }
        let next = &ahead[..count];
        let rows = limits.len();
        let queries = match kv.keys.quantises_queries() {
            true => KvQueries::Quants(&quants[..rows * q8_row_bytes(head_dim)]),
            false => KvQueries::Floats(q),
        };
        let k = Half::new(kv.keys, cache, class, keys, false);
        let v = (!spec.heads.shared).then(|| Half::new(kv.values, cache, class, keys, true));
        let (k, added) = (k.pages(), rows_of.added);
        // Latents have no values of their own.
        let values = v.as_ref().map_or(k, Half::pages);
        let tile = AttnTile {
            rows,
            head_dim,
            starts,
            limits,
            soft_cap,
            added,
            queries,
            keys: k,
            values,
            next,
        };
        let (turned, kernel) = kernel.split_at_mut(turned_len(&spec.heads, head_dim));
        match spec.heads.shared {
            true => self.step.kernels.attend_latents(&tile, turned, kernel, out),
            false => self.step.kernels.attend_chunk(&tile, kernel, out),
        }
    }

    /// Items are (query tile, KV head), dealt in turn: late tiles see more keys than early ones.
    pub(crate) fn attend_fused(
        &self,
        qkv: Source<'_>,
        place: HeadInputs<Source<'_>>,
        layer: Layer<'_, &StatePages<'_>>,
        mut out: Target<'_>,
        scratch: &mut [f32],
        w: &mut Worker,
    ) {
        let Layer { spec, cache } = layer;
        let heads = &spec.heads;
        let (dim, stored) = (heads.dim, self.stored(spec));
        let state = attn_state_len(stored);
        let kv_heads = heads.kv_len(self.node);
        let (input, class) = (self.input, self.class(spec));
        let s = Scratch::new(scratch, heads, stored);
        let order = TileOrder::new(input.tiles.len(), kv_heads, self.size);
        let items = input.tiles.len() * kv_heads;
        // The KV head of an item, its tokens, and the columns of its queries.
        let parts = |item: usize| {
            let (tile, kv) = order.at(item);
            let (tile, queries) = (&input.tiles[tile], heads.queries(self.node, kv));
            let first = self.column(heads, 0, queries.start);
            (kv, tile.start as usize..tile.end as usize, first..first + queries.len() * dim)
        };
        self.each_in_turn(items, w, |item| {
            // A tile's queries are rows of a few lines, which no hardware prefetcher finds.
            if item + self.size < items {
                let (_, rows, cols) = parts(item + self.size);
                self.step.kernels.prefetch(qkv.columns(rows, cols));
            }
            let (kv, tile, cols) = parts(item);
            out.claim(tile.clone(), cols.clone());
            let tokens = &class.seen[tile.clone()];
            let queries = heads.queries(self.node, kv);
            let group = queries.len();
            // What is written in the end comes from memory, a row of few lines to a token.
            self.step.kernels.prefetch_write(out.columns(tile.clone(), cols.clone()));
            let q = &mut s.q[..tokens.len() * group * dim];
            let from = qkv.columns(tile.clone(), cols.clone());
            for (i, q) in q.chunks_exact_mut(group * dim).enumerate() {
                q.copy_from_slice(from.row(i));
            }
            let mut placings = [Placing::NONE; TILE_ROWS];
            let placings = &mut placings[..tokens.len()];
            for (at, t) in placings.iter_mut().zip(tile.clone()) {
                *at = self.placing(place, spec, t);
            }
            self.finish_queries(spec, placings, queries.start, q);
            let q = &mut s.q[..tokens.len() * group * stored];
            spread(q, dim, stored);
            self.quantize_queries(cache.kv().keys, stored, q, s.quants);
            let last = tokens.last().expect("tiles are not empty");
            let chunks = tokens[0].chunks().start..last.chunks().end;
            for chunk in chunks.clone() {
                // Later tokens see more of the end and less of the beginning: those that see nothing
                // of this range come first, those for which it lies behind the window last.
                let before = tokens.iter().take_while(|t| t.chunks().end <= chunk).count();
                let seeing =
                    tokens[before..].iter().take_while(|t| t.chunks().start <= chunk).count();
                let own = &tokens[before..before + seeing];
                let stored_kv = heads.stored_at(kv);
                let keys = Keys::new(&own[0], &own[seeing - 1], stored_kv, chunk);
                let next =
                    (chunk + 1 < chunks.end).then(|| Keys::new(last, last, stored_kv, chunk + 1));
                let mut spans = [[0u32; TILE_ROWS_MAX]; 2];
                let spans = Spans::fill(&mut spans, own, group, &keys);
                let (from, rows) = (before * group, seeing * group);
                let mut room = AddedRoom::new();
                let own_tokens = tile.start + before..tile.start + before + seeing;
                let rowset = Rowset {
                    added: self.added(spec, own_tokens, queries.clone(), &keys, &mut room),
                    q: &s.q[from * stored..][..rows * stored],
                    quants: &s.quants[quants_len(from, stored) * size_of::<f32>()..],
                    spans,
                };
                let acc = &mut s.acc[from * state..][..rows * state];
                // For the others this is the first range in which they see a key.
                let going_on = own.iter().take_while(|t| t.chunks().start < chunk).count();
                if going_on == 0 {
                    self.attend(layer, &keys, &rowset, next, s.kernel, acc);
                } else {
                    let part = &mut s.part[..rows * state];
                    self.attend(layer, &keys, &rowset, next, s.kernel, part);
                    let (acc, new) = acc.split_at_mut(going_on * group * state);
                    let (part, first) = part.split_at(acc.len());
                    self.step.kernels.attn_merge(acc, part, stored);
                    new.copy_from_slice(first);
                }
            }
            let mut to = out.columns(tile, cols);
            for i in 0..tokens.len() {
                for (g, to) in to.row_mut(i).chunks_exact_mut(dim).enumerate() {
                    let state = &s.acc[(i * group + g) * state..][..state];
                    let sink = self.sink(spec, queries.start + g);
                    if dim == stored && !cache.kv().values.rotates() {
                        self.step.kernels.attn_finish(state, dim, sink, to);
                        continue;
                    }
                    let head = &mut s.heads[..stored];
                    self.step.kernels.attn_finish(state, stored, sink, head);
                    if cache.kv().values.rotates() {
                        self.step.kernels.rotate(head);
                    }
                    to.copy_from_slice(&head[..dim]);
                }
            }
        });
    }

    fn items(&self, spec: &Attention) -> Items {
        let kv_heads = spec.heads.kv_len(self.node);
        Items { kv_heads, all: self.class(spec).ranges.len() * kv_heads, threads: self.size }
    }

    /// Items are (token, KV head, KV range), dealt in runs. With `append`, the item of a token's last range
    /// appends its key and value first. States of ranges that
    /// a thread folds are left in the row of the last of them.
    pub(crate) fn attend_split(
        &self,
        qkv: Source<'_>,
        place: HeadInputs<Source<'_>>,
        append: bool,
        layer: Layer<'_, StatePages<'_>>,
        mut states: Target<'_>,
        scratch: &mut [f32],
    ) {
        let Layer { spec, mut cache } = layer;
        let heads = &spec.heads;
        let (dim, stored) = (heads.dim, self.stored(spec));
        let state = attn_state_len(stored);
        let (items, class) = (self.items(spec), self.class(spec));
        let run = items.of(self.rank);
        // The token, the KV head, and which of the ranges with keys that the token sees.
        let parts = |item: usize| {
            let t = class.ranges[item / items.kv_heads].0 as usize;
            let within = item - items.first(&class.seen[t], 0);
            (t, within / class.seen[t].ranges(), within % class.seen[t].ranges())
        };
        let keys_of = |item: usize| {
            let (t, kv, range) = parts(item);
            let token = &class.seen[t];
            Keys::new(token, token, heads.stored_at(kv), token.chunks().start + range)
        };
        let s = Scratch::new(scratch, heads, stored);
        for item in run.clone() {
            let (t, kv, range) = parts(item);
            let token = &class.seen[t];
            let queries = heads.queries(self.node, kv);
            let (group, first_head) = (queries.len(), self.column(heads, 0, queries.start));
            let from = qkv.row(t, heads.sections(self.node)[3]);
            if item == run.start || range == 0 {
                let q = &mut s.q[..group * dim];
                q.copy_from_slice(&from[first_head..][..group * dim]);
                self.finish_queries(spec, &[self.placing(place, spec, t)], queries.start, q);
                let q = &mut s.q[..group * stored];
                spread(q, dim, stored);
                self.quantize_queries(cache.kv().keys, stored, q, s.quants);
            }
            let q = &s.q[..group * stored];
            if append && range + 1 == token.ranges() {
                let tokens = [self.placing(place, spec, t)];
                let layer = Layer { spec, cache: &mut cache };
                self.append(layer, &tokens, t, kv, qkv, s.heads);
            }
            let keys = keys_of(item);
            let mut spans = [[0u32; TILE_ROWS_MAX]; 2];
            let spans = Spans::fill(&mut spans, std::slice::from_ref(token), group, &keys);
            let mut room = AddedRoom::new();
            let added = self.added(spec, t..t + 1, queries.clone(), &keys, &mut room);
            let rowset = Rowset { q, quants: s.quants, spans, added };
            let next = run.contains(&(item + 1)).then(|| keys_of(item + 1));
            let folded = items.folded(token, kv, &run);
            let row = token.states as usize + if folded > 0 { folded - 1 } else { range };
            let cols = queries.start * state..queries.end * state;
            states.claim(row..row + 1, cols.clone());
            let mut to = states.columns(row..row + 1, cols);
            let (to, layer) = (to.row_mut(0), Layer { spec, cache: &cache });
            if folded > 0 && range > 0 {
                let part = &mut s.part[..group * state];
                self.attend(layer, &keys, &rowset, next, s.kernel, part);
                self.step.kernels.attn_merge(to, part, stored);
            } else {
                self.attend(layer, &keys, &rowset, next, s.kernel, to);
            }
        }
    }

    /// Folds the states of each token's ranges in order and finishes every head.
    pub(crate) fn join(
        &self,
        states: Source<'_>,
        spec: &Attention,
        mut out: Target<'_>,
        rows: Range<usize>,
        scratch: &mut [f32],
    ) {
        let heads = &spec.heads;
        let (dim, stored) = (heads.dim, self.stored(spec));
        let rotates = self.step.storage.state(spec.cache, self.place).kv().values.rotates();
        let state = attn_state_len(stored);
        let q_heads = heads.q_len(self.node);
        let items = self.items(spec);
        for t in rows {
            let token = &self.class(spec).seen[t];
            let to = out.row(t, q_heads * dim);
            let all = token.states as usize..token.states as usize + token.ranges();
            for kv in 0..items.kv_heads {
                let first = items.first(token, kv);
                let mut runs = (0..items.threads).map(|rank| items.of(rank));
                let run = runs.find(|run| run.contains(&first)).expect("items are all dealt");
                let from = all.start + items.folded(token, kv, &run) - 1;
                for head in heads.queries(self.node, kv) {
                    let cols = head * state..(head + 1) * state;
                    let parts = states.columns(from..all.end, cols);
                    let to = &mut to[head * dim..][..dim];
                    let sink = self.sink(spec, head);
                    if dim == stored && !rotates {
                        self.step.kernels.attn_fold(parts, dim, sink, to);
                        continue;
                    }
                    let whole = &mut scratch[..stored];
                    self.step.kernels.attn_fold(parts, stored, sink, whole);
                    if rotates {
                        self.step.kernels.rotate(whole);
                    }
                    to.copy_from_slice(&whole[..dim]);
                }
            }
        }
    }
}

/// Of the first `count` pages that keys lie in, what `half` gives.
fn pages_of<'c, E>(
    class: &Class,
    keys: &Keys<'_>,
    count: usize,
    half: impl Fn(PageId, usize) -> &'c [E],
) -> RangePages<'c, E> {
    let mut pages: RangePages<'c, E> = [&[]; CHUNK_PAGES];
    for (to, at) in pages.iter_mut().zip(keys.pages().take(count)) {
        *to = half(page(class, keys.token, at), keys.kv);
    }
    pages
}

/// Pages of keys, or of values, of a range, and their type.
struct Half<'c> {
    kv: KvType,
    count: usize,
    pages: HalfPages<'c>,
}

enum HalfPages<'c> {
    Words(RangePages<'c, u16>),
    Floats(RangePages<'c, f32>),
    Bytes(RangePages<'c, u8>),
}

impl<'c> Half<'c> {
    fn new(
        kv: KvType,
        cache: &'c StatePages<'_>,
        class: &Class,
        keys: &Keys<'_>,
        values: bool,
    ) -> Half<'c> {
        let count = keys.pages().len();
        macro_rules! pages {
            () => {
                pages_of(class, keys, count, |page, head| match values {
                    true => cache.values(page, head),
                    false => cache.keys(page, head),
                })
            };
        }
        let pages = match kv {
            KvType::F16 | KvType::Bf16 => HalfPages::Words(pages!()),
            KvType::F32 => HalfPages::Floats(pages!()),
            KvType::Q8_0 | KvType::Q4_0 => HalfPages::Bytes(pages!()),
        };
        Half { kv, count, pages }
    }

    fn pages(&self) -> KvPages<'_> {
        match (&self.pages, self.kv) {
            (HalfPages::Words(pages), KvType::Bf16) => KvPages::Bf16(&pages[..self.count]),
            (HalfPages::Words(pages), _) => KvPages::F16(&pages[..self.count]),
            (HalfPages::Floats(pages), _) => KvPages::F32(&pages[..self.count]),
            (HalfPages::Bytes(pages), KvType::Q4_0) => KvPages::Q4_0(&pages[..self.count]),
            (HalfPages::Bytes(pages), _) => KvPages::Q8_0(&pages[..self.count]),
        }
    }
}
