//! Gemma 2 (arXiv:2408.00118): norms before and after each block, GELU, an embedding that is scaled and
//! serves as the head, scores and logits that are bent to stay below caps, and a sliding window in
//! every other layer. RoPE of the half-split form. Files' norm weights have the one that is added to
//! them.

use crate::blocks::{Ffn, Norms, Style, attention, feed_forward, logits, vocab};
use crate::rope::rope;
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Activation, Builder, RopeStyle};

/// What published models have, where a file does not state it.
const WINDOW: usize = 4096;
const CAPS: [f32; 2] = [50.0, 30.0];

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    const SCORES: &str = "attn_logit_softcapping";
    const LOGITS: &str = "final_logit_softcapping";
    const WINDOWS: [&str; 2] = ["attention.sliding_window", "attention.sliding_window_pattern"];
    h.only(gguf, &[SCORES, LOGITS, WINDOWS[0], WINDOWS[1]])?;
    let rope = b.rope(rope(gguf, h, RopeStyle::Neox)?);
    let windowed = h.windowed(gguf, 2)?;
    let global = Style {
        attention_scale: attention_scale(h, 46),
        soft_cap: h.cap(gguf, SCORES, Some(CAPS[0]))?,
        norms: Norms::Both,
        ffn: Ffn::Gated(Activation::Gelu),
        ..Style::plain(h, rope)
    };
    let local = Style { window: Some(h.window.unwrap_or(WINDOW)), ..global };
    let (embedding, head) = vocab(b, h)?;

    let mut x = b.embed(embedding, (h.hidden as f32).sqrt()); // [tokens, hidden]
    for (layer, windowed) in windowed.into_iter().enumerate() {
        b.layer(Some(layer));
        let style = if windowed { &local } else { &global };
        x = attention(b, h, style, layer, x)?;
        x = feed_forward(b, h, style, layer, x)?;
    }
    b.layer(None);
    logits(b, h, &global, x, head, (1.0, h.cap(gguf, LOGITS, Some(CAPS[1]))?))?;
    Ok(())
}

/// The largest model, which has `layers` layers, scales queries by the width of the residual stream
/// per head, the others by that of a head. Files do not state it.
pub(crate) fn attention_scale(h: &Hparams, layers: usize) -> f32 {
    let width = if h.layers == layers { h.hidden / h.heads } else { h.head_dim };
    (width as f32).sqrt().recip()
}
