//! OLMo 2 and 3, dense (arXiv:2501.00656): a block reads the residual stream as it is, and what it gives
//! goes through a norm before it is added; queries and keys have norms over all of their heads
//! together. RoPE of the half-split form. OLMo 3, of the same architecture in files, has a sliding
//! window in three of four layers, and stretches only the others to long contexts.

use crate::blocks::{Norms, Style, attention, feed_forward, logits, vocab};
use crate::rope::{local_rope, rope};
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Builder, NormOver, RopeStyle};

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.only(gguf, &["attention.sliding_window", "attention.sliding_window_pattern"])?;
    let ropes =
        [rope(gguf, h, RopeStyle::Neox)?, local_rope(gguf, h, RopeStyle::Neox, h.rope_theta)?];
    let [rope, local] = ropes.map(|rope| b.rope(rope));
    let windowed = h.windowed(gguf, 4)?;
    let qk_norms = Some(NormOver::Row);
    let global = Style { norms: Norms::Post, qk_norms, ..Style::plain(h, rope) };
    let local = Style { rope: Some(local), window: h.window, ..global };
    let (embedding, head) = vocab(b, h)?;

    let mut x = b.embed(embedding, 1.0); // [tokens, hidden]
    for (layer, windowed) in windowed.into_iter().enumerate() {
        b.layer(Some(layer));
        // OLMo 2 has no window and one kind of layers.
        let style = if windowed && h.window.is_some() { &local } else { &global };
        x = attention(b, h, style, layer, x)?;
        x = feed_forward(b, h, style, layer, x)?;
    }
    b.layer(None);
    logits(b, h, &global, x, head, (1.0, None))?;
    Ok(())
}
