//! Gemma 3, text (arXiv:2503.19786): as Gemma 2, with a norm on every query and key head instead of a
//! cap on scores, and five layers with a sliding window to each without. Those have angles of their
//! own; only the others are stretched to long contexts.

use crate::blocks::{Ffn, Norms, Style, attention, feed_forward, logits, vocab};
use crate::gemma2::attention_scale;
use crate::rope::{local_rope, rope};
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Activation, Builder, NormOver, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    const LOGITS: &str = "final_logit_softcapping";
    const WINDOWS: [&str; 2] = ["attention.sliding_window", "attention.sliding_window_pattern"];
    h.only(gguf, &[LOGITS, WINDOWS[0], WINDOWS[1]])?;
    let ropes = [rope(gguf, h, RopeStyle::Neox)?, local_rope(gguf, h, RopeStyle::Neox, 10_000.0)?];
    let [rope, local] = ropes.map(|rope| b.rope(rope));
    let windowed = h.windowed(gguf, 6)?;
    let global = Style {
        attention_scale: attention_scale(h, 62),
        qk_norms: Some(NormOver::Head),
        norms: Norms::Both,
        ffn: Ffn::Gated(Activation::Gelu),
        ..Style::plain(h, rope)
    };
    let local = Style { rope: Some(local), window: h.window, ..global };
    let (embedding, head) = vocab(b, h)?;

    let mut x = b.embed(embedding, (h.hidden as f32).sqrt()); // [tokens, hidden]
    for (layer, windowed) in windowed.into_iter().enumerate() {
        b.layer(Some(layer));
        // A file without a window has one kind of layers.
        let style = if windowed && h.window.is_some() { &local } else { &global };
        x = attention(b, h, style, layer, x)?;
        x = feed_forward(b, h, style, layer, x)?;
    }
    b.layer(None);
    logits(b, h, &global, x, head, (1.0, h.cap(gguf, LOGITS, None)?))?;
    Ok(())
}
