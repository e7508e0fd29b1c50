//! Attention over paged keys and values.
//!
//! Keys are walked in ranges of `KV_CHUNK`. Each range gives a partial state (maximum, sum,
//! weighted values) and states are folded from the first range to the last (online softmax as in
//! FlashAttention-2; the split over ranges is flash-decoding). The fold is the same whether one
//! thread walks all ranges or many share them, so a token's result never depends on the form.

use super::Thread;
use crate::buffer::BufId;
use crate::cache::KvType;
use crate::op::{Attention, Heads};
use crate::step::{PageId, Token};
use kernels::{AttnTile, KV_CHUNK, KV_PAGE, KvPageMut, KvPages, attn_scratch_len, attn_state_len};
use memory::Pod;
use std::ops::Range;

const CHUNK_PAGES: usize = KV_CHUNK / KV_PAGE;

/// Query rows (tokens x heads of a group) that one item handles.
const TILE_ROWS: usize = 16;

/// Tokens of a query tile.
pub(crate) fn tile_tokens(heads: &Heads) -> usize {
    (TILE_ROWS / heads.group()).max(1)
}

/// f32 of scratch: queries, states of a range, folded states, kernel scratch, one key and value.
pub(super) fn scratch_len(heads: &Heads) -> usize {
    let rows = tile_tokens(heads) * heads.group();
    rows * (heads.dim + 2 * attn_state_len(heads.dim)) + attn_scratch_len(rows) + 2 * heads.dim
}

/// One range of keys: of which sequence (by one of its tokens), KV head, and number.
struct Keys<'a> {
    token: &'a Token,
    kv: usize,
    chunk: usize,
}

/// Pages of keys and of values of one range.
type PagePair<'a, E> = ([&'a [E]; CHUNK_PAGES], [&'a [E]; CHUNK_PAGES]);

struct Scratch<'a> {
    q: &'a mut [f32],    // [rows, dim]
    part: &'a mut [f32], // [rows, state]
    acc: &'a mut [f32],  // [rows, state]
    kernel: &'a mut [f32],
    head: &'a mut [f32], // [dim]
}

impl<'a> Scratch<'a> {
    fn new(all: &'a mut [f32], heads: &Heads) -> Scratch<'a> {
        let rows = tile_tokens(heads) * heads.group();
        let (q, rest) = all.split_at_mut(rows * heads.dim);
        let (part, rest) = rest.split_at_mut(rows * attn_state_len(heads.dim));
        let (acc, rest) = rest.split_at_mut(rows * attn_state_len(heads.dim));
        let (kernel, rest) = rest.split_at_mut(attn_scratch_len(rows));
        Scratch { q, part, acc, kernel, head: &mut rest[..heads.dim] }
    }
}

impl<'a> Thread<'a> {
    /// Elements of a node's `q | k | v` row before head `head` of each section.
    fn column(&self, heads: &Heads, section: usize, head: usize) -> usize {
        let (q, kv) = (heads.q_len(self.node), heads.kv_len(self.node));
        ([0, q, q + kv][section] + head) * heads.dim
    }

    fn head_norm(&self, weight: Option<crate::weight::VectorId>, eps: f32, head: &mut [f32]) {
        if let Some(weight) = weight {
            let weight = self.step.weights.vector(weight, self.group);
            self.step.kernels.rms_norm_inplace(head, weight, eps);
        }
    }

    /// Norm, RoPE and scale of a query head.
    fn finish_query(&self, spec: &Attention, cos_sin: &[f32], q: &mut [f32]) {
        self.head_norm(spec.q_norm, spec.norm_eps, q);
        self.step.kernels.rope(q, cos_sin, self.step.graph.ropes[spec.rope.0 as usize].style);
        self.step.kernels.scale(q, spec.scale);
    }

    /// Norm and RoPE of a key head, then key and value to their page.
    fn append(
        &self,
        spec: &Attention,
        cos_sin: &[f32],
        t: &Token,
        kv: usize,
        qkv: &[f32],
        k: &mut [f32],
    ) {
        let dim = spec.heads.dim;
        k.copy_from_slice(&qkv[self.column(&spec.heads, 1, kv)..][..dim]);
        self.head_norm(spec.k_norm, spec.norm_eps, k);
        self.step.kernels.rope(k, cos_sin, self.step.graph.ropes[spec.rope.0 as usize].style);
        let v = &qkv[self.column(&spec.heads, 2, kv)..][..dim];
        let (page, slot) =
            (self.page(t, t.position as usize / KV_PAGE), t.position as usize % KV_PAGE);
        let cache = self.step.storage.cache(spec.cache, self.place);
        let (keys, values) = (cache.keys(page, kv), cache.values(page, kv));
        // SAFETY: tokens that share a page are dealt to one thread, and nobody else reads this
        // page's head before the next wait: with `append_in_attention` the one item that reads this
        // range is the caller.
        let (keys, values) = unsafe {
            match cache.kv() {
                KvType::F16 => {
                    (KvPageMut::F16(keys.as_mut_slice()), KvPageMut::F16(values.as_mut_slice()))
                }
                KvType::F32 => {
                    (KvPageMut::F32(keys.as_mut_slice()), KvPageMut::F32(values.as_mut_slice()))
                }
            }
        };
        self.step.kernels.store_k(k, keys, slot);
        self.step.kernels.store_v(v, values, slot);
    }

