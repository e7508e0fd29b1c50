//! Attention over keys that are the values too, and stored once: the latents of multi-head latent attention.
//!
//! Scores want the elements of 16 keys beside each other, and sums of values those of one key. Pages are
//! stored for scores; behind the scores of a chunk, while its pages are near, what values want is made of them
//! for all rows. The bits are those of keys and values that are stored apart.

use super::{Cell, KV_CHUNK, KV_PAGE, Tile, in_groups, softmax_weights, weighted_values};
use crate::simd::Simd;

/// [`super::attend_chunk`] of a tile without pages of values, which are made in `turned`: a chunk of pages.
#[inline(always)]
pub(crate) fn attend_latents<S: Simd, C: Cell>(
    s: S,
    t: &Tile<'_, C>,
    turned: &mut [C::Unit],
    scratch: &mut [f32],
    out: &mut [f32],
) {
    let rows = t.limits.len();
    in_groups!(S, rows, r => softmax_weights(s, t, r, &mut scratch[r * KV_CHUNK..], out));
    let longest = t.limits.iter().max().map_or(0, |&limit| limit as usize);
    let mut pages = [&t.k_pages[0][..0]; KV_CHUNK / KV_PAGE];
    let mut rest = turned;
    for (page, keys) in pages.iter_mut().zip(&t.k_pages[..longest.div_ceil(KV_PAGE)]) {
        let (values, more) = rest.split_at_mut(keys.len());
        C::turn(s, t.head_dim, keys, values);
        (*page, rest) = (values, more);
    }
    let t = &Tile { v_pages: &pages, ..*t };
    in_groups!(S, rows, r => weighted_values(s, t, r, &mut scratch[r * KV_CHUNK..], out));
}
