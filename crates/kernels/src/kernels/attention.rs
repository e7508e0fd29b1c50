//! Attention, and the cache that it reads.

use super::{Kernels, same_len};
use crate::acts::{elements, q8_row_bytes};
use crate::attention::{AttnTile, KvPageMut, KvPages, PageUnit, attn_scratch_len, attn_state_len};
use crate::q8::Q8Block;
use crate::simd::LANES;
use crate::views::Rows;

/// The entry point for the type that a tile's pages are of: how queries are given; the tile over that type, with
/// its values or `without`; its pages of keys.
macro_rules! by_type {
    (@ with $v:ident) => { Some($v) };
    (@ without $v:ident) => {{ let _ = $v; None }};
    ($values:ident $tile:ident, $($kv:ident($queries:ident): $t:ident, $k:pat => $call:expr,)*) => {
        match $tile.pages {
            $(KvPages::$kv { q, k, v } => {
                let ($t, $k) = (&$tile.over($queries(q, $tile), k, by_type!(@ $values v)), k);
                $call;
            })*
        }
    };
}

/// Queries as they are.
fn floats<'a>(q: &'a [f32], tile: &AttnTile<'_>) -> Rows<'a, f32> {
    Rows::new(q, tile.rows, tile.head_dim, tile.head_dim)
}

/// Queries in 8 bits.
fn quants<'a>(q: &'a [u8], tile: &AttnTile<'_>) -> Rows<'a, Q8Block> {
    let bytes = q8_row_bytes(tile.head_dim);
    elements(Rows::new(q, tile.rows, bytes, bytes))
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
        check_room(tile, scratch, out);
        by_type!(with tile,
            F16(floats): t, _ => call!(self.attend_chunk_f16(t, scratch, out)),
            Bf16(floats): t, _ => call!(self.attend_chunk_bf16(t, scratch, out)),
            F32(floats): t, _ => call!(self.attend_chunk_f32(t, scratch, out)),
            Q8_0(quants): t, _ => call!(self.attend_chunk_q8_0(t, scratch, out)),
            Q4_0(quants): t, _ => call!(self.attend_chunk_q4_0(t, scratch, out)),
        );
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
        by_type!(without tile,
            F16(floats): t, k => call!(self.attend_latents_f16(t, room(turned, k), scratch, out)),
            Bf16(floats): t, k => call!(self.attend_latents_bf16(t, room(turned, k), scratch, out)),
            F32(floats): t, k => call!(self.attend_latents_f32(t, room(turned, k), scratch, out)),
            Q8_0(quants): t, k => call!(self.attend_latents_q8_0(t, room(turned, k), scratch, out)),
            Q4_0(quants): t, k => call!(self.attend_latents_q4_0(t, room(turned, k), scratch, out)),
        );
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
