//! Gemma 2 (arXiv:2408.00118): norms before and after each block, GELU, an embedding that is scaled and
//! serves as the head, scores and logits that are bent to stay below caps, and a sliding window in
//! every other layer. RoPE of the half-split form. Files' norm weights have the one that is added to
//! them.

use crate::page::*;

/// A scale of scores other than the usual one.
pub(crate) const SCALE: &str = "attention.scale";

/// What published models have, where a file does not state it.
const USUAL_WINDOW: usize = 4096;
const USUAL_CAPS: [f32; 2] = [50.0, 30.0];

pub(crate) fn build(b: &mut Builder<'_>, f: &Facts<'_>) -> Result<(), Error> {
    const SCORES: &str = "attn_logit_softcapping";
    const LOGITS: &str = "final_logit_softcapping";
    f.only(&[SCORES, LOGITS, WINDOW, WINDOW_PATTERN, SCALE])?;
    let rope = rope(b, f, RopeStyle::Neox)?;
    let global = Style {
        attention_scale: attention_scale(f, 46)?,
        soft_cap: f.cap(SCORES, Some(USUAL_CAPS[0]))?,
        norms: Norms::Both,
        ffn: Ffn::Gated(Activation::Gelu),
        ..Style::plain(f, rope)
    };
    let local = Style { window: Some(f.window.unwrap_or(USUAL_WINDOW)), ..global };
    Decoder {
        embedding_scale: (f.hidden as f32).sqrt(),
        logit_cap: f.cap(LOGITS, Some(USUAL_CAPS[1]))?,
        ..Decoder::windowed(f, 2, local, global)?
    }
    .build(b, f)
}

/// The scale of scores that a file states. Otherwise the largest model, which has `layers` layers, scales queries by the
/// width of the residual stream per head, the others by that of a head.
///
/// # Errors
/// When the file states no number, or zero.
pub(crate) fn attention_scale(f: &Facts<'_>, layers: usize) -> Result<f32, Error> {
    let width = if f.layers == layers { f.hidden / f.heads } else { f.head_dim };
    Ok(f.factor(SCALE)?.unwrap_or_else(|| (width as f32).sqrt().recip()))
}
