//! Attention, and the cache that it reads.

use super::{Kernels, same_len};
use crate::acts::{elements, q8_row_bytes};
use crate::attention::{
    AttnTile, KvPageMut, KvPages, KvQueries, PageUnit, attn_scratch_len, attn_state_len,
};
use crate::q8::Q8Block;
use crate::simd::LANES;
use crate::views::Rows;

/// Queries as they are.
#[track_caller]
fn floats<'a>(tile: &AttnTile<'a>) -> Rows<'a, f32> {
    let KvQueries::Floats(q) = tile.queries else {
        panic!("keys are floats and queries are quants")
    };
    Rows::new(q, tile.rows, tile.head_dim, tile.head_dim)
}

/// Queries in 8 bits.
#[track_caller]
fn quants<'a>(tile: &AttnTile<'a>) -> Rows<'a, Q8Block> {
    let KvQueries::Quants(q) = tile.queries else {
        panic!("keys are quants and queries are floats")
    };
    let bytes = q8_row_bytes(tile.head_dim);
    elements(Rows::new(q, tile.rows, bytes, bytes))
}

/// No queries, of whatever kind.
fn none<'a, Q>(_: &AttnTile<'a>) -> Rows<'a, Q> {
    Rows::new(&[], 0, 0, 0)
}

#[track_caller]
fn check_room(tile: &AttnTile<'_>, scratch: &[f32], out: &[f32]) {
    let need = attn_scratch_len(tile.rows);
    assert!(scratch.len() >= need, "scratch of {} floats, {need} needed", scratch.len());
    let states = tile.rows * attn_state_len(tile.head_dim);
    assert!(out.len() == states, "{} floats for states of {states}", out.len());
}

/// Room for as many pages as there are of keys.
#[track_caller]
fn room<'a, E: PageUnit>(turned: &'a mut [f32], keys: &[&[E]]) -> &'a mut [E] {
    let need = keys.iter().map(|page| page.len()).sum();
    // SAFETY: floats are aligned for all units, and any bits are each of them.
    let (_, room, _) = unsafe { turned.align_to_mut::<E>() };
    assert!(room.len() >= need, "room for {} units of values, {need} needed", room.len());
    room
}

impl Kernels {
    /// Stores the key of one KV head in slot `slot` of a page. Page: `[KV_PAGE / 16, head_dim, 16
    /// keys]`.
    ///
    /// # Panics
    ///
    /// If `k` is not a multiple of 16 long, the page not of its size, or there is no such slot.
    pub fn store_k(&self, k: &[f32], page: KvPageMut<'_>, slot: usize) {
        page.check(k.len(), slot);
        call!(self.store_k(k, page, slot));
    }

    /// Stores the value of one KV head in slot `slot` of a page. Page: `[KV_PAGE, head_dim]`.
    ///
    /// # Panics
    ///
    /// As [`Kernels::store_k`].
    pub fn store_v(&self, v: &[f32], page: KvPageMut<'_>, slot: usize) {
        page.check(v.len(), slot);
        call!(self.store_v(v, page, slot));
    }

    /// Attention of all rows of a tile over its chunk of keys: `out` becomes one state of
    /// [`attn_state_len`] floats per row. Slots that no row sees are not used, whatever they hold.
    ///
    /// # Panics
    ///
    /// If the tile's shapes do not agree, `scratch` is shorter than [`attn_scratch_len`], or `out`
    /// is not `rows * attn_state_len` long.
    pub fn attend_chunk(&self, tile: &AttnTile<'_>, scratch: &mut [f32], out: &mut [f32]) {
        use KvPages::{Bf16, F16, F32, Q4_0, Q8_0};
        check_room(tile, scratch, out);
        /// Of keys and values of one type in one go.
        macro_rules! of_type {
            ($call:ident, $q:ident, $k:ident, $v:ident) => {
                call!(self.$call(&tile.over($q(tile), Some($k), Some($v), false), scratch, out))
            };
        }
        match (tile.keys, tile.values) {
            (F16(k), F16(v)) => of_type!(attend_chunk_f16, floats, k, v),
            (Bf16(k), Bf16(v)) => of_type!(attend_chunk_bf16, floats, k, v),
            (F32(k), F32(v)) => of_type!(attend_chunk_f32, floats, k, v),
            (Q8_0(k), Q8_0(v)) => of_type!(attend_chunk_q8_0, quants, k, v),
            (Q4_0(k), Q4_0(v)) => of_type!(attend_chunk_q4_0, quants, k, v),
            _ => self.attend_two_types(tile, scratch, out),
        }
    }

