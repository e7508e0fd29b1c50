//! What becomes of a token's `q | k | v`: queries get norm, RoPE and scale when they are attended, keys norm and
//! RoPE on their way to a page of the cache, values go there as they are.

use super::Thread;
use super::access::{Source, StatePages};
use super::keys::page;
use crate::buffer::BufId;
use crate::op::{Attention, Heads, NormOver, Rope};
use kernels::{KV_PAGE, KvType};
use std::ops::Range;

/// What raw heads become queries and keys with: buffers, or views of them.
#[derive(Copy, Clone, Debug)]
pub(crate) struct HeadInputs<B = BufId> {
    /// Cosines and sines.
    pub rope: Option<B>,
    /// Sums of squares of all tiles of queries, then of keys.
    pub squares: Option<B>,
}

impl HeadInputs {
    pub(crate) fn map<V>(self, view: impl Fn(BufId) -> V) -> HeadInputs<V> {
        HeadInputs { rope: self.rope.map(&view), squares: self.squares.map(view) }
    }

    pub(crate) fn buffers(&self) -> impl Iterator<Item = BufId> + use<> {
        self.rope.into_iter().chain(self.squares)
    }
}

/// What turns a token's heads into queries and keys.
#[derive(Copy, Clone)]
pub(crate) struct Placing<'b> {
    /// Of its position, where positions count.
    cos_sin: Option<&'b [f32]>,
    /// `1 / rms` of all queries and of all keys, where norms go over all of them.
    inverse: [f32; 2],
    /// Factor on queries.
    scale: f32,
}

impl Placing<'_> {
    pub(crate) const NONE: Self = Self { cos_sin: None, inverse: [1.0; 2], scale: 1.0 };
}

/// A layer of attention, and its cache.
#[derive(Copy, Clone)]
pub(crate) struct Layer<'l, C> {
    pub spec: &'l Attention,
    pub cache: C,
}

/// Whose heads they are, and which place in [`Placing::inverse`] is theirs.
#[derive(Copy, Clone)]
enum Side {
    Queries,
    Keys,
}

/// Exchanges the second quarter and the third: pairs within halves become pairs of both halves. Queries and keys are
/// both so, and nothing else is multiplied with them.
fn middle_swapped(head: &mut [f32]) {
    let (low, high) = head.split_at_mut(head.len() / 2);
    let quarter = low.len() / 2;
    low[quarter..].swap_with_slice(&mut high[..quarter]);
}