    fn page(&self, t: &Token, index: usize) -> PageId {
        self.input.tables[t.table as usize + index]
    }

    fn rope_row(&self, rope: BufId, spec: &Attention, t: usize) -> &'a [f32] {
        self.row(rope, t, self.step.graph.ropes[spec.rope.0 as usize].inv_freq.len() * 2)
    }

    /// Queries in place, keys and values to their pages; dealt by runs of tokens of one page.
    pub(super) fn prepare(&self, qkv: BufId, rope: BufId, spec: &Attention) {
        let heads = &spec.heads;
        let (q_heads, kv_heads) = (heads.q_len(self.node), heads.kv_len(self.node));
        let scratch = Scratch::new(self.scratch(), heads);
        let runs = &self.input.page_runs;
        for run in runs.iter().skip(self.rank).step_by(self.size) {
            for t in run.start as usize..run.end as usize {
                let cos_sin = self.rope_row(rope, spec, t);
                let row = self.row_mut(qkv, t, heads.qkv_width(self.node));
                for q in row[..q_heads * heads.dim].chunks_exact_mut(heads.dim) {
                    self.finish_query(spec, cos_sin, q);
                }
                for kv in 0..kv_heads {
                    self.append(spec, cos_sin, &self.input.tokens[t], kv, row, scratch.head);
                }
            }
        }
    }

    /// Attention of `limits.len()` rows of queries over one range of keys.
    fn attend(
        &self,
        spec: &Attention,
        keys: Keys<'_>,
        q: &[f32],
        limits: &[u32],
        kernel: &mut [f32],
        out: &mut [f32],
    ) {
        let (rows, head_dim) = (limits.len(), spec.heads.dim);
        let pages = limits.last().expect("at least one row").div_ceil(KV_PAGE as u32) as usize;
        let mut run = |pages| {
            let tile = AttnTile { q, rows, head_dim, limits, pages };
            self.step.kernels.attend_chunk(&tile, kernel, out);
        };
        match self.step.storage.cache(spec.cache, self.place).kv() {
            KvType::F16 => {
                let (k, v) = self.pages::<u16>(spec, keys, pages);
                run(KvPages::F16 { k: &k[..pages], v: &v[..pages] });
            }
            KvType::F32 => {
                let (k, v) = self.pages::<f32>(spec, keys, pages);
                run(KvPages::F32 { k: &k[..pages], v: &v[..pages] });
            }
        }
    }