    /// Of keys of one type and values of another: the same work in two goes.
    fn attend_two_types(&self, tile: &AttnTile<'_>, scratch: &mut [f32], out: &mut [f32]) {
        macro_rules! weigh {
            ($call:ident, $q:ident, $k:ident) => {
                call!(self.$call(&tile.over($q(tile), Some($k), None, false), scratch, out))
            };
        }
        macro_rules! sum {
            ($call:ident, $v:ident) => {
                call!(self.$call(&tile.over(none(tile), None, Some($v), false), scratch, out))
            };
        }
        match tile.keys {
            KvPages::F16(k) => weigh!(weigh_chunk_f16, floats, k),
            KvPages::Bf16(k) => weigh!(weigh_chunk_bf16, floats, k),
            KvPages::F32(k) => weigh!(weigh_chunk_f32, floats, k),
            KvPages::Q8_0(k) => weigh!(weigh_chunk_q8_0, quants, k),
            KvPages::Q4_0(k) => weigh!(weigh_chunk_q4_0, quants, k),
        }
        match tile.values {
            KvPages::F16(v) => sum!(sum_chunk_f16, v),
            KvPages::Bf16(v) => sum!(sum_chunk_bf16, v),
            KvPages::F32(v) => sum!(sum_chunk_f32, v),
            KvPages::Q8_0(v) => sum!(sum_chunk_q8_0, v),
            KvPages::Q4_0(v) => sum!(sum_chunk_q4_0, v),
        }
    }

    /// [`Kernels::attend_chunk`] of keys that are the values too: the tile's pages of values do not count, and the
    /// bits are those that it would give if every key had been stored as a value as well.
    ///
    /// # Panics
    ///
    /// As that, or if `turned` is shorter than the pages of keys.
    pub fn attend_latents(
        &self,
        tile: &AttnTile<'_>,
        turned: &mut [f32],
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        check_room(tile, scratch, out);
        macro_rules! of_type {
            ($call:ident, $q:ident, $k:ident) => {{
                let tile = &tile.over($q(tile), Some($k), None, true);
                call!(self.$call(tile, room(turned, $k), scratch, out))
            }};
        }
        match tile.keys {
            KvPages::F16(k) => of_type!(attend_latents_f16, floats, k),
            KvPages::Bf16(k) => of_type!(attend_latents_bf16, floats, k),
            KvPages::F32(k) => of_type!(attend_latents_f32, floats, k),
            KvPages::Q8_0(k) => of_type!(attend_latents_q8_0, quants, k),
            KvPages::Q4_0(k) => of_type!(attend_latents_q4_0, quants, k),
        }
    }

    /// Joins two states of each query row: `acc` over the keys to the left, `part` over those to
    /// their right.
    ///
    /// # Panics
    ///
    /// If they are not both a multiple of [`attn_state_len`] long, and the same.
    pub fn attn_merge(&self, acc: &mut [f32], part: &[f32], head_dim: usize) {
        let state = attn_state_len(head_dim);
        assert!(acc.len().is_multiple_of(state), "{} floats for states of {state}", acc.len());
        same_len(&[acc.len(), part.len()]);
        check_state(&acc[..state.min(acc.len())], head_dim);
        call!(self.attn_merge(acc, part, head_dim));
    }

    /// Joins the states of one query row, from the first to the last, and finishes it: the bits of
    /// [`Kernels::attn_merge`] and [`Kernels::attn_finish`]. `out`: `[head_dim]`.
    ///
    /// # Panics
    ///
    /// If there is no state, or one is not [`attn_state_len`] or `out` not `head_dim` long.
    pub fn attn_fold(&self, parts: Rows<'_, f32>, head_dim: usize, sink: f32, out: &mut [f32]) {
        check_state(parts.row(0), head_dim);
        same_len(&[out.len(), head_dim]);
        call!(self.attn_fold(parts, head_dim, sink, out));
    }

    /// The attention of a row whose chunks are all joined. `out`: `[head_dim]`.
    ///
    /// `sink` is a score beside those of the keys, which takes its share of the softmax and has no value
    /// (attention sinks, Xiao et al. 2023, learned as in gpt-oss). Without one it is -∞.
    ///
    /// # Panics
    ///
    /// If `state` is not [`attn_state_len`] or `out` not `head_dim` long.
    pub fn attn_finish(&self, state: &[f32], head_dim: usize, sink: f32, out: &mut [f32]) {
        check_state(state, head_dim);
        same_len(&[out.len(), head_dim]);
        call!(self.attn_finish(state, head_dim, sink, out));
    }
}

#[track_caller]
fn check_state(state: &[f32], head_dim: usize) {
    assert!(head_dim.is_multiple_of(LANES), "head_dim {head_dim} is not a multiple of {LANES}");
    let len = attn_state_len(head_dim);
    assert!(state.len() == len, "a state of {} floats, not {len}", state.len());
}