impl Thread<'_> {
    /// Norm and RoPE of as many heads of each token, queries or keys: `[tokens, heads, dim]`. The first of a
    /// token's is number `first` of all nodes'.
    fn place_heads(
        &self,
        spec: &Attention,
        side: Side,
        tokens: &[Placing<'_>],
        first: usize,
        heads: &mut [f32],
    ) {
        let (kernels, dim) = (&self.step.kernels, spec.heads.dim);
        let width = heads.len() / tokens.len();
        let norm = match side {
            Side::Queries => spec.q_norm,
            Side::Keys => spec.k_norm,
        };
        let norm = norm.map(|weight| self.step.weights.vector(weight, self.group));
        if let Some(weight) = norm.filter(|_| !spec.norm_last) {
            match spec.norm_over {
                NormOver::Head if spec.norm_centres => {
                    let own = weight.len() > dim;
                    let weight = if own { &weight[first * dim..][..width] } else { weight };
                    for heads in heads.chunks_exact_mut(width) {
                        kernels.layer_norm_heads(heads, dim, weight, spec.norm_eps);
                    }
                }
                // Heads by themselves are chains of latencies, many in one call are not.
                NormOver::Head => kernels.rms_norm_heads(heads, weight, spec.norm_eps),
                NormOver::Row => {
                    let weight = &weight[first * dim..][..width];
                    for (heads, at) in heads.chunks_exact_mut(width).zip(tokens) {
                        kernels.scale_by(heads, at.inverse[side as usize], weight);
                    }
                }
            }
        }
        if let Some(rope) = spec.rope {
            let &Rope { style, halves, .. } = &self.step.tables.ropes[rope.0 as usize];
            for (heads, at) in heads.chunks_exact_mut(width).zip(tokens) {
                if let Some(cos_sin) = at.cos_sin {
                    for head in heads.chunks_exact_mut(dim) {
                        if halves {
                            middle_swapped(&mut head[..cos_sin.len()]);
                        }
                        kernels.rope(head, cos_sin, style);
                    }
                }
            }
        }
        if let Some(weight) = norm.filter(|_| spec.norm_last) {
            kernels.rms_norm_heads(heads, weight, spec.norm_eps);
        }
    }

    /// Norm, RoPE and scale of query heads of some tokens, of which the first is number `first` of this node's.
    pub(crate) fn finish_queries(
        &self,
        spec: &Attention,
        tokens: &[Placing<'_>],
        first: usize,
        q: &mut [f32],
    ) {
        let first = spec.heads.q_cut.range(self.node).start + first;
        self.place_heads(spec, Side::Queries, tokens, first, q);
        let width = q.len() / tokens.len();
        for (q, at) in q.chunks_exact_mut(width).zip(tokens) {
            self.step.kernels.scale(q, at.scale);
        }
    }

    /// Norm and RoPE of a key head of some tokens, the first of which is `t`; then keys and values to their
    /// pages. `room`: for the keys, and for a key and a value as they are stored.
    pub(crate) fn append(
        &self,
        layer: Layer<'_, &mut StatePages<'_>>,
        tokens: &[Placing<'_>],
        t: usize,
        kv: usize,
        qkv: Source<'_>,
        room: &mut [f32],
    ) {
        let Layer { spec, cache } = layer;
        let heads = &spec.heads;
        let (dim, stored) = (heads.dim, heads.stored(cache.kv()));
        let (k, room) = room.split_at_mut(tokens.len() * dim);
        let rows = |section| {
            let first = if heads.shared { 0 } else { self.column(heads, section, kv) };
            qkv.columns(t..t + tokens.len(), first..first + dim)
        };
        // Where keys are the values too, both begin in the same place.
        let (keys, values) = (rows(1), rows(2));
        let v_norm = spec.v_norm.map(|norm| self.step.weights.vector(norm, self.group));
        for (i, k) in k.chunks_exact_mut(dim).enumerate() {
            k.copy_from_slice(keys.row(i));
            if let Some(norm) = spec.latent_norm {
                let weight = self.step.weights.vector(norm, self.group);
                let latent = &mut k[dim - weight.len()..];
                self.step.kernels.rms_norm_heads(latent, weight, spec.norm_eps);
            }
        }
        let first = heads.kv_range(self.node).start + kv;
        self.place_heads(spec, Side::Keys, tokens, first, k);
        let [turns_keys, turns_values] = [cache.kv().keys, cache.kv().values].map(KvType::rotates);
        for (i, k) in k.chunks_exact(dim).enumerate() {
            // Latents are the values too.
            let v = (!heads.shared).then(|| values.row(i));
            if dim == stored && !turns_keys && !turns_values && v_norm.is_none() {
                self.store(spec, cache, t + i, kv, k, v);
                continue;
            }
            let (key, value) = room[..2 * stored].split_at_mut(stored);
            padded(k, key);
            if let Some(v) = v {
                padded(v, value);
            }
            if let Some(weight) = v_norm {
                self.step.kernels.rms_norm_heads(&mut value[..dim], weight, spec.norm_eps);
            }
            if turns_keys {
                self.step.kernels.rotate(key);
            }
            if turns_values && v.is_some() {
                self.step.kernels.rotate(value);
            }
            self.store(spec, cache, t + i, kv, key, v.map(|_| &*value));
        }
    }

    /// A key and a value to their page, or what is both.
    fn store(
        &self,
        spec: &Attention,
        cache: &mut StatePages<'_>,
        t: usize,
        kv: usize,
        k: &[f32],
        v: Option<&[f32]>,
    ) {
        let (class, position) = (self.class(spec), self.input.tokens[t].position as usize);
        let (page, slot) = (page(class, &class.seen[t], position / KV_PAGE), position % KV_PAGE);
        self.step.kernels.store_k(k, cache.keys_mut(page, kv), slot);
        if let Some(v) = v {
            self.step.kernels.store_v(v, cache.values_mut(page, kv), slot);
        }
    }

    /// What places the heads of a token.
    pub(crate) fn placing<'s>(
        &self,
        place: HeadInputs<Source<'s>>,
        spec: &Attention,
        t: usize,
    ) -> Placing<'s> {
        let pairs = |rope: usize| self.step.tables.ropes[rope].inv_freq.len();
        let cos_sin = spec.rope.zip(place.rope);
        let cos_sin = cos_sin.map(|(rope, of)| of.row(t, pairs(rope.0 as usize) * 2));
        let inverse = place.squares.map_or([1.0; 2], |squares| {
            let Heads { q, kv, dim, .. } = spec.heads;
            let of_queries = spec.told(q);
            let (q_squares, k_squares) =
                squares.row(t, of_queries + spec.told(kv)).split_at(of_queries);
            [(q_squares, q), (k_squares, kv)].map(|(squares, heads)| {
                let mean = self.step.kernels.sum(squares) / (heads * dim) as f32;
                1.0 / (mean + spec.norm_eps).sqrt()
            })
        });
        let position = self.input.tokens[t].position;
        let grown = spec.temperature.map_or(1.0, |growth| growth.factor(position));
        Placing { cos_sin, inverse, scale: spec.scale * grown }
    }

    /// Keys and values to their pages, dealt by runs of tokens of one page. Head by head: a key has a place in a
    /// line of each of its elements, and those of one head stay in the first cache until its last token is there.
    pub(crate) fn prepare(
        &self,
        qkv: Source<'_>,
        place: HeadInputs<Source<'_>>,
        spec: &Attention,
        mut cache: StatePages<'_>,
        room: &mut [f32],
    ) {
        let kv_heads = spec.heads.stored_len(self.node);
        let mut placings = [Placing::NONE; KV_PAGE];
        for run in self.input.page_runs.iter().skip(self.rank).step_by(self.size) {
            let tokens = run.start as usize..run.end as usize;
            let placings = &mut placings[..tokens.len()];
            for (at, t) in placings.iter_mut().zip(tokens.clone()) {
                *at = self.placing(place, spec, t);
            }
            let near = |kv| {
                if kv < kv_heads {
                    self.prefetch_head(qkv, &spec.heads, kv, tokens.clone());
                }
            };
            near(0);
            for kv in 0..kv_heads {
                near(kv + 1);
                let layer = Layer { spec, cache: &mut cache };
                self.append(layer, placings, tokens.start, kv, qkv, room);
            }
        }
    }

    /// Asks for the keys and values of tokens that KV head `kv` is to store: rows of few lines, which no hardware
    /// prefetcher finds.
    fn prefetch_head(&self, qkv: Source<'_>, heads: &Heads, kv: usize, tokens: Range<usize>) {
        for section in 1..=heads.halves() {
            let first = if heads.shared { 0 } else { self.column(heads, section, kv) };
            let rows = qkv.columns(tokens.clone(), first..first + heads.dim);
            self.step.kernels.prefetch(rows);
        }
    }
}

/// A head as it is stored: with zeros behind.
fn padded(head: &[f32], room: &mut [f32]) {
    room[..head.len()].copy_from_slice(head);
    room[head.len()..].fill(0.0);
}