    /// The first `pages` pages of a range.
    fn pages<E: Pod>(&self, spec: &Attention, keys: Keys<'_>, pages: usize) -> PagePair<'a, E> {
        let cache = self.step.storage.cache(spec.cache, self.place);
        let (mut k, mut v): PagePair<'a, E> = ([&[]; CHUNK_PAGES], [&[]; CHUNK_PAGES]);
        for i in 0..pages {
            let page = self.page(keys.token, keys.chunk * CHUNK_PAGES + i);
            // SAFETY: keys and values of these positions were written before the last wait, or by
            // this thread; see `Instr::accesses`.
            unsafe {
                k[i] = cache.keys(page, keys.kv).as_slice::<E>();
                v[i] = cache.values(page, keys.kv).as_slice::<E>();
            }
        }
        (k, v)
    }

    /// Items are (query tile, KV head), dealt in turn: late tiles see more keys than early ones.
    pub(super) fn attend_fused(&self, qkv: BufId, spec: &Attention, out: BufId) {
        let heads = &spec.heads;
        let (dim, state) = (heads.dim, attn_state_len(heads.dim));
        let kv_heads = heads.kv_len(self.node);
        let input = self.input;
        let s = Scratch::new(self.scratch(), heads);
        for item in (self.rank..input.tiles.len() * kv_heads).step_by(self.size) {
            let (tile, kv) = (input.tiles[item / kv_heads].clone(), item % kv_heads);
            let tokens = &input.tokens[tile.start as usize..tile.end as usize];
            let queries = heads.queries(self.node, kv);
            let (group, first_head) = (queries.len(), self.column(heads, 0, queries.start));
            for (i, t) in (tile.start as usize..tile.end as usize).enumerate() {
                let row = self.row(qkv, t, heads.qkv_width(self.node));
                s.q[i * group * dim..][..group * dim]
                    .copy_from_slice(&row[first_head..][..group * dim]);
            }
            let ranges = tokens.last().expect("tiles are not empty").ranges();
            for chunk in 0..ranges {
                // Later tokens see more: those that see nothing of this range come first.
                let blind = tokens.iter().take_while(|t| t.visible() <= chunk * KV_CHUNK).count();
                let mut limits = [0u32; TILE_ROWS_MAX];
                let limits = fill_limits(&mut limits, &tokens[blind..], group, chunk);
                let (from, rows) = (blind * group, limits.len());
                let q = &s.q[from * dim..][..rows * dim];
                let part = &mut s.part[..rows * state];
                let keys = Keys { token: &tokens[0], kv, chunk };
                self.attend(spec, keys, q, limits, s.kernel, part);
                let acc = &mut s.acc[from * state..][..rows * state];
                if chunk == 0 {
                    acc.copy_from_slice(part);
                } else {
                    for (acc, part) in acc.chunks_exact_mut(state).zip(part.chunks_exact(state)) {
                        self.step.kernels.attn_merge(acc, part, dim);
                    }
                }
            }
            for (i, t) in (tile.start as usize..tile.end as usize).enumerate() {
                let cols = first_head..first_head + group * dim;
                let mut to = self.columns(out, t..t + 1, cols);
                for (g, to) in to.row_mut(0).chunks_exact_mut(dim).enumerate() {
                    self.step.kernels.attn_finish(
                        &s.acc[(i * group + g) * state..][..state],
                        dim,
                        to,
                    );
                }
            }
        }
    }

    /// Items are (token, KV range, KV head), dealt in turn. With `rope`, queries are finished here
    /// and the item of a token's last range appends its key and value first.
    pub(super) fn attend_split(
        &self,
        qkv: BufId,
        rope: Option<BufId>,
        spec: &Attention,
        states: BufId,
    ) {
        let heads = &spec.heads;
        let (dim, state) = (heads.dim, attn_state_len(heads.dim));
        let kv_heads = heads.kv_len(self.node);
        let input = self.input;
        let s = Scratch::new(self.scratch(), heads);
        for item in (self.rank..input.ranges.len() * kv_heads).step_by(self.size) {
            let (row, kv) = (item / kv_heads, item % kv_heads);
            let (t, chunk) = (input.ranges[row].0 as usize, input.ranges[row].1 as usize);
            let token = &input.tokens[t];
            let queries = heads.queries(self.node, kv);
            let (group, first_head) = (queries.len(), self.column(heads, 0, queries.start));
            let from = self.row(qkv, t, heads.qkv_width(self.node));
            let q = &mut s.q[..group * dim];
            q.copy_from_slice(&from[first_head..][..group * dim]);
            if let Some(rope) = rope {
                let cos_sin = self.rope_row(rope, spec, t);
                for q in q.chunks_exact_mut(dim) {
                    self.finish_query(spec, cos_sin, q);
                }
                if chunk + 1 == token.ranges() {
                    self.append(spec, cos_sin, token, kv, from, s.head);
                }
            }
            let mut limits = [0u32; TILE_ROWS_MAX];
            let limits = fill_limits(&mut limits, std::slice::from_ref(token), group, chunk);
            let cols = queries.start * state..queries.end * state;
            let mut to = self.columns(states, row..row + 1, cols);
            let keys = Keys { token, kv, chunk };
            self.attend(spec, keys, q, limits, s.kernel, to.row_mut(0));
        }
    }

    /// Folds the states of each token's ranges in order and finishes every head.
    pub(super) fn join(&self, states: BufId, spec: &Attention, out: BufId, rows: Range<usize>) {
        let heads = &spec.heads;
        let (dim, state) = (heads.dim, attn_state_len(heads.dim));
        let q_heads = heads.q_len(self.node);
        let acc = &mut self.scratch()[..state];
        for t in rows {
            let token = &self.input.tokens[t];
            let to = self.row_mut(out, t, q_heads * dim);
            for (head, to) in to.chunks_exact_mut(dim).enumerate() {
                for range in 0..token.ranges() {
                    let row = self.row(states, token.states as usize + range, q_heads * state);
                    let part = &row[head * state..][..state];
                    if range == 0 {
                        acc.copy_from_slice(part);
                    } else {
                        self.step.kernels.attn_merge(acc, part, dim);
                    }
                }
                self.step.kernels.attn_finish(acc, dim, to);
            }
        }
    }
}

/// The most query rows of one item: groups larger than a tile go one token at a time.
const TILE_ROWS_MAX: usize = 128;

/// Visible keys of range `chunk` for each query row: `[tokens x group]`.
fn fill_limits<'b>(
    limits: &'b mut [u32; TILE_ROWS_MAX],
    tokens: &[Token],
    group: usize,
    chunk: usize,
) -> &'b [u32] {
    let rows = tokens.len() * group;
    for (limits, t) in limits[..rows].chunks_exact_mut(group).zip(tokens) {
        limits.fill((t.visible() - chunk * KV_CHUNK).min(KV_CHUNK) as u32);
    }
    &limits[..rows]
}
