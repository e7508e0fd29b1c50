//! SmolLM3: Llama without positions in every fourth layer (NoPE, arXiv:2501.18795). That it is every
//! fourth is part of the architecture; files do not state it. Rows of Q and K are permuted for the
//! interleaved form of RoPE, in all layers. SmolLM2 is a Llama.

use crate::blocks::{Style, attention, feed_forward, logits, vocab};
use crate::rope::rope;
use crate::{Error, Hparams};
use gguf::Gguf;
use graph::{Builder, RopeStyle};

/// The last of so many layers goes without RoPE.
const PERIOD: usize = 4;

pub(crate) fn build(b: &mut Builder<'_>, h: &Hparams, gguf: &Gguf<'_>) -> Result<(), Error> {
    h.only(gguf, &[])?;
    let rope = b.rope(rope(gguf, h, RopeStyle::Normal)?);
    let rotated = Style::plain(h, rope);
    let unrotated = Style { rope: None, ..rotated };
    let (embedding, head) = vocab(b, h)?;

    let mut x = b.embed(embedding, 1.0); // [tokens, hidden]
    for layer in 0..h.layers {
        b.layer(Some(layer));
        let style = if (layer + 1) % PERIOD == 0 { &unrotated } else { &rotated };
        x = attention(b, h, style, layer, x)?;
        x = feed_forward(b, h, style, layer, x)?;
    }
    b.layer(None);
    logits(b, h, &rotated, x, head, (1.0, None))?;
    Ok(())
}
